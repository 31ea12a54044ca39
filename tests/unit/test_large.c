/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks: exact sizes, reuse whole, cut and joined, what is kept and what goes first.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "large.h"
#include "pinned.h"
#include "window.h"

static struct ps_refusal why;
static bool zeroed;

static void setup(void)
{
	ps_fault_clear();
	ps_config.retain = GIB;
	ps_config.limit = UINT64_MAX;
	ps_config.hugepages = PS_HUGEPAGES_THP;
	ps_large_trim(0);
	for (uint32_t i = 0; i < ps_window.frontier; i += ps_window.run[i].count)
		if (ps_window.granule[i] != PS_GRANULE_FREE)
			ps_large_free(i);
	ps_large_trim(0);
	pinned_check_nothing();
}

static uint32_t get(uint32_t count, uint32_t align)
{
	void *block = ps_large_alloc(count, align, PS_HEAP_MALLOC, &zeroed, &why);

	ck_assert_ptr_nonnull(block);
	ck_assert_uint_eq((uintptr_t)block % ((uintptr_t)align << PS_GRANULE_SHIFT), 0);
	ck_assert_uint_eq(ps_large_size(ps_granule_of(block)), (size_t)count << PS_GRANULE_SHIFT);
	if (zeroed)
		ck_assert(pinned_is_zero(block, (size_t)count << PS_GRANULE_SHIFT));
	pinned_check();
	return ps_granule_of(block);
}

static void drop(uint32_t first)
{
	ps_large_free(first);
	pinned_check();
}

/* Puts what is in threads' pockets on the list, where order and best fit are exact. */
static void settle(void)
{
	ck_assert_uint_eq(ps_large_trim(SIZE_MAX), 0);
	pinned_check();
}

/* As kept(), which takes no difference below zero for an answer. */
static int64_t counted(void)
{
	int64_t sum = 0;

	for (int i = 0; i < PINSHIM_STRIPES; i++)
		sum += (int64_t)ps_table()->stripe[i].retained_bytes;
	return sum >> PS_GRANULE_SHIFT;
}

static uint64_t kept(void)
{
	return ps_count_retained(ps_table()) >> PS_GRANULE_SHIFT;
}

static uint64_t locked(void)
{
	return ps_table()->locked_bytes >> PS_GRANULE_SHIFT;
}

START_TEST(exact_granules)
{
	for (uint32_t count = 1; count <= 40; count += 13) {
		const uint32_t first = get(count, 1);

		ck_assert_uint_eq(locked(), count);
		ck_assert(zeroed);
		drop(first);
		ck_assert_uint_eq(kept(), count);
		ck_assert_uint_eq(ps_large_trim(0), (size_t)count << PS_GRANULE_SHIFT);
	}
	pinned_check_nothing();
}
END_TEST

START_TEST(reuse_exact)
{
	const uint32_t a = get(9, 1), b = get(10, 1);
	const uint64_t pins = ps_table()->pins;

	drop(a);
	drop(b);
	ck_assert_uint_eq(get(9, 1), a);
	ck_assert(!zeroed);
	ck_assert_uint_eq(get(10, 1), b);
	ck_assert_uint_eq(kept(), 0);
	ck_assert_uint_eq(ps_table()->pins, pins);
}
END_TEST

/* The newest of those that fit exactly: its pages are the likeliest to be in a cache. */
START_TEST(reuse_newest)
{
	const uint32_t a = get(9, 1), between = get(1, 1), b = get(9, 1);

	drop(a);
	drop(b);
	ck_assert_uint_eq(get(9, 1), b);
	drop(between);
}
END_TEST

START_TEST(reuse_by_cutting)
{
	const uint32_t a = get(20, 1), wall = get(1, 1), b = get(12, 1);

	drop(a);
	drop(b);
	settle();
	/* The smallest that is large enough is cut, and the rest stays kept. */
	ck_assert_uint_eq(get(10, 1), b);
	ck_assert_uint_eq(kept(), 22);
	ck_assert_uint_eq(get(20, 1), a);
	ck_assert_uint_eq(get(2, 1), b + 10);
	ck_assert_uint_eq(kept(), 0);
	drop(wall);
}
END_TEST

