/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small blocks: jemalloc over our chunks. That nothing lies outside the window or across two chunks,
 * that calloc's zeros are zeros, and that a trim gives back everything but what is live.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena.h"
#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "os.h"
#include "pinned.h"

#define LARGEST (16 * MIB - 1)

static struct ps_refusal why;

static void setup(void)
{
	ps_fault_clear();
	ps_config.limit = UINT64_MAX;
	ps_config.hugepages = PS_HUGEPAGES_THP;
	ps_heap_trim(0);
	pinned_check_nothing();
}

static void *get(size_t size, size_t align)
{
	void *block = ps_arena_alloc(PS_HEAP_MALLOC, size, align, false, &why);

	ck_assert_ptr_nonnull(block);
	ck_assert(ps_in_window(block));
	ck_assert_uint_eq((uintptr_t)block % align, 0);
	ck_assert_uint_ge(ps_arena_size(block), size);
	ck_assert(ps_heap_is_pinned(block, ps_arena_size(block)));
	return block;
}

static uint64_t locked(void)
{
	return ps_table()->locked_bytes;
}

/* A block lies in one chunk of its heap, whatever was split and joined. */
static void check_block(const char *block, size_t length)
{
	const uint32_t first = ps_granule_of(block), last = ps_granule_of(block + length - 1);

	ck_assert_uint_eq(ps_window.run[first].first, ps_window.run[last].first);
	ck_assert_uint_eq(ps_window.granule[first] & PS_GRANULE_STATE, PS_GRANULE_SLAB);
}

