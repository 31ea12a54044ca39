/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Foreign ranges: counts, splits and joins against a model of one number a page, every system call
 * made to fail at every place, and whether claims, the kernel's locks and the table agree after it.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "budget.h"
#include "config.h"
#include "counters.h"
#include "fault.h"
#include "foreign.h"
#include "os.h"
#include "syscall.h"
#include "table.h"

#define PAGE ((size_t)4096)
#define PAGES 64

static char directory[] = "/tmp/test_foreign.XXXXXX";
static char *area;            /* PAGES pages of private memory */
static unsigned model[PAGES]; /* pins of each */
static long locked_before;    /* VmLck without any pin, kB */
static struct ps_refusal why;

static long locked_kb(void)
{
	char text[4096], *found;

	ck_assert_int_gt(ps_os_read_file("/proc/self/status", text, sizeof(text)), 0);
	found = strstr(text, "VmLck:");
	ck_assert_ptr_nonnull(found);
	return strtol(found + 6, NULL, 10) - locked_before;
}

static void *map(size_t length)
{
	void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	/* A neighbour with the same flags would be one mapping with it. */
	ck_assert_int_eq(madvise(memory, length, MADV_DONTDUMP), 0);
	return memory;
}

static void setup(void)
{
	ps_fault_clear();
	if (!area)
		area = map(PAGES * PAGE);
	memset(model, 0, sizeof(model));
	locked_before = 0;
	locked_before = locked_kb();
}

/* The foreign ranges in the table: how many, and the first of them. */
static struct pinshim_range published[PAGES];

static size_t read_table(void)
{
	const struct pinshim_table *table = ps_table();
	const struct pinshim_range *range = (const void *)((const char *)table +
							   table->ranges_offset);
	size_t used = 0;

	for (uint32_t i = 0; i < table->range_used; i++) {
		if (!range[i].length || !(range[i].flags & PINSHIM_RANGE_FOREIGN))
			continue;
		if (used < PAGES)
			published[used] = range[i];
		used++;
	}
	return used;
}

static bool in_table(size_t used, const char *base, size_t length)
{
	for (size_t i = 0; i < used; i++)
		if (published[i].base == (uintptr_t)base && published[i].length == length)
			return published[i].flags == (PINSHIM_RANGE_FOREIGN | PINSHIM_RANGE_LOCKED);
	return false;
}

static void teardown(void)
{
	ps_fault_clear();
	ps_foreign_drop(area, PAGES * PAGE, true);
	ck_assert_uint_eq(ps_foreign_count(), 0);
	ck_assert_uint_eq(read_table(), 0);
	ck_assert_uint_eq(ps_budget_claimed(), 0);
	ck_assert_uint_eq(ps_table()->foreign_bytes, 0);
	ck_assert_int_eq(locked_kb(), 0);
}

static int pin_pages(size_t first, size_t count)
{
	memset(&why, 0xff, sizeof(why));
	return ps_foreign_pin(area + first * PAGE, count * PAGE, &why);
}

static int unpin_pages(size_t first, size_t count)
{
	return ps_foreign_unpin(area + first * PAGE, count * PAGE);
}

/* Everything that can be known is what the model says. */
static void agree(void)
{
	size_t pinned = 0, runs = 0, used = read_table();

	for (size_t i = 0; i < PAGES; i++) {
		size_t end = i;

		ck_assert_int_eq(ps_foreign_is_pinned(area + i * PAGE, PAGE), model[i] > 0);
		pinned += model[i] > 0;
		if (!model[i] || (i && model[i - 1] == model[i]))
			continue;
		while (end < PAGES && model[end] == model[i])
			end++;
		ck_assert(in_table(used, area + i * PAGE, (end - i) * PAGE));
		runs++;
	}
	ck_assert_uint_eq(ps_foreign_count(), runs);
	ck_assert_uint_eq(used, runs);
	ck_assert_uint_eq(ps_budget_claimed(), pinned * PAGE);
	ck_assert_uint_eq(ps_table()->present_bytes, pinned * PAGE);
	ck_assert_uint_eq(ps_table()->foreign_bytes, pinned * PAGE);
}

static void expect(const char *pins)
{
	for (size_t i = 0; i < PAGES; i++)
		model[i] = i < strlen(pins) ? (unsigned)(pins[i] - '0') : 0;
	agree();
	for (size_t i = 0, locked = 0; i <= PAGES; i++) {
		if (i == PAGES)
			ck_assert_int_eq(locked_kb(), (long)(locked * PAGE / 1024));
		else
			locked += model[i] > 0;
	}
}

