/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the table says is pinned, as aio/pinned.c reads it: this program's own allocator plays the part
 * of the library that pins. Cases change one table after the other and find it as the last left it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../aio/pinned.h"
#include "chunk.h"
#include "heap.h"
#include "log.h"
#include "os.h"
#include "pinned.h"
#include "scratch.h"
#include "table.h"

#define HEAP (PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_HEAP_MALLOC)
#define FAR ((uintptr_t)1 << 40) /* addresses that are only written in the table */

static int slots[64];
static unsigned slot_count;

static int add(uintptr_t base, size_t length, uint32_t flags)
{
	const int slot = ps_table_add(base, length, flags);

	ck_assert_int_ge(slot, 0);
	ck_assert_uint_lt(slot_count, 64);
	slots[slot_count++] = slot;
	return slot;
}

static void remove_all(void)
{
	while (slot_count > 0)
		ps_table_remove(slots[--slot_count]);
}

/* A table that appeared is found at the latest a twentieth of a second after the last look. */
static uint64_t found(void)
{
	uint64_t generation;

	while ((generation = ps_pinned_generation()) == 0)
		sched_yield();
	return generation;
}

/* Is every byte locked heap memory? */
static bool covers(uintptr_t address, size_t length)
{
	struct ps_piece piece;

	return ps_pinned_piece(address, length, &piece);
}

/* Waits until a table was looked for once more. */
static void look_again(void)
{
	const unsigned before = ps_fault_reached(PS_OS_OPEN);

	while (ps_fault_reached(PS_OS_OPEN) == before) {
		ck_assert_uint_eq(ps_pinned_generation(), 0);
		sched_yield();
	}
}

static void setup(void)
{
	ps_fault_clear();
	remove_all();
}

