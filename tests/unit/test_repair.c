/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Misaligned direct I/O on real files: what needs it, and every byte of it against a model, on files open
 * in every way, at every end.
 */
#include "subject.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"
#include "loop.h"
#include "os.h"

/* Needed or not, against what the kernel says to the very same request. */
START_TEST(needed_is_what_the_kernel_refuses)
{
	static const size_t skews[] = { 0, 1, 4, 8, 64, 256, 511, 512, 4096 };
	static const size_t offsets[] = { 0, 1, 256, 511, 512, 1536, 4096 };
	static const size_t lengths[] = { 1, 256, 511, 512, 513, 4096, 4100, 8192 };

	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_RDWR, 100000);
	for (size_t i = 0; i < sizeof(skews) / sizeof(skews[0]); i++)
		for (size_t j = 0; j < sizeof(offsets) / sizeof(offsets[0]); j++)
			for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
				struct iovec part = { subject_memory + skews[i], lengths[k] };
				struct ps_transfer transfer = subject_transfer(
					&part, 1, false, offsets[j], lengths[k]);
				const ssize_t got = pread(subject_fd, subject_memory + skews[i],
							  lengths[k], (off_t)offsets[j]);

				const bool refused = got < 0 && errno == EINVAL;

				/* Some kernels are lenient about memory, whatever they say. */
				if (ps_repair_needed(&subject_file, &transfer) != refused &&
				    (refused || skews[i] % subject_file.memory_align == 0))
					ck_abort_msg("skew %zu offset %zu length %zu: %zd",
						     skews[i], offsets[j], lengths[k], got);
			}
}
END_TEST

START_TEST(needed_for_vectors)
{
	struct iovec part[3] = { { subject_memory, 512 },
				 { subject_memory + 1000, 0 },
				 { subject_memory + 4096, 1024 } };
	struct ps_transfer transfer;

	if (!subject_has_usual_blocks(__func__))
		return;
	transfer = subject_transfer(part, 3, false, 0, 1536);
	ck_assert(!ps_repair_needed(&subject_file, &transfer));
	part[1].iov_len = 512;
	transfer.length = 2048;
	ck_assert(ps_repair_needed(&subject_file, &transfer));
	part[1].iov_base = subject_memory + 2048;
	ck_assert(!ps_repair_needed(&subject_file, &transfer));
	transfer.offset = 100;
	ck_assert(ps_repair_needed(&subject_file, &transfer));
	transfer.length = 0;
	ck_assert(!ps_repair_needed(&subject_file, &transfer));
	transfer.length = 2048;
	transfer.flags = 0x40; /* RWF_ATOMIC: the kernel is to say no */
	ck_assert(!ps_repair_needed(&subject_file, &transfer));
	transfer.flags = RWF_HIPRI | RWF_DSYNC | RWF_NOWAIT;
	ck_assert(ps_repair_needed(&subject_file, &transfer));
	subject_file.is &= ~PS_FILE_DIRECT;
	ck_assert(!ps_repair_needed(&subject_file, &transfer));
}
END_TEST

START_TEST(which_can_be_one_request)
{
	struct iovec part = { subject_memory + 1, 1024 };
	struct ps_transfer transfer;

	if (!subject_has_usual_blocks(__func__))
		return;
	transfer = subject_transfer(&part, 1, true, 512, 1024);
	ck_assert(ps_repair_is_bounce(&subject_file, &transfer));
	transfer.length = 1023;
	ck_assert(!ps_repair_is_bounce(&subject_file, &transfer));
	transfer.write = false;
	ck_assert(ps_repair_is_bounce(&subject_file, &transfer));
	transfer.length = PS_BOUNCE_LONGEST + 1;
	ck_assert(!ps_repair_is_bounce(&subject_file, &transfer));
	transfer.length = 512;
	transfer.write = true;
	transfer.flags = RWF_APPEND;
	ck_assert(!ps_repair_is_bounce(&subject_file, &transfer));
	transfer.flags = 0;
	subject_file.is &= ~PS_FILE_ASYNC;
	ck_assert(!ps_repair_is_bounce(&subject_file, &transfer));
}
END_TEST

START_TEST(reads)
{
	static const size_t sizes[] = {
		1, 511, 512, 513, 4096, 70000, 600 * KIB - 13, SUBJECT_SPACE
	};

	if (!subject_is_demanding(__func__))
		return;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		subject_begin(O_RDONLY, sizes[i]);
		subject_any_transfers(100, true, false);
		for (size_t back = 0; back < 3; back++)
			for (size_t length = 1; length < 5000; length += 511) {
				const size_t offset = sizes[i] > back ? sizes[i] - back : 0;

				subject_check_read(offset, length, back, 1, false);
				subject_check_read(offset, length, back, 1, true);
			}
	}
}
END_TEST

