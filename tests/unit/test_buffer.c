/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounce buffers: their sizes and alignment, that they are used again, the limit on all together,
 * and what is left when memory cannot be locked or had.
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../aio/memory.h" /* not interpose/memory.h */
#include "buffer.h"
#include "config.h"
#include "fault.h"
#include "scratch.h"
#include "table.h"

#define MIB ((size_t)1 << 20)

static char directory[] = "/tmp/test_buffer.XXXXXX";

static void setup(void)
{
	ps_fault_clear();
}

/* Everything is put back, so the whole limit can be had again. */
static void teardown(void)
{
	struct ps_buffer all;

	ps_fault_clear();
	ck_assert_int_eq(ps_buffer_get(&all, PS_BOUNCE_MAX), 0);
	ps_buffer_put(&all);
}

START_TEST(sizes)
{
	struct ps_buffer buffer;

	for (size_t length = 1; length <= PS_BOUNCE_MAX; length += length / 7 + 1) {
		size_t align = 4096;

		ck_assert_int_eq(ps_buffer_get(&buffer, length), 0);
		ck_assert_uint_ge(buffer.length, length);
		ck_assert_uint_eq(buffer.length % 4096, 0);
		ck_assert(buffer.length <= 4096 || buffer.length <= length + length / 4 + 4096);
		while (align < 2 * MIB && 2 * align <= buffer.length)
			align *= 2;
		ck_assert_uint_eq((uintptr_t)buffer.memory & (align - 1), 0);
		ck_assert(ps_memory_is_pinned(buffer.memory, buffer.length));
		buffer.memory[0] = buffer.memory[buffer.length - 1] = 1;
		ps_buffer_put(&buffer);
	}
	ck_assert_int_eq(ps_buffer_get(&buffer, PS_BOUNCE_MAX + 1), -ENOMEM);
}
END_TEST

START_TEST(used_again)
{
	struct ps_buffer first, second, third;

	ck_assert_int_eq(ps_buffer_get(&first, 100000), 0);
	ck_assert_int_eq(ps_buffer_get(&second, 100000), 0);
	ck_assert_ptr_ne(first.memory, second.memory);
	ps_buffer_put(&first);
	ck_assert_int_eq(ps_buffer_get(&third, 99000), 0);
	ck_assert_ptr_eq(third.memory, first.memory);
	ps_buffer_put(&second);
	ps_buffer_put(&third);
}
END_TEST

START_TEST(no_more_than_the_limit)
{
	struct ps_buffer buffer[64], small;
	size_t count = 0;

	while (count < 64 && ps_buffer_get(&buffer[count], 3 * MIB) == 0)
		count++;
	ck_assert_uint_eq(count, PS_BOUNCE_MAX / (3 * MIB));
	ck_assert_int_eq(ps_buffer_get(&small, 2 * MIB), -ENOMEM);
	ck_assert_int_eq(ps_buffer_get(&small, MIB), 0);
	ps_buffer_put(&small);
	/* Beyond it there is ordinary memory. */
	ck_assert_int_eq(ps_buffer_get_extra(&small, 2 * MIB + 1), 0);
	ck_assert_uint_eq(small.length, 2 * MIB + 4096);
	ck_assert(!ps_memory_is_pinned(small.memory, 1));
	memset(small.memory, 1, small.length);
	ps_buffer_put(&small);
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	ck_assert_int_eq(ps_buffer_get_extra(&small, 2 * MIB), -ENOMEM);
	ps_fault_clear();
	/* What is kept of one size makes room for another. */
	while (count > 0)
		ps_buffer_put(&buffer[--count]);
	while (count < 64 && ps_buffer_get(&buffer[count], 2 * MIB) == 0)
		count++;
	ck_assert_uint_eq(count, PS_BOUNCE_MAX / (2 * MIB));
	while (count > 0)
		ps_buffer_put(&buffer[--count]);
}
END_TEST