START_TEST(pin_then_unpin)
{
	uint64_t pins = ps_table()->pins, unpins = ps_table()->unpins;

	ck_assert_int_eq(pin_pages(2, 3), 0);
	expect("00111");
	ck_assert_uint_eq(ps_table()->pins, pins + 1);
	ck_assert_int_eq(unpin_pages(2, 3), 0);
	expect("");
	ck_assert_uint_eq(ps_table()->unpins, unpins + 1);
}
END_TEST

START_TEST(pin_covers_the_pages_of_a_few_bytes)
{
	ck_assert_int_eq(ps_foreign_pin(area + PAGE - 1, 2, &why), 0);
	expect("11");
	ck_assert(ps_foreign_is_pinned(area + 1, 2 * PAGE - 1));
	ck_assert(!ps_foreign_is_pinned(area + 1, 2 * PAGE));
	ck_assert_int_eq(ps_foreign_unpin(area + PAGE - 1, 2), 0);
	expect("");
}
END_TEST

START_TEST(pin_nests)
{
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pin_pages(0, 4), 0);
	expect("3333");
	ck_assert_int_eq(unpin_pages(0, 4), 0);
	expect("2222");
	ck_assert_int_eq(unpin_pages(0, 4), 0);
	ck_assert_int_eq(unpin_pages(0, 4), 0);
	expect("");
}
END_TEST

START_TEST(pin_overlaps)
{
	ck_assert_int_eq(pin_pages(0, 4), 0);
	ck_assert_int_eq(pin_pages(2, 4), 0);
	expect("112211");
	ck_assert_int_eq(unpin_pages(0, 4), 0);
	expect("001111");
	ck_assert_int_eq(unpin_pages(2, 4), 0);
	expect("");
}
END_TEST

START_TEST(pin_inside)
{
	ck_assert_int_eq(pin_pages(0, 8), 0);
	ck_assert_int_eq(pin_pages(3, 2), 0);
	expect("11122111");
	ck_assert_int_eq(unpin_pages(3, 2), 0);
	expect("11111111");
}
END_TEST

START_TEST(pin_over_gaps)
{
	ck_assert_int_eq(pin_pages(1, 1), 0);
	ck_assert_int_eq(pin_pages(3, 2), 0);
	expect("01011");
	ck_assert_int_eq(pin_pages(0, 7), 0);
	expect("1212211");
	ck_assert_int_eq(unpin_pages(0, 7), 0);
	expect("01011");
}
END_TEST

START_TEST(neighbours_join)
{
	ck_assert_int_eq(pin_pages(4, 2), 0);
	ck_assert_int_eq(pin_pages(6, 2), 0);
	ck_assert_int_eq(pin_pages(2, 2), 0);
	expect("00111111");
	ck_assert_int_eq(pin_pages(9, 1), 0);
	ck_assert_int_eq(pin_pages(8, 1), 0);
	expect("0011111111");
	ck_assert_int_eq(pin_pages(0, 2), 0);
	ck_assert_int_eq(pin_pages(0, 2), 0);
	expect("2211111111");
}
END_TEST

START_TEST(unpin_part)
{
	ck_assert_int_eq(pin_pages(0, 8), 0);
	ck_assert_int_eq(unpin_pages(0, 1), 0);
	expect("01111111");
	ck_assert_int_eq(unpin_pages(7, 1), 0);
	expect("0111111");
	ck_assert_int_eq(unpin_pages(3, 2), 0);
	expect("0110011");
}
END_TEST

START_TEST(unpin_across_counts)
{
	ck_assert_int_eq(pin_pages(0, 8), 0);
	ck_assert_int_eq(pin_pages(2, 4), 0);
	ck_assert_int_eq(pin_pages(3, 2), 0);
	expect("11233211");
	ck_assert_int_eq(unpin_pages(1, 3), 0);
	expect("10123211");
}
END_TEST

START_TEST(unpin_of_what_is_not_pinned)
{
	ck_assert_int_eq(unpin_pages(0, 1), -EINVAL);
	ck_assert_int_eq(pin_pages(2, 4), 0);
	ck_assert_int_eq(unpin_pages(1, 3), -EINVAL);
	ck_assert_int_eq(unpin_pages(4, 3), -EINVAL);
	ck_assert_int_eq(pin_pages(7, 1), 0);
	ck_assert_int_eq(unpin_pages(2, 6), -EINVAL);
	expect("00111101");
	ck_assert_int_eq(unpin_pages(2, 4), 0);
	ck_assert_int_eq(unpin_pages(2, 4), -EINVAL);
}
END_TEST