START_TEST(writes)
{
	const struct subject_way *way = &subject_ways[_i];

	if (!subject_is_demanding(__func__))
		return;
	subject_begin_way(way);
	subject_any_transfers(150, way->flags & O_RDWR, true);
}
END_TEST

START_TEST(temporary_file)
{
	subject_fd = open(subject_directory, O_TMPFILE | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600);
	subject_look();
	subject_any_transfers(100, false, true);
}
END_TEST

/* Only where the first and the last byte are in the block matters: all of a small file. */
START_TEST(writes_at_every_end)
{
	static const size_t sizes[] = { 0, 1, 300, 511, 512, 700, 1024, 1025 };

	if (!subject_is_demanding(__func__))
		return;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (size_t offset = 0; offset < 1100; offset += 1 + subject_below(300))
			for (size_t end = offset + 1; end < 2100; end += 1 + subject_below(700)) {
				subject_begin(subject_below(2) ? O_WRONLY : O_RDWR, sizes[i]);
				subject_check_write(offset, end - offset, subject_skew(), 1, false);
				subject_agree();
			}
}
END_TEST

START_TEST(what_deepspeed_writes)
{
	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_WRONLY, 0);
	subject_check_write(0, 600003, 0, 1, false);
	subject_agree();
	subject_begin(O_WRONLY, 0);
	subject_check_write(0, 600003, 64, 1, false);
	subject_agree();
}
END_TEST

/* A file system that takes every request as it is has nothing to be repaired. */
START_TEST(file_in_memory)
{
	struct iovec part = { subject_memory + 1, 1001 };
	struct ps_transfer transfer;

	subject_fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
	if (subject_fd < 0) {
		pinned_skip(__func__, "no O_DIRECT in /dev/shm");
		return;
	}
	subject_look();
	transfer = subject_transfer(&part, 1, true, 3, 1001);
	ck_assert(!ps_repair_needed(&subject_file, &transfer));
	subject_any_transfers(50, true, true);
}
END_TEST

/* Nor has one that does not say so, which is found out by asking it. */
START_TEST(file_system_that_does_not_say)
{
	if (!subject_is_demanding(__func__))
		return;
	ps_fault_set(PS_OS_STATX, 1, UINT_MAX, ENOSYS);
	subject_begin(O_RDWR, 300003);
	ck_assert_uint_eq(subject_file.is & PS_FILE_ASYNC, 0);
	subject_any_transfers(100, true, true);
	/* One that demands more than anybody knows goes through the page cache. */
	ps_fault_set(PS_OS_PREADV, 1, 2, EINVAL);
	subject_check_read(1, 100, 0, 1, false);
	ps_fault_set(PS_OS_PWRITEV, 1, 2, EINVAL);
	subject_check_write(1, 3000, 0, 1, false);
	subject_agree();
}
END_TEST

START_TEST(large_blocks)
{
	char device[64];
	int own;

	if (!loop_begin(__func__, subject_directory, SUBJECT_SPACE, 4096, device, sizeof(device)))
		return;
	own = open(device, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(own, 0);
	for (size_t i = 0; i < SUBJECT_SPACE; i++)
		subject_model[i] = (unsigned char)subject_below(256);
	subject_model_size = SUBJECT_SPACE;
	ck_assert_int_eq(pwrite(own, subject_model, SUBJECT_SPACE, 0), SUBJECT_SPACE);
	close(own);
	for (int turn = 0; turn < 2; turn++) {
		subject_fd = open(device, (turn ? O_WRONLY : O_RDWR) | O_DIRECT | O_CLOEXEC);
		subject_look();
		ck_assert_uint_eq(subject_file.offset_align, 4096);
		subject_any_transfers(150, turn == 0, true);
		subject_shut();
	}
	/* Over its end: short, and then no space. */
	subject_fd = open(device, O_WRONLY | O_DIRECT | O_CLOEXEC);
	subject_look();
	for (size_t past = 0; past < 2; past++) {
		struct iovec part = { subject_memory + PAGE, 9000 };
		struct ps_transfer transfer = subject_transfer(
			&part, 1, true, SUBJECT_SPACE - 5000 * !past + past, 9000);

		memset(subject_memory, 7, 20000);
		ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), past ? -ENOSPC : 5000);
		if (!past)
			memset(subject_model + SUBJECT_SPACE - 5000, 7, 5000);
	}
	subject_agree();
	subject_shut();
	loop_end();
}
END_TEST

