/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What CUDA allocated or registered: found, published, counted, and withdrawn, against a model that is
 * an array.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counters.h"
#include "foreign.h"
#include "os.h"
#include "pinned.h"
#include "tracked.h"

#define BASE ((uintptr_t)0x7000000000)
#define PAGE ((size_t)4096)
#define KINDS 5
#define ENTRY PINSHIM_ENTRY_CUDA_HOST_REGISTER

static void setup(void)
{
	struct ps_tracked range;

	ps_fault_clear();
	while (ps_tracked_touching((void *)4096, (size_t)1 << 47, &range))
		ps_tracked_remove((void *)range.base, &range);
}

static uint64_t published(void)
{
	struct pinned now;

	pinned_look(&now);
	return now.ranges;
}

static void teardown(void)
{
	ck_assert_uint_eq(published(), 0);
	ck_assert_uint_eq(ps_foreign_count(), 0);
	ck_assert_uint_eq(ps_table()->foreign_bytes, 0);
	ck_assert_uint_eq(ps_table()->registered_bytes, 0);
	ck_assert_uint_eq(ps_table()->locked_bytes, 0);
	ck_assert_uint_eq(ps_table()->pinned_bytes, 0);
}

static int track(uintptr_t base, size_t length, enum ps_tracked_kind kind, uintptr_t context)
{
	const struct ps_tracked range = { base, length, kind, ENTRY, context };

	return ps_tracked_add(&range);
}

static void untrack(uintptr_t base)
{
	struct ps_tracked range;

	ck_assert(ps_tracked_remove((void *)base, &range));
	ck_assert_uint_eq(range.base, base);
}

/* The range of the table that begins at base; NULL if none. */
static const struct pinshim_range *range_at(uintptr_t base)
{
	const struct pinshim_range *range = (const void *)((const char *)ps_table() +
							   ps_table()->ranges_offset);

	for (uint32_t i = 0; i < ps_table()->range_used; i++)
		if (range[i].length > 0 && range[i].base == base)
			return &range[i];
	return NULL;
}

START_TEST(all_of_it_comes_back)
{
	const struct ps_tracked range = { BASE + 100, 5000, PS_TRACKED_REGISTERED,
					  PINSHIM_ENTRY_CU_MEM_HOST_REGISTER, 0x7fedcba98760 };
	struct ps_tracked found;

	ck_assert_int_eq(ps_tracked_add(&range), 0);
	ck_assert(ps_tracked_find((void *)(BASE + 100), &found));
	ck_assert_int_eq(memcmp(&found, &range, sizeof(found)), 0);
	ck_assert(!ps_tracked_find((void *)(BASE + 99), &found));
	ck_assert(!ps_tracked_find((void *)(BASE + 101), &found));
	ck_assert(!ps_tracked_remove((void *)(BASE + 101), &found));
	memset(&found, 0, sizeof(found));
	ck_assert(ps_tracked_remove((void *)(BASE + 100), &found));
	ck_assert_int_eq(memcmp(&found, &range, sizeof(found)), 0);
	ck_assert(!ps_tracked_remove((void *)(BASE + 100), &found));
	ck_assert(!ps_tracked_find((void *)(BASE + 100), &found));
}
END_TEST