START_TEST(nothing_before_there_is_a_table)
{
	struct ps_piece piece;
	uintptr_t low = 1, high = 1;
	const char *path = scratch_table();
	char junk[1 << 16] = "phstable";

	ck_assert_ptr_null(ps_table_path());
	ck_assert_uint_eq(ps_pinned_generation(), 0);
	ck_assert_ptr_null(ps_pinned_table());
	ck_assert(!covers((uintptr_t)&piece, 1));
	ck_assert(!ps_pinned_piece((uintptr_t)&piece, 1, &piece));
	ps_pinned_bounds(&low, &high);
	ck_assert_uint_eq(low, 0);
	ck_assert_uint_eq(high, 0);
	/* What only has its name is none. */
	scratch_write(path, junk, sizeof(junk));
	look_again();
	scratch_write(path, junk, 64);
	look_again();
	ck_assert_ptr_null(ps_pinned_table());
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(found_when_it_appears)
{
	add(FAR, 2 * MIB, HEAP);
	ck_assert_uint_eq(found(), ps_table()->generation);
	ck_assert_ptr_nonnull(ps_pinned_table());
	ck_assert_ptr_ne(ps_pinned_table(), ps_table());
	ps_pinned_table()->stripe[3].aio.bytes = 42;
	ck_assert_uint_eq(ps_table()->stripe[3].aio.bytes, 42);
	ps_table()->stripe[3].aio.bytes = 0;
	add(FAR + 2 * MIB, 2 * MIB, HEAP);
	ck_assert_uint_eq(ps_pinned_generation(), ps_table()->generation);
}
END_TEST

START_TEST(covers_every_byte_or_not)
{
	uintptr_t low, high;

	add(FAR + 4 * MIB, 2 * MIB, HEAP);
	add(FAR, 2 * MIB, HEAP);
	add(FAR + 2 * MIB, 2 * MIB, PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_HEAP_CUDA);
	add(FAR + 8 * MIB, 2 * MIB, PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_FOREIGN);
	add(FAR + 10 * MIB, 2 * MIB, HEAP);
	add(FAR + 12 * MIB, 2 * MIB, PINSHIM_RANGE_HEAP_MALLOC);
	found();
	ck_assert(covers(FAR, 1));
	ck_assert(covers(FAR, 0));
	ck_assert(covers(FAR, 6 * MIB));
	ck_assert(covers(FAR + 1, 6 * MIB - 1));
	ck_assert(!covers(FAR + 1, 6 * MIB));
	ck_assert(!covers(FAR, 6 * MIB + 1));
	ck_assert(!covers(FAR - 1, 2));
	ck_assert(!covers(FAR + 6 * MIB, 0));
	ck_assert(!covers(FAR + 6 * MIB, 1));
	ck_assert(!covers(FAR + 8 * MIB, 1));
	ck_assert(!covers(FAR + 9 * MIB, 2 * MIB));
	ck_assert(covers(FAR + 12 * MIB - 1, 1));
	ck_assert(!covers(FAR + 12 * MIB, 1));
	ck_assert(!covers(FAR, SIZE_MAX));
	ck_assert(!covers(UINTPTR_MAX, 0));
	ck_assert(!covers(0, SIZE_MAX));
	ps_pinned_bounds(&low, &high);
	ck_assert_uint_eq(low, FAR);
	ck_assert_uint_eq(high, FAR + 12 * MIB);
}
END_TEST

START_TEST(a_piece_is_the_run_within_its_block)
{
	const uintptr_t border = FAR + PS_PIECE_MAX;
	struct ps_piece piece;

	add(border - 6 * MIB, 2 * MIB, HEAP);
	add(border - 4 * MIB, 8 * MIB, HEAP);
	add(border + 4 * MIB, 2 * PS_PIECE_MAX, HEAP);
	found();
	ck_assert(ps_pinned_piece(border - 3 * MIB, MIB, &piece));
	ck_assert_uint_eq(piece.base, border - 6 * MIB);
	ck_assert_uint_eq(piece.length, 6 * MIB);
	ck_assert_uint_eq(piece.generation, ps_table()->generation);
	ck_assert(ps_pinned_piece(border, 5 * MIB, &piece));
	ck_assert_uint_eq(piece.base, border);
	ck_assert_uint_eq(piece.length, PS_PIECE_MAX);
	ck_assert(ps_pinned_piece(border + 2 * PS_PIECE_MAX, 1, &piece));
	ck_assert_uint_eq(piece.length, 4 * MIB);
	ck_assert(!ps_pinned_piece(border - 1, 2, &piece));
	ck_assert(!ps_pinned_piece(border - 7 * MIB, 2 * MIB, &piece));
	ck_assert(!ps_pinned_piece(border + 2 * PS_PIECE_MAX, 4 * MIB + 1, &piece));
	ck_assert(!ps_pinned_piece(border, SIZE_MAX, &piece));
}
END_TEST

START_TEST(a_piece_is_the_same_while_its_ranges_are)
{
	struct ps_piece piece, other;
	int first, second;

	first = add(FAR, 2 * MIB, HEAP);
	second = add(FAR + 2 * MIB, 2 * MIB, HEAP);
	found();
	ck_assert(ps_pinned_piece(FAR, 1, &piece));
	ck_assert(ps_pinned_same(&piece));
	/* Something else changed. */
	add(FAR + 4 * MIB, 2 * MIB, HEAP);
	add(FAR - 2 * MIB, 2 * MIB, HEAP);
	ck_assert_uint_ne(piece.generation, ps_pinned_generation());
	ck_assert(ps_pinned_same(&piece));
	ck_assert_uint_eq(piece.generation, ps_pinned_generation());
	/* A part was unpinned, and pinned again at the same address. */
	other = piece;
	ps_table_remove(second);
	ck_assert(!ps_pinned_same(&other));
	ck_assert_int_eq(ps_table_add(FAR + 2 * MIB, 2 * MIB, HEAP), second);
	ck_assert(!ps_pinned_same(&piece));
	ck_assert(!ps_pinned_same(&other));
	ck_assert(ps_pinned_piece(FAR, 1, &piece));
	ck_assert(ps_pinned_same(&piece));
	/* The same range, but otherwise. */
	ps_table_set(first, FAR, 2 * MIB, HEAP | PINSHIM_RANGE_REGISTERED);
	ck_assert(!ps_pinned_same(&piece));
}
END_TEST

/* An exec that failed: the table was withdrawn, and is published again in another file. */
START_TEST(a_table_that_comes_back)
{
	struct ps_piece piece;
	int slot = add(FAR, 2 * MIB, HEAP);
	uint64_t before = found();
	struct pinshim_table *header = ps_pinned_table();

	ck_assert(ps_pinned_piece(FAR, 1, &piece));
	ps_table_close();
	ck_assert_uint_eq(ps_pinned_generation(), before);
	ps_table_reopen();
	ck_assert_ptr_nonnull(ps_table_path());
	ck_assert_uint_eq(found(), before);
	ck_assert_ptr_eq(ps_pinned_table(), header);
	ck_assert(ps_pinned_same(&piece));
	ps_table_set(slot, FAR, 2 * MIB, HEAP);
	ck_assert_uint_ne(ps_pinned_generation(), before);
	ck_assert(!ps_pinned_same(&piece));
	header->stripe[1].aio.bytes = 7;
	ck_assert_uint_eq(ps_table()->stripe[1].aio.bytes, 7);
	header->stripe[1].aio.bytes = 0;
}
END_TEST

/* More ranges than the file has room for at first. */
START_TEST(a_table_that_grows)
{
	enum { MANY = 5000 };
	static int many[MANY];
	struct ps_piece piece;

	add(FAR, 2 * MIB, HEAP);
	found();
	ck_assert(ps_pinned_piece(FAR, 1, &piece));
	for (uintptr_t i = 0; i < MANY; i++)
		many[i] = ps_table_add(2 * FAR + 2 * i * MIB, MIB, HEAP);
	ck_assert_uint_ge(ps_table()->range_capacity, MANY);
	for (uintptr_t i = 0; i < MANY; i++) {
		ck_assert(covers(2 * FAR + 2 * i * MIB, MIB));
		ck_assert(!covers(2 * FAR + 2 * i * MIB, MIB + 1));
	}
	ck_assert(ps_pinned_same(&piece));
	for (int i = 0; i < MANY; i++)
		ps_table_remove(many[i]);
	ck_assert(ps_pinned_same(&piece));
}
END_TEST

/* The tables of parent and child: neither is the other's. */
static int child(struct ps_piece *piece)
{
	const uint64_t before = ps_pinned_generation();

	if (before != 0 || ps_pinned_table() != NULL || ps_pinned_same(piece))
		return 1;
	if (covers(FAR, 1))
		return 2;
	if (ps_table_add(FAR + 6 * MIB, 2 * MIB, HEAP) < 0)
		return 3;
	found();
	if (ps_pinned_table()->pid != (uint32_t)getpid() || covers(FAR, 1) ||
	    !covers(FAR + 6 * MIB, 1))
		return 4;
	ps_table_close();
	return 0;
}

START_TEST(a_forked_child_has_its_own)
{
	struct ps_piece piece;
	uint64_t before;
	int pid;

	add(FAR, 2 * MIB, HEAP);
	before = found();
	ck_assert(ps_pinned_piece(FAR, 1, &piece));
	pid = fork();
	if (pid == 0) {
		ps_fork_child();
		ps_pinned_fork_child();
		_exit(child(&piece));
	}
	ck_assert_int_eq(scratch_wait(pid), 0);
	ck_assert_uint_eq(ps_pinned_generation(), before);
	ck_assert_uint_eq(ps_pinned_table()->pid, (uint32_t)getpid());
	ck_assert(ps_pinned_same(&piece));
}
END_TEST

/* No handler of fork runs in this one: what it is, is noticed when the ranges are asked for. */
START_TEST(a_cloned_child_notices)
{
	struct ps_piece piece;
	int pid;

	add(FAR, 2 * MIB, HEAP);
	found();
	ck_assert(ps_pinned_piece(FAR, 1, &piece));
	pid = (int)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		if (covers(FAR, 1) || ps_pinned_same(&piece))
			_exit(5);
		_exit(child(&piece));
	}
	ck_assert_int_eq(scratch_wait(pid), 0);
	ck_assert(ps_pinned_same(&piece));
}
END_TEST