START_TEST(bad_ranges)
{
	ck_assert_int_eq(ps_foreign_pin(NULL, 1, &why), -EINVAL);
	ck_assert_int_eq(ps_foreign_pin(area, 0, &why), -EINVAL);
	ck_assert_int_eq(ps_foreign_pin(area, SIZE_MAX, &why), -EINVAL);
	ck_assert_int_eq(ps_foreign_pin(area, SIZE_MAX - (uintptr_t)area, &why), -EINVAL);
	ck_assert_int_eq(ps_foreign_unpin(area, 0), -EINVAL);
	ck_assert_int_eq(ps_foreign_unpin(area, SIZE_MAX), -EINVAL);
	ck_assert_uint_eq(ps_foreign_drop(area, SIZE_MAX, true), 0);
	ck_assert(!ps_foreign_is_pinned(area, SIZE_MAX));
	ck_assert(!ps_foreign_is_pinned(NULL, 0));
	ck_assert(!ps_foreign_is_pinned((void *)UINTPTR_MAX, 0));
	expect("");
}
END_TEST

START_TEST(no_length_asks_about_one_byte)
{
	ck_assert_int_eq(pin_pages(1, 1), 0);
	ck_assert(ps_foreign_is_pinned(area + PAGE, 0));
	ck_assert(!ps_foreign_is_pinned(area + 2 * PAGE, 0));
}
END_TEST

START_TEST(pin_of_what_is_not_mapped)
{
	char *hole = map(4 * PAGE);

	ck_assert_int_eq(munmap(hole + 2 * PAGE, PAGE), 0);
	ck_assert_int_eq(ps_foreign_pin(hole, 4 * PAGE, &why), -EFAULT);
	expect("");
	ck_assert_int_eq(mprotect(hole + PAGE, PAGE, PROT_NONE), 0);
	ck_assert_int_eq(ps_foreign_pin(hole, 2 * PAGE, &why), -EFAULT);
	expect("");
	ck_assert_int_eq(munmap(hole, 4 * PAGE), 0);
}
END_TEST

START_TEST(drop_whatever_the_count)
{
	ck_assert_int_eq(pin_pages(0, 8), 0);
	ck_assert_int_eq(pin_pages(2, 4), 0);
	ck_assert_int_eq(pin_pages(10, 2), 0);
	expect("112222110011");
	ck_assert_uint_eq(ps_foreign_drop(area + 3 * PAGE, PAGE, true), PAGE);
	expect("112022110011");
	ck_assert_uint_eq(ps_foreign_drop(area + 4 * PAGE + 1, 6 * PAGE, true), 5 * PAGE);
	expect("112000000001");
	ck_assert_uint_eq(ps_foreign_drop(area + 20 * PAGE, PAGE, true), 0);
	ck_assert_int_eq(unpin_pages(0, 4), -EINVAL);
}
END_TEST

START_TEST(drop_leaves_the_lock_to_munmap)
{
	ck_assert_int_eq(pin_pages(0, 4), 0);
	ck_assert_uint_eq(ps_foreign_drop(area, 4 * PAGE, false), 4 * PAGE);
	ck_assert_int_eq(locked_kb(), (long)(4 * PAGE / 1024));
	ck_assert_uint_eq(ps_budget_claimed(), 0);
	ps_os_munlock(area, 4 * PAGE);
	expect("");
}
END_TEST

START_TEST(discard_gives_zeros_and_keeps_the_pins)
{
	uint64_t generation;

	memset(area, 'x', 8 * PAGE);
	ck_assert_int_eq(pin_pages(0, 6), 0);
	ck_assert_int_eq(pin_pages(2, 2), 0);
	generation = ps_table()->generation;
	ck_assert_int_eq(ps_foreign_discard(area + PAGE, 7 * PAGE, MADV_DONTNEED), 0);
	expect("112211");
	ck_assert_uint_ne(ps_table()->generation, generation);
	for (size_t i = 0; i < 8; i++)
		ck_assert_int_eq(area[i * PAGE], i >= 1 && i < 6 ? 0 : 'x');
}
END_TEST

START_TEST(discard_that_cannot_pin_again)
{
	ck_assert_int_eq(pin_pages(0, 4), 0);
	ps_fault_set(PS_OS_MLOCK, 1, 1, ENOMEM);
	ck_assert_int_eq(ps_foreign_discard(area + PAGE, PAGE, MADV_DONTNEED), 0);
	expect("1011");
}
END_TEST