START_TEST(published_by_kind)
{
	static const struct {
		uint32_t flags;
		bool foreign, registered;
	} expected[KINDS] = {
		[PS_TRACKED_ALLOCATED] = { PINSHIM_RANGE_FOREIGN | PINSHIM_RANGE_REGISTERED, true,
					   true },
		[PS_TRACKED_REGISTERED] = { PINSHIM_RANGE_FOREIGN | PINSHIM_RANGE_REGISTERED, true,
					    true },
		[PS_TRACKED_BLOCK] = { PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_REGISTERED |
					       PINSHIM_RANGE_HEAP_MALLOC,
				       false, true },
	};

	for (int kind = 0; kind < KINDS; kind++) {
		const struct pinshim_range *range;

		ck_assert_int_eq(track(BASE + 4000, 200, (enum ps_tracked_kind)kind, 0), 0);
		range = range_at(BASE);
		if (expected[kind].flags != 0) {
			ck_assert_ptr_nonnull(range);
			ck_assert_uint_eq(range->length, 2 * PAGE);
			ck_assert_uint_eq(range->flags, expected[kind].flags);
		}
		ck_assert_uint_eq(published(), expected[kind].flags != 0);
		ck_assert_uint_eq(ps_table()->foreign_bytes, expected[kind].foreign ? 2 * PAGE : 0);
		ck_assert_uint_eq(ps_table()->pinned_bytes, expected[kind].foreign ? 2 * PAGE : 0);
		ck_assert_uint_eq(ps_table()->registered_bytes,
				  expected[kind].registered ? 2 * PAGE : 0);
		ck_assert_uint_eq(ps_foreign_count(), 1);
		untrack(BASE + 4000);
		ck_assert_uint_eq(published(), 0);
	}
}
END_TEST

START_TEST(overlap_is_refused)
{
	static const struct {
		long from, to;
		int error;
	} cases[] = {
		{ 0, 1, -EEXIST },      { 0, 1000, -EEXIST }, { 999, 1000, -EEXIST },
		{ 10, 20, -EEXIST },    { -1, 1, -EEXIST },   { -100, 2000, -EEXIST },
		{ 999, 1001, -EEXIST }, { -100, 0, 0 },       { 1000, 1001, 0 },
	};

	ck_assert_int_eq(track(BASE, 1000, PS_TRACKED_REGISTERED, 0), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uintptr_t base = BASE + (uintptr_t)cases[i].from;
		const size_t length = (size_t)(cases[i].to - cases[i].from);

		ck_assert_int_eq(track(base, length, PS_TRACKED_REGISTERED, 0), cases[i].error);
		ck_assert_uint_eq(published(), cases[i].error == 0 ? 2 : 1);
		if (cases[i].error == 0)
			untrack(base);
	}
	untrack(BASE);
}
END_TEST

START_TEST(neighbours_in_one_page)
{
	struct ps_tracked found;

	ck_assert_int_eq(track(BASE, 1000, PS_TRACKED_REGISTERED, 1), 0);
	ck_assert_int_eq(track(BASE + 1000, 1000, PS_TRACKED_REGISTERED, 2), 0);
	ck_assert_int_eq(track(BASE + 3000, 5000, PS_TRACKED_ALLOCATED, 3), 0);
	ck_assert_uint_eq(published(), 3);
	ck_assert(ps_tracked_is_pinned((void *)BASE, 2000));
	ck_assert(!ps_tracked_is_pinned((void *)BASE, 2001));
	ck_assert(!ps_tracked_is_pinned((void *)(BASE + 2500), 1));
	ck_assert(ps_tracked_is_pinned((void *)(BASE + 7999), 0));
	ck_assert(!ps_tracked_is_pinned((void *)(BASE + 8000), 0));
	untrack(BASE + 1000);
	ck_assert(ps_tracked_find((void *)BASE, &found));
	ck_assert_uint_eq(found.context, 1);
	ck_assert(ps_tracked_find((void *)(BASE + 3000), &found));
	ck_assert_uint_eq(found.context, 3);
	ck_assert(!ps_tracked_is_pinned((void *)BASE, 2000));
	untrack(BASE);
	untrack(BASE + 3000);
}
END_TEST

