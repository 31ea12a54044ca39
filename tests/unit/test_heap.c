/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap as interpose/ sees it: what is a block and what is not, resizing, questions about any
 * range, and a long random run against a model.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config.h"
#include "counters.h"
#include "heap.h"
#include "pinned.h"
#include "table.h"

#define ENTRY PINSHIM_ENTRY_ALIGNED

static struct ps_refusal why;

static void setup(void)
{
	ps_fault_clear();
	ps_config.limit = UINT64_MAX;
	ps_config.retain = GIB;
	ps_heap_trim(0);
	pinned_check_nothing();
}

static void *get(size_t size, size_t align)
{
	void *block = ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, size, align, false, &why);

	ck_assert_ptr_nonnull(block);
	return block;
}

static void drop(void *block)
{
	ps_heap_free(block, "free");
}

static uint64_t locked(void)
{
	return ps_table()->locked_bytes;
}

static void live(struct pinshim_entry *sum)
{
	ps_count_sum(ps_table(), ENTRY, sum);
}

START_TEST(alignment_by_size)
{
	static const size_t sizes[] = {
		0,    1,    511,          512,      513,          4095,
		4096, 4097, 16 * MIB - 1, 16 * MIB, 16 * MIB + 1, 64 * MIB
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		void *block = get(sizes[i], 0);

		ck_assert_uint_eq((uintptr_t)block % (sizes[i] < 4096 ? 512 : 4096), 0);
		ck_assert_uint_ge(ps_heap_usable(block, "usable"), sizes[i] ? sizes[i] : 1);
		ck_assert_int_eq(ps_heap_entry(block), ENTRY);
		ck_assert(ps_heap_is_pinned(block, ps_heap_usable(block, "usable")));
		memset(block, 1, ps_heap_usable(block, "usable"));
		drop(block);
		ck_assert_int_eq(ps_heap_entry(block), PINSHIM_ENTRIES);
	}
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

START_TEST(alignment_asked_for)
{
	for (size_t align = 1; align <= GIB; align *= 2) {
		char *block = get(1000, align), *large = get(17 * MIB, align);

		ck_assert_uint_eq((uintptr_t)block % align, 0);
		ck_assert_uint_eq((uintptr_t)large % align, 0);
		memset(block, 1, 1000);
		drop(block);
		drop(large);
	}
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

START_TEST(too_big)
{
	static const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2, (size_t)1 << 47 };
	uint32_t frontier;

	for (int i = 0; i < 4; i++) {
		ck_assert_ptr_null(ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, sizes[i], 0, true, &why));
		ck_assert_int_eq(why.limit, PS_LIMIT_WINDOW);
		ck_assert_ptr_null(
			ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, 1, (size_t)1 << (63 - i), true, &why));
	}
	/* No memory has as much, but the window does; its notes are not touched for nothing. */
	frontier = (uint32_t)ps_window.frontier;
	ck_assert_ptr_null(ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, ps_window.size, 0, true, &why));
	ck_assert_uint_eq(ps_window.frontier, frontier);
	pinned_check_nothing();
}
END_TEST

START_TEST(errno_is_left_alone)
{
	void *block;

	errno = 77;
	block = get(20 * MIB, 0);
	drop(block);
	drop(get(1 * MIB, 0));
	ps_heap_trim(0);
	ps_fault_set(PS_OS_MLOCK, 1, UINT_MAX, ENOMEM);
	ck_assert_ptr_null(ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, 20 * MIB, 0, false, &why));
	ck_assert_ptr_null(ps_heap_alloc(PS_HEAP_CUDA, ENTRY, MIB, 0, false, &why));
	ck_assert_int_eq(errno, 77);
}
END_TEST

START_TEST(zero_after_reuse)
{
	for (size_t size = 512; size <= 64 * MIB; size *= 4) {
		char *block = get(size, 0);

		memset(block, 0xff, size);
		drop(block);
		block = ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, size, 0, true, &why);
		ck_assert(pinned_is_zero(block, size));
		drop(block);
	}
}
END_TEST

