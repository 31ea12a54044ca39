/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The window: reserving it where addresses are scarce, and handing out runs against a model of one
 * owner a granule.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pinned.h"
#include "window.h"

#define ALL (ps_window.size >> PS_GRANULE_SHIFT)
#define SMALL_WINDOW (64 * MIB)

static void setup(void)
{
	ps_fault_clear();
	ps_window_release();
	ck_assert_int_eq(ps_window_reserve(0), 0);
}

static void small_window(void)
{
	pinned_new_window(SMALL_WINDOW);
	ck_assert_uint_eq(ps_window.size, SMALL_WINDOW);
}

static int take(uint32_t count, uint32_t align, uint32_t *first)
{
	int r;

	ps_lock(&ps_window.lock);
	r = ps_window_take(count, align, first);
	ps_unlock(&ps_window.lock);
	return r;
}

static void give(uint32_t first)
{
	ps_lock(&ps_window.lock);
	ps_window_give(first);
	ps_unlock(&ps_window.lock);
}

START_TEST(one_tebibyte_by_default)
{
	ck_assert_uint_eq(ps_window.size, 1024 * GIB);
	ck_assert_uint_eq(ps_window.base % PS_GRANULE, 0);
}
END_TEST

START_TEST(four_times_the_memory_of_a_large_machine)
{
	ps_window_release();
	ck_assert_int_eq(ps_window_reserve(2048 * GIB), 0);
	if (!SANITIZED)
		ck_assert_uint_eq(ps_window.size, 8192 * GIB);
	ck_assert(ps_in_window((void *)(ps_window.base + ps_window.size - 1)));
	ck_assert(!ps_in_window((void *)(ps_window.base + ps_window.size)));
	ck_assert(!ps_in_window((void *)(ps_window.base - 1)));
}
END_TEST

/* 32 TiB: indexes of granules take 24 bits. No run is taken up there: notes would be gigabytes. */
START_TEST(largest_window)
{
	uint32_t first;

	ps_window_release();
	ck_assert_int_eq(ps_window_reserve((uint64_t)1 << 62), 0);
	ck_assert_uint_le(ps_window.size, (size_t)1 << 45);
	ck_assert_uint_eq(ps_granule_of((void *)(ps_window.base + ps_window.size - 1)), ALL - 1);
	ck_assert_ptr_eq(ps_granule_address((uint32_t)ALL - 1),
			 (void *)(ps_window.base + ps_window.size - PS_GRANULE));
	ck_assert_int_eq(take((uint32_t)ALL + 1, 1, &first), -ENOMEM);
	ck_assert_int_eq(take(UINT32_MAX, 1, &first), -ENOMEM);
	ck_assert_int_eq(take(1, 1u << 31, &first), -ENOMEM);
}
END_TEST

START_TEST(halves_where_mmap_fails)
{
	for (unsigned fails = 1; fails <= 14; fails++) {
		ps_window_release();
		ps_fault_set(PS_OS_MMAP, 1, fails, ENOMEM);
		ck_assert_int_eq(ps_window_reserve(0), 0);
		ck_assert_uint_eq(ps_window.size, (1024 * GIB) >> fails);
	}
	ps_window_release();
	ps_fault_set(PS_OS_MMAP, 1, 15, ENOMEM);
	ck_assert_int_eq(ps_window_reserve(0), -ENOMEM);
	ck_assert_uint_eq(ps_window.size, 0);
	ck_assert(!ps_in_window(NULL));
	ck_assert(!ps_in_window(&ps_window));
}
END_TEST