/* In a child, whose table has yet to be found: every call on the way to it, made to fail. */
static int look_with(enum ps_os_call call)
{
	if (ps_table_add(FAR, 2 * MIB, HEAP) < 0)
		return 1;
	ps_fault_set(call, 1, UINT_MAX, EACCES);
	if (ps_pinned_generation() != 0 || covers(FAR, 1))
		return 2;
	ps_fault_clear();
	found();
	if (!covers(FAR, 1) || ps_table_add(2 * FAR, 2 * MIB, HEAP) < 0)
		return 3;
	ps_fault_set(call, 1, UINT_MAX, EACCES);
	if (covers(FAR, 1))
		return 4;
	ps_fault_clear();
	if (!covers(FAR, 1))
		return 5;
	ps_table_close();
	return 0;
}

START_TEST(every_call_can_fail)
{
	static const enum ps_os_call calls[] = { PS_OS_OPEN, PS_OS_FSTAT, PS_OS_MMAP };
	int pid;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		pid = fork();
		if (pid == 0) {
			ps_fork_child();
			ps_pinned_fork_child();
			_exit(look_with(calls[i]));
		}
		ck_assert_int_eq(scratch_wait(pid), 0);
	}
}
END_TEST

/* The file is gone although its owner lives: what changes then is not known, so nothing is pinned. */
START_TEST(a_file_that_somebody_removed)
{
	struct ps_piece piece;

	add(FAR, 2 * MIB, HEAP);
	found();
	ck_assert(ps_pinned_piece(FAR, 1, &piece));
	ck_assert_int_eq(rename(ps_table_path(), scratch_path("moved")), 0);
	ck_assert(ps_pinned_same(&piece));
	add(2 * FAR, 2 * MIB, HEAP);
	ck_assert_uint_eq(ps_pinned_generation(), ps_table()->generation);
	ck_assert(!ps_pinned_same(&piece));
	ck_assert(!covers(FAR, 1));
	ck_assert_int_eq(rename(scratch_path("moved"), ps_table_path()), 0);
	ck_assert(covers(FAR, 1));
}
END_TEST

