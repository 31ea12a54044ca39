/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a descriptor is: of every kind of file, with every call failing; what is remembered, and when
 * it is asked again.
 *
 * Descriptors are closed by system call, so that only what a test says was closed is known to be.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fault.h"
#include "file.h"
#include "loop.h"
#include "os.h"
#include "pinned.h"

static char directory[] = "/var/tmp/test_file.XXXXXX"; /* O_DIRECT works there */
static char path[64];
static struct ps_file file;

static void shut(int fd)
{
	syscall(SYS_close, fd);
}

static int opened(int flags)
{
	const int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Opens the file, looks, closes. */
static void look(int flags)
{
	const int fd = opened(flags);

	ck_assert_int_eq(ps_file_look(fd, &file), 0);
	ck_assert_int_eq(file.fd, fd);
	shut(fd);
}

static void setup(void)
{
	int fd;

	ps_fault_clear();
	snprintf(path, sizeof(path), "%s/file", directory);
	fd = opened(O_RDWR | O_TRUNC);
	ck_assert_int_eq(ftruncate(fd, 12345), 0);
	shut(fd);
}

static void teardown(void)
{
	ps_fault_clear();
	unlink(path);
}

static bool direct_works(const char *test)
{
	const int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	bool works = fd >= 0 && ps_file_look(fd, &file) == 0 && (file.is & PS_FILE_ASYNC);

	if (fd >= 0)
		shut(fd);
	if (!works)
		pinned_skip(test, "the file system does not say what direct I/O demands");
	return works;
}

START_TEST(how_it_is_open)
{
	look(O_RDONLY);
	ck_assert_uint_eq(file.is, PS_FILE_PLAIN | PS_FILE_READABLE);
	ck_assert_uint_eq(file.memory_align, 1);
	ck_assert_uint_eq(file.offset_align, 1);
	ck_assert_uint_eq(file.size, 12345);
	look(O_WRONLY);
	ck_assert_uint_eq(file.is, PS_FILE_PLAIN | PS_FILE_WRITABLE);
	look(O_RDWR);
	ck_assert_uint_eq(file.is, PS_FILE_PLAIN | PS_FILE_READABLE | PS_FILE_WRITABLE);
	look(O_WRONLY | O_APPEND);
	ck_assert_uint_eq(file.is, PS_FILE_PLAIN | PS_FILE_WRITABLE | PS_FILE_APPEND);
	look(O_WRONLY | O_SYNC);
	ck_assert_uint_eq(file.is, PS_FILE_PLAIN | PS_FILE_WRITABLE | PS_FILE_SYNC);
	look(O_WRONLY | O_DSYNC);
	ck_assert_uint_eq(file.is, PS_FILE_PLAIN | PS_FILE_WRITABLE | PS_FILE_SYNC);
}
END_TEST

START_TEST(open_for_direct_io)
{
	struct stat status;

	if (!direct_works(__func__))
		return;
	look(O_RDONLY | O_DIRECT);
	ck_assert_uint_eq(file.is,
			  PS_FILE_PLAIN | PS_FILE_READABLE | PS_FILE_DIRECT | PS_FILE_ASYNC);
	ck_assert_uint_gt(file.memory_align, 1);
	ck_assert_uint_gt(file.offset_align, 1);
	ck_assert_uint_eq(file.memory_align & (file.memory_align - 1), 0);
	ck_assert_uint_eq(file.offset_align & (file.offset_align - 1), 0);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_uint_eq(file.device, status.st_dev);
	ck_assert_uint_eq(file.inode, status.st_ino);
}
END_TEST

/* Neither a file nor a block device: nothing is known of it, and nothing demanded. */
static void nothing_special(int fd, uint32_t is)
{
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ps_file_look(fd, &file), 0);
	ck_assert_uint_eq(file.is, is);
	ck_assert_uint_eq(file.memory_align, 1);
	ck_assert_uint_eq(file.offset_align, 1);
	shut(fd);
}

