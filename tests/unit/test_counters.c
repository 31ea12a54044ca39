/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting: exact from any number of threads, and the peak where it matters.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "budget.h"
#include "counters.h"
#include "log.h"
#include "names.h"
#include "scratch.h"
#include "table.h"

static void setup(void)
{
	ps_log_level = PS_LOG_ERROR;
	scratch_enter();
	ck_assert_int_eq(ps_table_start(), 0);
}

static struct pinshim_entry sum_of(enum pinshim_entry_point entry)
{
	struct pinshim_entry sum;

	ps_count_sum(ps_table(), entry, &sum);
	return sum;
}

static uint64_t peak_of(enum pinshim_entry_point entry)
{
	return ps_table()->live_peak_bytes[entry];
}

START_TEST(each_kind_counts_where_it_should)
{
	struct pinshim_entry sum;

	ps_count_served(PINSHIM_ENTRY_ALIGNED, 100, 512);
	ps_count_served(PINSHIM_ENTRY_ALIGNED, 1000, 1024);
	ps_count_freed(PINSHIM_ENTRY_ALIGNED, 512);
	ps_count_fallback(PINSHIM_ENTRY_ALIGNED);
	ps_count_failed(PINSHIM_ENTRY_ALIGNED);
	sum = sum_of(PINSHIM_ENTRY_ALIGNED);
	ck_assert_uint_eq(ps_count_calls(&sum), 4);
	ck_assert_uint_eq(sum.served, 2);
	ck_assert_uint_eq(sum.fallback, 1);
	ck_assert_uint_eq(sum.failed, 1);
	ck_assert_uint_eq(sum.requested_bytes, 1100);
	ck_assert_uint_eq(sum.served_bytes, 1536);
	ck_assert_uint_eq(sum.freed, 1);
	ck_assert_uint_eq(sum.freed_bytes, 512);
	sum = sum_of(PINSHIM_ENTRY_MALLOC);
	ck_assert_uint_eq(ps_count_calls(&sum), 0);
}
END_TEST

START_TEST(resizing_changes_bytes_and_no_blocks)
{
	struct pinshim_entry sum;

	ps_count_served(PINSHIM_ENTRY_MALLOC, 4000, 4096);
	ps_count_resized(PINSHIM_ENTRY_MALLOC, 8000, 4096, 8192);
	ck_assert_uint_eq(peak_of(PINSHIM_ENTRY_MALLOC), 8192);
	ps_count_resized(PINSHIM_ENTRY_MALLOC, 100, 8192, 4096);
	sum = sum_of(PINSHIM_ENTRY_MALLOC);
	ck_assert_uint_eq(ps_count_calls(&sum), 1);
	ck_assert_uint_eq(sum.served - sum.freed, 1);
	ck_assert_uint_eq(sum.served_bytes - sum.freed_bytes, 4096);
	ck_assert_uint_ge(sum.served_bytes, sum.requested_bytes);
	ck_assert_uint_eq(peak_of(PINSHIM_ENTRY_MALLOC), 8192);
}
END_TEST

START_TEST(the_peak_of_a_small_program_is_exact)
{
	for (int i = 0; i < 20; i++)
		ps_count_served(PINSHIM_ENTRY_MALLOC, 65536, 65536);
	for (int i = 0; i < 20; i++)
		ps_count_freed(PINSHIM_ENTRY_MALLOC, 65536);
	ps_count_served(PINSHIM_ENTRY_MALLOC, 65536, 65536);
	ck_assert_uint_eq(peak_of(PINSHIM_ENTRY_MALLOC), 20 * 65536);
}
END_TEST

START_TEST(the_peak_of_a_large_one_is_near)
{
	const uint64_t block = 65536, blocks = 100000;

	for (uint64_t i = 0; i < blocks; i++)
		ps_count_served(PINSHIM_ENTRY_MALLOC, block, block);
	ck_assert_uint_le(peak_of(PINSHIM_ENTRY_MALLOC), block * blocks);
	ck_assert_uint_ge(peak_of(PINSHIM_ENTRY_MALLOC), block * blocks / 64 * 63);
}
END_TEST