/* Both sides of every size class, which jemalloc has four of for each doubling. */
START_TEST(both_sides_of_every_size_class)
{
	for (size_t doubling = 512; doubling < 16 * MIB; doubling *= 2)
		for (size_t quarter = 4; quarter < 8; quarter++)
			for (int side = -1; side <= 1; side++) {
				const size_t size = doubling / 4 * quarter + (size_t)side;
				const size_t align = size < 4096 ? 512 : 4096;
				char *a = get(size, align), *b = get(size, align);

				check_block(a, ps_arena_size(a));
				ck_assert(b >= a + ps_arena_size(a) || a >= b + ps_arena_size(b));
				/* Not an extra page (opt.cache_oblivious), and a quarter at most. */
				ck_assert_uint_le(ps_arena_size(a), size + size / 4 + 4096);
				a[0] = b[size - 1] = 1;
				ps_arena_free(a);
				ps_arena_free(b);
			}
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

START_TEST(alignments)
{
	for (size_t align = 512; align <= 2 * MIB; align *= 2) {
		void *block[6];

		for (int i = 0; i < 6; i++) {
			block[i] = get(1 + 5000u * (unsigned)i, align);
			check_block(block[i], ps_arena_size(block[i]));
		}
		for (int i = 0; i < 6; i++)
			ps_arena_free(block[i]);
	}
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* Fresh, reused, and reused after being split and joined. */
START_TEST(zero_is_zero)
{
	char *block[64];
	unsigned seed = 1;

	for (int turn = 0; turn < 30; turn++) {
		for (int i = 0; i < 64; i++) {
			const size_t size = 1 + (size_t)rand_r(&seed) %
							(i % 8 == 0 ? 900 * KIB : 40 * KIB);

			block[i] = ps_arena_alloc(PS_HEAP_MALLOC, size, 512, true, &why);
			ck_assert_ptr_nonnull(block[i]);
			ck_assert(pinned_is_zero(block[i], size));
			memset(block[i], 0xee, ps_arena_size(block[i]));
		}
		for (int i = 0; i < 64; i++)
			ps_arena_free(block[i]);
		if (turn % 10 == 9)
			ps_heap_trim(0);
	}
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* Pages that a trim could not unpin serve again, and are zero only if somebody makes them so. */
START_TEST(pages_left_by_a_trim_are_reused)
{
	char *live = get(MIB, 4096), *freed = get(MIB, 4096), *again;

	memset(freed, 0xee, MIB);
	ps_arena_free(freed);
	ck_assert_uint_eq(ps_heap_trim(0), 0);
	again = ps_arena_alloc(PS_HEAP_MALLOC, MIB, 4096, true, &why);
	ck_assert_ptr_eq(again, freed);
	ck_assert(pinned_is_zero(again, MIB));
	ck_assert_uint_eq(locked(), 2 * MIB);
	memset(again, 0xee, MIB);
	ps_arena_free(again);
	/* In pieces, too. */
	ps_heap_trim(0);
	for (int i = 0; i < 4; i++) {
		again = ps_arena_alloc(PS_HEAP_MALLOC, 256 * KIB, 4096, true, &why);
		ck_assert_ptr_eq(again, freed + i * 256 * KIB);
		ck_assert(pinned_is_zero(again, 256 * KIB));
	}
	for (int i = 0; i < 4; i++)
		ps_arena_free(freed + i * 256 * KIB);
	ps_arena_free(live);
	ck_assert_uint_eq(ps_heap_trim(0), 2 * MIB);
	pinned_check_nothing();
}
END_TEST

/* A chunk that was unpinned without mmap() and pinned again must be as fresh as any. */
START_TEST(zero_after_unpinning_without_mmap)
{
	for (int turn = 0; turn < 3; turn++) {
		char *block = ps_arena_alloc(PS_HEAP_MALLOC, MIB, 4096, true, &why);

		ck_assert_ptr_nonnull(block);
		ck_assert(pinned_is_zero(block, MIB));
		memset(block, 0xee, MIB);
		ps_arena_free(block);
		ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
		ck_assert_uint_eq(ps_heap_trim(0), 2 * MIB);
		ps_fault_clear();
		pinned_check_nothing();
	}
}
END_TEST

START_TEST(heaps_do_not_share_chunks)
{
	char *block[PS_HEAPS];

	for (enum ps_heap heap = 0; heap < PS_HEAPS; heap++) {
		block[heap] = ps_arena_alloc(heap, 4096, 4096, false, &why);
		ck_assert_ptr_nonnull(block[heap]);
		ck_assert_uint_eq(ps_granule_heap(ps_granule_byte(ps_granule_of(block[heap]))),
				  heap);
	}
	pinned_check();
	for (enum ps_heap heap = 0; heap < PS_HEAPS; heap++)
		ps_arena_free(block[heap]);
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* Nor does one use pages that are unused in a chunk of another's. */
START_TEST(heaps_do_not_share_pages)
{
	const enum ps_heap mine = (enum ps_heap)(_i / PS_HEAPS);
	const enum ps_heap other = (enum ps_heap)(_i % PS_HEAPS);
	char *block[2];

	block[0] = ps_arena_alloc(mine, 100 * KIB, 4096, false, &why);
	ck_assert_ptr_nonnull(block[0]);
	/* The rest of its chunk is unused pages after a trim, which serve whoever is of this heap. */
	ps_heap_trim(0);
	block[1] = ps_arena_alloc(other, 64 * KIB, 4096, false, &why);
	ck_assert_ptr_nonnull(block[1]);
	ck_assert_uint_eq(ps_granule_heap(ps_granule_byte(ps_granule_of(block[1]))), other);
	ck_assert_int_eq(ps_granule_of(block[0]) == ps_granule_of(block[1]), mine == other);
	ps_arena_free(block[0]);
	ps_arena_free(block[1]);
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* What a forked child shares is unpinned when all of its chunk is unused, of other chunks what is. */
START_TEST(shared_chunks_go_only_whole)
{
	const enum ps_heap heap = (enum ps_heap)_i;
	char *whole, *rest, *first;

	whole = ps_arena_alloc(heap, 14 * MIB, 4096, false, &why);
	ck_assert_ptr_nonnull(whole);
	ps_arena_free(whole);
	first = ps_arena_alloc(heap, 4 * MIB, 4096, false, &why);
	rest = ps_arena_alloc(heap, 8 * MIB, 4096, false, &why);
	ck_assert_ptr_eq(first, whole);
	ps_arena_free(rest);
	if (heap == PS_HEAP_CUDA)
		ck_assert_uint_eq(ps_heap_trim(0), 0);
	else
		ck_assert_uint_ge(ps_heap_trim(0), 8 * MIB);
	pinned_check();
	ps_arena_free(first);
	ck_assert_uint_gt(ps_heap_trim(0), 0);
	pinned_check_nothing();
}
END_TEST

/* One chunk more than is needed at most, and never more than a sixteenth of what there is. */
START_TEST(growth_is_bounded)
{
	enum { BLOCKS = 4000 };
	static char *block[BLOCKS];

	for (int i = 0; i < BLOCKS; i++) {
		block[i] = get(64 * KIB, 4096);
		const uint64_t live = (uint64_t)(i + 1) * 64 * KIB;

		ck_assert_uint_le(locked(), live + live / 16 + 2 * PS_GRANULE);
	}
	pinned_check();
	for (int i = 0; i < BLOCKS; i++)
		ps_arena_free(block[i]);
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* With live blocks here and there a trim unpins the rest and leaves them as they are. */
START_TEST(trim_around_live_blocks)
{
	enum { BLOCKS = 600 };
	static char *block[BLOCKS];
	static size_t size[BLOCKS];
	uint64_t before;
	unsigned seed = 5;

	for (int i = 0; i < BLOCKS; i++) {
		size[i] = 1 + (size_t)rand_r(&seed) % (i % 4 ? 60 * KIB : 3 * MIB);
		block[i] = get(size[i], 512);
		pinned_fill(block[i], size[i], (uint64_t)i);
	}
	before = locked();
	for (int i = 0; i < BLOCKS; i++)
		if (i % 50 != 7)
			ps_arena_free(block[i]);
	ck_assert_uint_gt(ps_heap_trim(0), 0);
	pinned_check();
	ck_assert_uint_lt(locked(), before / 2);
	for (int i = 7; i < BLOCKS; i += 50) {
		ck_assert(pinned_filled(block[i], size[i], (uint64_t)i));
		ck_assert(ps_heap_is_pinned(block[i], size[i]));
		check_block(block[i], size[i]);
		ps_arena_free(block[i]);
	}
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* Churn with trims in between; live blocks keep content, pin and chunk. */
START_TEST(random_with_trims)
{
	enum { BLOCKS = 300 };
	static char *block[BLOCKS];
	static size_t size[BLOCKS];
	unsigned seed = 9;

	memset(block, 0, sizeof(block));
	for (int turn = 0; turn < 30000; turn++) {
		const int i = rand_r(&seed) % BLOCKS;

		if (block[i] != NULL) {
			ck_assert(
				pinned_filled(block[i], size[i] < 64 ? size[i] : 64, (uint64_t)i));
			check_block(block[i], ps_arena_size(block[i]));
			ps_arena_free(block[i]);
			block[i] = NULL;
		} else {
			size[i] = 1 + (size_t)rand_r(&seed) % (turn % 16 ? 100 * KIB : 4 * MIB);
			block[i] = get(size[i], size[i] < 4096 ? 512 : 4096);
			pinned_fill(block[i], size[i] < 64 ? size[i] : 64, (uint64_t)i);
		}
		if (turn % 1000 == 999)
			ps_heap_trim(0);
		if (turn % 1000 == 999)
			pinned_check();
	}
	for (int i = 0; i < BLOCKS; i++)
		if (block[i] != NULL)
			ps_arena_free(block[i]);
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

static const enum ps_os_call counted[] = { PS_OS_MPROTECT, PS_OS_MLOCK, PS_OS_MUNLOCK, PS_OS_MMAP,
					   PS_OS_MADVISE,  PS_OS_OPEN,  PS_OS_READ };

static unsigned calls(void)
{
	unsigned sum = 0;

	for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++)
		sum += ps_fault_reached(counted[i]);
	return sum;
}

/* After a refusal most requests are refused without asking the system. */
START_TEST(refusal_is_remembered)
{
	unsigned before;

	ps_fault_set(PS_OS_MLOCK, 1, UINT_MAX, ENOMEM);
	ck_assert_ptr_null(ps_arena_alloc(PS_HEAP_MALLOC, MIB, 4096, false, &why));
	ck_assert_str_eq(why.where, "mlock");
	before = calls();
	for (int i = 0; i < 1000; i++) {
		ck_assert_ptr_null(ps_arena_alloc(PS_HEAP_MALLOC, MIB, 4096, false, &why));
		ck_assert_str_eq(why.where, "mlock");
	}
	ck_assert_uint_le(calls() - before, 3000);
	if (!SANITIZED)
		ck_assert_uint_le(calls() - before, 100);
	ps_fault_clear();
	pinned_check_nothing();
	usleep(150000);
	ps_arena_free(get(MIB, 4096));
}
END_TEST

/* Memory that was freed serves the next request, whoever freed it. */
START_TEST(service_resumes)
{
	void *block[4];

	ps_config.limit = 8 * MIB;
	for (int i = 0; i < 4; i++)
		block[i] = get(2 * MIB, 4096);
	ck_assert_ptr_null(ps_arena_alloc(PS_HEAP_MALLOC, 2 * MIB, 4096, false, &why));
	ck_assert_int_eq(why.limit, PS_LIMIT_PROCESS);
	ps_arena_free(block[2]);
	block[2] = get(2 * MIB, 4096);
	for (int i = 0; i < 4; i++)
		ps_arena_free(block[i]);
	/* Another size needs what is free to be unpinned first, which is tried again after a while. */
	usleep(150000);
	ps_arena_free(get(5 * MIB, 4096));
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* Granules whose range could not be cut out for want of room in the table are not forgotten. */
START_TEST(granule_that_could_not_be_isolated)
{
	static int slots[100000];
	char *a, *b, *c;
	int n = 0;

	/* One chunk of three granules, with a live block in each. */
	a = get(6 * MIB, 4096);
	ps_arena_free(a);
	a = get(2 * MIB, 4096);
	b = get(2 * MIB, 4096);
	c = get(2 * MIB, 4096);
	ck_assert_uint_eq(locked(), 6 * MIB);
	while (ps_table()->range_used < ps_table()->range_capacity)
		slots[n++] = ps_table_add(4096, 4096, PINSHIM_RANGE_FOREIGN);
	ps_arena_free(b);
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	ps_heap_trim(0);
	ck_assert_uint_eq(locked(), 6 * MIB);
	ps_fault_clear();
	while (n > 0)
		ps_table_remove(slots[--n]);
	ck_assert_uint_eq(ps_heap_trim(0), 2 * MIB);
	pinned_check();
	ps_arena_free(a);
	ps_arena_free(c);
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* After a relock that failed nothing more is carved, or reused, from memory that is not locked. */
START_TEST(chunk_lost_its_lock)
{
	char *live = get(64 * KIB, 4096), *freed = get(64 * KIB, 4096);

	ps_arena_free(freed);
	syscall(SYS_munlockall);
	ps_fault_set(PS_OS_MLOCK, 1, UINT_MAX, ENOMEM);
	ps_heap_relock();
	ps_fault_clear();
	ck_assert(!ps_heap_is_pinned(live, 1));
	pinned_check();
	for (int i = 0; i < 40; i++)
		get(64 * KIB, 4096);
}
END_TEST

static void add(TCase *tcase)
{
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, both_sides_of_every_size_class);
	tcase_add_test(tcase, alignments);
	tcase_add_test(tcase, zero_is_zero);
	tcase_add_test(tcase, pages_left_by_a_trim_are_reused);
	tcase_add_test(tcase, zero_after_unpinning_without_mmap);
	tcase_add_test(tcase, heaps_do_not_share_chunks);
	tcase_add_loop_test(tcase, heaps_do_not_share_pages, 0, PS_HEAPS * PS_HEAPS);
	tcase_add_loop_test(tcase, shared_chunks_go_only_whole, 0, PS_HEAPS);
	tcase_add_test(tcase, growth_is_bounded);
	tcase_add_test(tcase, trim_around_live_blocks);
	tcase_add_test(tcase, random_with_trims);
	tcase_add_test(tcase, service_resumes);
	tcase_add_test(tcase, granule_that_could_not_be_isolated);
	tcase_add_test(tcase, refusal_is_remembered);
	/* Last: its blocks stay. */
	tcase_add_test(tcase, chunk_lost_its_lock);
}

int main(void)
{
	return pinned_main("arena", add);
}