START_TEST(other_kinds)
{
	int pair[2];

	nothing_special(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), PS_FILE_READABLE);
	nothing_special(open("/dev/null", O_RDWR | O_CLOEXEC), PS_FILE_READABLE | PS_FILE_WRITABLE);
	nothing_special(open(path, O_PATH | O_CLOEXEC), PS_FILE_PLAIN);
	ck_assert_int_eq(pipe2(pair, O_CLOEXEC | O_DIRECT), 0);
	nothing_special(pair[0], PS_FILE_READABLE);
	nothing_special(pair[1], PS_FILE_WRITABLE | PS_FILE_DIRECT);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	nothing_special(pair[0], PS_FILE_READABLE | PS_FILE_WRITABLE);
	shut(pair[1]);
}
END_TEST

START_TEST(no_descriptor)
{
	const int fd = opened(O_RDONLY);
	struct ps_files files;

	shut(fd);
	ck_assert_int_eq(ps_file_look(fd, &file), -EBADF);
	ck_assert_int_eq(ps_file_look(-1, &file), -EBADF);
	ps_files_begin(&files);
	ck_assert_ptr_null(ps_file_get(&files, fd));
	ck_assert_ptr_null(ps_file_get(&files, -1));
	ck_assert_ptr_null(ps_file_get(&files, INT32_MIN));
}
END_TEST

START_TEST(file_in_memory)
{
	const int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0) {
		pinned_skip(__func__, "no O_DIRECT in /dev/shm");
		return;
	}
	ck_assert_int_eq(ps_file_look(fd, &file), 0);
	ck_assert_uint_eq(file.is,
			  PS_FILE_PLAIN | PS_FILE_READABLE | PS_FILE_WRITABLE | PS_FILE_DIRECT);
	ck_assert_uint_eq(file.memory_align, 1);
	ck_assert_uint_eq(file.offset_align, 1);
	shut(fd);
}
END_TEST

START_TEST(device_with_large_blocks)
{
	char device[64];
	int fd;

	if (!loop_begin(__func__, directory, 1 << 20, 4096, device, sizeof(device)))
		return;
	fd = open(device, O_RDWR | O_DIRECT | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ps_file_look(fd, &file), 0);
	ck_assert_uint_eq(file.is & (PS_FILE_DEVICE | PS_FILE_PLAIN | PS_FILE_DIRECT),
			  PS_FILE_DEVICE | PS_FILE_DIRECT);
	ck_assert_uint_eq(file.offset_align, 4096);
	ck_assert_uint_eq(file.size, UINT64_MAX);

	/* A kernel that does not say: the same is found out by other means. */
	ps_fault_set(PS_OS_STATX, 1, 1, ENOSYS);
	ck_assert_int_eq(ps_file_look(fd, &file), 0);
	ck_assert_uint_eq(file.offset_align, 4096);
	ck_assert_uint_eq(file.memory_align, 4096);
	ck_assert_uint_eq(file.is & PS_FILE_ASYNC, 0);
	shut(fd);
	loop_end();
}
END_TEST

START_TEST(kernel_that_does_not_say)
{
	if (!direct_works(__func__))
		return;
	ps_fault_set(PS_OS_STATX, 1, 2, ENOSYS);
	look(O_RDONLY | O_DIRECT);
	ck_assert_uint_eq(file.is & PS_FILE_ASYNC, 0);
	ck_assert_uint_ge(file.offset_align, 512);
	ck_assert_uint_eq(file.memory_align, file.offset_align);
	/* Nor /sys. */
	ps_fault_set(PS_OS_OPEN, 1, 9, EACCES);
	look(O_RDONLY | O_DIRECT);
	ck_assert_uint_eq(file.offset_align, 512);
	ck_assert_uint_eq(file.memory_align, 512);
}
END_TEST