START_TEST(touches_any_page)
{
	ck_assert_int_eq(pin_pages(2, 2), 0);
	ck_assert(!ps_foreign_touches(area, 2 * PAGE));
	ck_assert(ps_foreign_touches(area, 2 * PAGE + 1));
	ck_assert(ps_foreign_touches(area + 4 * PAGE - 1, 1));
	ck_assert(!ps_foreign_touches(area + 4 * PAGE, 60 * PAGE));
}
END_TEST

struct gaps {
	char seen[PAGES + 1];
	unsigned calls;
	unsigned stop; /* returns 7 at this call */
};

static int note_gap(const void *address, size_t length, void *context)
{
	struct gaps *gaps = context;
	size_t first = (size_t)((const char *)address - area) / PAGE;

	ck_assert(!ps_foreign_touches(address, length)); /* no lock is held here */
	memset(gaps->seen + first, 'g', length / PAGE);
	return ++gaps->calls == gaps->stop ? 7 : 0;
}

START_TEST(gaps_between)
{
	struct gaps gaps = { .calls = 0 };

	memset(gaps.seen, '.', PAGES);
	ck_assert_int_eq(pin_pages(1, 2), 0);
	ck_assert_int_eq(pin_pages(5, 1), 0);
	ck_assert_int_eq(ps_foreign_gaps(area, 8 * PAGE, note_gap, &gaps), 0);
	ck_assert_int_eq(strncmp(gaps.seen, "g..gg.gg.", 9), 0);
	ck_assert_uint_eq(gaps.calls, 3);
	gaps = (struct gaps){ .stop = 2 };
	ck_assert_int_eq(ps_foreign_gaps(area, 8 * PAGE, note_gap, &gaps), 7);
	ck_assert_uint_eq(gaps.calls, 2);
	gaps = (struct gaps){ .stop = 1 };
	ck_assert_int_eq(ps_foreign_gaps(area + PAGE, 2 * PAGE, note_gap, &gaps), 0);
	ck_assert_uint_eq(gaps.calls, 0);
}
END_TEST

START_TEST(relock_after_munlockall)
{
	ck_assert_int_eq(pin_pages(0, 2), 0);
	ck_assert_int_eq(pin_pages(4, 2), 0);
	ck_assert_int_eq(pin_pages(8, 2), 0);
	ps_syscall0(SYS_munlockall); /* libc's does nothing under a sanitizer */
	ck_assert_int_eq(locked_kb(), 0);
	ck_assert_uint_eq(ps_foreign_relock(), 0);
	expect("1100110011");
	ps_syscall0(SYS_munlockall);
	ps_fault_set(PS_OS_MLOCK, 2, 2, ENOMEM);
	ck_assert_uint_eq(ps_foreign_relock(), 2 * PAGE);
	expect("1100000011");
}
END_TEST

START_TEST(everything_locked_stays_locked)
{
	ck_assert_int_eq(pin_pages(0, 2), 0);
	ps_foreign_all_locked(true);
	ck_assert_int_eq(unpin_pages(0, 2), 0);
	ps_foreign_all_locked(false);
	ck_assert_int_eq(locked_kb(), (long)(2 * PAGE / 1024));
	agree();
	ps_os_munlock(area, 2 * PAGE);
}
END_TEST

START_TEST(forked_child_has_nothing)
{
	int status;
	pid_t child;

	ck_assert_int_eq(pin_pages(0, 2), 0);
	ck_assert_int_eq(pin_pages(4, 2), 0);
	ps_foreign_fork_prepare();
	child = fork();
	if (child == 0) {
		ps_foreign_fork_child();
		_exit(ps_foreign_count() || ps_foreign_touches(area, PAGES * PAGE) ||
		      ps_foreign_unpin(area, PAGE) != -EINVAL);
	}
	ps_foreign_fork_parent();
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	expect("110011");
}
END_TEST

START_TEST(refused_by_the_limit)
{
	ps_config.limit = 4 * PAGE;
	ck_assert_int_eq(pin_pages(0, 3), 0);
	ck_assert_int_eq(pin_pages(0, 5), -ENOMEM);
	ck_assert_int_eq(why.limit, PS_LIMIT_PROCESS);
	expect("111");
	ck_assert_int_eq(pin_pages(0, 4), 0);
	expect("2221");
	ps_config.limit = UINT64_MAX;
}
END_TEST