START_TEST(appends)
{
	static const int flags[] = { 0, RWF_APPEND };

	if (!subject_is_demanding(__func__))
		return;
	for (int turn = 0; turn < 8; turn++) {
		subject_begin((turn & 1 ? O_RDWR : O_WRONLY) | (turn & 2 ? 0 : O_APPEND), 1000);
		/* Without being able to open it again, too. */
		if (turn & 4)
			ps_fault_set(PS_OS_OPEN, 1, UINT_MAX, EACCES);
		for (size_t length = 1; length < 2000; length += 333) {
			struct iovec part = { subject_memory + 1, length };
			struct ps_transfer transfer = subject_transfer(&part, 1, true, 5, length);

			transfer.flags = flags[turn & 2 ? 1 : 0];
			memset(subject_memory, (int)length, 3000);
			ck_assert(ps_repair_needed(&subject_file, &transfer));
			ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), (int64_t)length);
			subject_model_write(subject_model_size, subject_memory + 1, length);
		}
		ps_fault_clear();
		subject_agree();
	}
}
END_TEST

/* Whether an append is aligned is a matter of where the file ends. */
START_TEST(aligned_appends)
{
	struct iovec part = { subject_memory, 1024 };
	struct ps_transfer transfer;

	if (!subject_has_usual_blocks(__func__))
		return;
	subject_begin(O_WRONLY | O_APPEND, 4096);
	memset(subject_memory, 'a', 1024);
	transfer = subject_transfer(&part, 1, true, 512, 1024);
	ck_assert(!ps_repair_needed(&subject_file, &transfer));
	/* Some file systems look at the offset all the same. */
	transfer.offset = 77;
	ck_assert(ps_repair_needed(&subject_file, &transfer));
	ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), 1024);
	subject_model_write(4096, subject_memory, 1024);
	subject_agree();
	subject_begin(O_WRONLY | O_APPEND, 2000);
	transfer.offset = 512;
	transfer.fd = subject_fd;
	ck_assert(ps_repair_needed(&subject_file, &transfer));
}
END_TEST

/* Memory that is not there is the program's error, as it is with the kernel. */
START_TEST(wild_memory)
{
	unsigned char *wild = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec part = { wild + PAGE + 1, 1000 };
	struct ps_transfer transfer;
	struct ps_bounce request;

	ck_assert_ptr_ne(wild, MAP_FAILED);
	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_RDWR, 10000);
	ck_assert_int_eq(mprotect(wild + PAGE, PAGE, PROT_NONE), 0);
	ck_assert_int_eq(mprotect(wild + 2 * PAGE, PAGE, PROT_READ), 0);
	for (int write = 0; write < 2; write++) {
		transfer = subject_transfer(&part, 1, write, 512, 1000);
		part.iov_base = wild + PAGE + 1;
		ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), -EFAULT);
		part.iov_base = wild + 1;
		part.iov_len = transfer.length = 8192;
		ck_assert_int_lt(ps_repair_now(&subject_file, &transfer), 4096);
		part.iov_base = NULL;
		part.iov_len = transfer.length = 1000;
		ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), -EFAULT);
	}
	part = (struct iovec){ wild + PAGE + 1, 1024 };
	transfer = subject_transfer(&part, 1, true, 512, 1024);
	ck_assert_int_eq(ps_bounce_begin(&request, &subject_file, &transfer), -EFAULT);
	part.iov_base = wild + 2 * PAGE + 1;
	transfer = subject_transfer(&part, 1, false, 512, 1024);
	ck_assert_int_eq(subject_bounce(&transfer), -EFAULT);
	munmap(wild, 4 * PAGE);
}
END_TEST

START_TEST(bounce_that_fails_or_is_short)
{
	struct iovec part = { subject_memory + 1, 1000 };
	struct ps_transfer transfer;
	struct ps_bounce request;
	static const int64_t results[][2] = { { -EIO, -EIO }, { 0, 0 },       { 88, 0 },
					      { 100, 0 },     { 101, 1 },     { 612, 512 },
					      { 1099, 999 },  { 1100, 1000 }, { 1536, 1000 } };

	if (!subject_has_usual_blocks(__func__))
		return;
	subject_begin(O_RDONLY, 10000);
	transfer = subject_transfer(&part, 1, false, 612, 1000);
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		ck_assert_int_eq(ps_bounce_begin(&request, &subject_file, &transfer), 0);
		ck_assert_uint_eq(request.offset, 512);
		ck_assert_uint_eq(request.length, 1536);
		ck_assert_int_eq(ps_bounce_end(&request, results[i][0]), results[i][1]);
	}
	transfer = subject_transfer(&part, 1, true, 512, 1024);
	part.iov_len = 1024;
	ck_assert_int_eq(ps_bounce_begin(&request, &subject_file, &transfer), 0);
	ck_assert_int_eq(ps_bounce_end(&request, 512), 512);
}
END_TEST