START_TEST(calls_that_fail)
{
	const int fd = opened(O_RDONLY | O_DIRECT);
	struct ps_files files;

	ps_files_begin(&files);
	for (unsigned turn = 1; turn <= 2; turn++) {
		ps_fault_set(PS_OS_FSTAT, turn, turn, EIO);
		ck_assert_int_eq(ps_file_look(fd, &file), -EIO);
		ps_fault_set(PS_OS_FSTAT, turn, turn, EIO);
		ck_assert_ptr_null(ps_file_get(&files, fd));
	}
	/* A failure is not remembered. */
	ck_assert_ptr_nonnull(ps_file_get(&files, fd));
	ck_assert_uint_eq(ps_file_size(&files, ps_file_get(&files, fd)), 12345);
	ps_fault_set(PS_OS_FSTAT, 1, 1, EIO);
	ck_assert_uint_eq(ps_file_size(&files, ps_file_get(&files, fd)), 12345);
	shut(fd);
}
END_TEST

/* How often the kernel was asked about this descriptor. */
static unsigned asked(struct ps_files *files, int fd)
{
	const unsigned before = ps_fault_reached(PS_OS_FSTAT);

	ck_assert_ptr_nonnull(ps_file_get(files, fd));
	return ps_fault_reached(PS_OS_FSTAT) - before;
}

START_TEST(remembered_until_closed)
{
	const int fd = opened(O_RDONLY);
	struct ps_files files;
	int other;

	ps_files_begin(&files);
	ck_assert_uint_gt(asked(&files, fd), 0);
	ck_assert_uint_eq(asked(&files, fd), 0);
	ps_file_closed(fd);
	ck_assert_uint_gt(asked(&files, fd), 0);
	ck_assert_uint_eq(asked(&files, fd), 0);

	/* Nobody says so: the old answer. */
	other = opened(O_WRONLY);
	ck_assert_int_eq(syscall(SYS_dup3, other, fd, O_CLOEXEC), fd);
	shut(other);
	ps_file_closed(-1);
	ps_file_closed(fd + 1);
	ps_file_closed_range((unsigned)fd + 1, (unsigned)fd + 900);
	ck_assert_uint_eq(ps_file_get(&files, fd)->is, PS_FILE_PLAIN | PS_FILE_READABLE);
	ps_file_closed(fd);
	ck_assert_uint_eq(ps_file_get(&files, fd)->is, PS_FILE_PLAIN | PS_FILE_WRITABLE);
	shut(fd);
}
END_TEST

START_TEST(ranges_closed)
{
	const int fd = opened(O_RDONLY);
	const unsigned number = (unsigned)fd;
	struct ps_files files;

	ps_files_begin(&files);
	asked(&files, fd);
	ps_file_closed_range(number + 1, number + 100);
	ps_file_closed_range(0, number - 1);
	ps_file_closed_range(number + 1, number - 1);
	ck_assert_uint_eq(asked(&files, fd), 0);
	ps_file_closed_range(number, number);
	ck_assert_uint_gt(asked(&files, fd), 0);
	ps_file_closed_range(0, number);
	ck_assert_uint_gt(asked(&files, fd), 0);
	ps_file_closed_range(0, ~0u);
	ck_assert_uint_gt(asked(&files, fd), 0);
	ps_file_closed_range(number, number + 5000);
	ck_assert_uint_gt(asked(&files, fd), 0);
	ck_assert_uint_eq(asked(&files, fd), 0);
	shut(fd);
}
END_TEST

/* Two that have the same place take turns in it. */
START_TEST(more_than_are_remembered)
{
	const int first = opened(O_RDONLY);
	const int second = fcntl(first, F_DUPFD_CLOEXEC, first + PS_FILES);
	struct ps_files files;

	ck_assert_int_eq(second, first + PS_FILES);
	ps_files_begin(&files);
	for (int turn = 0; turn < 3; turn++) {
		ck_assert_int_eq(ps_file_get(&files, first)->fd, first);
		ck_assert_int_eq(ps_file_get(&files, second)->fd, second);
	}
	shut(first);
	shut(second);
}
END_TEST