START_TEST(every_mlock_fails)
{
	static const int errors[] = { ENOMEM, EPERM, EAGAIN };

	for (size_t i = 0; i < 10; i += 2)
		ck_assert_int_eq(pin_pages(i, 1), 0);
	for (unsigned failing = 1; failing <= 5; failing++) {
		ps_fault_set(PS_OS_MLOCK, failing, failing, errors[failing % 3]);
		ck_assert_int_eq(pin_pages(0, 10), -ENOMEM);
		ck_assert_int_eq(why.limit, PS_LIMIT_MEMLOCK);
		ck_assert_int_eq(why.error, errors[failing % 3]);
		expect("1010101010");
	}
	ps_fault_clear();
	ck_assert_int_eq(pin_pages(0, 10), 0);
	expect("2121212121");
}
END_TEST

/* Fills the table but for `room` records, and it cannot grow. Returns how many were added. */
static size_t fill_table(int *slot, size_t most, size_t room)
{
	size_t count = 0;

	ps_fault_set(PS_OS_MMAP, 1, UINT32_MAX, ENOMEM);
	ps_fault_set(PS_OS_FALLOCATE, 1, UINT32_MAX, ENOSPC);
	while (count < most &&
	       (slot[count] = ps_table_add(PAGE * (1 + count), PAGE, PINSHIM_RANGE_LOCKED)) >= 0)
		count++;
	ck_assert_uint_gt(count, room);
	ck_assert_uint_lt(count, most);
	for (; room; room--)
		ps_table_remove(slot[--count]);
	return count;
}

START_TEST(table_is_full_at_every_record)
{
	enum { MOST = 1 << 16 };
	int *slot = calloc(MOST, sizeof(*slot));
	unsigned refused = 0;

	for (size_t room = 0; room < 8; room++) {
		size_t filled;
		int error;

		ck_assert_int_eq(pin_pages(0, 4), 0);
		ck_assert_int_eq(pin_pages(6, 1), 0);
		ck_assert_int_eq(pin_pages(8, 4), 0);
		expect("111100101111");
		filled = fill_table(slot, MOST, room);
		error = pin_pages(2, 8); /* two borders, two gaps */
		if (error) {
			ck_assert_int_eq(error, -ENOMEM);
			ck_assert_uint_lt(room, 4);
			expect("111100101111");
			refused++;
			if (room == 0) {
				ck_assert_int_eq(unpin_pages(1, 2), -ENOMEM);
				expect("111100101111");
				ck_assert_int_eq(unpin_pages(0, 2), 0);
				expect("001100101111");
				/* There is no record for what is left above: it goes as well. */
				ck_assert_uint_eq(ps_foreign_drop(area + 9 * PAGE, PAGE, true),
						  3 * PAGE);
				expect("001100101");
			}
		} else {
			expect("112211212211");
		}
		ps_fault_clear();
		while (filled)
			ps_table_remove(slot[--filled]);
		ps_foreign_drop(area, PAGES * PAGE, true);
		expect("");
	}
	ck_assert_uint_gt(refused, 0);
	free(slot);
}
END_TEST

/* Whether that much may be locked; says so if not. */
static bool may_lock(const char *name, size_t bytes)
{
	void *memory = map(bytes);
	int error = ps_os_mlock_onfault(memory, bytes);

	munmap(memory, bytes);
	if (error)
		printf("skip - %s: may not lock %zu MiB\n", name, bytes >> 20);
	return !error;
}

START_TEST(no_memory_for_nodes)
{
	size_t many = 4000, refused = SIZE_MAX;
	char *memory;

	if (!may_lock("no_memory_for_nodes", 2 * many * PAGE))
		return;
	memory = map(2 * many * PAGE);
	ps_fault_set(PS_OS_MMAP, 1, UINT32_MAX, ENOMEM);
	for (size_t i = 0; i < many && refused == SIZE_MAX; i++) {
		int error = ps_foreign_pin(memory + 2 * i * PAGE, PAGE, &why);

		if (error) {
			ck_assert_int_eq(error, -ENOMEM);
			refused = i;
		}
	}
	ck_assert_uint_lt(refused, many);
	ck_assert_uint_eq(ps_foreign_count(), refused);
	ck_assert_uint_eq(ps_budget_claimed(), refused * PAGE);
	ck_assert_int_eq(locked_kb(), (long)(refused * PAGE / 1024));
	ps_fault_clear();
	ck_assert_int_eq(ps_foreign_pin(memory, 2 * many * PAGE, &why), 0);
	ck_assert_int_eq(ps_foreign_unpin(memory, 2 * many * PAGE), 0);
	ck_assert_uint_eq(ps_foreign_count(), refused);
	ck_assert_uint_eq(ps_foreign_drop(memory, 2 * many * PAGE, true), refused * PAGE);
	munmap(memory, 2 * many * PAGE);
}
END_TEST

