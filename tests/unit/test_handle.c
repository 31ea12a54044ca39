/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handle API: what operations come to, however they lie, and every way in which they fail.
 *
 * The files are on a real file system, for direct I/O demands something there.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config.h"
#include "counters.h"
#include "fault.h"
#include "log.h"
#include "pinned.h"
#include "pinshim_aio.h"
#include "scratch.h"
#include "start.h"
#include "table.h"

#define BLOCK (64 * KIB)
#define SIZE (4 * MIB) /* of the buffers */

static char directory[] = "/var/tmp/test_handle.XXXXXX";
static char path[64];
static struct pinshim_aio_handle *handle;
static struct pinshim_aio_result result;
static char *buffer; /* locked */
static char *expected;
static uint64_t seed = 1;

static struct pinshim_aio_handle *open_handle(unsigned depth, unsigned threads, bool single,
					      bool overlap)
{
	const struct pinshim_aio_options options = { BLOCK, depth, single, overlap, threads };
	struct pinshim_aio_handle *opened;

	ck_assert_int_eq(pinshim_aio_open(&options, sizeof(options), &opened), 0);
	return opened;
}

static void setup(void)
{
	ps_fault_clear();
	handle = open_handle(8, 2, false, true);
	memset(&result, 0x5a, sizeof(result));
	unlink(path);
}

static void teardown(void)
{
	ps_fault_clear();
	ck_assert_int_eq(pinshim_aio_close(handle), 0);
	handle = NULL;
}

static void begin(void)
{
	buffer = pinshim_aio_new_buffer(SIZE);
	expected = malloc(SIZE);
	ck_assert_ptr_nonnull(buffer);
}

static void end(void)
{
	ck_assert_int_eq(pinshim_aio_free_buffer(buffer), 0);
	free(expected);
	unlink(path);
}

/* A file of this length, as expected then is, too. */
static void make_file(size_t length)
{
	pinned_fill(expected, SIZE, seed++);
	scratch_write(path, expected, (long)length);
}

/* The file's length, and its contents in expected. */
static long read_file(void)
{
	return scratch_read(path, expected, SIZE);
}

static void expect_success(uint64_t offset, uint64_t length, uint64_t bytes, bool write)
{
	ck_assert_int_eq(result.error, 0);
	ck_assert_str_eq(result.reason, "");
	ck_assert_str_eq(result.file, path);
	ck_assert_uint_eq(result.offset, offset);
	ck_assert_uint_eq(result.length, length);
	ck_assert_uint_eq(result.bytes, bytes);
	ck_assert_uint_eq(result.write, write);
}

START_TEST(defaults)
{
	const struct pinshim_aio_options stated = PINSHIM_AIO_DEFAULTS;
	struct pinshim_aio_options options;
	struct pinshim_aio_handle *other;

	ck_assert_int_eq(pinshim_aio_open(NULL, 0, &other), 0);
	ck_assert_int_eq(pinshim_aio_get_options(other, &options, sizeof(options)), 0);
	ck_assert_mem_eq(&options, &stated, sizeof(options));
	ck_assert_int_eq(pinshim_aio_close(other), 0);
}
END_TEST

START_TEST(settings_of_an_older_program)
{
	const uint64_t block_size = 4096;
	struct pinshim_aio_options options = PINSHIM_AIO_DEFAULTS, got;
	struct pinshim_aio_handle *other;

	options.block_size = block_size;
	ck_assert_int_eq(pinshim_aio_open((const void *)&block_size, sizeof(block_size), &other),
			 0);
	ck_assert_int_eq(pinshim_aio_get_options(other, &got, sizeof(got)), 0);
	ck_assert_mem_eq(&options, &got, sizeof(got));
	ck_assert_int_eq(pinshim_aio_close(other), 0);
}
END_TEST

START_TEST(settings_out_of_range)
{
	static const struct pinshim_aio_options bad[] = {
		{ 0, 8, 0, 1, 1 },   { 1000, 8, 0, 1, 1 },    { (uint64_t)1 << 31, 8, 0, 1, 1 },
		{ 512, 0, 0, 1, 1 }, { 512, 32769, 0, 1, 1 }, { 512, 8, 2, 1, 1 },
		{ 512, 8, 0, 2, 1 }, { 512, 8, 0, 1, 0 },     { 512, 8, 0, 1, 1025 },
	};
	struct pinshim_aio_handle *other = handle;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(pinshim_aio_open(&bad[i], sizeof(bad[i]), &other), -EINVAL);
		ck_assert_ptr_null(other);
	}
	ck_assert_int_eq(pinshim_aio_open(&bad[0], 0, &other), -EINVAL);
	ck_assert_int_eq(pinshim_aio_open(&bad[0], sizeof(bad[0]) + 1, &other), -EINVAL);
	ck_assert_int_eq(pinshim_aio_open(NULL, 8, &other), -EINVAL);
	ck_assert_int_eq(pinshim_aio_open(NULL, 0, NULL), -EINVAL);
}
END_TEST

START_TEST(no_handle)
{
	ck_assert_int_eq(pinshim_aio_close(NULL), 0);
	ck_assert_int_eq(pinshim_aio_sync_pread(NULL, buffer, 1, path, 7, 0, &result), -EINVAL);
	ck_assert_int_eq(result.error, EINVAL);
	ck_assert_str_eq(result.file, path);
	ck_assert_uint_eq(result.bytes, 0);
	ck_assert_uint_eq(result.failed_offset, 7);
	ck_assert_int_eq(pinshim_aio_async_pwrite(NULL, buffer, 1, path, 0, 0), -EINVAL);
	ck_assert_int_eq(pinshim_aio_wait(NULL, 0, NULL, 0), -EINVAL);
	ck_assert_int_eq(pinshim_aio_poll(NULL, NULL, 0), -EINVAL);
	ck_assert_int_eq(pinshim_aio_wait_for(NULL, 1, NULL), -EINVAL);
	ck_assert_int_eq(pinshim_aio_cancel(NULL, 0), -EINVAL);
	ck_assert_uint_eq(pinshim_aio_transferred(NULL), 0);
}
END_TEST

START_TEST(read_whole_file)
{
	make_file(SIZE);
	memset(buffer, 0, SIZE);
	ck_assert_int_eq(pinshim_aio_sync_pread(handle, buffer, SIZE, path, 0, 0, &result),
			 (int64_t)SIZE);
	expect_success(0, SIZE, SIZE, false);
	ck_assert_int_eq(result.id, 0);
	ck_assert_mem_eq(buffer, expected, SIZE);
	ck_assert_uint_eq(pinshim_aio_transferred(handle), SIZE);
}
END_TEST