/* A vector need not be kept until the request is complete. */
START_TEST(bounce_keeps_the_vector)
{
	struct iovec part[3] = { { subject_memory + 1, 100 },
				 { subject_memory + 300, 200 },
				 { subject_memory + 800, 300 } };
	struct ps_transfer transfer;
	struct ps_bounce request;
	int64_t done;

	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_RDONLY, 10000);
	transfer = subject_transfer(part, 3, false, 7, 600);
	ck_assert_int_eq(ps_bounce_begin(&request, &subject_file, &transfer), 0);
	memset(part, 0, sizeof(part));
	memset(&transfer, 0, sizeof(transfer));
	done = pread(subject_fd, request.buffer.memory, request.length, (off_t)request.offset);
	ck_assert_int_eq(ps_bounce_end(&request, done), 600);
	ck_assert_int_eq(memcmp(subject_memory + 1, subject_model + 7, 100), 0);
	ck_assert_int_eq(memcmp(subject_memory + 300, subject_model + 107, 200), 0);
	ck_assert_int_eq(memcmp(subject_memory + 800, subject_model + 307, 300), 0);
}
END_TEST

/* When the bounce buffers are used up, and when there is no memory at all. */
START_TEST(no_buffers)
{
	struct iovec part = { subject_memory + 1, 1000 };
	struct ps_transfer transfer;
	struct ps_bounce request;
	struct ps_buffer all;

	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_RDWR, 100003);
	ck_assert_int_eq(ps_buffer_get(&all, PS_BOUNCE_MAX), 0);
	transfer = subject_transfer(&part, 1, false, 1, 1000);
	ck_assert_int_eq(ps_bounce_begin(&request, &subject_file, &transfer), -ENOMEM);
	for (int turn = 0; turn < 50; turn++) {
		const size_t length = subject_length();

		subject_check_write(subject_offset(length), length, subject_skew(), 3, false);
		subject_check_read(subject_offset(length), length, subject_skew(), 3, false);
	}
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), -ENOMEM);
	ps_fault_clear();
	ps_buffer_put(&all);
	subject_agree();
}
END_TEST

/* A descriptor that became another file since it was looked at. */
START_TEST(stale_answers)
{
	struct iovec part = { subject_memory + 1, 100 };
	struct ps_transfer transfer;
	struct ps_file old;
	int pair[2], own;

	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_RDWR, 1000);
	old = subject_file;
	transfer = subject_transfer(&part, 1, true, 5, 100);
	own = open(subject_path, O_WRONLY | O_APPEND | O_DIRECT | O_CLOEXEC);
	ck_assert_int_eq(dup2(own, subject_fd), subject_fd);
	close(own);
	memset(subject_memory, 'x', 200);
	ck_assert_int_eq(ps_repair_now(&old, &transfer), 100);
	subject_model_write(subject_model_size, subject_memory + 1, 100);
	subject_agree();

	ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
	ck_assert_int_eq(dup2(pair[1], subject_fd), subject_fd);
	ck_assert_int_eq(ps_repair_now(&old, &transfer), -ESPIPE);
	transfer.write = false;
	ck_assert_int_eq(ps_repair_now(&old, &transfer), -ESPIPE);
	subject_shut();
	ck_assert_int_eq(ps_repair_now(&old, &transfer), -EBADF);
	close(pair[0]);
	close(pair[1]);
}
END_TEST

START_TEST(wrong_direction)
{
	struct iovec part = { subject_memory + 1, 100 };
	struct ps_transfer transfer;

	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_RDONLY, 1000);
	transfer = subject_transfer(&part, 1, true, 5, 100);
	ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), -EBADF);
	subject_begin(O_WRONLY, 1000);
	transfer = subject_transfer(&part, 1, false, 5, 100);
	ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), -EBADF);
	subject_agree();
}
END_TEST

static void add(TCase *tcase)
{
	tcase_add_test(tcase, needed_is_what_the_kernel_refuses);
	tcase_add_test(tcase, needed_for_vectors);
	tcase_add_test(tcase, which_can_be_one_request);
	tcase_add_test(tcase, reads);
	tcase_add_loop_test(tcase, writes, 0, SUBJECT_WAYS);
	tcase_add_test(tcase, temporary_file);
	tcase_add_test(tcase, writes_at_every_end);
	tcase_add_test(tcase, what_deepspeed_writes);
	tcase_add_test(tcase, file_in_memory);
	tcase_add_test(tcase, file_system_that_does_not_say);
	tcase_add_test(tcase, large_blocks);
	tcase_add_test(tcase, appends);
	tcase_add_test(tcase, aligned_appends);
	tcase_add_test(tcase, wild_memory);
	tcase_add_test(tcase, bounce_that_fails_or_is_short);
	tcase_add_test(tcase, bounce_keeps_the_vector);
	tcase_add_test(tcase, no_buffers);
	tcase_add_test(tcase, stale_answers);
	tcase_add_test(tcase, wrong_direction);
}

int main(void)
{
	return subject_main("repair", add);
}
