/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for I/O, from the allocator in this program; and, where libpinshim.so is preloaded
 * (tests/aio/shared_heap.sh), from its heap. Each case is a process of its own, in which nothing has
 * begun yet.
 */
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../aio/memory.h"
#include "../../aio/pinned.h"
#include "config.h"
#include "counters.h"
#include "fault.h"
#include "log.h"
#include "os.h"
#include "scratch.h"
#include "table.h"
#include "window.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static void setup(void)
{
	ps_fault_clear();
	ps_config.limit = UINT64_MAX;
	ps_log_level = PS_LOG_ERROR;
	ps_memory_start();
	errno = 0;
}

static void teardown(void)
{
	ck_assert_int_eq(errno, 0);
	ps_table_close();
}

START_TEST(begins_at_the_first_block)
{
	void *block;

	ck_assert(!ps_memory_is_shared());
	ck_assert(!ps_memory_is_own());
	ck_assert(!ps_memory_is_pinned(&block, 1));
	ps_memory_free(NULL);
	ck_assert_uint_eq(ps_window.size, 0);
	block = ps_memory_alloc(100, 1);
	ck_assert_ptr_nonnull(block);
	ck_assert(ps_memory_is_own());
	ck_assert_uint_gt(ps_window.size, 0);
	ck_assert_ptr_nonnull(ps_table_path());
	ps_memory_free(block);
}
END_TEST

START_TEST(lengths_and_alignments)
{
	static const size_t lengths[] = { 0, 1, 511, 4096, 100000, 3 * MIB, 20 * MIB };

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (size_t align = 1; align <= 2 * MIB; align *= 2) {
			char *block = ps_memory_alloc(lengths[i], align);

			ck_assert_ptr_nonnull(block);
			ck_assert_uint_eq((uintptr_t)block % align, 0);
			ck_assert(ps_memory_is_pinned(block, lengths[i]));
			memset(block, 1, lengths[i]);
			ps_memory_free(block);
		}
}
END_TEST

/* What pinned.h sees of it. */
START_TEST(is_in_the_table)
{
	void *block = ps_memory_alloc(MIB, 4096);
	struct ps_piece piece;

	while (ps_pinned_generation() == 0)
		sched_yield();
	ck_assert(ps_pinned_piece((uintptr_t)block, MIB, &piece));
	ps_memory_free(block);
}
END_TEST

static void *alloc_in_thread(void *unused)
{
	(void)unused;
	return ps_memory_alloc(MIB, 4096);
}

START_TEST(several_threads_begin_at_once)
{
	pthread_t thread[4];
	void *block;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, alloc_in_thread, NULL), 0);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(thread[i], &block), 0);
		ck_assert_ptr_nonnull(block);
		ck_assert(ps_memory_is_pinned(block, MIB));
		ps_memory_free(block);
	}
}
END_TEST

/* Ordinary memory in the place of pinned: aligned, writable, and given back whole. */
static void expect_any(bool expected)
{
	static const size_t lengths[] = { 0, 1, 4096, 5000, 3 * MIB };
	bool pinned = !expected;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (size_t align = 1; align <= 2 * MIB; align *= 2) {
			const unsigned unmaps = ps_fault_reached(PS_OS_MUNMAP);
			char *block = ps_memory_alloc_any(lengths[i], align, &pinned);

			ck_assert_ptr_nonnull(block);
			ck_assert(pinned == expected);
			ck_assert_uint_eq((uintptr_t)block % align, 0);
			ck_assert(ps_memory_is_pinned(block, lengths[i]) == expected);
			memset(block, 1, lengths[i]);
			ps_memory_free_any(block, lengths[i], pinned);
			ck_assert(expected || ps_fault_reached(PS_OS_MUNMAP) > unmaps);
		}
	ps_memory_free_any(NULL, 0, false);
}

START_TEST(any_is_pinned_where_it_can_be)
{
	expect_any(true);
}
END_TEST

START_TEST(over_a_limit)
{
	ps_config.limit = MIB;
	ck_assert_ptr_null(ps_memory_alloc(MIB, 4096));
	ck_assert_uint_eq(ps_table()->stripe[0].entry[PINSHIM_ENTRY_PINSHIM_ALLOC].failed, 1);
	expect_any(false);
}
END_TEST

START_TEST(switched_off)
{
	ps_config.backend = PS_BACKEND_OFF;
	ck_assert_ptr_null(ps_memory_alloc(MIB, 4096));
	ck_assert(!ps_memory_is_own());
	expect_any(false);
	ck_assert_uint_eq(ps_window.size, 0);
}
END_TEST

START_TEST(no_addresses_for_a_heap)
{
	ps_fault_set(PS_OS_MMAP, 1, 64, ENOMEM);
	ck_assert_ptr_null(ps_memory_alloc(MIB, 4096));
	ps_fault_clear();
	ck_assert_ptr_null(ps_memory_alloc(MIB, 4096));
	expect_any(false);
}
END_TEST

START_TEST(no_memory_at_all)
{
	bool pinned;

	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	ck_assert_ptr_null(ps_memory_alloc_any(MIB, 4096, &pinned));
}
END_TEST