START_TEST(write_new_file)
{
	struct stat status;
	const mode_t mask = umask(0);

	pinned_fill(buffer, SIZE, seed);
	ck_assert_int_eq(pinshim_aio_sync_pwrite(handle, buffer, 1000003, path, 0, 0, &result),
			 1000003);
	umask(mask);
	expect_success(0, 1000003, 1000003, true);
	ck_assert_int_eq(read_file(), 1000003);
	ck_assert(pinned_filled(buffer, SIZE, seed++));
	ck_assert_mem_eq(buffer, expected, 1000003);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_uint_eq(status.st_mode & 07777, 0600);
}
END_TEST

START_TEST(write_never_shortens)
{
	make_file(SIZE);
	pinned_fill(buffer, SIZE, seed++);
	memcpy(expected + 4096, buffer, 8192);
	ck_assert_int_eq(pinshim_aio_sync_pwrite(handle, buffer, 8192, path, 4096, 0, NULL), 8192);
	memcpy(buffer, expected, SIZE);
	ck_assert_int_eq(read_file(), (long)SIZE);
	ck_assert_mem_eq(buffer, expected, SIZE);
}
END_TEST

START_TEST(nothing_to_do)
{
	int64_t id;

	make_file(100);
	ck_assert_int_eq(pinshim_aio_sync_pread(handle, NULL, 0, path, 50, 0, &result), 0);
	expect_success(50, 0, 0, false);
	id = pinshim_aio_async_pread(handle, buffer, 0, path, 0, PINSHIM_AIO_VALIDATE);
	ck_assert_int_gt(id, 0);
	ck_assert_int_eq(pinshim_aio_poll(handle, &result, 1), 1);
	ck_assert_int_eq(result.id, id);
	expect_success(0, 0, 0, false);
}
END_TEST

START_TEST(read_over_the_end)
{
	static const size_t length[] = { 0, 1, 511, 512, 4096, BLOCK - 1, BLOCK, 3 * BLOCK + 77 };

	for (size_t i = 0; i < sizeof(length) / sizeof(length[0]); i++) {
		make_file(length[i]);
		memset(buffer, 0x33, SIZE);
		ck_assert_int_eq(pinshim_aio_sync_pread(handle, buffer, SIZE, path, 0, 0, &result),
				 (int64_t)length[i]);
		expect_success(0, SIZE, length[i], false);
		ck_assert_mem_eq(buffer, expected, length[i]);
		ck_assert_int_eq(
			pinshim_aio_sync_pread(handle, buffer, BLOCK, path, SIZE, 0, &result), 0);
		expect_success(SIZE, BLOCK, 0, false);
	}
}
END_TEST

/* One operation that lies as it happens to, compared with pread(2). */
static void random_operation(struct pinshim_aio_handle *with, int fd, bool async)
{
	const bool write = scratch_random(&seed) % 2, by_path = scratch_random(&seed) % 2;
	const unsigned shift = scratch_random(&seed) % 3; /* how aligned it is */
	const uint64_t unit = shift == 0 ? 1 : shift == 1 ? 512 : 4096;
	const uint64_t offset = scratch_random(&seed) % (SIZE / 2 / unit) * unit;
	const uint64_t length = scratch_random(&seed) % (SIZE / 2 / unit) * unit;
	const uint64_t lead = scratch_random(&seed) % 2 ? 0 : scratch_random(&seed) % 4096;
	char *at = buffer + (lead + length < SIZE ? lead : 0);
	const uint32_t flags = scratch_random(&seed) % 8 ? 0 : PINSHIM_AIO_VALIDATE;
	int64_t id;

	pinned_fill(at, length, seed);
	if (write)
		memcpy(expected + offset, at, length);
	if (!async && write)
		id = by_path ? pinshim_aio_sync_pwrite(with, at, length, path, offset, flags,
						       &result)
			     : pinshim_aio_sync_pwrite_fd(with, at, length, fd, offset, flags,
							  &result);
	else if (!async)
		id = by_path ? pinshim_aio_sync_pread(with, at, length, path, offset, flags,
						      &result)
			     : pinshim_aio_sync_pread_fd(with, at, length, fd, offset, flags,
							 &result);
	else if (write)
		id = by_path ? pinshim_aio_async_pwrite(with, at, length, path, offset, flags)
			     : pinshim_aio_async_pwrite_fd(with, at, length, fd, offset, flags);
	else
		id = by_path ? pinshim_aio_async_pread(with, at, length, path, offset, flags)
			     : pinshim_aio_async_pread_fd(with, at, length, fd, offset, flags);
	if (async)
		id = pinshim_aio_wait_for(with, id, &result);
	ck_assert_msg(id == (int64_t)length, "%s at %lu, %lu bytes, memory at %lu: %ld: %s",
		      write ? "write" : "read", offset, length, (uintptr_t)at % 4096, id,
		      result.reason);
	ck_assert_mem_eq(at, expected + offset, length);
}

static void random_operations(unsigned depth, unsigned threads, bool single, bool overlap)
{
	struct pinshim_aio_handle *with = open_handle(depth, threads, single, overlap);
	int fd;

	make_file(SIZE);
	fd = open(path, O_RDWR | O_DIRECT);
	ck_assert_int_ge(fd, 0);
	for (unsigned i = 0; i < (SANITIZED ? 60 : 200); i++)
		random_operation(with, fd, i % 2);
	ck_assert_int_eq(pinshim_aio_close(with), 0);
	close(fd);
	memcpy(buffer, expected, SIZE);
	ck_assert_int_eq(read_file(), (long)SIZE);
	ck_assert_mem_eq(buffer, expected, SIZE);
}

START_TEST(any_length_and_alignment)
{
	random_operations(1, 1, false, true);
	random_operations(8, 1, false, true);
	random_operations(8, 1, false, false);
	random_operations(8, 3, true, true);
	random_operations(4, 2, true, false);
}
END_TEST

/* What the contexts have counted so far. */
static struct pinshim_aio counted(void)
{
	struct pinshim_aio sum;

	ps_count_aio_sum(ps_table(), &sum);
	return sum;
}