/* A real chunk, given back and taken again. */
START_TEST(chunks_of_the_heap)
{
	struct ps_refusal why;
	struct ps_piece piece;
	uint32_t first, again;
	uintptr_t base;

	ck_assert_int_eq(ps_chunk_new(1, 1, PS_GRANULE_LARGE, &first, &why), 0);
	found();
	base = (uintptr_t)ps_granule_address(first);
	ck_assert(ps_pinned_piece(base, PS_GRANULE, &piece));
	ck_assert_uint_eq(piece.base, base);
	ps_lock(&ps_window.lock);
	ps_chunk_busy(first);
	ps_unlock(&ps_window.lock);
	ps_chunk_release(first, PS_GRANULE_LARGE | PS_GRANULE_LOCKED);
	ck_assert(!covers(base, 1));
	ck_assert(!ps_pinned_same(&piece));
	ck_assert_int_eq(ps_chunk_new(1, 1, PS_GRANULE_LARGE, &again, &why), 0);
	ck_assert_uint_eq(first, again);
	ck_assert(covers(base, PS_GRANULE));
	ck_assert(!ps_pinned_same(&piece));
	ps_lock(&ps_window.lock);
	ps_chunk_busy(first);
	ps_unlock(&ps_window.lock);
	ps_chunk_release(first, PS_GRANULE_LARGE | PS_GRANULE_LOCKED);
}
END_TEST