START_TEST(pinned_questions)
{
	char *block = get(20 * MIB, 0), *small = get(100, 0);
	const uintptr_t end = ps_window.base + ps_window.size;
	static char outside[64];

	ck_assert(ps_heap_is_pinned(block, 0) && ps_heap_is_pinned(block, 20 * MIB));
	ck_assert(ps_heap_is_pinned(block + 20 * MIB - 1, 1));
	ck_assert(ps_heap_is_pinned(small + 7, 50));
	ck_assert(!ps_heap_is_pinned(outside, 1) && !ps_heap_is_pinned(NULL, 0));
	ck_assert(!ps_heap_is_pinned(block, SIZE_MAX));
	ck_assert(!ps_heap_is_pinned(block, ps_window.size));
	ck_assert(!ps_heap_is_pinned(block, (size_t)0 - (uintptr_t)block + 1));
	ck_assert(!ps_heap_is_pinned((void *)(ps_window.base - 1), 2));
	ck_assert(!ps_heap_is_pinned((void *)(end - 1), 1));
	ck_assert(!ps_heap_is_pinned((void *)(end - 1), 2));
	ck_assert(!ps_heap_is_pinned((void *)end, 0));
	ck_assert(!ps_heap_is_pinned((void *)UINTPTR_MAX, 1));
	ck_assert(!ps_heap_is_pinned((void *)UINTPTR_MAX, SIZE_MAX));
	ck_assert(!ps_heap_is_pinned((void *)(ps_window.base + ps_window.size / 2), 1));
	ck_assert_int_eq(ps_heap_entry(outside), PINSHIM_ENTRIES);
	ck_assert_int_eq(ps_heap_entry((void *)(end - 512)), PINSHIM_ENTRIES);
	ck_assert_int_eq(ps_heap_entry(small + 512), PINSHIM_ENTRIES);
	ck_assert_int_eq(ps_heap_entry(block + 1), PINSHIM_ENTRIES);
	drop(block);
	drop(small);
}
END_TEST