/* Only the ends that are no whole blocks go through bounce buffers, if the rest need not. */
START_TEST(unaligned_ends)
{
	static const struct {
		uint64_t offset, length, lead; /* lead: where in the buffer */
		uint64_t requests, bounced;
	} ways[] = {
		{ 0, 4 * BLOCK, 0, 4, 0 },       { 0, 3 * BLOCK + 4097, 0, 5, 1 },
		{ 100, 2 * BLOCK, 100, 4, 2 }, /* memory and file agree from 512 on */
		{ 100, 2 * BLOCK, 0, 3, 3 },     { 0, 2 * BLOCK, 4, 2, 2 },
		{ 4096, 2 * BLOCK, 4096, 3, 0 }, { 512, 100, 0, 1, 1 },
	};
	struct pinshim_aio_handle *one = open_handle(8, 1, false, true);
	struct pinshim_aio before, after;

	make_file(SIZE);
	if (pinshim_aio_alignment(path) != 512) {
		pinned_skip("unaligned_ends", "the file system's blocks are not of 512 bytes");
		ck_assert_int_eq(pinshim_aio_close(one), 0);
		return;
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		before = counted();
		ck_assert_int_eq(pinshim_aio_sync_pread(one, buffer + ways[i].lead, ways[i].length,
							path, ways[i].offset, 0, &result),
				 (int64_t)ways[i].length);
		after = counted();
		ck_assert_mem_eq(buffer + ways[i].lead, expected + ways[i].offset, ways[i].length);
		ck_assert_uint_eq(after.submitted - before.submitted, ways[i].requests);
		ck_assert_uint_eq(after.bounced - before.bounced, ways[i].bounced);
	}
	ck_assert_int_eq(pinshim_aio_close(one), 0);
}
END_TEST

/* Which a context would leave to the kernel's AIO, which does them one by one. */
START_TEST(writes_beyond_the_end)
{
	const bool ring = ps_config.aio <= PS_AIO_URING && ps_aio_ring_allowed();
	struct pinshim_aio before = counted(), after;

	make_file(BLOCK);
	ck_assert_int_eq(pinshim_aio_sync_pwrite(handle, buffer, SIZE - BLOCK, path, 0, 0, &result),
			 (int64_t)(SIZE - BLOCK));
	ck_assert_int_eq(
		pinshim_aio_sync_pwrite(handle, buffer, BLOCK, path, SIZE - BLOCK, 0, &result),
		(int64_t)BLOCK);
	after = counted();
	ck_assert_uint_eq(after.rings - before.rings, ring ? 2 : 0); /* one a thread */
	ck_assert_uint_eq(after.settled, before.settled);
	ck_assert_int_eq(read_file(), (long)SIZE);
	ck_assert_mem_eq(buffer, expected, SIZE - BLOCK);
	/* Where there is no space, or no such call, they are written all the same. */
	unlink(path);
	ps_fault_set(PS_OS_FALLOCATE, 1, UINT32_MAX, EOPNOTSUPP);
	ck_assert_int_eq(pinshim_aio_sync_pwrite(handle, buffer, SIZE, path, 0, 0, &result),
			 (int64_t)SIZE);
	ps_fault_clear();
	ck_assert_int_eq(read_file(), (long)SIZE);
	ck_assert_mem_eq(buffer, expected, SIZE);
}
END_TEST

START_TEST(file_that_is_not_direct)
{
	int fd;

	make_file(SIZE);
	fd = open(path, O_RDWR);
	ck_assert_int_eq(pinshim_aio_sync_pread_fd(handle, buffer + 3, 99999, fd, 77, 0, &result),
			 99999);
	ck_assert_mem_eq(buffer + 3, expected + 77, 99999);
	memset(result.file, 0, 10);
	ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), 0);
	memset(buffer, 7, SIZE);
	ck_assert_int_eq(pinshim_aio_sync_pwrite_fd(handle, buffer, SIZE - 99, fd, 99, 0, NULL),
			 (int64_t)SIZE - 99);
	memcpy(buffer, expected, 99);
	memset(buffer + 99, 7, SIZE - 99);
	ck_assert_int_eq(read_file(), (long)SIZE);
	ck_assert_mem_eq(expected, buffer, SIZE);
	close(fd);
}
END_TEST

START_TEST(result_names_the_descriptor)
{
	char name[128];
	int fd;

	make_file(10);
	fd = open(path, O_RDONLY);
	snprintf(name, sizeof(name), "descriptor %d %s", fd, path);
	ck_assert_int_eq(pinshim_aio_sync_pread_fd(handle, buffer, 10, fd, 0, 0, &result), 10);
	ck_assert_str_eq(result.file, name);
	close(fd);
}
END_TEST

START_TEST(result_names_the_end_of_a_long_path)
{
	char longer[400];

	memset(longer, 'x', sizeof(longer));
	memcpy(longer, "/nowhere/", 9);
	memcpy(longer + sizeof(longer) - 8, "the_end", 8);
	ck_assert_int_lt(pinshim_aio_sync_pread(handle, buffer, 1, longer, 0, 0, &result), 0);
	ck_assert_uint_eq(strlen(result.file), sizeof(result.file) - 1);
	ck_assert_int_eq(strncmp(result.file, "...", 3), 0);
	ck_assert_str_eq(result.file + sizeof(result.file) - 8, "the_end");
}
END_TEST

START_TEST(file_that_cannot_be_opened)
{
	ck_assert_int_eq(pinshim_aio_sync_pread(handle, buffer, 8192, path, 4096, 0, &result),
			 -ENOENT);
	ck_assert_int_eq(result.error, ENOENT);
	ck_assert_str_eq(result.reason, "open: No such file or directory");
	ck_assert_str_eq(result.file, path);
	ck_assert_uint_eq(result.bytes, 0);
	ck_assert_uint_eq(result.failed_offset, 4096);
	ck_assert_uint_eq(result.failed_length, 8192);
	ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer, 8192, path, 4096, 0), -ENOENT);
	ck_assert_int_eq(pinshim_aio_async_pwrite(handle, buffer, 1, directory, 0, 0), -EISDIR);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, NULL, 0), 0);
}
END_TEST

START_TEST(directory_cannot_be_read)
{
	ck_assert_int_eq(pinshim_aio_sync_pread(handle, buffer, 512, directory, 0, 0, &result),
			 -EISDIR);
	ck_assert_str_eq(result.reason, "read: Is a directory");
}
END_TEST