static atomic_bool stop;

/* What is never withdrawn is always pinned, and what never was pinned never is. */
static void *ask_in_thread(void *unused)
{
	struct ps_piece piece;

	(void)unused;
	while (!atomic_load(&stop)) {
		if (!covers(FAR, 2 * MIB) || covers(FAR + 3 * MIB, 1))
			return (void *)1;
		if (ps_pinned_generation() == 0 || !ps_pinned_piece(FAR, 1, &piece) ||
		    !ps_pinned_same(&piece))
			return (void *)2;
		if (ps_pinned_table() == NULL)
			return (void *)3;
	}
	return NULL;
}

START_TEST(threads)
{
	pthread_t thread[2];
	void *result;

	add(FAR, 2 * MIB, HEAP);
	found();
	atomic_store(&stop, false);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, ask_in_thread, NULL), 0);
	for (int i = 0; i < (SANITIZED ? 500 : 3000); i++)
		ps_table_remove(ps_table_add(2 * FAR + (uintptr_t)i * 2 * MIB, 2 * MIB, HEAP));
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_join(thread[i], &result), 0);
		ck_assert_ptr_null(result);
	}
}
END_TEST

/* There is no room for the ranges: the table leaves its file, and what it has is not known any more. */
START_TEST(a_table_that_leaves_its_file)
{
	enum { MANY = 20000 };
	static int many[MANY];
	struct ps_piece piece;
	int count = 0;

	add(FAR, 2 * MIB, HEAP);
	found();
	ck_assert(ps_pinned_piece(FAR, 1, &piece));
	ps_fault_set(PS_OS_FALLOCATE, 1, UINT_MAX, ENOSPC);
	while (count < MANY && ps_table_path() != NULL) {
		many[count] = ps_table_add(2 * FAR + 2 * (uintptr_t)count * MIB, MIB, HEAP);
		count++;
	}
	ck_assert_ptr_null(ps_table_path());
	ck_assert_uint_eq(ps_pinned_generation(), 0);
	ck_assert_ptr_null(ps_pinned_table());
	ck_assert(!ps_pinned_same(&piece));
	ck_assert(!covers(FAR, 1));
	while (count > 0)
		ps_table_remove(many[--count]);
}
END_TEST

static void add_cases(TCase *tcase)
{
	tcase_set_timeout(tcase, 60);
	tcase_add_unchecked_fixture(tcase, scratch_begin, NULL);
	tcase_add_unchecked_fixture(tcase, scratch_enter, scratch_end);
	tcase_add_checked_fixture(tcase, setup, setup);
	tcase_add_test(tcase, nothing_before_there_is_a_table);
	tcase_add_test(tcase, found_when_it_appears);
	tcase_add_test(tcase, covers_every_byte_or_not);
	tcase_add_test(tcase, a_piece_is_the_run_within_its_block);
	tcase_add_test(tcase, a_piece_is_the_same_while_its_ranges_are);
	tcase_add_test(tcase, a_table_that_comes_back);
	tcase_add_test(tcase, a_table_that_grows);
	tcase_add_test(tcase, a_forked_child_has_its_own);
	tcase_add_test(tcase, a_cloned_child_notices);
	tcase_add_test(tcase, every_call_can_fail);
	tcase_add_test(tcase, a_file_that_somebody_removed);
	tcase_add_test(tcase, chunks_of_the_heap);
	tcase_add_test(tcase, threads);
	tcase_add_test(tcase, a_table_that_leaves_its_file);
}

int main(void)
{
	ps_log_level = PS_LOG_ERROR;
	return pinned_main("pinned table", add_cases);
}