/* Does doing this end in SIGABRT, with this in the message? */
static void dies(void (*doing)(char *block), char *block, const char *message)
{
	char text[1024] = "";
	ssize_t length;
	int ends[2], status;
	pid_t child;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		dup2(ends[1], 2);
		signal(SIGABRT, SIG_DFL);
		doing(block);
		_exit(0);
	}
	close(ends[1]);
	length = read(ends[0], text, sizeof(text) - 1);
	close(ends[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %d", status);
	ck_assert_int_gt(length, 0);
	ck_assert_msg(strstr(text, message) != NULL, "%s", text);
}

static void free_it(char *block)
{
	ps_heap_free(block, "free");
}

static void free_twice(char *block)
{
	ps_heap_free(block, "free");
	ps_heap_free(block, "free");
}

static void ask_usable(char *block)
{
	ps_heap_usable(block, "malloc_usable_size");
}

static void resize(char *block)
{
	ps_heap_resize(block, 100, "realloc");
}

START_TEST(frees_that_are_wrong)
{
	char *small = get(100, 0), *middle = get(MIB, 0), *large = get(20 * MIB, 0);
	char expected[200];

	dies(free_twice, small, "double free");
	dies(free_twice, middle, "double free");
	dies(free_twice, large, "double free");
	dies(free_it, small + 8, "it points 8 bytes into the block at");
	dies(free_it, middle + 4096, "it points 4096 bytes into the block at");
	snprintf(expected, sizeof(expected),
		 "free: invalid pointer %p: it points 20971519 bytes into "
		 "the block at %p",
		 (void *)(large + 20 * MIB - 1), (void *)large);
	dies(free_it, large + 20 * MIB - 1, expected);
	dies(free_it, (char *)ps_window.base + ps_window.size / 2, "no block begins there");
	dies(free_it, (char *)ps_window.base + ps_window.size - 1, "no block begins there");
	dies(ask_usable, middle + 512, "malloc_usable_size: invalid pointer");
	dies(resize, large + 2 * MIB, "realloc: invalid pointer");
	drop(small);
	drop(middle);
	drop(large);
	/* Freed here, and kept for reuse or unpinned. */
	dies(free_it, small, "double free");
	dies(free_it, large, "double free");
	ps_heap_trim(0);
	dies(free_it, small, "double free");
	dies(free_it, middle + 1, "never allocated");
	dies(free_it, large, "double free");
}
END_TEST

START_TEST(resize_in_place)
{
	char *block = get(32 * MIB, 0);
	struct pinshim_entry before, after;

	pinned_fill(block, 20 * MIB, 2);
	live(&before);
	ck_assert(ps_heap_resize(block, 20 * MIB, "realloc"));
	ck_assert_uint_eq(ps_heap_usable(block, ""), 20 * MIB);
	ck_assert(!ps_heap_resize(block, 0, "realloc"));
	ck_assert(!ps_heap_resize(block, SIZE_MAX, "realloc"));
	ck_assert(!ps_heap_resize(block, 5 * MIB, "realloc"));
	ck_assert_uint_eq(ps_heap_usable(block, ""), 20 * MIB);
	ck_assert(pinned_filled(block, 20 * MIB, 2));
	live(&after);
	ck_assert_uint_eq(after.served_bytes - after.freed_bytes,
			  before.served_bytes - before.freed_bytes - 12 * MIB);
	drop(block);
	pinned_check();
}
END_TEST

START_TEST(resize_small)
{
	char *block = get(MIB, 0), *next;

	pinned_fill(block, MIB / 2, 2);
	ck_assert(ps_heap_resize(block, MIB / 2 + 4096, "realloc"));
	ck_assert_uint_lt(ps_heap_usable(block, ""), MIB);
	ck_assert(ps_heap_resize(block, MIB / 2, "realloc"));
	next = get(64 * KIB, 0);
	if (ps_heap_resize(block, MIB, "realloc"))
		ck_assert(next >= block + MIB || next < block);
	ck_assert(pinned_filled(block, MIB / 2, 2));
	ck_assert(!ps_heap_resize(block, 17 * MIB, "realloc"));
	drop(block);
	drop(next);
	/* A block of less than 4 KiB begins on 512 bytes and cannot become a larger one. */
	block = get(600, 0);
	ck_assert(!ps_heap_resize(block, 5000, "realloc"));
	ck_assert(ps_heap_resize(block, 700, "realloc"));
	drop(block);
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* Kept blocks may be all that fills the window. */
START_TEST(kept_blocks_make_room_in_the_window)
{
	void *block;

	pinned_new_window(64 * MIB);
	drop(get(32 * MIB, 0));
	block = ps_heap_alloc(PS_HEAP_CUDA, ENTRY, 40 * MIB, 0, false, &why);
	ck_assert_ptr_nonnull(block);
	drop(block);
	ck_assert_ptr_null(ps_heap_alloc(PS_HEAP_CUDA, ENTRY, 65 * MIB, 0, false, &why));
	ck_assert_uint_gt(locked(), 0);
	block = get(60 * MIB, 0);
	ck_assert_ptr_null(ps_heap_alloc(PS_HEAP_CUDA, ENTRY, 6 * MIB, 0, false, &why));
	ck_assert_int_eq(why.limit, PS_LIMIT_WINDOW);
	drop(block);
	ps_heap_trim(0);
	pinned_check_nothing();
	pinned_new_window(0);
}
END_TEST

START_TEST(kept_blocks_make_room_in_the_limit)
{
	void *block[3];

	ps_config.limit = 40 * MIB;
	drop(get(32 * MIB, 0));
	block[0] = get(MIB, 0);
	block[1] = ps_heap_alloc(PS_HEAP_CUDA, ENTRY, 20 * MIB, 0, false, &why);
	ck_assert_ptr_nonnull(block[1]);
	block[2] = get(12 * MIB, 0);
	ck_assert_ptr_null(ps_heap_alloc(PS_HEAP_CUDA, ENTRY, 20 * MIB, 0, false, &why));
	ck_assert_int_eq(why.limit, PS_LIMIT_PROCESS);
	pinned_check();
	for (int i = 0; i < 3; i++)
		drop(block[i]);
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* What could not be unmapped is tried again before anything is refused for its sake. */
START_TEST(what_could_not_be_unpinned_makes_room)
{
	void *block;

	ps_config.limit = 40 * MIB;
	ps_config.retain = 0;
	block = ps_heap_alloc(PS_HEAP_CUDA, ENTRY, 30 * MIB, 0, false, &why);
	ck_assert_ptr_nonnull(block);
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	drop(block);
	ps_fault_clear();
	block = ps_heap_alloc(PS_HEAP_CUDA, ENTRY, 30 * MIB, 0, false, &why);
	ck_assert_ptr_nonnull(block);
	pinned_check();
	drop(block);
	pinned_check_nothing();
}
END_TEST

/* What is free in pieces stays usable for small requests after a large one was refused. */
START_TEST(refusal_does_not_spend_what_is_free)
{
	enum { BLOCKS = 16 };
	char *block[BLOCKS];
	unsigned before;

	ps_config.limit = 16 * MIB;
	for (int i = 0; i < BLOCKS; i++)
		block[i] = get(MIB, 0);
	for (int i = 0; i < BLOCKS; i += 2)
		drop(block[i]);
	ck_assert_ptr_null(ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, 3 * MIB, 0, false, &why));
	before = ps_fault_reached(PS_OS_OPEN) + ps_fault_reached(PS_OS_MPROTECT);
	for (int i = 0; i < 100; i++)
		ck_assert_ptr_null(ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, 3 * MIB, 0, false, &why));
	ck_assert_uint_le(ps_fault_reached(PS_OS_OPEN) + ps_fault_reached(PS_OS_MPROTECT) - before,
			  300);
	for (int i = 0; i < BLOCKS; i += 2)
		block[i] = get(MIB, 0);
	for (int i = 0; i < BLOCKS; i++)
		drop(block[i]);
}
END_TEST

#define SLOTS 400
#define LIVE_MAX (768 * MIB)

static struct model {
	char *block;
	size_t size;
	uint64_t seed;
	enum ps_heap heap;
} model[SLOTS];

static unsigned seed;

/* 1 byte to 64 MiB, each doubling as likely as any, but the largest seldom: they take their time. */
static size_t random_size(void)
{
	const unsigned bits = (unsigned)rand_r(&seed) % (rand_r(&seed) % 100 == 0 ? 27 : 21);

	return ((size_t)1 << bits) + (size_t)rand_r(&seed) % ((size_t)1 << bits) % (64 * MIB);
}

/* Both ends of a block tell it; the middle of large ones is looked at now and then. */
static void fill(struct model *m)
{
	const size_t end = m->size < 256 ? m->size : 256;

	pinned_fill(m->block, end, m->seed);
	pinned_fill(m->block + m->size - end, end, m->seed);
}

static void check(const struct model *m)
{
	const size_t end = m->size < 256 ? m->size : 256;

	if (m->size >= 512)
		ck_assert(pinned_filled(m->block, end, m->seed));
	ck_assert(pinned_filled(m->block + m->size - end, end, m->seed));
	ck_assert_int_eq(ps_heap_entry(m->block), ENTRY);
}

static void random_alloc(struct model *m, uint64_t *bytes)
{
	const bool zero = rand_r(&seed) % 4 == 0;

	m->size = random_size();
	if (*bytes + m->size > LIVE_MAX)
		return;
	m->heap = (enum ps_heap)(rand_r(&seed) % PS_HEAPS);
	m->seed = (uint64_t)rand_r(&seed);
	m->block = ps_heap_alloc(m->heap, ENTRY, m->size, 0, zero, &why);
	ck_assert_ptr_nonnull(m->block);
	if (zero && m->size < MIB)
		ck_assert(pinned_is_zero(m->block, m->size));
	*bytes += m->size;
	fill(m);
}

static void random_resize(struct model *m, uint64_t *bytes)
{
	const size_t size = m->size / 2 + (size_t)rand_r(&seed) % (m->size + 1);

	if (size == 0 || !ps_heap_resize(m->block, size, "realloc"))
		return;
	*bytes += size - m->size;
	m->size = size;
	fill(m);
}

START_TEST(random_against_a_model)
{
	static const uint64_t retain[] = { 0, 64 * MIB, GIB };
	const int operations = SANITIZED ? 20000 : 70000;
	uint64_t bytes = 0;

	seed = (unsigned)_i + 1;
	ps_config.retain = retain[_i];
	memset(model, 0, sizeof(model));
	for (int turn = 0; turn < operations; turn++) {
		struct model *m = &model[rand_r(&seed) % SLOTS];

		if (m->block == NULL) {
			random_alloc(m, &bytes);
		} else if (rand_r(&seed) % 4 == 0) {
			check(m);
			random_resize(m, &bytes);
		} else {
			check(m);
			drop(m->block);
			bytes -= m->size;
			m->block = NULL;
		}
		if (turn % 5000 == 4999) {
			if (turn % 10000 == 9999)
				ps_heap_trim(rand_r(&seed) % (64 * MIB));
			pinned_check();
			ck_assert_uint_le(ps_count_retained(ps_table()), ps_config.retain);
		}
	}
	for (int i = 0; i < SLOTS; i++)
		if (model[i].block != NULL)
			drop(model[i].block);
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

/* Pinned against live for a gibibyte in random blocks of 64 KiB to 4 MiB, fresh and after churn. */
START_TEST(fragmentation)
{
	enum { BLOCKS = 4096 };
	static char *block[BLOCKS];
	static size_t size[BLOCKS];
	uint64_t bytes = 0;
	double fresh, churned;
	int n = 0;

	seed = 42;
	for (; bytes < (SANITIZED ? 256 * MIB : GIB); n++) {
		size[n] = 64 * KIB + (size_t)rand_r(&seed) % (4 * MIB - 64 * KIB);
		block[n] = get(size[n], 0);
		bytes += size[n];
	}
	fresh = (double)locked() / (double)bytes;
	for (int turn = 0; turn < 20 * n; turn++) {
		const int i = rand_r(&seed) % n;

		drop(block[i]);
		bytes -= size[i];
		size[i] = 64 * KIB + (size_t)rand_r(&seed) % (4 * MIB - 64 * KIB);
		block[i] = get(size[i], 0);
		bytes += size[i];
	}
	churned = (double)locked() / (double)bytes;
	printf("fragmentation: pinned/live %.3f, %.3f after churn (%d blocks)\n", fresh, churned,
	       n);
	ck_assert(fresh < 1.35);
	for (int i = 0; i < n; i++)
		drop(block[i]);
	ps_heap_trim(0);
	pinned_check_nothing();
}
END_TEST

static void add(TCase *tcase)
{
	tcase_set_timeout(tcase, 110);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, alignment_by_size);
	tcase_add_test(tcase, alignment_asked_for);
	tcase_add_test(tcase, too_big);
	tcase_add_test(tcase, errno_is_left_alone);
	tcase_add_test(tcase, zero_after_reuse);
	tcase_add_test(tcase, pinned_questions);
	tcase_add_test(tcase, frees_that_are_wrong);
	tcase_add_test(tcase, resize_in_place);
	tcase_add_test(tcase, resize_small);
	tcase_add_test(tcase, kept_blocks_make_room_in_the_limit);
	tcase_add_test(tcase, what_could_not_be_unpinned_makes_room);
	tcase_add_loop_test(tcase, random_against_a_model, 0, 3);
	tcase_add_test(tcase, fragmentation);
	tcase_add_test(tcase, refusal_does_not_spend_what_is_free);
	tcase_add_test(tcase, kept_blocks_make_room_in_the_window);
}

int main(void)
{
	return pinned_main("heap", add);
}