static uint32_t next_random(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20);
}

static void step(void)
{
	size_t first = next_random() % PAGES, count = 1 + next_random() % 12;
	unsigned what = next_random() % 16;
	unsigned least = UINT32_MAX, pinned = 0;
	int error;

	if (first + count > PAGES)
		count = PAGES - first;
	for (size_t i = first; i < first + count; i++) {
		least = model[i] < least ? model[i] : least;
		pinned += model[i] > 0;
	}
	if (next_random() % 16 == 0)
		ps_fault_set(PS_OS_MLOCK, 1 + next_random() % 3, UINT32_MAX, ENOMEM);
	if (what < 6) {
		error = pin_pages(first, count);
		ck_assert(error == 0 || (error == -ENOMEM && pinned < count));
		for (size_t i = first; !error && i < first + count; i++)
			model[i]++;
	} else if (what < 14) {
		ck_assert_int_eq(unpin_pages(first, count), least ? 0 : -EINVAL);
		for (size_t i = first; least && i < first + count; i++)
			model[i]--;
	} else if (what < 15) {
		ck_assert_uint_eq(ps_foreign_drop(area + first * PAGE, count * PAGE, true),
				  pinned * PAGE);
		memset(model + first, 0, count * sizeof(*model));
	} else {
		ps_fault_clear();
		ck_assert_int_eq(
			ps_foreign_discard(area + first * PAGE, count * PAGE, MADV_DONTNEED), 0);
	}
	ps_fault_clear();
}

START_TEST(random_against_a_model)
{
	for (unsigned i = 0; i < 100000; i++) {
		long pinned = 0;

		step();
		if (i % 8 == 0)
			agree();
		if (i % 500)
			continue;
		for (size_t page = 0; page < PAGES; page++)
			pinned += model[page] > 0;
		ck_assert_int_eq(locked_kb(), pinned * (long)PAGE / 1024);
	}
	agree();
}
END_TEST

#define THREADS 4

/* Pins and unpins a quarter of the area as often as it says, and asks about all of it. */
static void *pin_in_thread(void *quarter)
{
	char *mine = quarter;
	struct ps_refusal refusal;

	for (unsigned i = 0; i < 3000; i++) {
		size_t first = i * 7 % 12, length = (1 + i % 4) * PAGE;
		char *at = mine + first * PAGE;

		if (ps_foreign_pin(at, length, &refusal) || ps_foreign_pin(mine, PAGE, &refusal) ||
		    !ps_foreign_is_pinned(at, length) || ps_foreign_unpin(at, length))
			return mine;
		ps_foreign_is_pinned(area, PAGES * PAGE);
		if (ps_foreign_drop(mine, PAGE, true) < PAGE)
			return mine;
	}
	return NULL;
}

START_TEST(threads)
{
	pthread_t thread[THREADS];
	void *failed;

	for (size_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, pin_in_thread,
						area + i * PAGES / THREADS * PAGE),
				 0);
	for (size_t i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(thread[i], &failed), 0);
		ck_assert_ptr_null(failed);
	}
	expect("");
}
END_TEST

/*
 * Each page has a version: odd while a thread changes its pins, and else it says whether it has any.
 * Who finds the same before and after a question knows the answer, whatever happens to its neighbours.
 */
#define TURNS 20000
#define CHANGING 1u
#define PINNED 2u

static atomic_uint version[PAGES];
static atomic_uint changers;

static void announce(size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		atomic_fetch_or(&version[i], CHANGING);
}

static void announce_done(size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		atomic_store(&version[i],
			     ((atomic_load(&version[i]) >> 2) + 1) << 2 | (model[i] ? PINNED : 0));
}

/* Pins, unpins and drops pages of one half of the area. */
static void *change_in_thread(void *argument)
{
	const size_t half = (uintptr_t)argument * PAGES / 2;
	uint32_t x = 777 + (uint32_t)half;
	struct ps_refusal refusal;

	for (unsigned turn = 0; turn < TURNS; turn++) {
		size_t first, end;
		bool drop;
		int error = 0;

		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		first = half + x % (PAGES / 2);
		end = first + 1 + (x >> 8) % 6;
		drop = (x >> 16) % 8 == 0;
		end = end > half + PAGES / 2 ? half + PAGES / 2 : end;
		announce(first, end);
		if (drop)
			ps_foreign_drop(area + first * PAGE, (end - first) * PAGE, true);
		else if ((x >> 16) % 2)
			error = ps_foreign_pin(area + first * PAGE, (end - first) * PAGE, &refusal);
		else
			error = ps_foreign_unpin(area + first * PAGE, (end - first) * PAGE);
		for (size_t i = first; !error && i < end; i++)
			model[i] = drop ? 0 : (x >> 16) % 2 ? model[i] + 1 : model[i] - 1;
		announce_done(first, end);
	}
	atomic_fetch_sub(&changers, 1);
	return NULL;
}