START_TEST(memory_that_cannot_be_locked)
{
	struct ps_buffer buffer, again;

	ck_assert_int_eq(ps_buffer_get(&buffer, PS_BOUNCE_MAX), 0);
	ps_buffer_put(&buffer);
	ps_config.limit = 0;
	ck_assert_int_eq(ps_buffer_get(&buffer, 3 * MIB), 0);
	ps_config.limit = UINT64_MAX;
	ck_assert(!ps_memory_is_pinned(buffer.memory, 1));
	ck_assert_uint_eq((uintptr_t)buffer.memory & (2 * MIB - 1), 0);
	memset(buffer.memory, 1, buffer.length);
	ps_buffer_put(&buffer);
	ck_assert_int_eq(ps_buffer_get(&again, 3 * MIB), 0);
	ck_assert_ptr_eq(again.memory, buffer.memory);
	ps_buffer_put(&again);
}
END_TEST

START_TEST(no_memory)
{
	struct ps_buffer buffer;

	ps_config.limit = 0;
	for (int i = 0; i < 100; i++) {
		/* A size that nothing was kept of. */
		ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
		ck_assert_int_eq(ps_buffer_get(&buffer, 56 * MIB), -ENOMEM);
		ps_fault_clear();
	}
	ps_config.limit = UINT64_MAX;
}
END_TEST

START_TEST(forked_child_has_its_own)
{
	struct ps_buffer used, kept, fresh;
	int child;

	ck_assert_int_eq(ps_buffer_get(&used, 40 * MIB), 0);
	ck_assert_int_eq(ps_buffer_get(&kept, MIB), 0);
	ps_buffer_put(&kept);
	ps_buffer_fork_prepare();
	child = fork();
	if (child == 0) {
		int wrong;

		ps_buffer_fork_child();
		wrong = ps_buffer_get(&fresh, PS_BOUNCE_MAX) != 0 || fresh.memory == kept.memory ||
			fresh.memory == used.memory;
		ps_table_close();
		_exit(wrong);
	}
	ps_buffer_fork_parent();
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(scratch_wait(child), 0);
	ps_buffer_put(&used);
}
END_TEST

/* Each thread marks what it has, and nobody else may have it meanwhile. */
static void *take_and_put(void *argument)
{
	uint64_t random = (uintptr_t)argument;

	for (int turn = 0; turn < 3000; turn++) {
		struct ps_buffer buffer[3];
		int count = 0;

		while (count < 3 && ps_buffer_get(&buffer[count],
						  scratch_random(&random) % (600 << 10) + 1) == 0) {
			memset(buffer[count].memory, (int)(uintptr_t)argument, 64);
			count++;
		}
		while (count-- > 0) {
			for (int i = 0; i < 64; i++)
				if (buffer[count].memory[i] != (char)(uintptr_t)argument)
					return argument;
			ps_buffer_put(&buffer[count]);
		}
	}
	return NULL;
}

START_TEST(threads)
{
	pthread_t thread[4];
	void *failed;

	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, take_and_put, (void *)(i + 1)),
				 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], &failed);
		ck_assert_ptr_null(failed);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *suite = suite_create("buffer");
	TCase *tcase = tcase_create("buffer");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, sizes);
	tcase_add_test(tcase, used_again);
	tcase_add_test(tcase, no_more_than_the_limit);
	tcase_add_test(tcase, memory_that_cannot_be_locked);
	tcase_add_test(tcase, no_memory);
	tcase_add_test(tcase, forked_child_has_its_own);
	tcase_add_test(tcase, threads);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner;
	int failed;

	if (!mkdtemp(directory))
		return 1;
	ps_table_directory = directory;
	ps_config
		.retain = 0; /* what is given back cannot be had again without being pinned again */
	ps_log_level = PS_LOG_ERROR;
	runner = srunner_create(suite());
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	ps_table_close();
	rmdir(directory);
	return failed != 0;
}