START_TEST(descriptors_that_are_no_good)
{
	int pipes[2], fd;

	make_file(100);
	ck_assert_int_eq(pinshim_aio_async_pread_fd(handle, buffer, 1, -1, 0, 0), -EBADF);
	ck_assert_int_eq(pinshim_aio_async_pread_fd(handle, buffer, 1, 12345, 0, 0), -EBADF);
	ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer, 1, NULL, 0, 0), -EBADF);
	fd = open(path, O_RDONLY);
	ck_assert_int_eq(pinshim_aio_async_pwrite_fd(handle, buffer, 1, fd, 0, 0), -EBADF);
	close(fd);
	fd = open(path, O_WRONLY);
	ck_assert_int_eq(pinshim_aio_async_pread_fd(handle, buffer, 1, fd, 0, 0), -EBADF);
	close(fd);
	/* It would be written where the file ends, in whatever order. */
	fd = open(path, O_RDWR | O_APPEND);
	ck_assert_int_eq(pinshim_aio_sync_pwrite_fd(handle, buffer, 1, fd, 0, 0, &result), -EINVAL);
	ck_assert_int_eq(pinshim_aio_sync_pread_fd(handle, buffer, 100, fd, 0, 0, &result), 100);
	close(fd);
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_eq(pinshim_aio_async_pread_fd(handle, buffer, 1, pipes[0], 0, 0), -ESPIPE);
	close(pipes[0]);
	close(pipes[1]);
	unlink(path);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer, 1, path, 0, 0), -ESPIPE);
	unlink(path);
	make_file(1);
}
END_TEST

START_TEST(arguments_that_are_no_good)
{
	make_file(100);
	ck_assert_int_eq(pinshim_aio_sync_pread(handle, NULL, 1, path, 0, 0, &result), -EINVAL);
	ck_assert_str_eq(result.reason, "arguments: Invalid argument");
	ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer, 1, path, 0, 2), -EINVAL);
	ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer, 2, path, INT64_MAX - 1, 0),
			 -EINVAL);
	ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer, UINT64_MAX, path, 2, 0), -EINVAL);
	ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer, 1, path, UINT64_MAX, 0), -EINVAL);
	ck_assert_int_eq(pinshim_aio_sync_pread(handle, buffer, 1, path, INT64_MAX / 2, 0, NULL),
			 0);
}
END_TEST

START_TEST(memory_that_is_not_there)
{
	make_file(SIZE);
	ck_assert_int_eq(
		pinshim_aio_sync_pread(handle, (void *)4096, BLOCK, path, BLOCK, 0, &result),
		-EFAULT);
	ck_assert_str_eq(result.reason, "read: Bad address");
	ck_assert_uint_eq(result.failed_offset, BLOCK);
	ck_assert_uint_eq(result.failed_length, BLOCK);
	ck_assert_uint_eq(result.bytes, 0);
}
END_TEST

START_TEST(no_space)
{
	int fd = open("/dev/full", O_RDWR);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pinshim_aio_sync_pwrite_fd(handle, buffer, SIZE, fd, 4096, 0, &result),
			 -ENOSPC);
	ck_assert_int_eq(result.error, ENOSPC);
	ck_assert_str_eq(result.reason, "write: No space left on device");
	ck_assert_uint_eq(result.bytes, 0);
	ck_assert_uint_eq(result.failed_offset, 4096);
	ck_assert_uint_eq(result.failed_length, BLOCK - 4096);
	close(fd);
}
END_TEST

/* A write that fails in the middle, where the first part of a request still fits. */
START_TEST(short_write_then_error)
{
	struct rlimit limit, small;
	struct pinshim_aio_handle *one = open_handle(8, 1, false, true);

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = BLOCK + 8192;
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	pinned_fill(buffer, SIZE, seed);
	ck_assert_int_eq(pinshim_aio_sync_pwrite(one, buffer, SIZE, path, 0, 0, &result), -EFBIG);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_str_eq(result.reason, "write: File too large");
	ck_assert_uint_eq(result.bytes, BLOCK + 8192);
	ck_assert_uint_eq(result.failed_offset, BLOCK + 8192);
	ck_assert_uint_eq(result.failed_length, BLOCK - 8192);
	ck_assert_int_eq(read_file(), (long)BLOCK + 8192);
	ck_assert_mem_eq(buffer, expected, BLOCK + 8192);
	ck_assert_int_eq(pinshim_aio_close(one), 0);
}
END_TEST

START_TEST(validate)
{
	int fd;

	make_file(SIZE);
	ck_assert_int_eq(pinshim_aio_sync_pread(handle, buffer, SIZE + 1, path, 1,
						PINSHIM_AIO_VALIDATE, &result),
			 (int64_t)SIZE - 1);
	pinned_fill(buffer, SIZE, seed++);
	ck_assert_int_eq(pinshim_aio_sync_pwrite(handle, buffer, SIZE, path, 5,
						 PINSHIM_AIO_VALIDATE, &result),
			 (int64_t)SIZE);
	fd = open("/dev/zero", O_RDONLY);
	ck_assert_int_eq(pinshim_aio_sync_pread_fd(handle, buffer, SIZE, fd, 0,
						   PINSHIM_AIO_VALIDATE, &result),
			 (int64_t)SIZE);
	close(fd);
}
END_TEST

START_TEST(validate_finds_other_data)
{
	int fd = open("/dev/urandom", O_RDONLY);

	ck_assert_int_eq(pinshim_aio_sync_pread_fd(handle, buffer, 4096, fd, 512,
						   PINSHIM_AIO_VALIDATE, &result),
			 -EBADMSG);
	ck_assert_str_eq(result.reason, "validate: the file has other data than the buffer");
	ck_assert_uint_lt(result.failed_offset, 512 + 16);
	ck_assert_uint_eq(result.bytes, result.failed_offset - 512);
	ck_assert_uint_eq(result.failed_length, 4096 - result.bytes);
	close(fd);
	/* What is written there is gone: the file ends before it. */
	fd = open("/dev/null", O_RDWR);
	ck_assert_int_eq(pinshim_aio_sync_pwrite_fd(handle, buffer, 4096, fd, 0,
						    PINSHIM_AIO_VALIDATE, &result),
			 -EBADMSG);
	ck_assert_uint_eq(result.bytes, 0);
	close(fd);
}
END_TEST

