/* SPDX-License-Identifier: BSD-2-Clause */
#include "subject.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault.h"
#include "log.h"
#include "scratch.h"
#include "table.h"

char subject_directory[32] = "/var/tmp/test_repair.XXXXXX";
char subject_path[64];
static uint64_t random_state = 88172645463325252u;

unsigned char subject_model[SUBJECT_SPACE];
size_t subject_model_size;

unsigned char *subject_memory;

int subject_fd = -1;
struct ps_file subject_file;

size_t subject_below(size_t limit)
{
	return scratch_random(&random_state) % limit;
}

static void setup(void)
{
	ps_fault_clear();
	snprintf(subject_path, sizeof(subject_path), "%s/file", subject_directory);
	if (subject_memory == NULL)
		subject_memory = mmap(NULL, SUBJECT_SPACE + 4 * PAGE, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(subject_memory, MAP_FAILED);
	memset(subject_model, 0, sizeof(subject_model));
	subject_model_size = 0;
}

void subject_look(void)
{
	ck_assert_int_ge(subject_fd, 0);
	ck_assert_int_eq(ps_file_look(subject_fd, &subject_file), 0);
}

void subject_shut(void)
{
	if (subject_fd >= 0)
		close(subject_fd);
	subject_fd = -1;
}

static void teardown(void)
{
	ps_fault_clear();
	subject_shut();
	unlink(subject_path);
}

void subject_begin(int flags, size_t size)
{
	const int made = open(subject_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(made, 0);
	memset(subject_model, 0, sizeof(subject_model));
	for (size_t i = 0; i < size; i++)
		subject_model[i] = (unsigned char)scratch_random(&random_state);
	subject_model_size = size;
	ck_assert_int_eq(pwrite(made, subject_model, size, 0), (ssize_t)size);
	close(made);
	subject_shut();
	subject_fd = open(subject_path, flags | O_DIRECT | O_CLOEXEC);
	subject_look();
}

bool subject_is_demanding(const char *test)
{
	subject_begin(O_RDWR, 0);
	if (subject_file.is & PS_FILE_ASYNC)
		return true;
	pinned_skip(test, "the file system does not say what direct I/O demands");
	return false;
}

bool subject_has_usual_blocks(const char *test)
{
	if (!subject_is_demanding(test))
		return false;
	if (subject_file.offset_align == 512)
		return true;
	pinned_skip(test, "blocks are not of 512 bytes");
	return false;
}

size_t subject_read_all(int flags, unsigned char got[SUBJECT_SPACE + PAGE])
{
	char name[48];
	size_t length = 0;
	ssize_t part;
	int own;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", subject_fd);
	own = open(name, O_RDONLY | O_CLOEXEC | flags);
	ck_assert_int_ge(own, 0);
	while ((part = pread(own, got + length, SUBJECT_SPACE + PAGE - length, (off_t)length)) > 0)
		length += (size_t)part;
	ck_assert_int_eq(part, 0);
	close(own);
	return length;
}

size_t subject_file_size(void)
{
	struct stat status;

	ck_assert_int_eq(fstat(subject_fd, &status), 0);
	return (size_t)status.st_size;
}

void subject_agree(void)
{
	static unsigned char got[SUBJECT_SPACE + 2 * PAGE] __attribute__((aligned(PAGE)));

	if (subject_file.is & PS_FILE_PLAIN)
		ck_assert_uint_eq(subject_file_size(), subject_model_size);
	for (int turn = 0; turn < 3; turn++) {
		ck_assert_uint_eq(subject_read_all(turn == 1 ? 0 : O_DIRECT, got),
				  subject_model_size);
		for (size_t i = 0; i < subject_model_size; i++)
			if (got[i] != subject_model[i])
				ck_abort_msg("byte %zu is %d, not %d", i, got[i], subject_model[i]);
	}
}

/* Cuts memory into parts, some of them empty. */
static unsigned cut(unsigned char *from, size_t length, struct iovec *part, unsigned most)
{
	unsigned parts = 0;

	while (parts < most - 1) {
		size_t bytes = subject_below(4) == 0 ? 0 : subject_below(length + 1);

		if (subject_below(2) == 0)
			bytes &= ~(size_t)511;
		part[parts++] = (struct iovec){ from, bytes };
		from += bytes;
		length -= bytes;
	}
	part[parts++] = (struct iovec){ from, length };
	return parts;
}

struct ps_transfer subject_transfer(struct iovec *part, unsigned parts, bool write, size_t offset,
				    size_t length)
{
	return (struct ps_transfer){ .part = part,
				     .parts = parts,
				     .write = write,
				     .fd = subject_fd,
				     .offset = offset,
				     .length = length };
}

void subject_model_write(size_t offset, const unsigned char *from, size_t length)
{
	if (length == 0)
		return;
	memcpy(subject_model + offset, from, length);
	if (offset + length > subject_model_size)
		subject_model_size = offset + length;
}

static size_t model_read(size_t offset, size_t length)
{
	if (offset >= subject_model_size)
		return 0;
	return length < subject_model_size - offset ? length : subject_model_size - offset;
}

int64_t subject_bounce(const struct ps_transfer *transfer)
{
	struct ps_bounce request;
	int64_t done;

	ck_assert_int_eq(ps_bounce_begin(&request, &subject_file, transfer), 0);
	ck_assert_uint_eq(request.offset % subject_file.offset_align, 0);
	ck_assert_uint_eq(request.length % subject_file.offset_align, 0);
	ck_assert_uint_eq((uintptr_t)request.buffer.memory % subject_file.memory_align, 0);
	done = transfer->write ? pwrite(subject_fd, request.buffer.memory, request.length,
					(off_t)request.offset)
			       : pread(subject_fd, request.buffer.memory, request.length,
				       (off_t)request.offset);
	return ps_bounce_end(&request, done < 0 ? -errno : done);
}

static int64_t carry_out(const struct ps_transfer *transfer, bool by_bounce)
{
	if (by_bounce && ps_repair_is_bounce(&subject_file, transfer))
		return subject_bounce(transfer);
	return ps_repair_now(&subject_file, transfer);
}

void subject_check_write(size_t offset, size_t length, size_t skew, unsigned most, bool by_bounce)
{
	unsigned char *from = subject_memory + PAGE + skew;
	struct iovec part[8];
	struct ps_transfer transfer;

	for (size_t i = 0; i < length; i++)
		from[i] = (unsigned char)scratch_random(&random_state);
	transfer = subject_transfer(part, cut(from, length, part, most), true, offset, length);
	ck_assert_int_eq(carry_out(&transfer, by_bounce), (int64_t)length);
	subject_model_write(offset, from, length);
}

static bool is_filled(const unsigned char *from, const unsigned char *to)
{
	while (from < to && *from == 0xa5)
		from++;
	return from == to;
}

void subject_check_read(size_t offset, size_t length, size_t skew, unsigned most, bool by_bounce)
{
	unsigned char *to = subject_memory + PAGE + skew;
	const size_t expected = model_read(offset, length);
	struct iovec part[8];
	struct ps_transfer transfer = subject_transfer(part, cut(to, length, part, most), false,
						       offset, length);

	memset(subject_memory, 0xa5, length + 3 * PAGE);
	ck_assert_int_eq(carry_out(&transfer, by_bounce), (int64_t)expected);
	ck_assert_int_eq(memcmp(to, subject_model + offset, expected), 0);
	/* Nothing but what was asked for is touched; of that, direct I/O reads zeros after the end. */
	ck_assert(is_filled(subject_memory, to));
	ck_assert(is_filled(to + length, to + length + PAGE));
}

size_t subject_length(void)
{
	static const size_t most[] = { 8, 600, 5000, 20 * KIB, 200 * KIB };
	const size_t length = 1 + subject_below(most[subject_below(5)]);

	return subject_below(4) == 0 ? (length + 511) & ~(size_t)511 : length;
}

size_t subject_offset(size_t length)
{
	const size_t offset = subject_below(SUBJECT_SPACE - length + 1);

	switch (subject_below(4)) {
	case 0: /* at the end of the file, or near it */
		return subject_model_size + length > SUBJECT_SPACE
			       ? offset
			       : subject_model_size - subject_below(subject_model_size + 1) % 700;
	case 1:
		return offset & ~(size_t)511;
	default:
		return offset;
	}
}

size_t subject_skew(void)
{
	return subject_below(2) == 0 ? 0 : subject_below(PAGE);
}

void subject_any_transfers(int turns, bool readable, bool writable)
{
	for (int turn = 0; turn < turns; turn++) {
		const size_t length = subject_length(), offset = subject_offset(length);
		const unsigned most = (unsigned)subject_below(8) + 1;

		if (writable && (!readable || subject_below(2) == 0))
			subject_check_write(offset, length, subject_skew(), most,
					    subject_below(2) == 0);
		else
			subject_check_read(offset, length, subject_skew(), most,
					   subject_below(2) == 0);
	}
	subject_agree();
}

const struct subject_way subject_ways[SUBJECT_WAYS] = {
	{ "new", O_RDWR, 0, 0, false },
	{ "new, only to write", O_WRONLY, 0, 0, false },
	{ "old", O_RDWR, 300003, 0, false },
	{ "old, only to write", O_WRONLY, 300003, 0, false },
	{ "whole", O_WRONLY, SUBJECT_SPACE, 0, false },
	{ "sparse", O_RDWR, 5000, 500001, false },
	{ "sparse, only to write", O_WRONLY, 5000, 500001, false },
	{ "without a name", O_RDWR, 100, 0, true },
	{ "without a name, only to write", O_WRONLY, 100, 0, true },
	{ "synchronous", O_WRONLY | O_SYNC, 10000, 0, false },
	{ "synchronous data", O_RDWR | O_DSYNC, 10000, 0, false },
};

void subject_begin_way(const struct subject_way *way)
{
	subject_begin(way->flags, way->size);
	if (way->grown > 0) {
		ck_assert_int_eq(truncate(subject_path, (off_t)way->grown), 0);
		subject_model_size = way->grown;
	}
	if (way->unlinked)
		unlink(subject_path);
}

int subject_main(const char *name, void (*add)(TCase *tcase))
{
	static char tables[] = "/tmp/test_repair.XXXXXX";
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner;
	int failed;

	if (!mkdtemp(subject_directory) || !mkdtemp(tables))
		return 1;
	ps_table_directory = tables;
	ps_log_level = PS_LOG_ERROR;
	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	add(tcase);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	ps_table_close();
	rmdir(tables);
	rmdir(subject_directory);
	return failed != 0;
}