START_TEST(touching)
{
	struct ps_tracked found;

	ck_assert_int_eq(track(BASE + 1000, 1000, PS_TRACKED_REGISTERED, 0), 0);
	ck_assert(!ps_tracked_touching((void *)BASE, 1000, &found));
	ck_assert(ps_tracked_touching((void *)BASE, 1001, &found));
	ck_assert_uint_eq(found.base, BASE + 1000);
	ck_assert(ps_tracked_touching((void *)(BASE + 1999), 1, &found));
	ck_assert(!ps_tracked_touching((void *)(BASE + 2000), 1, &found));
	/* No byte: nothing to touch. */
	ck_assert(!ps_tracked_touching((void *)(BASE + 1000), 0, &found));
	ck_assert(!ps_tracked_touching((void *)(BASE + 1500), 0, &found));
	/* As far as addresses go. */
	ck_assert(ps_tracked_touching((void *)BASE, SIZE_MAX, &found));
	ck_assert(ps_tracked_touching((void *)(BASE + 1500), SIZE_MAX - BASE, &found));
	ck_assert(!ps_tracked_is_pinned((void *)(BASE + 1000), SIZE_MAX));
	untrack(BASE + 1000);
}
END_TEST

START_TEST(only_what_cuda_pinned_is_pinned)
{
	for (int kind = 0; kind < KINDS; kind++) {
		ck_assert_int_eq(track(BASE, PAGE, (enum ps_tracked_kind)kind, 0), 0);
		ck_assert_int_eq(ps_tracked_is_pinned((void *)BASE, PAGE),
				 kind == PS_TRACKED_ALLOCATED || kind == PS_TRACKED_REGISTERED);
		untrack(BASE);
	}
}
END_TEST

START_TEST(those_of_a_context)
{
	struct ps_tracked removed;
	uintptr_t from = 0;
	int count = 0;

	for (uintptr_t i = 0; i < 90; i++)
		ck_assert_int_eq(track(BASE + i * PAGE, PAGE, PS_TRACKED_REGISTERED, i % 3), 0);
	while (ps_tracked_remove_of(2, &from, &removed)) {
		ck_assert_uint_eq(removed.context, 2);
		ck_assert_uint_eq(from, removed.base + PAGE);
		count++;
	}
	ck_assert_int_eq(count, 30);
	ck_assert_uint_eq(published(), 60);
	ck_assert_uint_eq(ps_table()->foreign_bytes, 60 * PAGE);
	from = 0;
	ck_assert(!ps_tracked_remove_of(7, &from, &removed));
	from = BASE + 88 * PAGE;
	ck_assert(!ps_tracked_remove_of(0, &from, &removed));
	for (uintptr_t i = 0; i < 90; i++)
		if (i % 3 != 2)
			untrack(BASE + i * PAGE);
}
END_TEST

START_TEST(no_memory_for_the_record)
{
	ps_fault_set(PS_OS_MMAP, 1, 1000000, ENOMEM);
	/* However many spare nodes there are, they end. */
	for (uintptr_t i = 0;; i++) {
		const uint64_t before = ps_table()->foreign_bytes;
		int r = track(BASE + i * PAGE, PAGE, PS_TRACKED_REGISTERED, 0);

		if (r == 0)
			continue;
		ck_assert_int_eq(r, -ENOMEM);
		ck_assert_uint_eq(ps_table()->foreign_bytes, before);
		ck_assert_uint_eq(published(), i);
		ck_assert_uint_eq(ps_foreign_count(), i);
		while (i > 0)
			untrack(BASE + --i * PAGE);
		break;
	}
	ps_fault_clear();
}
END_TEST

/* A model: what is tracked, byte by byte of a short stretch. */
#define STRETCH 20000
#define STEPS 100000

static struct ps_tracked model[STRETCH]; /* by first byte; length 0: none begins there */
static int owner[STRETCH];               /* of each byte: 1 + first byte, or 0 */

static int first_owned(int from, int to)
{
	for (int i = from; i < to && i < STRETCH; i++)
		if (owner[i] != 0)
			return owner[i] - 1;
	return -1;
}

static bool model_pinned(int from, int to)
{
	for (int i = from; i < to; i++)
		if (i >= STRETCH || owner[i] == 0 ||
		    model[owner[i] - 1].kind > PS_TRACKED_REGISTERED)
			return false;
	return true;
}

