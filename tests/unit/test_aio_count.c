/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting I/O: before there is a table, when one appears, in threads, and after a fork. The table is
 * a file made here, as that of another library in this process would be.
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../aio/pinned.h"
#include "count.h"
#include "counters.h"
#include "os.h"
#include "scratch.h"
#include "table.h"

#define BYTES ((size_t)64 << 10)

/* Makes the table of a process whose allocator is not this program's, and returns it mapped. */
static struct pinshim_table *make_table(void)
{
	const char *path = scratch_table();
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct pinshim_table *table;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, BYTES), 0);
	table = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(table, MAP_FAILED);
	close(fd);
	table->version = PINSHIM_TABLE_VERSION;
	table->header_bytes = sizeof(*table);
	table->pid = (uint32_t)getpid();
	table->start_time = ps_os_start_time(getpid());
	table->ranges_offset = sizeof(*table);
	table->generation = 1;
	table->magic = PINSHIM_TABLE_MAGIC;
	return table;
}

static uint64_t sum_of(const struct pinshim_table *table, unsigned word)
{
	struct pinshim_aio sum;

	ps_count_aio_sum(table, &sum);
	return ((const uint64_t *)&sum)[word];
}

static void find_table(void)
{
	while (ps_pinned_generation() == 0)
		sched_yield();
}

START_TEST(kept_until_there_is_a_table)
{
	struct pinshim_table *table;

	ps_aio_count(PS_AIO(submitted), 3);
	ps_aio_count(PS_AIO(dropped), 1);
	ps_aio_count_publish();
	ck_assert_uint_eq(sum_of(ps_table(), PS_AIO(submitted)), 3);
	table = make_table();
	find_table();
	ps_aio_count_publish();
	ck_assert_uint_eq(sum_of(table, PS_AIO(submitted)), 3);
	ck_assert_uint_eq(sum_of(table, PS_AIO(dropped)), 1);
	ck_assert_uint_eq(sum_of(ps_table(), PS_AIO(submitted)), 0);
	ps_aio_count_publish();
	ck_assert_uint_eq(sum_of(table, PS_AIO(submitted)), 3);
}
END_TEST

START_TEST(published_by_the_next_count)
{
	struct pinshim_table *table;

	ps_aio_count(PS_AIO(bytes), UINT64_C(1) << 40);
	table = make_table();
	find_table();
	ps_aio_count(PS_AIO(bytes), 1);
	ck_assert_uint_eq(sum_of(table, PS_AIO(bytes)), (UINT64_C(1) << 40) + 1);
	ck_assert_uint_eq(sum_of(ps_table(), PS_AIO(bytes)), 0);
}
END_TEST

START_TEST(every_word_is_its_own)
{
	struct pinshim_table *table = make_table();

	find_table();
	for (unsigned word = 0; word < PS_AIO_WORDS; word++)
		ps_aio_count(word, 100 + word);
	for (unsigned word = 0; word < PS_AIO_WORDS; word++)
		ck_assert_uint_eq(sum_of(table, word), 100 + word);
}
END_TEST

/* A table that is none any more: counts are kept again. */
START_TEST(a_table_that_went)
{
	struct pinshim_table *table = make_table();

	find_table();
	ps_aio_count(PS_AIO(failed), 1);
	ck_assert_uint_eq(sum_of(table, PS_AIO(failed)), 1);
	table->magic = 0;
	table->generation = 0;
	ps_aio_count(PS_AIO(failed), 1);
	ck_assert_uint_eq(sum_of(table, PS_AIO(failed)), 1);
	ck_assert_uint_eq(sum_of(ps_table(), PS_AIO(failed)), 1);
	ck_assert_int_eq(unlink(scratch_table()), 0);
	table = make_table();
	find_table();
	ps_aio_count_publish();
	ck_assert_uint_eq(sum_of(table, PS_AIO(failed)), 1);
}
END_TEST

/* The table is that of the allocator in this library: counts are there already. */
START_TEST(a_table_of_our_own)
{
	ck_assert_int_eq(ps_table_start(), 0);
	ps_aio_count(PS_AIO(direct), 5);
	ck_assert_int_eq(ps_table_publish(), 0);
	ck_assert_int_ge(ps_table_add(4096, 4096, PINSHIM_RANGE_LOCKED), 0);
	find_table();
	ps_aio_count_publish();
	ck_assert_uint_eq(sum_of(ps_table(), PS_AIO(direct)), 5);
	ps_aio_count(PS_AIO(direct), 2);
	ck_assert_uint_eq(sum_of(ps_table(), PS_AIO(direct)), 7);
	ps_table_close();
}
END_TEST

#define THREADS 20 /* more than there are stripes */
#define TURNS 5000

static void *count_in_thread(void *unused)
{
	(void)unused;
	for (int i = 0; i < TURNS; i++) {
		ps_aio_count(PS_AIO(submitted), 1);
		ps_aio_count(PS_AIO(bytes), 4096);
		if (i % 100 == 0)
			ps_pinned_generation();
	}
	return NULL;
}

START_TEST(threads_lose_nothing)
{
	struct pinshim_table *table;
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, count_in_thread, NULL), 0);
	table = make_table();
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	find_table();
	ps_aio_count_publish();
	ck_assert_uint_eq(sum_of(table, PS_AIO(submitted)), THREADS * TURNS);
	ck_assert_uint_eq(sum_of(table, PS_AIO(bytes)), UINT64_C(4096) * THREADS * TURNS);
}
END_TEST

static int in_a_child(void)
{
	ps_pinned_fork_child();
	ps_aio_count_fork_child();
	ps_aio_count(PS_AIO(submitted), 1);
	return sum_of(ps_table(), PS_AIO(submitted)) != 1;
}

START_TEST(a_child_begins_at_zero)
{
	struct pinshim_table *table;
	int pid;

	ps_aio_count(PS_AIO(submitted), 10);
	pid = fork();
	if (pid == 0)
		_exit(in_a_child());
	ck_assert_int_eq(scratch_wait(pid), 0);
	table = make_table();
	find_table();
	ps_aio_count(PS_AIO(submitted), 10);
	pid = fork();
	if (pid == 0)
		_exit(in_a_child());
	ck_assert_int_eq(scratch_wait(pid), 0);
	ck_assert_uint_eq(sum_of(table, PS_AIO(submitted)), 20);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("aio count");
	TCase *tcase = tcase_create("aio count");
	SRunner *runner;
	int failed;

	/* Each case is a process, so that it has no table at first. */
	tcase_set_timeout(tcase, 60);
	tcase_add_unchecked_fixture(tcase, scratch_begin, scratch_end);
	tcase_add_checked_fixture(tcase, scratch_enter, NULL);
	tcase_add_test(tcase, kept_until_there_is_a_table);
	tcase_add_test(tcase, published_by_the_next_count);
	tcase_add_test(tcase, every_word_is_its_own);
	tcase_add_test(tcase, a_table_that_went);
	tcase_add_test(tcase, a_table_of_our_own);
	tcase_add_test(tcase, threads_lose_nothing);
	tcase_add_test(tcase, a_child_begins_at_zero);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_FORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