START_TEST(reuse_by_joining)
{
	uint32_t part[4], all;
	uint64_t pins;

	for (int i = 0; i < 4; i++)
		part[i] = get(5, 1);
	pins = ps_table()->pins;
	drop(part[2]);
	drop(part[0]);
	drop(part[3]);
	drop(part[1]);
	ck_assert_uint_eq(kept(), 20);
	all = get(20, 1);
	ck_assert_uint_eq(all, part[0]);
	ck_assert_uint_eq(ps_table()->pins, pins);
	ck_assert_uint_eq(ps_table()->chunks, 1);
	ck_assert_uint_eq(kept(), 0);
	drop(all);
}
END_TEST

START_TEST(live_neighbours_are_not_joined)
{
	const uint32_t a = get(5, 1), live = get(5, 1), b = get(5, 1);

	pinned_fill(ps_granule_address(live), 5 * PS_GRANULE, 4);
	drop(a);
	drop(b);
	ck_assert_uint_eq(get(10, 1), b + 5);
	ck_assert(pinned_filled(ps_granule_address(live), 5 * PS_GRANULE, 4));
}
END_TEST

/* Kept blocks serve their own heap alone, and side by side they are never one. */
START_TEST(heaps_do_not_mix)
{
	const enum ps_heap mine = (enum ps_heap)(_i / PS_HEAPS);
	const enum ps_heap other = (enum ps_heap)(_i % PS_HEAPS);
	void *block[3];

	if (mine == other)
		return;
	block[0] = ps_large_alloc(9, 1, mine, &zeroed, &why);
	drop(ps_granule_of(block[0]));
	block[1] = ps_large_alloc(9, 1, other, &zeroed, &why);
	ck_assert_ptr_nonnull(block[1]);
	ck_assert_ptr_ne(block[1], block[0]);
	ck_assert_uint_eq(ps_granule_heap(ps_granule_byte(ps_granule_of(block[1]))), other);
	pinned_check();
	drop(ps_granule_of(block[1]));
	ck_assert_uint_eq(kept(), 18);
	block[2] = ps_large_alloc(18, 1, mine, &zeroed, &why);
	ck_assert_uint_eq(ps_granule_of(block[2]), ps_granule_of(block[1]) + 9);
	ck_assert_uint_eq(kept(), 18);
	pinned_check();
}
END_TEST

/* CUDA host memory: only what wastes a 32nd at most serves, and then all of it. */
START_TEST(shared_is_neither_cut_nor_joined)
{
	uint32_t block[3], i;

	for (i = 0; i < 3; i++)
		block[i] = ps_granule_of(
			ps_large_alloc(i == 0 ? 64 : 10, 1, PS_HEAP_CUDA, &zeroed, &why));
	ck_assert_uint_eq(block[1] + 10, block[2]);
	for (i = 0; i < 3; i++)
		drop(block[i]);
	i = ps_granule_of(ps_large_alloc(20, 1, PS_HEAP_CUDA, &zeroed, &why));
	ck_assert_uint_ge(i, block[2] + 10);
	drop(i);
	i = ps_granule_of(ps_large_alloc(63, 1, PS_HEAP_CUDA, &zeroed, &why));
	ck_assert_uint_eq(i, block[0]);
	ck_assert_uint_eq(ps_large_size(i), 64 * PS_GRANULE);
	ck_assert(!ps_large_shrink(i, 40));
	ck_assert(!ps_large_grow(i, 70));
	ck_assert_uint_eq(ps_large_size(i), 64 * PS_GRANULE);
	drop(i);
}
END_TEST

START_TEST(retain_limit_and_order)
{
	uint32_t part[5];

	ps_config.retain = 30 * PS_GRANULE;
	for (int i = 0; i < 5; i++)
		part[i] = get(10, 1);
	for (int i = 0; i < 3; i++) {
		drop(part[i]);
		settle();
	}
	ck_assert_uint_eq(kept(), 30);
	ck_assert_uint_eq(locked(), 50);
	/* The longest kept goes first. */
	drop(part[3]);
	ck_assert_uint_eq(kept(), 30);
	ck_assert_uint_eq(locked(), 40);
	ck_assert_uint_eq(ps_window.granule[part[0]], PS_GRANULE_FREE);
	ck_assert(ps_window.run[part[1]].kept && ps_window.run[part[3]].kept);
	ck_assert_uint_eq(ps_large_trim(20 * PS_GRANULE), 10 * PS_GRANULE);
	ck_assert_uint_eq(ps_window.granule[part[1]], PS_GRANULE_FREE);
	ck_assert(ps_window.run[part[2]].kept);
	ck_assert_uint_eq(ps_large_trim(19 * PS_GRANULE + 1), 10 * PS_GRANULE);
	ck_assert_uint_eq(ps_large_trim(SIZE_MAX), 0);
	ck_assert_uint_eq(kept(), 10);
	drop(part[4]);
	pinned_check();
}
END_TEST