static void *hold_gibibyte(void *unused)
{
	ps_count_served(PINSHIM_ENTRY_MALLOC, 1 << 30, 1 << 30);
	return unused;
}

/* For this thread holds no more than it held before, and would not look for its own sake. */
START_TEST(the_peak_is_looked_at_again_when_another_thread_has_grown)
{
	pthread_t thread;

	for (int i = 0; i < 1000; i++) {
		ps_count_served(PINSHIM_ENTRY_MALLOC, 1 << 20, 1 << 20);
		ps_count_freed(PINSHIM_ENTRY_MALLOC, 1 << 20);
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, hold_gibibyte, NULL), 0);
	pthread_join(thread, NULL);
	ps_count_served(PINSHIM_ENTRY_MALLOC, 1 << 20, 1 << 20);
	ck_assert_uint_eq(peak_of(PINSHIM_ENTRY_MALLOC), (1 << 30) + (1 << 20));
}
END_TEST

#define THREADS 24 /* more than there are stripes */
#define TIMES 20000

static pthread_barrier_t all_there;
static atomic_uint threads_of[PINSHIM_STRIPES];

static void *count(void *unused)
{
	(void)unused;
	atomic_fetch_add(&threads_of[ps_stripe_index()], 1);
	pthread_barrier_wait(&all_there);
	for (int i = 0; i < TIMES; i++) {
		ps_count_served(PINSHIM_ENTRY_MALLOC, 10, 16);
		ps_count_served(PINSHIM_ENTRY_CU_MEM_HOST_REGISTER, 1, 1);
		ps_count_freed(PINSHIM_ENTRY_MALLOC, 16);
		if (i == TIMES / 2)
			ps_table_publish(); /* each of them; one makes the file */
	}
	return NULL;
}

START_TEST(threads_add_up_exactly)
{
	pthread_t thread[THREADS];
	struct pinshim_entry sum;
	unsigned used = 0;

	pthread_barrier_init(&all_there, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, count, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	sum = sum_of(PINSHIM_ENTRY_MALLOC);
	ck_assert_uint_eq(ps_count_calls(&sum), THREADS * TIMES);
	ck_assert_uint_eq(sum.served, THREADS * TIMES);
	ck_assert_uint_eq(sum.freed, THREADS * TIMES);
	ck_assert_uint_eq(sum.requested_bytes, 10 * THREADS * TIMES);
	ck_assert_uint_eq(sum.served_bytes, 16 * THREADS * TIMES);
	ck_assert_uint_eq(sum.freed_bytes, 16 * THREADS * TIMES);
	ck_assert_uint_eq(sum_of(PINSHIM_ENTRY_CU_MEM_HOST_REGISTER).served, THREADS * TIMES);
	/* Two that run at once count in different lines. */
	for (int i = 0; i < PINSHIM_STRIPES; i++)
		used += ps_table()->stripe[i].entry[PINSHIM_ENTRY_MALLOC].served > 0;
	ck_assert_uint_eq(used, PINSHIM_STRIPES);
	/* As far as there are enough; and the others have about as many each. */
	for (int i = 0; i < PINSHIM_STRIPES; i++)
		ck_assert_uint_eq(atomic_load(&threads_of[i]), i < PS_STRIPES_OWN ? 1 : 2);
	ps_table_close();
}
END_TEST

static atomic_bool enough;

static void *count_until_enough(void *times)
{
	unsigned long counted = 0;

	for (; !atomic_load_explicit(&enough, memory_order_relaxed); counted++)
		ps_count_served(PINSHIM_ENTRY_MALLOC, 1, 2);
	*(unsigned long *)times = counted;
	return NULL;
}

/* The memory that they count in is replaced, again and again. */
START_TEST(nothing_is_lost_in_a_switch)
{
	unsigned long times[4], all = 0;
	pthread_t thread[4];

	ck_assert_int_eq(ps_table_publish(), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, count_until_enough, &times[i]),
				 0);
	for (int i = 0; i < 500; i++) {
		ps_table_close();
		ps_table_reopen();
	}
	atomic_store(&enough, true);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		all += times[i];
	}
	ck_assert_uint_eq(sum_of(PINSHIM_ENTRY_MALLOC).served, all);
	ck_assert_uint_eq(sum_of(PINSHIM_ENTRY_MALLOC).served_bytes, 2 * all);
	ps_table_close();
}
END_TEST