START_TEST(validate_that_cannot_read)
{
	make_file(4096);
	ps_fault_set(PS_OS_PREADV, 1, UINT32_MAX, EIO);
	ck_assert_int_eq(pinshim_aio_sync_pread(handle, buffer, 4096, path, 0, PINSHIM_AIO_VALIDATE,
						&result),
			 -EIO);
	ck_assert_str_eq(result.reason, "validate: Input/output error");
	ps_fault_set(PS_OS_OPEN, 2, UINT32_MAX, EMFILE);
	ck_assert_int_eq(pinshim_aio_sync_pread(handle, buffer, 4096, path, 0, PINSHIM_AIO_VALIDATE,
						&result),
			 -EMFILE);
}
END_TEST

START_TEST(wait_counts)
{
	struct pinshim_aio_result results[10];
	bool seen[11] = { false };
	int count = 0;

	make_file(SIZE);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, NULL, 0), 0);
	ck_assert_int_eq(pinshim_aio_wait(handle, 5, results, 10), 0);
	for (int i = 1; i <= 10; i++)
		ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer + i * 4096,
							 100 * (uint64_t)i, path, 0, 0),
				 i);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, results, 0), 0);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, results, 3), 3);
	count = pinshim_aio_wait(handle, 2, results + 3, 7);
	ck_assert_int_ge(count, 2);
	while (count < 7) {
		int more = pinshim_aio_wait(handle, 1, results + 3 + count, 7 - count);

		ck_assert_int_ge(more, 1);
		count += more;
	}
	for (int i = 0; i < 10; i++) {
		ck_assert_int_ge(results[i].id, 1);
		ck_assert_int_le(results[i].id, 10);
		ck_assert(!seen[results[i].id]);
		seen[results[i].id] = true;
		ck_assert_uint_eq(results[i].bytes, 100 * (uint64_t)results[i].id);
	}
	ck_assert_int_eq(pinshim_aio_wait(handle, 1, NULL, 0), 0);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(
			pinshim_aio_async_pread(handle, buffer + i * BLOCK, BLOCK, path, 0, 0),
			11 + i);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, NULL, 0), 5);
}
END_TEST

START_TEST(failures_stay_until_taken)
{
	const int full = open("/dev/full", O_RDWR);

	make_file(SIZE);
	ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer, 4096, path, 0, 0), 1);
	ck_assert_int_eq(pinshim_aio_async_pwrite_fd(handle, buffer, 4096, full, 8192, 0), 2);
	ck_assert_int_eq(pinshim_aio_async_pread(handle, buffer + 4096, 4096, path, 0, 0), 3);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, NULL, 0), -ENOSPC);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, NULL, 0), -ENOSPC);
	ck_assert_int_eq(pinshim_aio_poll(handle, NULL, 0), -ENOSPC);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, &result, 1), 1);
	ck_assert_int_eq(result.id, 2);
	ck_assert_int_eq(result.error, ENOSPC);
	ck_assert_uint_eq(result.failed_offset, 8192);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, &result, 1), 0);
	close(full);
}
END_TEST

START_TEST(close_tells_of_failures)
{
	struct pinshim_aio_handle *other = open_handle(1, 1, false, true);
	const int full = open("/dev/full", O_RDWR);

	make_file(SIZE);
	ck_assert_int_gt(pinshim_aio_async_pwrite_fd(other, buffer, 4096, full, 0, 0), 0);
	ck_assert_int_gt(pinshim_aio_async_pread(other, buffer, SIZE, path, 0, 0), 0);
	ck_assert_int_eq(pinshim_aio_close(other), -ENOSPC);
	ck_assert_mem_eq(buffer, expected, SIZE);
	close(full);
}
END_TEST

START_TEST(poll_does_not_wait)
{
	int64_t id;

	make_file(SIZE);
	/* Nothing can be submitted, so nothing can be complete. */
	ps_fault_set(PS_OS_IO_SUBMIT, 1, UINT32_MAX, EAGAIN);
	ps_fault_set(PS_OS_IO_URING_ENTER, 1, UINT32_MAX, EAGAIN);
	id = pinshim_aio_async_pread(handle, buffer, 4096, path, 0, 0);
	ck_assert_int_eq(pinshim_aio_poll(handle, &result, 1), 0);
	ps_fault_clear();
	while (pinshim_aio_poll(handle, &result, 1) == 0)
		;
	ck_assert_int_eq(result.id, id);
	expect_success(0, 4096, 4096, false);
}
END_TEST

START_TEST(wait_for_one)
{
	int64_t first, second;

	make_file(SIZE);
	first = pinshim_aio_async_pread(handle, buffer, SIZE - 4096, path, 0, 0);
	second = pinshim_aio_async_pread(handle, buffer + SIZE - 4096, 4096, path, 4096, 0);
	ck_assert_int_eq(pinshim_aio_wait_for(handle, second, &result), 4096);
	ck_assert_int_eq(result.id, second);
	ck_assert_int_eq(pinshim_aio_wait_for(handle, second, &result), -ENOENT);
	ck_assert_int_eq(pinshim_aio_wait(handle, 0, &result, 1), 1);
	ck_assert_int_eq(result.id, first);
	ck_assert_int_eq(pinshim_aio_wait_for(handle, first, NULL), -ENOENT);
	ck_assert_int_eq(pinshim_aio_wait_for(handle, 0, NULL), -ENOENT);
	ck_assert_int_eq(pinshim_aio_wait_for(handle, -1, NULL), -ENOENT);
	ck_assert_int_eq(pinshim_aio_wait_for(handle, 99, NULL), -ENOENT);
}
END_TEST

/* One worker cannot submit, so what lies behind its first request is still there to be given up. */
START_TEST(cancel)
{
	struct pinshim_aio_handle *one = open_handle(1, 1, false, true);
	int64_t first, second, third;

	make_file(SIZE);
	ps_fault_set(PS_OS_IO_SUBMIT, 1, UINT32_MAX, EAGAIN);
	ps_fault_set(PS_OS_IO_URING_ENTER, 1, UINT32_MAX, EAGAIN);
	first = pinshim_aio_async_pread(one, buffer, 4096, path, 0, 0);
	while (ps_fault_reached(PS_OS_IO_SUBMIT) + ps_fault_reached(PS_OS_IO_URING_ENTER) == 0)
		;
	second = pinshim_aio_async_pread(one, buffer, SIZE, path, BLOCK, 0);
	third = pinshim_aio_async_pread(one, buffer, SIZE, path, 0, 0);
	ck_assert_int_eq(pinshim_aio_cancel(one, second), 1);
	ck_assert_int_eq(pinshim_aio_cancel(one, second), 0);
	ck_assert_int_eq(pinshim_aio_poll(one, &result, 1), 1);
	ck_assert_int_eq(result.id, second);
	ck_assert_int_eq(result.error, ECANCELED);
	ck_assert_str_eq(result.reason, "cancelled");
	ck_assert_uint_eq(result.bytes, 0);
	ck_assert_uint_eq(result.failed_offset, BLOCK);
	ck_assert_uint_eq(result.failed_length, SIZE);
	ck_assert_int_eq(pinshim_aio_cancel(one, second), -ENOENT);
	ps_fault_clear();
	ck_assert_int_eq(pinshim_aio_wait_for(one, first, NULL), 4096);
	ck_assert_int_eq(pinshim_aio_wait_for(one, third, NULL), (int64_t)SIZE);
	ck_assert_mem_eq(buffer, expected, SIZE);
	ck_assert_int_eq(pinshim_aio_close(one), 0);
}
END_TEST