START_TEST(larger_than_retain_is_not_kept)
{
	uint32_t a, b;

	ps_config.retain = 10 * PS_GRANULE;
	a = get(10, 1);
	b = get(11, 1);
	drop(a);
	/* b does not push out what was kept. */
	drop(b);
	ck_assert_uint_eq(kept(), 10);
	ps_config.retain = 0;
	a = get(9, 1);
	drop(a);
	ck_assert_uint_eq(locked(), kept());
}
END_TEST

START_TEST(shrink_in_place)
{
	const uint32_t a = get(20, 1);

	pinned_fill(ps_granule_address(a), 12 * PS_GRANULE, 6);
	ck_assert(ps_large_shrink(a, 12));
	pinned_check();
	ck_assert_uint_eq(ps_large_size(a), 12 * PS_GRANULE);
	ck_assert_uint_eq(kept(), 8);
	ck_assert_uint_eq(locked(), 20);
	ck_assert(pinned_filled(ps_granule_address(a), 12 * PS_GRANULE, 6));
	ck_assert_uint_eq(get(8, 1), a + 12);
	drop(a);
}
END_TEST

START_TEST(grow_in_place)
{
	const uint32_t a = get(8, 1);
	uint32_t wall;

	pinned_fill(ps_granule_address(a), 8 * PS_GRANULE, 6);
	ck_assert(ps_large_grow(a, 20));
	pinned_check();
	ck_assert_uint_eq(ps_large_size(a), 20 * PS_GRANULE);
	ck_assert(pinned_filled(ps_granule_address(a), 8 * PS_GRANULE, 6));
	wall = get(1, 1);
	ck_assert(!ps_large_grow(a, 21));
	pinned_check();
	drop(a);
	drop(wall);
}
END_TEST

START_TEST(one_gibibyte_alignment)
{
	const uint32_t a = get(8, 512);

	drop(a);
	/* A kept block that does not begin there is no help. */
	ck_assert_uint_ne(get(8, 1024), get(8, 512));
}
END_TEST

START_TEST(no_room_in_the_table_to_cut)
{
	static int slots[100000];
	const uint32_t a = get(20, 1);
	void *block;
	int n = 0;

	drop(a);
	while (ps_table()->range_used < ps_table()->range_capacity)
		slots[n++] = ps_table_add(4096, 4096, PINSHIM_RANGE_FOREIGN);
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	block = ps_large_alloc(10, 1, false, &zeroed, &why);
	ck_assert_ptr_null(block);
	ck_assert_uint_eq(kept(), 20);
	block = ps_large_alloc(20, 1, false, &zeroed, &why);
	ck_assert_ptr_nonnull(block);
	ck_assert(!ps_large_shrink(a, 10));
	ps_fault_clear();
	while (n > 0)
		ps_table_remove(slots[--n]);
	pinned_check();
	drop(a);
}
END_TEST

/* Kept blocks that are no longer locked are neither handed out nor joined with locked ones. */
START_TEST(kept_block_lost_its_lock)
{
	const uint32_t a = get(9, 1), b = get(9, 1);

	drop(a);
	drop(b);
	ck_assert_int_eq(syscall(SYS_munlockall), 0);
	ps_fault_set(PS_OS_MLOCK, 2, 2, ENOMEM);
	ck_assert_uint_eq(ps_chunk_relock(), 1);
	ps_fault_clear();
	pinned_check();
	ck_assert_uint_ne(get(18, 1), a);
	ck_assert_uint_eq(get(9, 1), a);
	ck_assert_uint_ne(get(9, 1), b);
	for (uint32_t i = 0; i < ps_window.frontier; i += ps_window.run[i].count)
		if (ps_window.granule[i] == (PS_GRANULE_LARGE | PS_GRANULE_INHERITED))
			ck_assert_uint_eq(i, b);
	ps_large_trim(0);
	ck_assert_uint_eq(ps_window.granule[b], PS_GRANULE_FREE);
}
END_TEST

/* Nor is one that waits in a thread's pocket. */
START_TEST(block_in_a_pocket_lost_its_lock)
{
	const uint32_t a = get(9, 1), b = get(9, 1);

	drop(a);
	drop(b);
	for (uint32_t i = 0; i < 2; i++)
		ps_chunk_replaced(ps_granule_address(i ? a : b), 1);
	pinned_check();
	for (int i = 0; i < 3; i++)
		ck_assert(ps_window.granule[get(9, 1)] & PS_GRANULE_LOCKED);
	ps_large_trim(0);
	ck_assert_uint_eq(kept(), 0);
	pinned_check();
}
END_TEST