static void *count_one(void *stripe)
{
	ps_count_served(PINSHIM_ENTRY_MALLOC, 10, 16);
	*(unsigned *)stripe = ps_stripe_index();
	return NULL;
}

/* A stripe of its own is had again when its thread is gone: pools of threads come and go. */
START_TEST(threads_that_come_and_go)
{
	pthread_t thread;
	unsigned stripe;

	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(pthread_create(&thread, NULL, count_one, &stripe), 0);
		pthread_join(thread, NULL);
		/* The last one's id may be in use for a moment longer. */
		ck_assert_uint_lt(stripe, PS_STRIPES_OWN);
	}
	ck_assert_uint_eq(sum_of(PINSHIM_ENTRY_MALLOC).served, 100);
	ck_assert_uint_eq(sum_of(PINSHIM_ENTRY_MALLOC).served_bytes, 1600);
}
END_TEST

/* A child's only thread goes on in the stripe that it had, and no other takes that. */
START_TEST(a_child_keeps_its_stripe)
{
	const unsigned mine = ps_stripe_index();
	pthread_t thread;
	unsigned stripe;
	pid_t child;

	ck_assert_uint_lt(mine, PS_STRIPES_OWN);
	child = fork();
	if (child == 0) {
#ifdef __SANITIZE_THREAD__
		_exit(0); /* it allows a child no threads */
#endif
		ps_table_fork_child();
		ps_counters_fork_child();
		pthread_create(&thread, NULL, count_one, &stripe);
		pthread_join(thread, NULL);
		_exit(ps_stripe_index() != mine || stripe == mine);
	}
	ck_assert_int_eq(scratch_wait(child), 0);
}
END_TEST

static atomic_uint handled;

static void count_in_handler(int unused)
{
	(void)unused;
	ps_count_served(PINSHIM_ENTRY_MALLOC, 1, 1);
	ps_count_freed(PINSHIM_ENTRY_MALLOC, 1);
	atomic_fetch_add(&handled, 1);
}