/* Asks about a few pages. false if the answer is wrong. */
static bool ask_some(uint32_t random, unsigned *known)
{
	const size_t first = random % PAGES, wanted = first + 1 + (random >> 8) % 3;
	const size_t end = wanted > PAGES ? PAGES : wanted;
	unsigned before[PAGES], pinned = 0;
	bool covered, touched;

	for (size_t i = first; i < end; i++) {
		before[i] = atomic_load(&version[i]);
		pinned += (before[i] & PINNED) != 0;
		if (before[i] & CHANGING)
			return true;
	}
	covered = ps_foreign_is_pinned(area + first * PAGE, (end - first) * PAGE);
	touched = ps_foreign_touches(area + first * PAGE, (end - first) * PAGE);
	for (size_t i = first; i < end; i++)
		if (atomic_load(&version[i]) != before[i])
			return true;
	++*known;
	return covered == (pinned == end - first) && touched == (pinned > 0);
}

static void *ask_in_thread(void *argument)
{
	uint32_t x = 999 + (uint32_t)(uintptr_t)argument;
	unsigned known = 0;

	while (atomic_load(&changers) > 0 || known < 1000) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		if (!ask_some(x, &known))
			return area;
	}
	return NULL;
}

START_TEST(asked_while_it_changes)
{
	pthread_t changer[2], asker[2];
	void *wrong;

	for (size_t i = 0; i < PAGES; i++)
		atomic_store(&version[i], 0);
	atomic_store(&changers, 2);
	for (uintptr_t i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_create(&changer[i], NULL, change_in_thread, (void *)i), 0);
		ck_assert_int_eq(pthread_create(&asker[i], NULL, ask_in_thread, (void *)i), 0);
	}
	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_join(changer[i], NULL), 0);
		ck_assert_int_eq(pthread_join(asker[i], &wrong), 0);
		ck_assert_ptr_null(wrong);
	}
	agree();
}
END_TEST

static void *join_and_part_in_thread(void *unused)
{
	struct ps_refusal refusal;
	int error = 0;

	(void)unused;
	for (unsigned turn = 0; turn < TURNS && !error; turn++) {
		error = ps_foreign_pin(area + 2 * PAGE, 2 * PAGE, &refusal);
		if (!error)
			error = ps_foreign_unpin(area + 2 * PAGE, 2 * PAGE);
	}
	atomic_fetch_sub(&changers, 1);
	return error ? area : NULL;
}

/* What is between them makes one range of three, and three of one. */
START_TEST(neighbours_stay_pinned)
{
	pthread_t thread;
	void *failed;
	bool pinned = true;

	ck_assert_int_eq(pin_pages(0, 2), 0);
	ck_assert_int_eq(pin_pages(4, 2), 0);
	atomic_store(&changers, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, join_and_part_in_thread, NULL), 0);
	while (atomic_load(&changers) > 0 && pinned)
		pinned = ps_foreign_is_pinned(area, 2 * PAGE) &&
			 ps_foreign_is_pinned(area + 4 * PAGE, 2 * PAGE);
	ck_assert_int_eq(pthread_join(thread, &failed), 0);
	ck_assert_ptr_null(failed);
	ck_assert(pinned);
	expect("110011");
}
END_TEST

/* Of the threads that were changing it, none is in the child; nor is anything pinned there. */
START_TEST(forked_while_it_changes)
{
	pthread_t changer[2];
	int status;

	atomic_store(&changers, 2);
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&changer[i], NULL, change_in_thread, (void *)i), 0);
	for (unsigned turn = 0; turn < 100; turn++) {
		pid_t child = fork();

		if (child == 0) {
			alarm(20);
			if (ps_foreign_is_pinned(area, PAGE) ||
			    ps_foreign_touches(area, PAGES * PAGE) || ps_foreign_count())
				_exit(1);
			_exit(pin_pages(0, 2) || !ps_foreign_is_pinned(area, 2 * PAGE) ||
			      ps_foreign_is_pinned(area, 3 * PAGE));
		}
		ck_assert_int_gt(child, 0);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
	for (size_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(changer[i], NULL), 0);
	agree();
}
END_TEST

#define MANY 10000
#define ASKED 200000

