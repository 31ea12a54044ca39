/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Populating with several threads: every page is there, a thread that cannot be had is done without,
 * and none of them ever runs a signal handler of the program.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "config.h"
#include "os.h"
#include "pinned.h"
#include "populate.h"
#include "table.h"
#include "window.h"

#define AREA (96 * MIB)

static char *area;

static void setup(void)
{
	ps_fault_clear();
	ps_config.threads = 4;
	area = mmap(NULL, AREA + PS_GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	ck_assert_ptr_ne(area, MAP_FAILED);
	area = (char *)(((uintptr_t)area + PS_GRANULE - 1) & ~(PS_GRANULE - 1));
}

static void teardown(void)
{
	munmap(area, AREA);
}

static size_t resident(size_t length)
{
	static unsigned char pages[AREA / 4096];
	size_t there = 0;

	ck_assert_int_eq(mincore(area, length, pages), 0);
	for (size_t i = 0; i < length / 4096; i++)
		there += pages[i] & 1;
	return there * 4096;
}

static unsigned own_threads(void)
{
	return (unsigned)pinned_proc_kb("status", "Threads:");
}

START_TEST(every_page)
{
	static const size_t lengths[] = { 2 * MIB, 30 * MIB, 32 * MIB, 34 * MIB, 66 * MIB, AREA };
	const size_t length = lengths[_i % 6];

	ps_config.threads = _i / 6 == 0 ? 1 : _i / 6 == 1 ? 2 : _i / 6 == 2 ? 7 : 100;
	if (_i % 2)
		madvise(area, AREA, MADV_HUGEPAGE);
	ck_assert_int_eq(ps_populate(area, length, false, NULL), 0);
	ck_assert_uint_eq(resident(length), length);
	ck_assert_uint_eq(resident(AREA), length);
	ck_assert(pinned_is_zero(area, length));
	if (!SANITIZED)
		ck_assert_uint_eq(own_threads(), 1);
}
END_TEST

/* Shared memory, in huge pages if there are any, and whatever is refused there all the same. */
START_TEST(collapsed)
{
	static const struct {
		enum ps_os_call call;
		unsigned first, last;
		int error;
		const char *name;
	} faults[] = {
		{ PS_OS_MADVISE, 0, 0, 0, "nothing" },
		{ PS_OS_MADVISE, 1, 1, ENOMEM, "the first advice" },
		{ PS_OS_MADVISE, 2, UINT_MAX, EAGAIN, "all but the first" },
		{ PS_OS_MADVISE, 1, UINT_MAX, EINVAL, "all" },
		{ PS_OS_POPULATE, 1, 1, EFAULT, "the first page" },
	};
	const char *refused = faults[_i / 2].name;
	int64_t huge;
	char *shared;

	ps_config.threads = _i % 2 ? 4 : 1;
	shared = mmap(area, AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		      -1, 0);
	ck_assert_ptr_eq(shared, area);
	ps_fault_set(faults[_i / 2].call, faults[_i / 2].first, faults[_i / 2].last,
		     faults[_i / 2].error);
	ck_assert_int_eq(ps_populate(area, AREA, true, NULL), 0);
	ps_fault_clear();
	ck_assert_msg(resident(AREA) == AREA, "refused: %s", refused);
	ck_assert_msg(pinned_is_zero(area, AREA), "refused: %s", refused);
	huge = ps_os_huge_bytes(area, AREA);
	if (huge <= 0 && _i < 2)
		puts("skip - collapsed: no huge pages to be had, or seen");
	else if (_i < 4)
		ck_assert_msg(huge == (int64_t)AREA, "refused: %s", refused);
}
END_TEST

START_TEST(threads_that_cannot_be_had)
{
	for (unsigned nth = 1; nth <= 4; nth++) {
		ps_fault_set(PS_OS_CLONE, nth, UINT_MAX, EAGAIN);
		ck_assert_int_eq(ps_populate(area, AREA, false, NULL), 0);
		ps_fault_clear();
		ck_assert_uint_eq(resident(AREA), AREA);
		madvise(area, AREA, MADV_DONTNEED);
	}
	/* Nor stacks for them. */
	ps_fault_set(PS_OS_MMAP, 1, 1, ENOMEM);
	ck_assert_int_eq(ps_populate(area, AREA, false, NULL), 0);
	ps_fault_clear();
	ck_assert_uint_eq(resident(AREA), AREA);
}
END_TEST

START_TEST(errors_are_reported)
{
	for (unsigned nth = 1; nth <= 5; nth++) {
		if (UNDER_TSAN && nth > 1)
			break; /* one thread, one call */
		ps_fault_set(PS_OS_POPULATE, nth, nth, EFAULT);
		ck_assert_int_eq(ps_populate(area, AREA, false, NULL), -EFAULT);
		ps_fault_clear();
		madvise(area, AREA, MADV_DONTNEED);
	}
	/* The kernel's own: part of the range is not writable. */
	ck_assert_int_eq(mprotect(area + 50 * MIB, 4096, PROT_NONE), 0);
	ck_assert_int_eq(ps_populate(area, AREA, false, NULL), -EINVAL);
}
END_TEST

/* The budget is told of each part, and of no more than there is. */
START_TEST(what_arrived_is_told)
{
	const uint64_t before = ps_table()->present_bytes;
	size_t arrived = 1;

	ps_config.threads = _i == 0 ? 1 : 4;
	ck_assert_int_eq(ps_populate(area, AREA, false, &arrived), 0);
	ck_assert_uint_eq(arrived, AREA);
	ck_assert_uint_eq(ps_table()->present_bytes - before, AREA);
	ps_fault_set(PS_OS_POPULATE, 3, 3, EFAULT);
	ck_assert_int_eq(ps_populate(area, AREA, false, &arrived), -EFAULT);
	ck_assert_uint_gt(arrived, 0);
	ck_assert_uint_lt(arrived, AREA);
	ck_assert_uint_eq(ps_table()->present_bytes - before, AREA + arrived);
	ps_fault_set(PS_OS_POPULATE, 1, UINT_MAX, EFAULT);
	ck_assert_int_eq(ps_populate(area, AREA, false, &arrived), -EFAULT);
	ck_assert_uint_eq(arrived, 0);
	ps_fault_clear();
	ck_assert_int_eq(ps_populate(area, AREA, false, NULL), 0);
}
END_TEST

START_TEST(errno_is_left_alone)
{
	errno = 77;
	ck_assert_int_eq(ps_populate(area, AREA, false, NULL), 0);
	ps_fault_set(PS_OS_CLONE, 1, UINT_MAX, EAGAIN);
	ck_assert_int_eq(ps_populate(area, AREA, false, NULL), 0);
	ck_assert_int_eq(errno, 77);
}
END_TEST

static pid_t main_thread;
static atomic_uint handled, elsewhere;

static void handler(int signal)
{
	(void)signal;
	atomic_fetch_add(&handled, 1);
	if ((pid_t)syscall(SYS_gettid) != main_thread)
		atomic_fetch_add(&elsewhere, 1);
}

START_TEST(signals_are_handled_by_the_callers_thread)
{
	const struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART }, before;
	sigset_t mask, same; /* of which the kernel fills in the part that it knows */

	memset(&mask, 0, sizeof(mask));
	memset(&same, 0, sizeof(same));
	main_thread = (pid_t)syscall(SYS_gettid);
	sigaction(SIGALRM, &action, &before);
	sigprocmask(SIG_SETMASK, NULL, &mask);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int turn = 0; turn < 10; turn++) {
		ck_assert_int_eq(ps_populate(area, AREA, false, NULL), 0);
		ck_assert_uint_eq(resident(AREA), AREA);
		madvise(area, AREA, MADV_DONTNEED);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	sigprocmask(SIG_SETMASK, NULL, &same);
	sigaction(SIGALRM, &before, NULL);
	ck_assert_int_eq(memcmp(&mask, &same, sizeof(mask)), 0);
	ck_assert_uint_gt(atomic_load(&handled), 0);
	ck_assert_uint_eq(atomic_load(&elsewhere), 0);
}
END_TEST

static void *populate_part(void *part)
{
	return (void *)(intptr_t)ps_populate(part, 32 * MIB, false, NULL);
}

START_TEST(several_at_once)
{
	pthread_t thread[3];
	void *result;

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, populate_part,
						area + (size_t)i * 32 * MIB),
				 0);
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], &result);
		ck_assert_ptr_null(result);
	}
	ck_assert_uint_eq(resident(AREA), AREA);
}
END_TEST

static void add(TCase *tcase)
{
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, every_page, 0, 24);
	tcase_add_loop_test(tcase, collapsed, 0, 10);
	tcase_add_test(tcase, threads_that_cannot_be_had);
	tcase_add_test(tcase, errors_are_reported);
	tcase_add_loop_test(tcase, what_arrived_is_told, 0, 2);
	tcase_add_test(tcase, errno_is_left_alone);
	tcase_add_test(tcase, signals_are_handled_by_the_callers_thread);
	tcase_add_test(tcase, several_at_once);
}

int main(void)
{
	return pinned_main("populate", add);
}