START_TEST(signal_handlers_count_too)
{
	const struct itimerval often = { { 0, 50 }, { 0, 50 } }, never = { { 0, 0 }, { 0, 0 } };
	const struct sigaction action = { .sa_handler = count_in_handler };
	unsigned counted = 0;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	while (counted < 100000 || atomic_load(&handled) < 100) {
		ps_count_served(PINSHIM_ENTRY_MALLOC, 1, 1);
		counted++;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	ck_assert_uint_eq(sum_of(PINSHIM_ENTRY_MALLOC).served, counted + atomic_load(&handled));
	ck_assert_uint_eq(sum_of(PINSHIM_ENTRY_MALLOC).freed, atomic_load(&handled));
}
END_TEST

/* Each word in its place, in any stripe. */
START_TEST(asynchronous_io_adds_up)
{
	struct pinshim_table *table = ps_table();
	struct pinshim_aio sum;

	for (unsigned word = 0; word < sizeof(sum) / sizeof(uint64_t); word++) {
		((uint64_t *)&table->stripe[0].aio)[word] = word + 1;
		((uint64_t *)&table->stripe[PINSHIM_STRIPES - 1].aio)[word] = 100;
	}
	ps_count_aio_sum(table, &sum);
	ck_assert_uint_eq(sum.submitted, 101);
	ck_assert_uint_eq(sum.fixed, 103);
	ck_assert_uint_eq(sum.repaired, 106);
	ck_assert_uint_eq(sum.bytes, 109);
	ck_assert_uint_eq(sum.dropped, 113);
	ck_assert_uint_eq(sum.reserved[0], 0);
	ck_assert_uint_eq(sum.reserved[2], 0);
}
END_TEST

/* What is counted before the file exists is in the file. */
START_TEST(asynchronous_io_of_before_is_published)
{
	struct pinshim_aio sum;

	ps_count_add(&ps_stripe()->aio.submitted, 7);
	ck_assert_int_eq(ps_table_publish(), 0);
	ps_count_add(&ps_stripe()->aio.submitted, 1);
	ps_count_aio_sum(ps_table(), &sum);
	ck_assert_uint_eq(sum.submitted, 8);
	ps_table_close();
}
END_TEST

/* Counters of different threads lie in different cache lines. */
START_TEST(stripes_share_no_line)
{
	ck_assert_uint_eq(sizeof(struct pinshim_stripe) % 64, 0);
	ck_assert_uint_eq(offsetof(struct pinshim_table, stripe) % 64, 0);
	ck_assert_uint_eq(sizeof(struct pinshim_entry), 64);
}
END_TEST

START_TEST(a_peak_only_rises)
{
	uint64_t peak = 5;

	ps_count_peak(&peak, 4);
	ck_assert_uint_eq(peak, 5);
	ps_count_peak(&peak, 6);
	ck_assert_uint_eq(peak, 6);
}
END_TEST

START_TEST(everything_has_a_name_of_its_own)
{
	for (unsigned i = 0; i < PINSHIM_ENTRIES; i++) {
		ck_assert_ptr_nonnull(ps_entry_name(i));
		for (unsigned j = 0; j < i; j++)
			ck_assert_str_ne(ps_entry_name(i), ps_entry_name(j));
	}
	ck_assert_ptr_null(ps_entry_name(PINSHIM_ENTRIES));
	for (unsigned i = 0; i < PS_LIMITS; i++) {
		ck_assert_ptr_nonnull(pinshim_limit_name(i));
		for (unsigned j = 0; j < i; j++)
			ck_assert_str_ne(pinshim_limit_name(i), pinshim_limit_name(j));
	}
	ck_assert_ptr_null(pinshim_limit_name(PS_LIMITS));
	for (unsigned i = 0; i < PS_AIO_WORDS; i++) {
		ck_assert_ptr_nonnull(ps_aio_name(i));
		for (unsigned j = 0; j < i; j++)
			ck_assert_str_ne(ps_aio_name(i), ps_aio_name(j));
	}
	ck_assert_ptr_null(ps_aio_name(PS_AIO_WORDS));
	ck_assert_ptr_nonnull(ps_hook_name(4));
	ck_assert_ptr_null(ps_hook_name(5));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("counters");
	TCase *tcase = tcase_create("counters");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_unchecked_fixture(tcase, scratch_begin, scratch_end);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, each_kind_counts_where_it_should);
	tcase_add_test(tcase, resizing_changes_bytes_and_no_blocks);
	tcase_add_test(tcase, the_peak_of_a_small_program_is_exact);
	tcase_add_test(tcase, the_peak_of_a_large_one_is_near);
	tcase_add_test(tcase, the_peak_is_looked_at_again_when_another_thread_has_grown);
	tcase_add_test(tcase, threads_add_up_exactly);
	tcase_add_test(tcase, asynchronous_io_adds_up);
	tcase_add_test(tcase, asynchronous_io_of_before_is_published);
	tcase_add_test(tcase, nothing_is_lost_in_a_switch);
	tcase_add_test(tcase, threads_that_come_and_go);
	tcase_add_test(tcase, a_child_keeps_its_stripe);
	tcase_add_test(tcase, signal_handlers_count_too);
	tcase_add_test(tcase, stripes_share_no_line);
	tcase_add_test(tcase, a_peak_only_rises);
	tcase_add_test(tcase, everything_has_a_name_of_its_own);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