/* What is in flight is waited for, whatever came of it. */
START_TEST(cancel_in_flight)
{
	unsigned given_up = 0;

	make_file(SIZE);
	for (unsigned i = 0; i < 100; i++) {
		const int64_t id = pinshim_aio_async_pread(handle, buffer, SIZE, path, 0, 0);
		const int count = pinshim_aio_cancel(handle, i % 2 ? 0 : id);

		ck_assert_int_ge(count, 0);
		ck_assert_int_eq(pinshim_aio_poll(handle, &result, 1), 1);
		ck_assert_int_eq(result.id, id);
		ck_assert_int_eq(result.error, count ? ECANCELED : 0);
		ck_assert_uint_eq(result.bytes + result.failed_length, SIZE);
		ck_assert_mem_eq(buffer, expected, result.bytes);
		memset(buffer, 0, SIZE);
		given_up += (unsigned)count;
	}
	ck_assert_uint_gt(given_up, 0);
	ck_assert_int_eq(pinshim_aio_cancel(handle, 0), 0);
}
END_TEST

/* Does everything once, and says what came of it. */
static int64_t read_all(struct pinshim_aio_handle *with)
{
	memset(buffer, 0, SIZE);
	return pinshim_aio_sync_pread(with, buffer, SIZE, path, 0, 0, &result);
}

/* Some stacks are kept from threads that ended: not as many as this takes. */
START_TEST(threads_that_cannot_be_made)
{
	struct pinshim_aio_handle *other = open_handle(1, 32, false, true);
	struct rlimit limit, small;

	if (SANITIZED) {
		pinned_skip("threads_that_cannot_be_made", "the sanitizers need address space");
		ck_assert_int_eq(pinshim_aio_close(other), 0);
		return;
	}
	make_file(SIZE);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	small = limit;
	small.rlim_cur = ((rlim_t)pinned_proc_kb("status", "VmSize:") << 10) + 4 * MIB;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &small), 0);
	ck_assert_int_eq(read_all(other), -EAGAIN);
	ck_assert_str_eq(result.reason, "pthread_create: Resource temporarily unavailable");
	ck_assert_uint_eq(result.failed_length, SIZE);
	ck_assert_uint_eq(result.bytes, 0);
	ck_assert_int_eq(pinshim_aio_async_pread(other, buffer, 1, path, 0, 0), -EAGAIN);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	ck_assert_int_eq(read_all(other), (int64_t)SIZE);
	ck_assert_mem_eq(buffer, expected, SIZE);
	ck_assert_int_eq(pinshim_aio_close(other), 0);
}
END_TEST

START_TEST(memory_for_workers_that_cannot_be_had)
{
	struct pinshim_aio_handle *other = open_handle(8, 2, false, true);

	make_file(SIZE);
	ps_fault_set(PS_OS_MMAP, 2, 2, ENOMEM);
	ck_assert_int_eq(read_all(other), -ENOMEM);
	ck_assert_int_eq(read_all(other), (int64_t)SIZE);
	ck_assert_mem_eq(buffer, expected, SIZE);
	ck_assert_int_eq(pinshim_aio_close(other), 0);
}
END_TEST

START_TEST(context_for_fewer_requests)
{
	struct pinshim_aio_handle *other = open_handle(64, 1, false, true);

	make_file(SIZE);
	ps_fault_set(PS_OS_IO_SETUP, 1, 3, EAGAIN);
	ck_assert_int_eq(read_all(other), (int64_t)SIZE);
	ck_assert_mem_eq(buffer, expected, SIZE);
	ck_assert_int_eq(pinshim_aio_close(other), 0);
}
END_TEST

START_TEST(no_context)
{
	struct pinshim_aio_handle *other = open_handle(8, 2, false, true);

	make_file(SIZE);
	ps_fault_set(PS_OS_IO_SETUP, 1, UINT32_MAX, EAGAIN);
	ck_assert_int_eq(read_all(other), -EAGAIN);
	ck_assert_str_eq(result.reason, "io_setup: Resource temporarily unavailable: fs.aio-max-nr "
					"(sysctl) is used up");
	ck_assert_uint_eq(result.bytes, 0);
	ps_fault_set(PS_OS_IO_SETUP, 1, UINT32_MAX, ENOSYS);
	ck_assert_int_eq(read_all(other), -ENOSYS);
	ps_fault_clear();
	ck_assert_int_eq(read_all(other), (int64_t)SIZE);
	ck_assert_int_eq(pinshim_aio_close(other), 0);
}
END_TEST

/* Both ways by which requests reach the kernel fail like this. */
static void fail_submitting(unsigned first, unsigned last, int error)
{
	ps_fault_clear();
	ps_fault_set(PS_OS_IO_SUBMIT, first, last, error);
	ps_fault_set(PS_OS_IO_URING_ENTER, first, last, error);
}

START_TEST(submitting_fails_for_the_moment)
{
	for (unsigned at = 1; at < 12; at++) {
		make_file(SIZE);
		fail_submitting(at, at + at % 3, at % 2 ? EAGAIN : EINTR);
		ck_assert_int_eq(read_all(handle), (int64_t)SIZE);
		ck_assert_mem_eq(buffer, expected, SIZE);
	}
}
END_TEST

START_TEST(submitting_fails_for_good)
{
	make_file(SIZE);
	fail_submitting(1, UINT32_MAX, EAGAIN);
	ck_assert_int_eq(read_all(handle), -EAGAIN);
	ck_assert_str_eq(result.reason, "read: Resource temporarily unavailable");
	ck_assert_uint_eq(result.bytes, 0);
	ps_fault_clear();
	ck_assert_int_eq(read_all(handle), (int64_t)SIZE);
	ck_assert_mem_eq(buffer, expected, SIZE);
}
END_TEST