static void print_time(const char *what, uint64_t since, unsigned times)
{
	printf("%s, %d ranges: %u ns\n", what, MANY, (unsigned)((ps_os_now() - since) / times));
}

START_TEST(many_ranges)
{
	static size_t ask[ASKED];
	char *memory;
	uint64_t started;
	unsigned found = 0;

	if (!may_lock("many_ranges", MANY * PAGE))
		return;
	memory = map(2 * MANY * PAGE);
	started = ps_os_now();
	for (size_t i = 0; i < MANY; i++) /* every other page, in an order that is no order */
		ck_assert_int_eq(ps_foreign_pin(memory + 2 * (i * 7919 % MANY) * PAGE, PAGE, &why),
				 0);
	print_time("pin with mlock", started, MANY);
	ck_assert_uint_eq(ps_foreign_count(), MANY);
	for (size_t i = 0; i < ASKED; i++)
		ask[i] = next_random() % (2 * MANY * PAGE);
	started = ps_os_now();
	for (size_t i = 0; i < ASKED; i++)
		found += ps_foreign_is_pinned(memory + ask[i], 1);
	print_time("is_pinned", started, ASKED);
	ck_assert_uint_gt(found, ASKED * 45 / 100);
	ck_assert_uint_lt(found, ASKED * 55 / 100);
	started = ps_os_now();
	for (size_t i = 0; i < MANY; i++)
		ps_foreign_pin(memory + 2 * (i * 7919 % MANY) * PAGE, PAGE, &why);
	print_time("pin again, without mlock", started, MANY);
	started = ps_os_now();
	for (size_t i = 0; i < MANY; i++)
		ps_foreign_unpin(memory + 2 * (i * 7919 % MANY) * PAGE, PAGE);
	print_time("unpin, without munlock", started, MANY);
	started = ps_os_now();
	for (size_t i = 0; i < MANY; i++)
		ck_assert_int_eq(ps_foreign_unpin(memory + 2 * (i * 7919 % MANY) * PAGE, PAGE), 0);
	print_time("unpin with munlock", started, MANY);
	munmap(memory, 2 * MANY * PAGE);
}
END_TEST

static Suite *suite(void)
{
	Suite *suite = suite_create("foreign");
	TCase *tcase = tcase_create("foreign");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, pin_then_unpin);
	tcase_add_test(tcase, pin_covers_the_pages_of_a_few_bytes);
	tcase_add_test(tcase, pin_nests);
	tcase_add_test(tcase, pin_overlaps);
	tcase_add_test(tcase, pin_inside);
	tcase_add_test(tcase, pin_over_gaps);
	tcase_add_test(tcase, neighbours_join);
	tcase_add_test(tcase, unpin_part);
	tcase_add_test(tcase, unpin_across_counts);
	tcase_add_test(tcase, unpin_of_what_is_not_pinned);
	tcase_add_test(tcase, bad_ranges);
	tcase_add_test(tcase, no_length_asks_about_one_byte);
	tcase_add_test(tcase, pin_of_what_is_not_mapped);
	tcase_add_test(tcase, drop_whatever_the_count);
	tcase_add_test(tcase, drop_leaves_the_lock_to_munmap);
	tcase_add_test(tcase, discard_gives_zeros_and_keeps_the_pins);
	tcase_add_test(tcase, discard_that_cannot_pin_again);
	tcase_add_test(tcase, touches_any_page);
	tcase_add_test(tcase, gaps_between);
	tcase_add_test(tcase, relock_after_munlockall);
	tcase_add_test(tcase, everything_locked_stays_locked);
	tcase_add_test(tcase, forked_child_has_nothing);
	tcase_add_test(tcase, refused_by_the_limit);
	tcase_add_test(tcase, every_mlock_fails);
	tcase_add_test(tcase, random_against_a_model);
	tcase_add_test(tcase, table_is_full_at_every_record);
	tcase_add_test(tcase, no_memory_for_nodes);
	tcase_add_test(tcase, threads);
	tcase_add_test(tcase, asked_while_it_changes);
	tcase_add_test(tcase, neighbours_stay_pinned);
	tcase_add_test(tcase, forked_while_it_changes);
	tcase_add_test(tcase, many_ranges);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner;
	int failed;

	if (!mkdtemp(directory) || ps_table_start())
		return 1;
	ps_table_directory = directory;
	ps_log_level = PS_LOG_ERROR;
	runner = srunner_create(suite());
	/* Locks are not inherited: a case in a forked child would not see what it asks about. */
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	ps_table_close();
	rmdir(directory);
	return failed != 0;
}