/* A child inherits live blocks, not kept ones, and counts none. */
START_TEST(forked_child)
{
	const uint32_t a = get(9, 1), b = get(9, 1), live = get(3, 1);
	int status;
	pid_t child;

	drop(a);
	drop(b);
	child = fork();
	if (child == 0) {
		ps_table_fork_child();
		ps_budget_fork_child();
		ps_chunk_fork_child();
		ps_large_fork_child();
		if (counted() != 0 || ps_window.granule[a] != PS_GRANULE_FREE ||
		    ps_window.granule[b] != PS_GRANULE_FREE || ps_window.run[live].count != 3)
			_exit(1);
		ps_large_free(live);
		_exit(counted() != 0 || ps_window.granule[live] != PS_GRANULE_FREE);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(kept(), 18);
	drop(live);
}
END_TEST

/* A live block that lost its lock is not kept when it is freed. */
START_TEST(live_block_lost_its_lock)
{
	const uint32_t a = get(9, 1);

	ps_chunk_replaced(ps_granule_address(a + 3), 4096);
	pinned_check();
	ck_assert(!ps_large_grow(a, 10));
	ck_assert(ps_large_shrink(a, 5));
	drop(a);
	pinned_check_nothing();
}
END_TEST

#define BLOCKS 40

START_TEST(random_order)
{
	uint32_t first[BLOCKS], count[BLOCKS] = { 0 };
	uint64_t live;

	srand(3);
	ps_config.retain = 60 * PS_GRANULE;
	for (int turn = 0; turn < 1500; turn++) {
		const int i = rand() % BLOCKS;

		if (count[i] == 0) {
			count[i] = 1 + (uint32_t)rand() % 12;
			first[i] = get(count[i], rand() % 5 == 0 ? 4 : 1);
			pinned_fill(ps_granule_address(first[i]), 4096, (uint64_t)turn % 7 + i);
			pinned_fill(ps_granule_address(first[i] + count[i] - 1), 4096, first[i]);
		} else if (count[i] > 4 && rand() % 3 == 0) {
			count[i] -= 1 + (uint32_t)rand() % 3;
			ck_assert(ps_large_shrink(first[i], count[i]));
			pinned_fill(ps_granule_address(first[i] + count[i] - 1), 4096, first[i]);
		} else {
			ck_assert(pinned_filled(ps_granule_address(first[i] + count[i] - 1), 4096,
						first[i]));
			drop(first[i]);
			count[i] = 0;
		}
		live = 0;
		for (int j = 0; j < BLOCKS; j++)
			live += count[j];
		ck_assert_uint_eq(locked(), live + kept());
		ck_assert_uint_le(kept(), 60);
	}
	for (int i = 0; i < BLOCKS; i++)
		if (count[i] > 0)
			drop(first[i]);
	ps_large_trim(0);
	pinned_check_nothing();
}
END_TEST

static void add(TCase *tcase)
{
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, exact_granules);
	tcase_add_test(tcase, reuse_exact);
	tcase_add_test(tcase, reuse_newest);
	tcase_add_test(tcase, reuse_by_cutting);
	tcase_add_test(tcase, reuse_by_joining);
	tcase_add_test(tcase, live_neighbours_are_not_joined);
	tcase_add_loop_test(tcase, heaps_do_not_mix, 0, PS_HEAPS * PS_HEAPS);
	tcase_add_test(tcase, shared_is_neither_cut_nor_joined);
	tcase_add_test(tcase, retain_limit_and_order);
	tcase_add_test(tcase, larger_than_retain_is_not_kept);
	tcase_add_test(tcase, shrink_in_place);
	tcase_add_test(tcase, grow_in_place);
	tcase_add_test(tcase, one_gibibyte_alignment);
	tcase_add_test(tcase, kept_block_lost_its_lock);
	tcase_add_test(tcase, block_in_a_pocket_lost_its_lock);
	tcase_add_test(tcase, forked_child);
	tcase_add_test(tcase, live_block_lost_its_lock);
	tcase_add_test(tcase, random_order);
	tcase_add_test(tcase, no_room_in_the_table_to_cut);
}

int main(void)
{
	return pinned_main("large", add);
}