static int in_a_child(char *inherited)
{
	char *block;

	if (ps_memory_is_pinned(inherited, 1) || *inherited != 'x')
		return 1;
	block = ps_memory_alloc(MIB, 4096);
	if (block == NULL || !ps_memory_is_pinned(block, MIB))
		return 2;
	if (ps_table_path() == NULL || strcmp(ps_table_path(), scratch_table()) != 0)
		return 3;
	ps_memory_free(inherited);
	ps_memory_free(block);
	ps_table_close();
	return 0;
}

static void handlers(void)
{
	pthread_atfork(ps_memory_fork_prepare, ps_memory_fork_parent, ps_memory_fork_child);
}

START_TEST(a_forked_child)
{
	char *block;
	int pid;

	handlers();
	/* Before there is a heap. */
	pid = fork();
	if (pid == 0) {
		block = ps_memory_alloc(1, 1);
		_exit(block == NULL || !ps_memory_is_pinned(block, 1));
	}
	ck_assert_int_eq(scratch_wait(pid), 0);
	block = ps_memory_alloc(MIB, 4096);
	*block = 'x';
	pid = fork();
	if (pid == 0)
		_exit(in_a_child(block));
	ck_assert_int_eq(scratch_wait(pid), 0);
	ck_assert(ps_memory_is_pinned(block, MIB));
	ps_memory_free(block);
	block = ps_memory_alloc(20 * MIB, 4096);
	ck_assert(ps_memory_is_pinned(block, 20 * MIB));
	ps_memory_free(block);
}
END_TEST

static _Atomic(int) stop;

static void *alloc_until_stopped(void *unused)
{
	(void)unused;
	while (!stop)
		ps_memory_free(ps_memory_alloc(64 * KIB, 4096));
	return NULL;
}

START_TEST(forks_under_threads)
{
	pthread_t thread[2];
	void *block;
	int pid;

	handlers();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, alloc_until_stopped, NULL), 0);
	for (int i = 0; i < 20; i++) {
		pid = fork();
		if (pid == 0) {
			block = ps_memory_alloc(64 * KIB, 4096);
			ps_memory_free(block);
			_exit(block == NULL);
		}
		ck_assert_int_eq(scratch_wait(pid), 0);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
}
END_TEST

/* With libpinshim.so in the process: its heap, and nothing of the allocator here. */

static bool is_off(void)
{
	const char *backend = getenv("PINSHIM_BACKEND");

	return backend != NULL && strcmp(backend, "off") == 0;
}

START_TEST(from_the_heap_of_the_library)
{
	struct ps_piece piece;
	int (*is_pinned)(const void *address, size_t length);
	void *block;

	*(void **)&is_pinned = dlsym(RTLD_DEFAULT, "pinshim_is_pinned");
	ck_assert_ptr_nonnull(is_pinned);
	ck_assert(ps_memory_is_shared());
	block = ps_memory_alloc(MIB, 4096);
	ck_assert_ptr_nonnull(block);
	ck_assert_int_eq(is_pinned(block, MIB), 1);
	ck_assert(ps_memory_is_pinned(block, MIB));
	while (ps_pinned_generation() == 0)
		sched_yield();
	ck_assert(ps_pinned_piece((uintptr_t)block, MIB, &piece));
	ps_memory_free(block);
	ps_memory_free(NULL);
	expect_any(true);
	ck_assert(!ps_memory_is_own());
	ck_assert_uint_eq(ps_window.size, 0);
}
END_TEST

START_TEST(the_library_is_off)
{
	ck_assert(ps_memory_is_shared());
	ck_assert_ptr_null(ps_memory_alloc(MIB, 4096));
	expect_any(false);
	ck_assert(!ps_memory_is_own());
	ck_assert_uint_eq(ps_window.size, 0);
}
END_TEST

static void add_cases(TCase *tcase)
{
	tcase_add_test(tcase, begins_at_the_first_block);
	tcase_add_test(tcase, lengths_and_alignments);
	tcase_add_test(tcase, is_in_the_table);
	tcase_add_test(tcase, several_threads_begin_at_once);
	tcase_add_test(tcase, any_is_pinned_where_it_can_be);
	tcase_add_test(tcase, over_a_limit);
	tcase_add_test(tcase, switched_off);
	tcase_add_test(tcase, no_addresses_for_a_heap);
	tcase_add_test(tcase, no_memory_at_all);
	tcase_add_test(tcase, a_forked_child);
	tcase_add_test(tcase, forks_under_threads);
}

int main(void)
{
	const bool shared = dlsym(RTLD_DEFAULT, "pinshim_present") != NULL;
	Suite *suite = suite_create("memory");
	TCase *tcase = tcase_create(shared ? "shared" : "own");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 60);
	if (!shared) {
		tcase_add_unchecked_fixture(tcase, scratch_begin, scratch_end);
		tcase_add_checked_fixture(tcase, scratch_enter, NULL);
	}
	tcase_add_checked_fixture(tcase, setup, teardown);
	if (!shared)
		add_cases(tcase);
	else if (is_off())
		tcase_add_test(tcase, the_library_is_off);
	else
		tcase_add_test(tcase, from_the_heap_of_the_library);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_FORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