static void model_set(int from, int to, int value)
{
	for (int i = from; i < to; i++)
		owner[i] = value;
}

static void step_add(int from, int to)
{
	const struct ps_tracked range = { BASE + (uintptr_t)from, (size_t)(to - from),
					  (enum ps_tracked_kind)(rand() % KINDS),
					  (unsigned)rand() % PINSHIM_ENTRIES,
					  (uintptr_t)rand() % 4 };
	const bool overlaps = first_owned(from, to) >= 0;

	ck_assert_int_eq(ps_tracked_add(&range), overlaps ? -EEXIST : 0);
	if (overlaps)
		return;
	model[from] = range;
	model_set(from, to, from + 1);
}

static void forget(const struct ps_tracked *removed)
{
	const int from = (int)(removed->base - BASE);

	ck_assert_int_eq(memcmp(removed, &model[from], sizeof(*removed)), 0);
	model_set(from, from + (int)removed->length, 0);
	model[from].length = 0;
}

static void step_remove(int from)
{
	struct ps_tracked removed;

	if (rand() % 2 == 0 && owner[from] != 0)
		from = owner[from] - 1;
	ck_assert_int_eq(ps_tracked_remove((void *)(BASE + (uintptr_t)from), &removed),
			 model[from].length > 0);
	if (model[from].length > 0)
		forget(&removed);
}

static void step_ask(int from, int to)
{
	const void *address = (void *)(BASE + (uintptr_t)from);
	const size_t length = (size_t)(to - from);
	const int first = first_owned(from, to);
	struct ps_tracked found;

	ck_assert_int_eq(ps_tracked_touching(address, length, &found), first >= 0);
	if (first >= 0)
		ck_assert_int_eq(memcmp(&found, &model[first], sizeof(found)), 0);
	ck_assert_int_eq(ps_tracked_find(address, &found), model[from].length > 0);
	ck_assert_int_eq(ps_tracked_is_pinned(address, length), model_pinned(from, to));
}

/* Gauges and the table against the model. */
static void check_model(void)
{
	uint64_t foreign = 0, registered = 0, ranges = 0, all = 0;

	for (int i = 0; i < STRETCH; i++) {
		const uintptr_t from = model[i].base & ~(PAGE - 1);
		const uintptr_t to = (model[i].base + model[i].length + PAGE - 1) & ~(PAGE - 1);

		if (model[i].length == 0)
			continue;
		all++;
		if (model[i].kind <= PS_TRACKED_REGISTERED)
			foreign += to - from;
		if (model[i].kind <= PS_TRACKED_BLOCK) {
			registered += to - from;
			ranges++;
		}
	}
	ck_assert_uint_eq(ps_table()->foreign_bytes, foreign);
	ck_assert_uint_eq(ps_table()->registered_bytes, registered);
	ck_assert_uint_eq(published(), ranges);
	ck_assert_uint_eq(ps_foreign_count(), all);
}

START_TEST(random_steps)
{
	struct ps_tracked removed;
	uintptr_t context, start;

	srand(4);
	for (int step = 0; step < STEPS; step++) {
		const int from = rand() % STRETCH, most = rand() % 4 == 0 ? 3000 : 200;
		const int to = from + 1 + rand() % most;

		switch (rand() % 8) {
		case 0:
		case 1:
		case 2:
			if (to <= STRETCH)
				step_add(from, to);
			break;
		case 3:
		case 4:
			step_remove(from);
			break;
		case 5:
			context = (uintptr_t)rand() % 5;
			start = rand() % 2 == 0 ? 0 : BASE + (uintptr_t)from;
			if (rand() % 8 == 0 && ps_tracked_remove_of(context, &start, &removed)) {
				ck_assert_uint_eq(removed.context, context);
				forget(&removed);
			}
			break;
		default:
			step_ask(from, to);
		}
		if (step % 1000 == 0)
			check_model();
	}
	check_model();
	for (int i = 0; i < STRETCH; i++)
		if (model[i].length > 0) {
			ck_assert(ps_tracked_remove((void *)model[i].base, &removed));
			forget(&removed);
		}
	check_model();
}
END_TEST