START_TEST(getting_events_fails)
{
	struct pinshim_aio_handle *other;

	ps_config.aio = PS_AIO_LIBAIO;
	for (unsigned at = 1; at < 6; at++) {
		other = open_handle(4, 1, false, at % 2);
		make_file(SIZE);
		ps_fault_set(PS_OS_IO_GETEVENTS, at, at, EINVAL);
		ck_assert_int_eq(read_all(other), -EINVAL);
		ck_assert_str_eq(result.reason, "io_getevents: Invalid argument");
		ps_fault_clear();
		ck_assert_int_eq(read_all(other), (int64_t)SIZE);
		ck_assert_mem_eq(buffer, expected, SIZE);
		ps_fault_set(PS_OS_IO_GETEVENTS, at, at + 2, EINTR);
		ck_assert_int_eq(read_all(other), (int64_t)SIZE);
		ps_fault_clear();
		ck_assert_int_eq(pinshim_aio_close(other), 0);
	}
	ps_config.aio = PS_AIO_AUTO;
}
END_TEST

START_TEST(close_waits)
{
	for (unsigned i = 0; i < 20; i++) {
		struct pinshim_aio_handle *other = open_handle(4, 1 + i % 3, false, true);

		make_file(SIZE);
		memset(buffer, 0, SIZE);
		for (size_t at = 0; at < SIZE; at += MIB)
			ck_assert_int_gt(
				pinshim_aio_async_pread(other, buffer + at, MIB, path, at, 0), 0);
		ck_assert_int_eq(pinshim_aio_close(other), 0);
		ck_assert_mem_eq(buffer, expected, SIZE);
	}
}
END_TEST