START_TEST(leaves_most_of_a_limit_on_addresses_to_the_program)
{
	struct rlimit before, limit;

	if (ps_window.size > 0)
		ps_window_release();
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
	limit = before;
	limit.rlim_cur = ((uint64_t)pinned_proc_kb("status", "VmSize:") << 10) + 4 * GIB;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	ck_assert_int_eq(ps_window_reserve(0), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
	ck_assert_uint_le(ps_window.size, limit.rlim_cur / 4);
}
END_TEST

/* What is used stays, and what is beyond it is taken no more. */
START_TEST(fits_a_limit_that_is_lowered)
{
	const uint32_t all = (uint32_t)(GIB >> PS_GRANULE_SHIFT);
	uint32_t first, second;
	long before;

	if (ps_window.size > 0)
		ps_window_release();
	before = pinned_proc_kb("status", "VmSize:");
	pinned_new_window((size_t)64 * GIB);
	ck_assert_int_eq(take(600, 1, &first), 0);
	ps_window_fit(RLIM_INFINITY / 2);
	ck_assert_uint_eq(ps_window.size, (size_t)64 * GIB);
	ps_window_fit((uint64_t)8 * GIB);
	ck_assert_uint_eq(ps_window.size, (size_t)2 * GIB);
	ck_assert_int_lt(pinned_proc_kb("status", "VmSize:") - before, (long)(3 * GIB >> 10));
	ck_assert_int_eq(take(all, 1, &second), -ENOMEM);
	ck_assert_int_eq(take(2 * all - 600, 1, &second), 0);
	give(second);
	ps_window_fit(GIB);
	ck_assert_uint_eq(ps_window.size, (size_t)2 * GIB);
	give(first);
}
END_TEST

START_TEST(halves_when_addresses_are_refused)
{
	pinned_new_window(SMALL_WINDOW);
	ck_assert_uint_eq(ps_window.size, SMALL_WINDOW);
	pinned_new_window(4 * GIB);
	ck_assert_uint_eq(ps_window.size, 4 * GIB);
}
END_TEST

/* Is the byte at an address accessible? Asked of the kernel. */
static bool accessible(const void *address)
{
	int ends[2];
	bool fine;

	ck_assert_int_eq(pipe(ends), 0);
	fine = write(ends[1], address, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return fine;
}

START_TEST(notes_beyond_the_frontier_stay_untouched)
{
	uint32_t first;

	ck_assert(!accessible(&ps_window.granule[0]));
	ck_assert_int_eq(take(3, 1, &first), 0);
	ck_assert_uint_eq(ps_window.frontier, 3);
	ck_assert(accessible(&ps_window.granule[2]) && accessible(&ps_window.run[2]));
	ck_assert(accessible(&ps_window.origin[3 * (PS_GRANULE >> PS_QUANTUM_SHIFT) - 1]));
	ck_assert(!accessible(&ps_window.run[100000]));
	ck_assert(!accessible(&ps_window.origin[100000 * (PS_GRANULE >> PS_QUANTUM_SHIFT)]));
	ck_assert_uint_eq(ps_granule_byte(3), PS_GRANULE_FREE);
	ck_assert_uint_eq(ps_granule_byte((uint32_t)ALL - 1), PS_GRANULE_FREE);
	ck_assert_uint_eq(ps_granule_byte(UINT32_MAX), PS_GRANULE_FREE);
	/* The window itself is never touched by handing out addresses. */
	ck_assert(!accessible(ps_granule_address(0)));
}
END_TEST

/* Each of the three mprotect() calls for notes. */
START_TEST(notes_that_cannot_be_had)
{
	uint32_t first;

	for (unsigned call = 1; call <= 3; call++) {
		ps_window_release();
		ck_assert_int_eq(ps_window_reserve(0), 0);
		ps_fault_set(PS_OS_MPROTECT, call, call, ENOMEM);
		ck_assert_int_eq(take(1, 1, &first), -ENOMEM);
		ck_assert_uint_eq(ps_window.frontier, 0);
		ck_assert_int_eq(take(1, 1, &first), 0);
		ck_assert_uint_eq(first, 0);
		give(first);
		pinned_check_nothing();
	}
}
END_TEST

START_TEST(best_fit)
{
	uint32_t run[7], first;
	const uint32_t counts[7] = { 5, 1, 3, 1, 4, 1, 9 };

	for (int i = 0; i < 7; i++)
		ck_assert_int_eq(take(counts[i], 1, &run[i]), 0);
	give(run[0]);
	give(run[2]);
	give(run[4]);
	ck_assert_int_eq(take(3, 1, &first), 0);
	ck_assert_uint_eq(first, run[2]);
	ck_assert_int_eq(take(3, 1, &first), 0);
	ck_assert_uint_eq(first, run[4]);
	ck_assert_int_eq(take(2, 1, &first), 0);
	ck_assert_uint_eq(first, run[0]);
	pinned_check();
}
END_TEST

START_TEST(neighbours_join_in_every_order)
{
	static const int order[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
					 { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	uint32_t run[3], first;

	for (int i = 0; i < 6; i++) {
		for (int j = 0; j < 3; j++)
			ck_assert_int_eq(take(2, 1, &run[j]), 0);
		for (int j = 0; j < 3; j++)
			give(run[order[i][j]]);
		pinned_check_nothing();
		ck_assert_int_eq(take(6, 1, &first), 0);
		ck_assert_uint_eq(first, 0);
		give(first);
	}
	ck_assert_uint_eq(ps_window.frontier, 6);
}
END_TEST

/* The gap that an alignment leaves above the frontier joins what is free below it. */
START_TEST(gap_of_an_alignment_joins)
{
	uint32_t a, b;

	ck_assert_int_eq(take(1, 1, &a), 0);
	give(a);
	ck_assert_int_eq(take(2, 512, &b), 0);
	pinned_check();
	give(b);
	pinned_check_nothing();
}
END_TEST

/* A free run that ends at the frontier and what is above it are one. */
START_TEST(free_run_at_the_frontier_is_extended)
{
	uint32_t a, b;

	small_window();
	ck_assert_int_eq(take(10, 1, &a), 0);
	give(a);
	ck_assert_int_eq(take((uint32_t)ALL, 1, &b), 0);
	ck_assert_uint_eq(b, 0);
	give(b);
	pinned_check_nothing();
}
END_TEST

START_TEST(alignment_is_the_address)
{
	static const uint32_t aligns[] = { 2, 8, 512, 2048 };
	uint32_t odd, first;

	ck_assert_int_eq(take(1, 1, &odd), 0);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(take(3, aligns[i], &first), 0);
		ck_assert_uint_eq((uintptr_t)ps_granule_address(first) %
					  ((uintptr_t)aligns[i] << PS_GRANULE_SHIFT),
				  0);
		pinned_check();
	}
}
END_TEST

START_TEST(take_at_a_place)
{
	uint32_t a, b, c;

	small_window();
	ck_assert_int_eq(ps_window_take_at(1, 1), -ENOMEM);
	ck_assert_int_eq(take(4, 1, &a), 0);
	ck_assert_int_eq(take(1, 1, &b), 0);
	ck_assert_int_eq(ps_window_take_at(4, 1), -ENOMEM);
	ck_assert_int_eq(ps_window_take_at(5, 28), -ENOMEM);
	ck_assert_int_eq(ps_window_take_at(5, UINT32_MAX), -ENOMEM);
	ck_assert_uint_eq(ps_window.frontier, 5);
	ck_assert_int_eq(ps_window_take_at(5, 27), 0);
	ck_assert_int_eq(ps_window_take_at(32, 1), -ENOMEM);
	give(a);
	/* Inside a free run, not past its end, and what is left on both sides stays free. */
	ck_assert_int_eq(ps_window_take_at(1, 4), -ENOMEM);
	ck_assert_int_eq(ps_window_take_at(1, 2), 0);
	pinned_check();
	ck_assert_int_eq(take(1, 1, &c), 0);
	ck_assert_int_eq(take(1, 1, &c), 0);
	ck_assert_int_eq(take(1, 1, &c), -ENOMEM);
	/* At the frontier above a free run. */
	small_window();
	ck_assert_int_eq(take(2, 1, &a), 0);
	give(a);
	ck_assert_int_eq(ps_window_take_at(2, 3), 0);
	ck_assert_uint_eq(ps_window.run[2].first, 2);
	pinned_check();
	give(2);
	pinned_check_nothing();
}
END_TEST

START_TEST(exhaustion)
{
	uint32_t run[32], more;

	small_window();
	for (int i = 0; i < 32; i++)
		ck_assert_int_eq(take(1, 1, &run[i]), 0);
	ck_assert_int_eq(take(1, 1, &more), -ENOMEM);
	give(run[7]);
	give(run[9]);
	ck_assert_int_eq(take(2, 1, &more), -ENOMEM);
	give(run[8]);
	ck_assert_int_eq(take(3, 1, &more), 0);
	ck_assert_uint_eq(more, run[7]);
	ck_assert_int_eq(take(1, 1, &more), -ENOMEM);
	pinned_check();
}
END_TEST

#define OWNED 200
#define MODEL 4096
static uint8_t model[MODEL]; /* 1: somebody has it */

static bool fits_in_model(uint32_t count, uint32_t align)
{
	const uint64_t origin = ps_window.base >> PS_GRANULE_SHIFT;
	uint32_t run = 0;

	for (uint32_t i = 0; i < ps_window.frontier; i++) {
		run = model[i] ? 0 : run + 1;
		for (uint32_t at = i + 1 - run; run >= count && at + count <= i + 1; at++)
			if ((origin + at) % align == 0)
				return true;
	}
	return false;
}

/* Takes a random run, which must be free in the model, and must lie below the frontier if it can. */
static uint32_t take_random(uint32_t *count)
{
	const uint32_t align = rand() % 4 == 0 ? 1u << rand() % 6 : 1;
	const uint32_t frontier = (uint32_t)ps_window.frontier;
	uint32_t first;
	bool below;

	*count = 1 + (uint32_t)rand() % (rand() % 8 == 0 ? 60 : 8);
	below = fits_in_model(*count, align);
	ck_assert_int_eq(take(*count, align, &first), 0);
	ck_assert_uint_eq(((ps_window.base >> PS_GRANULE_SHIFT) + first) % align, 0);
	ck_assert_uint_le(first + *count, MODEL);
	if (below)
		ck_assert_uint_eq(ps_window.frontier, frontier);
	for (uint32_t i = first; i < first + *count; i++) {
		ck_assert_uint_eq(model[i], 0);
		model[i] = 1;
	}
	return first;
}

START_TEST(random_order_against_a_model)
{
	uint32_t first[OWNED], count[OWNED] = { 0 };

	srand(1);
	memset(model, 0, sizeof(model));
	for (int turn = 0; turn < 20000; turn++) {
		const int i = rand() % OWNED;

		if (count[i] == 0) {
			first[i] = take_random(&count[i]);
		} else {
			give(first[i]);
			memset(model + first[i], 0, count[i]);
			count[i] = 0;
		}
		if (turn % 100 == 0)
			for (uint32_t j = 0; j < ps_window.frontier; j++)
				ck_assert_int_eq(ps_granule_byte(j) == PS_GRANULE_BUSY, model[j]);
		if (turn % 100 == 0)
			pinned_check();
	}
	for (int i = 0; i < OWNED; i++)
		if (count[i] > 0)
			give(first[i]);
	pinned_check_nothing();
}
END_TEST

static void add(TCase *tcase)
{
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, one_tebibyte_by_default);
	tcase_add_test(tcase, four_times_the_memory_of_a_large_machine);
	tcase_add_test(tcase, largest_window);
	tcase_add_test(tcase, halves_where_mmap_fails);
	tcase_add_test(tcase, fits_a_limit_that_is_lowered);
	tcase_add_test(tcase, halves_when_addresses_are_refused);
	tcase_add_test(tcase, leaves_most_of_a_limit_on_addresses_to_the_program);
	tcase_add_test(tcase, notes_beyond_the_frontier_stay_untouched);
	tcase_add_test(tcase, notes_that_cannot_be_had);
	tcase_add_test(tcase, best_fit);
	tcase_add_test(tcase, neighbours_join_in_every_order);
	tcase_add_test(tcase, gap_of_an_alignment_joins);
	tcase_add_test(tcase, free_run_at_the_frontier_is_extended);
	tcase_add_test(tcase, alignment_is_the_address);
	tcase_add_test(tcase, take_at_a_place);
	tcase_add_test(tcase, exhaustion);
	tcase_add_test(tcase, random_order_against_a_model);
}

int main(void)
{
	return pinned_main("window", add);
}