START_TEST(forked_child)
{
	struct ps_tracked range;
	uintptr_t from = 0;
	int status;
	pid_t child;

	for (uintptr_t i = 0; i < 100; i++)
		ck_assert_int_eq(track(BASE + i * PAGE, PAGE, PS_TRACKED_REGISTERED, i % 3), 0);
	child = fork();
	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(20);
		/* Nothing told it yet that it is a child. */
		if (ps_tracked_find((void *)BASE, &range) ||
		    ps_tracked_is_pinned((void *)BASE, 1) ||
		    ps_tracked_remove_of(1, &from, &range) || ps_foreign_count() != 0 ||
		    ps_table()->registered_bytes != 0)
			_exit(1);
		if (track(BASE + 1, PAGE, PS_TRACKED_REGISTERED, 0) != 0 || published() != 1 ||
		    ps_table()->registered_bytes != 2 * PAGE || ps_foreign_count() != 1)
			_exit(2);
		if (!ps_tracked_remove((void *)(BASE + 1), &range) || published() != 0 ||
		    ps_table()->registered_bytes != 0)
			_exit(3);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(published(), 100);
	for (uintptr_t i = 0; i < 100; i++)
		untrack(BASE + i * PAGE);
}
END_TEST

/* Its first call of all asks about one. */
START_TEST(forked_child_that_asks_at_once)
{
	int status;
	pid_t child;

	for (uintptr_t i = 0; i < 100; i++)
		ck_assert_int_eq(track(BASE + i * PAGE, PAGE, PS_TRACKED_REGISTERED, 0), 0);
	child = fork();
	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(20);
		_exit(ps_tracked_is_pinned((void *)BASE, PAGE) ? 1 : ps_foreign_count() != 0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert(ps_tracked_is_pinned((void *)BASE, PAGE));
	for (uintptr_t i = 0; i < 100; i++)
		untrack(BASE + i * PAGE);
}
END_TEST

/* Its first call of all adds a range. */
START_TEST(forked_child_that_adds_at_once)
{
	struct ps_tracked range;
	int status;
	pid_t child;

	ck_assert_int_eq(track(BASE, PAGE, PS_TRACKED_REGISTERED, 0), 0);
	child = fork();
	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(20);
		if (track(BASE, PAGE, PS_TRACKED_REGISTERED, 0) != 0)
			_exit(1);
		_exit(published() == 1 && ps_foreign_count() == 1 &&
				      ps_tracked_remove((void *)BASE, &range)
			      ? 0
			      : 2);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	untrack(BASE);
}
END_TEST

static atomic_int adding; /* threads that are at it */

static void *add_and_remove(void *argument)
{
	const uintptr_t base = BASE + (uintptr_t)argument * 1000 * PAGE;
	struct ps_tracked range;

	for (int turn = 0; turn < 300; turn++) {
		for (uintptr_t i = 0; i < 10; i++)
			if (track(base + i * PAGE, PAGE, PS_TRACKED_REGISTERED, 0) != 0)
				abort();
		if (!ps_tracked_is_pinned((void *)base, 10 * PAGE))
			abort();
		for (uintptr_t i = 0; i < 10; i++) {
			void *page = (void *)(base + i * PAGE);

			if (!ps_tracked_remove(page, &range) || ps_tracked_is_pinned(page, 1) ||
			    ps_tracked_touching(page, PAGE, &range))
				abort();
		}
	}
	atomic_fetch_sub(&adding, 1);
	return NULL;
}

/* What nobody changes is there all the time, and nothing where nothing ever is. */
static void *ask(void *argument)
{
	const uintptr_t stays = BASE + (uintptr_t)argument * 1000 * PAGE + 10 * PAGE;
	struct ps_tracked range;

	while (atomic_load(&adding) > 0)
		if (!ps_tracked_is_pinned((void *)stays, PAGE) ||
		    ps_tracked_is_pinned((void *)stays, PAGE + 1) ||
		    !ps_tracked_touching((void *)(stays + PAGE - 1), PAGE, &range) ||
		    range.base != stays ||
		    ps_tracked_touching((void *)(stays + PAGE), PAGE, &range))
			abort();
	return NULL;
}

START_TEST(threads)
{
	pthread_t adder[4], asker[2];

	atomic_store(&adding, 4);
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(
			track(BASE + i * 1000 * PAGE + 10 * PAGE, PAGE, PS_TRACKED_ALLOCATED, 0),
			0);
	for (intptr_t i = 0; i < 4; i++)
		pthread_create(&adder[i], NULL, add_and_remove, (void *)i);
	for (intptr_t i = 0; i < 2; i++)
		pthread_create(&asker[i], NULL, ask, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(adder[i], NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(asker[i], NULL);
	for (uintptr_t i = 0; i < 4; i++)
		untrack(BASE + i * 1000 * PAGE + 10 * PAGE);
}
END_TEST

#define RANGES 10000

static void say(const char *what, uint64_t began, unsigned count)
{
	printf("tracked: %d ranges: %s %.0f ns\n", RANGES, what,
	       (double)(ps_os_now() - began) / count);
}

START_TEST(cost_with_ten_thousand)
{
	struct ps_tracked range;
	volatile bool pinned = true;
	uint64_t began = ps_os_now();
	uintptr_t from = 0;

	for (uintptr_t i = 0; i < RANGES; i++)
		ck_assert_int_eq(track(BASE + i * 7919 % RANGES * 2 * PAGE, PAGE,
				       PS_TRACKED_REGISTERED, i % 2),
				 0);
	say("add", began, RANGES);
	srand(5);
	began = ps_os_now();
	for (int i = 0; i < 100 * RANGES / (SANITIZED ? 10 : 1); i++)
		pinned &= ps_tracked_is_pinned(
			(void *)(BASE + (uintptr_t)(rand() % RANGES) * 2 * PAGE), 100);
	say("is_pinned (with rand)", began, 100 * RANGES / (SANITIZED ? 10 : 1));
	ck_assert(pinned);
	began = ps_os_now();
	for (uintptr_t i = 0; i < RANGES; i++) {
		const uintptr_t base = BASE + i * 7919 % RANGES * 2 * PAGE;

		untrack(base);
		ck_assert_int_eq(track(base, PAGE, PS_TRACKED_REGISTERED, i % 2), 0);
	}
	say("remove and add", began, RANGES);
	began = ps_os_now();
	while (ps_tracked_remove_of(1, &from, &range))
		;
	say("remove_of, of every second one", began, RANGES / 2);
	began = ps_os_now();
	from = 0;
	while (ps_tracked_remove_of(0, &from, &range))
		;
	say("remove_of, of the rest", began, RANGES / 2);
}
END_TEST

static void add(TCase *tcase)
{
	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, all_of_it_comes_back);
	tcase_add_test(tcase, published_by_kind);
	tcase_add_test(tcase, overlap_is_refused);
	tcase_add_test(tcase, neighbours_in_one_page);
	tcase_add_test(tcase, touching);
	tcase_add_test(tcase, only_what_cuda_pinned_is_pinned);
	tcase_add_test(tcase, those_of_a_context);
	tcase_add_test(tcase, no_memory_for_the_record);
	tcase_add_test(tcase, random_steps);
	tcase_add_test(tcase, forked_child);
	tcase_add_test(tcase, forked_child_that_asks_at_once);
	tcase_add_test(tcase, forked_child_that_adds_at_once);
	tcase_add_test(tcase, threads);
	tcase_add_test(tcase, cost_with_ten_thousand);
}

int main(void)
{
	return pinned_main("tracked", add);
}
