/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptions of our own of a program's file, and the lock between processes that they carry.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "reopen.h"
#include "scratch.h"

static char path[] = "/var/tmp/test_reopen.XXXXXX";
static struct ps_file file;

static void look(int flags)
{
	file.fd = open(path, flags | O_CLOEXEC);
	ck_assert_int_ge(file.fd, 0);
	ck_assert_int_eq(ps_file_look(file.fd, &file), 0);
}

static void setup(void)
{
	ps_fault_clear();
	look(O_WRONLY);
}

static void teardown(void)
{
	ps_fault_clear();
	close(file.fd);
}

static int reopened(int flags)
{
	const int fd = ps_reopen(&file, flags);

	ck_assert_int_ge(fd, 0);
	return fd;
}

START_TEST(flags)
{
	static const int theirs[] = { 0, O_SYNC, O_DSYNC, O_NOATIME };

	for (size_t i = 0; i < sizeof(theirs) / sizeof(theirs[0]); i++) {
		int fd;

		close(file.fd);
		look(O_WRONLY | O_APPEND | O_DIRECT | theirs[i]);
		fd = reopened(O_RDWR);
		ck_assert_int_eq(fcntl(fd, F_GETFL) & (O_SYNC | O_DSYNC | O_NOATIME), theirs[i]);
		ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
		ck_assert_int_eq(fcntl(fd, F_GETFL) & (O_DIRECT | O_APPEND), 0);
		ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
		ck_assert_int_ge(fd, 1000);
		ps_reopen_close(fd);
		ck_assert_int_lt(fcntl(fd, F_GETFD), 0);
	}
}
END_TEST

START_TEST(failures)
{
	ps_fault_set(PS_OS_OPEN, 1, 1, EMFILE);
	ck_assert_int_eq(ps_reopen(&file, O_RDWR), -EMFILE);
	ps_fault_set(PS_OS_FSTAT, 1, 1, EIO);
	ck_assert_int_eq(ps_reopen(&file, O_RDWR), -EIO);
	ps_reopen_close(-EMFILE);
}
END_TEST

/* A thread with descriptors of its own, under whose numbers the others have something else. */
static void *reopen_in_thread(void *result)
{
	struct ps_file own = { .fd = -1 };
	int fd;

	if (unshare(CLONE_FILES) == 0)
		own.fd = open(path, O_WRONLY | O_CLOEXEC);
	fd = ps_reopen(&own, O_RDWR);
	*(int *)result = fd;
	ps_reopen_close(fd);
	close(own.fd);
	return NULL;
}

START_TEST(thread_with_files_of_its_own)
{
	pthread_t thread;
	int fd = -1;

	ck_assert_int_eq(pthread_create(&thread, NULL, reopen_in_thread, &fd), 0);
	pthread_join(thread, NULL);
	ck_assert_int_ge(fd, 1000);
}
END_TEST

/* Not while somebody has a lock on the file, whoever that is: closing could drop it. */
START_TEST(locked_file)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 9, .l_len = 1 };
	const int other = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_eq(fcntl(file.fd, F_SETLK, &lock), 0);
	ck_assert_int_eq(ps_reopen(&file, O_RDWR), -EBUSY);
	lock.l_type = F_UNLCK;
	ck_assert_int_eq(fcntl(file.fd, F_SETLK, &lock), 0);
	ps_reopen_close(reopened(O_RDWR));
	lock.l_type = F_RDLCK;
	ck_assert_int_eq(fcntl(other, F_OFD_SETLK, &lock), 0);
	ck_assert_int_eq(ps_reopen(&file, O_RDWR), -EBUSY);
	close(other);
	ps_reopen_close(reopened(O_RDWR));
}
END_TEST

static atomic_int turn;

static void *take_turn(void *argument)
{
	const int fd = *(const int *)argument;

	bool mine;

	ps_reopen_exclude(fd, 70000);
	mine = atomic_load(&turn) == 1;
	ps_reopen_include(fd, 70000);
	return mine ? argument : NULL;
}

START_TEST(one_at_a_time)
{
	int first = reopened(O_RDWR), second = reopened(O_RDWR);
	pthread_t thread;
	void *result;

	ps_reopen_exclude(first, 65536);
	/* Another stretch is another matter. */
	ps_reopen_exclude(second, 65535);
	ps_reopen_include(second, 65535);
	atomic_store(&turn, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, take_turn, &second), 0);
	usleep(10000);
	atomic_store(&turn, 1);
	ps_reopen_include(first, 65536);
	pthread_join(thread, &result);
	ck_assert_ptr_nonnull(result);

	/* Closing lets go, too. */
	atomic_store(&turn, 0);
	ps_reopen_exclude(first, 131071);
	ck_assert_int_eq(pthread_create(&thread, NULL, take_turn, &second), 0);
	usleep(10000);
	atomic_store(&turn, 1);
	ps_reopen_close(first);
	pthread_join(thread, &result);
	ck_assert_ptr_nonnull(result);
	ps_reopen_close(second);
}
END_TEST

START_TEST(holder_is_killed)
{
	const int fd = reopened(O_RDWR);
	int child = fork();

	if (child == 0) {
		ps_reopen_exclude(ps_reopen(&file, O_RDWR), 0);
		raise(SIGSTOP);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, NULL, WUNTRACED), child);
	kill(child, SIGKILL);
	ck_assert_int_eq(scratch_wait(child), -SIGKILL);
	ps_reopen_exclude(fd, 0);
	ps_reopen_close(fd);
}
END_TEST

/* Locks of programs that cover everything, and file systems without such locks, do not stop anybody. */
START_TEST(no_lock_to_be_had)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	const int fd = reopened(O_RDWR), other = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_eq(fcntl(other, F_OFD_SETLK, &lock), 0);
	ps_reopen_exclude(fd, 5);
	ps_reopen_include(fd, 5);
	close(other);
	ps_fault_set(PS_OS_FSTAT, 1, UINT_MAX, ENOLCK);
	ps_reopen_exclude(fd, 5);
	ps_reopen_include(fd, 5);
	ps_reopen_close(fd);
}
END_TEST

static Suite *suite(void)
{
	Suite *suite = suite_create("reopen");
	TCase *tcase = tcase_create("reopen");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, flags);
	tcase_add_test(tcase, failures);
	tcase_add_test(tcase, thread_with_files_of_its_own);
	tcase_add_test(tcase, locked_file);
	tcase_add_test(tcase, one_at_a_time);
	tcase_add_test(tcase, holder_is_killed);
	tcase_add_test(tcase, no_lock_to_be_had);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	const int fd = mkostemp(path, O_CLOEXEC);
	SRunner *runner;
	int failed;

	if (fd < 0)
		return 1;
	close(fd);
	runner = srunner_create(suite());
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	unlink(path);
	return failed != 0;
}