static unsigned open_descriptors(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 1000; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

START_TEST(descriptors_are_closed)
{
	unsigned before;

	make_file(SIZE);
	ck_assert_int_eq(read_all(handle),
			 (int64_t)SIZE); /* now it has its threads, and they theirs */
	before = open_descriptors();
	for (unsigned i = 0; i < 5; i++) {
		ck_assert_int_gt(pinshim_aio_async_pread(handle, buffer, SIZE, path, 0, 0), 0);
		pinshim_aio_cancel(handle, 0);
		ck_assert_int_eq(pinshim_aio_sync_pread(handle, buffer, BLOCK, path, 0,
							PINSHIM_AIO_VALIDATE, NULL),
				 (int64_t)BLOCK);
		ck_assert_int_eq(pinshim_aio_sync_pread(handle, (void *)4096, 1, path, 0, 0, NULL),
				 -EFAULT);
		ck_assert_int_eq(pinshim_aio_async_pread(handle, NULL, 1, path, 0, 0), -EINVAL);
		ck_assert_int_gt(pinshim_aio_alignment(path), 0);
	}
	while (pinshim_aio_wait(handle, 0, &result, 1) > 0)
		;
	ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

START_TEST(buffers)
{
	char *block = pinshim_aio_new_buffer(100000), *small = pinshim_aio_new_buffer(0);
	char local;

	ck_assert_ptr_nonnull(block);
	ck_assert_ptr_nonnull(small);
	ck_assert_uint_eq((uintptr_t)block % 4096, 0);
	ck_assert_uint_eq((uintptr_t)small % 4096, 0);
	ck_assert_int_eq(pinshim_aio_is_pinned(block, 100000), 1);
	ck_assert_int_eq(pinshim_aio_is_pinned(block + 99999, 1), 1);
	ck_assert_int_eq(pinshim_aio_is_pinned(block + 12345, 0), 1);
	ck_assert_int_eq(pinshim_aio_is_pinned(&local, 1), 0);
	ck_assert_int_eq(pinshim_aio_is_pinned(block, (size_t)1 << 40), 0);
	ck_assert_int_eq(pinshim_aio_is_pinned(NULL, 1), 0);
	ck_assert_int_eq(pinshim_aio_free_buffer(block + 4096), -EINVAL);
	ck_assert_int_eq(pinshim_aio_free_buffer(&local), -EINVAL);
	ck_assert_int_eq(pinshim_aio_free_buffer(block), 0);
	ck_assert_int_eq(pinshim_aio_free_buffer(block), -EINVAL);
	ck_assert_int_eq(pinshim_aio_free_buffer(small), 0);
	ck_assert_int_eq(pinshim_aio_free_buffer(NULL), 0);
	errno = 0;
	ck_assert_ptr_null(pinshim_aio_new_buffer(SIZE_MAX));
	ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

START_TEST(buffer_that_cannot_be_had)
{
	ps_fault_set(PS_OS_MLOCK, 1, UINT32_MAX, ENOMEM);
	ps_fault_set(PS_OS_POPULATE, 1, UINT32_MAX, ENOMEM);
	errno = 0;
	ck_assert_ptr_null(pinshim_aio_new_buffer(64 * MIB));
	ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

START_TEST(alignment)
{
	int64_t align;

	ck_assert_int_eq(pinshim_aio_alignment(path), -ENOENT);
	make_file(1);
	align = pinshim_aio_alignment(path);
	ck_assert_int_ge(align, 1);
	ck_assert_int_eq(align & (align - 1), 0);
	ck_assert_int_eq(pinshim_aio_alignment("/proc/self/status"), 1);
}
END_TEST

/* In a child the threads do not exist: everything says so, and nothing waits for them. */
static int child(void)
{
	if (pinshim_aio_sync_pread(handle, buffer, 1, path, 0, 0, &result) != -ECHILD ||
	    strcmp(result.reason, "handle: No child processes") != 0)
		return 1;
	if (pinshim_aio_async_pread(handle, buffer, 1, path, 0, 0) != -ECHILD)
		return 2;
	if (pinshim_aio_wait(handle, 0, NULL, 0) != -ECHILD ||
	    pinshim_aio_poll(handle, NULL, 0) != -ECHILD ||
	    pinshim_aio_wait_for(handle, 1, NULL) != -ECHILD ||
	    pinshim_aio_cancel(handle, 0) != -ECHILD)
		return 3;
	if (pinshim_aio_close(handle) != -ECHILD)
		return 4;
	if (UNDER_TSAN) /* it allows a child no threads */
		return 0;
	handle = open_handle(8, 2, false, true);
	if (read_all(handle) != (int64_t)SIZE || memcmp(buffer, expected, SIZE) != 0)
		return 5;
	return pinshim_aio_close(handle) == 0 ? 0 : 6;
}

START_TEST(forked_child)
{
	int64_t id;
	pid_t pid;

	make_file(SIZE);
	for (unsigned i = 0; i < (SANITIZED ? 2 : 10); i++) {
		id = pinshim_aio_async_pread(handle, buffer, SIZE, path, 0, 0);
		pid = fork();
		if (pid == 0)
			_exit(child());
		ck_assert_int_gt(pid, 0);
		ck_assert_int_eq(scratch_wait(pid), 0);
		ck_assert_int_eq(pinshim_aio_wait_for(handle, id, NULL), (int64_t)SIZE);
		ck_assert_mem_eq(buffer, expected, SIZE);
	}
}
END_TEST

static atomic_bool handled;

static void on_signal(int number)
{
	(void)number;
	atomic_store(&handled, true);
}

/* Signals are for the program's threads: the handler runs in this one, which waits on. */
START_TEST(signals_go_to_the_program)
{
	sigset_t all, before;

	make_file(SIZE);
	signal(SIGUSR1, on_signal);
	ck_assert_int_eq(read_all(handle), (int64_t)SIZE);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	kill(getpid(), SIGUSR1);
	ck_assert_int_eq(read_all(handle), (int64_t)SIZE);
	ck_assert(!atomic_load(&handled));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	ck_assert(atomic_load(&handled));
	signal(SIGUSR1, SIG_DFL);
}
END_TEST

#define SHARERS 4

static void *share(void *argument)
{
	const size_t begin = (size_t)(uintptr_t)argument * (SIZE / SHARERS);
	struct pinshim_aio_result own[4];
	int64_t id;

	for (unsigned i = 0; i < (SANITIZED ? 20 : 100); i++) {
		if (pinshim_aio_sync_pread(handle, buffer + begin, SIZE / SHARERS, path, begin, 0,
					   &own[0]) != (int64_t)(SIZE / SHARERS))
			return argument;
		id = pinshim_aio_async_pread(handle, buffer + begin, 8192, path, begin, 0);
		if (i % 3 == 0 && pinshim_aio_wait_for(handle, id, NULL) != 8192)
			return argument;
		if (i % 3 == 1 && pinshim_aio_wait(handle, i % 4, own, 4) < 0)
			return argument;
		if (i % 3 == 2 && pinshim_aio_poll(handle, own, 4) < 0)
			return argument;
	}
	return NULL;
}

START_TEST(several_threads)
{
	pthread_t thread[SHARERS];
	void *failed;

	make_file(SIZE);
	for (size_t i = 0; i < SHARERS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, share, (void *)(uintptr_t)i), 0);
	for (size_t i = 0; i < SHARERS; i++) {
		ck_assert_int_eq(pthread_join(thread[i], &failed), 0);
		ck_assert_ptr_null(failed);
	}
	ck_assert_int_ge(pinshim_aio_wait(handle, 0, NULL, 0), 0);
	ck_assert_mem_eq(buffer, expected, SIZE);
}
END_TEST

static void add(TCase *tcase)
{
	tcase_add_test(tcase, defaults);
	tcase_add_test(tcase, settings_of_an_older_program);
	tcase_add_test(tcase, settings_out_of_range);
	tcase_add_test(tcase, no_handle);
	tcase_add_test(tcase, read_whole_file);
	tcase_add_test(tcase, write_new_file);
	tcase_add_test(tcase, write_never_shortens);
	tcase_add_test(tcase, nothing_to_do);
	tcase_add_test(tcase, read_over_the_end);
	tcase_add_test(tcase, any_length_and_alignment);
	tcase_add_test(tcase, unaligned_ends);
	tcase_add_test(tcase, writes_beyond_the_end);
	tcase_add_test(tcase, file_that_is_not_direct);
	tcase_add_test(tcase, result_names_the_descriptor);
	tcase_add_test(tcase, result_names_the_end_of_a_long_path);
	tcase_add_test(tcase, file_that_cannot_be_opened);
	tcase_add_test(tcase, directory_cannot_be_read);
	tcase_add_test(tcase, descriptors_that_are_no_good);
	tcase_add_test(tcase, arguments_that_are_no_good);
	tcase_add_test(tcase, memory_that_is_not_there);
	tcase_add_test(tcase, no_space);
	tcase_add_test(tcase, short_write_then_error);
	tcase_add_test(tcase, validate);
	tcase_add_test(tcase, validate_finds_other_data);
	tcase_add_test(tcase, validate_that_cannot_read);
	tcase_add_test(tcase, wait_counts);
	tcase_add_test(tcase, failures_stay_until_taken);
	tcase_add_test(tcase, close_tells_of_failures);
	tcase_add_test(tcase, poll_does_not_wait);
	tcase_add_test(tcase, wait_for_one);
	tcase_add_test(tcase, cancel);
	tcase_add_test(tcase, cancel_in_flight);
	tcase_add_test(tcase, threads_that_cannot_be_made);
	tcase_add_test(tcase, memory_for_workers_that_cannot_be_had);
	tcase_add_test(tcase, context_for_fewer_requests);
	tcase_add_test(tcase, no_context);
	tcase_add_test(tcase, submitting_fails_for_the_moment);
	tcase_add_test(tcase, submitting_fails_for_good);
	tcase_add_test(tcase, getting_events_fails);
	tcase_add_test(tcase, close_waits);
	tcase_add_test(tcase, descriptors_are_closed);
	tcase_add_test(tcase, buffers);
	tcase_add_test(tcase, buffer_that_cannot_be_had);
	tcase_add_test(tcase, alignment);
	tcase_add_test(tcase, forked_child);
	tcase_add_test(tcase, signals_go_to_the_program);
	tcase_add_test(tcase, several_threads);
}

int main(void)
{
	Suite *suite = suite_create("handle");
	TCase *tcase = tcase_create("handle");
	SRunner *runner;
	int failed;

	if (!mkdtemp(directory))
		return 1;
	snprintf(path, sizeof(path), "%s/file", directory);
	ps_table_directory = directory;
	ps_aio_start();
	ps_config.stats = "off";
	ps_log_level = PS_LOG_ERROR;
	tcase_set_timeout(tcase, 60);
	tcase_add_unchecked_fixture(tcase, begin, end);
	tcase_add_checked_fixture(tcase, setup, teardown);
	add(tcase);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	/* Locks are not inherited: a case in a forked child would have no pinned memory. */
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	ps_table_close();
	rmdir(directory);
	return failed != 0;
}