START_TEST(size_is_asked_anew)
{
	const int fd = opened(O_RDWR), other = fcntl(fd, F_DUPFD_CLOEXEC, fd + PS_FILES);
	struct ps_files files;
	struct ps_file gone;

	ps_files_begin(&files);
	ck_assert_uint_eq(ps_file_get(&files, fd)->size, 12345);
	ck_assert_int_eq(ftruncate(fd, 777), 0);
	ck_assert_uint_eq(ps_file_get(&files, fd)->size, 12345);
	ck_assert_uint_eq(ps_file_size(&files, ps_file_get(&files, fd)), 777);
	ck_assert_uint_eq(ps_file_get(&files, fd)->size, 777);

	/* Of one whose place another has. */
	gone = *ps_file_get(&files, fd);
	ck_assert_ptr_nonnull(ps_file_get(&files, other));
	ck_assert_int_eq(ftruncate(fd, 888), 0);
	ck_assert_uint_eq(ps_file_size(&files, &gone), 888);
	ck_assert_uint_eq(ps_file_get(&files, other)->size, 777);
	shut(fd);
	shut(other);
}
END_TEST

/* What io_uring would do at once; of the old kernels' answers, and where one may not ask, nothing is said. */
START_TEST(without_waiting)
{
	static const int ways[] = { O_RDONLY, O_WRONLY, O_RDWR };
	struct ps_files files;
	int fd;

	if (!direct_works(__func__))
		return;
	for (size_t i = 0; i < 3; i++) {
		fd = opened(ways[i] | O_DIRECT);
		ps_files_begin(&files);
		ck_assert_uint_ne(ps_file_get(&files, fd)->is & PS_FILE_NOWAIT, 0);
		ps_files_begin(&files);
		ps_fault_set(PS_OS_PREADV, 1, 1, EOPNOTSUPP);
		ck_assert_uint_eq(ps_file_get(&files, fd)->is & PS_FILE_NOWAIT, 0);
		ps_fault_clear();
		shut(fd);
	}
	fd = opened(O_WRONLY | O_DIRECT);
	ps_files_begin(&files);
	ps_fault_set(PS_OS_OPEN, 1, 1, EACCES);
	ck_assert_uint_eq(ps_file_get(&files, fd)->is & PS_FILE_NOWAIT, 0);
	shut(fd);
}
END_TEST

static void *close_all_the_time(void *argument)
{
	const int fd = *(const int *)argument;

	for (int i = 0; i < 20000; i++)
		ps_file_closed(fd);
	return NULL;
}

START_TEST(closings_from_other_threads)
{
	int fd = opened(O_RDONLY);
	struct ps_files files;
	pthread_t thread[2];

	ps_files_begin(&files);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, close_all_the_time, &fd), 0);
	for (int i = 0; i < 5000; i++)
		ck_assert_ptr_nonnull(ps_file_get(&files, fd));
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	ck_assert_ptr_nonnull(ps_file_get(&files, fd));
	ck_assert_uint_eq(asked(&files, fd), 0);
	ps_file_closed(fd);
	ck_assert_uint_gt(asked(&files, fd), 0);
	shut(fd);
}
END_TEST

static Suite *suite(void)
{
	Suite *suite = suite_create("file");
	TCase *tcase = tcase_create("file");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, how_it_is_open);
	tcase_add_test(tcase, open_for_direct_io);
	tcase_add_test(tcase, other_kinds);
	tcase_add_test(tcase, no_descriptor);
	tcase_add_test(tcase, file_in_memory);
	tcase_add_test(tcase, device_with_large_blocks);
	tcase_add_test(tcase, kernel_that_does_not_say);
	tcase_add_test(tcase, calls_that_fail);
	tcase_add_test(tcase, remembered_until_closed);
	tcase_add_test(tcase, ranges_closed);
	tcase_add_test(tcase, more_than_are_remembered);
	tcase_add_test(tcase, size_is_asked_anew);
	tcase_add_test(tcase, without_waiting);
	tcase_add_test(tcase, closings_from_other_threads);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner;
	int failed;

	if (!mkdtemp(directory))
		return 1;
	runner = srunner_create(suite());
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	rmdir(directory);
	return failed != 0;
}
