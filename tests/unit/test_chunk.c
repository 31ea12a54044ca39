/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chunks: every call to the system made to fail at every place, after which claims, VmLck, gauges,
 * the table and the window are back where they were; and cutting, joining, replacing, relocking.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "os.h"
#include "pinned.h"
#include "populate.h"
#include "table.h"

#define NOT_OURS (PS_GRANULE_LARGE | PS_GRANULE_INHERITED | PS_GRANULE_CHANGED)

static struct ps_refusal why;

static long pool(long pages);
static bool pool_changed;

/* Of which new_chunk()'s are. */
static enum ps_heap heap;

static int new_chunk(uint32_t count, uint32_t *first)
{
	memset(&why, 0xff, sizeof(why));
	return ps_chunk_new(count, 1, PS_GRANULE_LARGE | ps_granule_flags(heap), first, &why);
}

static size_t release(uint32_t first)
{
	uint8_t was;

	ps_lock(&ps_window.lock);
	was = ps_chunk_busy(first);
	ps_unlock(&ps_window.lock);
	return ps_chunk_release(first, was);
}

/* Begins with nothing pinned, whatever a failed case before left behind. */
static void setup(void)
{
	ps_fault_clear();
	ps_config.hugepages = PS_HUGEPAGES_THP;
	ps_config.threads = 2;
	ps_config.reserve = 0;
	ps_config.limit = UINT64_MAX;
	for (uint32_t i = 0; i < ps_window.frontier; i += ps_window.run[i].count)
		if ((ps_window.granule[i] & PS_GRANULE_STATE) > PS_GRANULE_BUSY)
			release(i);
	heap = PS_HEAP_MALLOC;
	ps_chunk_retry();
	if (pool_changed)
		pool(0);
	pinned_check_nothing();
}

static int split(uint32_t first, uint32_t at)
{
	int r;

	ps_lock(&ps_window.lock);
	r = ps_chunk_split(first, at);
	ps_unlock(&ps_window.lock);
	return r;
}

static int isolate(uint32_t granule)
{
	int r;

	ps_lock(&ps_window.lock);
	r = ps_chunk_isolate(granule);
	ps_unlock(&ps_window.lock);
	return r;
}

static void merge(uint32_t first, uint32_t second)
{
	ps_lock(&ps_window.lock);
	ps_chunk_merge(first, second);
	ps_unlock(&ps_window.lock);
}

START_TEST(a_chunk_is_locked_zero_and_published)
{
	static const uint32_t counts[] = { 1, 3, 16, 40 };
	uint32_t first;

	heap = _i ? PS_HEAP_CUDA : PS_HEAP_MALLOC;
	for (int i = 0; i < 4; i++) {
		const size_t bytes = (size_t)counts[i] << PS_GRANULE_SHIFT;
		const uint64_t pins = ps_table()->pins, unpins = ps_table()->unpins;

		ck_assert_int_eq(new_chunk(counts[i], &first), 0);
		ck_assert_int_eq(pinned_locked_kb(), (long)(bytes >> 10));
		ck_assert_uint_eq(ps_table()->locked_bytes, bytes);
		ck_assert(pinned_is_zero(ps_granule_address(first), bytes));
		pinned_fill(ps_granule_address(first), bytes, 1);
		pinned_check();
		ck_assert_uint_eq(release(first), bytes);
		ck_assert_uint_eq(ps_table()->pins, pins + 1);
		ck_assert_uint_eq(ps_table()->unpins, unpins + 1);
		pinned_check_nothing();
	}
}
END_TEST

START_TEST(alignment)
{
	uint32_t first;

	ck_assert_int_eq(ps_chunk_new(1, 512, PS_GRANULE_LARGE, &first, &why), 0);
	ck_assert_uint_eq((uintptr_t)ps_granule_address(first) % GIB, 0);
	pinned_check();
	release(first);
	pinned_check_nothing();
}
END_TEST

/* One pin with the fault in force; whatever came of it, everything agrees and nothing is left. */
static int try_with_fault(uint32_t count, bool *failed)
{
	uint32_t first;
	const int r = new_chunk(count, &first);

	ps_fault_clear();
	/* A shared one that could not be unmapped either waits for that. */
	if (heap == PS_HEAP_CUDA && r < 0)
		ps_chunk_retry();
	*failed = r < 0;
	if (r < 0) {
		ck_assert_int_eq(r, -ENOMEM);
		ck_assert_int_ne(why.error, 0);
		ck_assert_uint_lt(why.limit, PS_LIMITS);
	} else {
		pinned_check();
		ck_assert(pinned_is_zero(ps_granule_address(first), (size_t)count << 21));
		release(first);
	}
	pinned_check_nothing();
	return r;
}

/* The calls that may fail in a pin, and whether the first refusal of each is the pin's. */
static const struct {
	const char *name;
	enum ps_os_call call;
	int error;
	bool refuses_small, refuses_large;
} calls[] = {
	{ "mprotect", PS_OS_MPROTECT, ENOMEM, true, true },
	{ "madvise", PS_OS_MADVISE, EINVAL, false, false },
	{ "populate", PS_OS_POPULATE, EFAULT, false, true },
	{ "mlock", PS_OS_MLOCK, ENOMEM, true, true },
	{ "mlock", PS_OS_MLOCK, EPERM, true, true },
	{ "mmap", PS_OS_MMAP, ENOMEM, false, false },
	{ "munmap", PS_OS_MUNMAP, ENOMEM, false, false },
	{ "munlock", PS_OS_MUNLOCK, ENOMEM, false, false },
	{ "pagemap scan", PS_OS_PAGEMAP_SCAN, ENOTTY, false, false },
	{ "clone", PS_OS_CLONE, EAGAIN, false, false },
	{ "read", PS_OS_READ, EIO, false, false },
	{ "open", PS_OS_OPEN, EMFILE, false, false },
	{ "getrlimit", PS_OS_GETRLIMIT, EPERM, false, false },
};

START_TEST(every_call_fails_in_turn)
{
	const bool for_ever = _i % 2;
	const uint32_t count = _i / 2 ? 20 : 1;
	bool failed;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (unsigned nth = 1; nth <= 4; nth++) {
			const bool refuses = UNDER_TSAN   ? calls[i].refuses_small
					     : count == 1 ? calls[i].refuses_small
							  : calls[i].refuses_large;

			ps_fault_set(calls[i].call, nth, for_ever ? UINT_MAX : nth, calls[i].error);
			try_with_fault(count, &failed);
			/* Whether a claim does without the files that it reads is the budget's business. */
			if (nth == 1 && !(UNDER_TSAN && count > 1) && calls[i].call != PS_OS_OPEN &&
			    calls[i].call != PS_OS_READ)
				ck_assert_msg(failed == refuses, "%s", calls[i].name);
		}
}
END_TEST

/* The second mlock of a large chunk, after populating. */
START_TEST(last_step_of_a_large_chunk_fails)
{
	bool failed;

	ps_fault_set(PS_OS_MLOCK, 2, 2, ENOMEM);
	try_with_fault(20, &failed);
	ck_assert(failed);
	ps_fault_set(PS_OS_MLOCK, 1, 1, ENOSYS);
	try_with_fault(20, &failed);
	ck_assert(!failed);
	ps_fault_set(PS_OS_POPULATE, 1, UINT_MAX, EINVAL);
	try_with_fault(20, &failed);
	ck_assert(!failed);
}
END_TEST

/* A failed pin whose undoing meets a failure too. */
START_TEST(undoing_fails)
{
	bool failed;

	ps_fault_set(PS_OS_MLOCK, 1, UINT_MAX, ENOMEM);
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	try_with_fault(1, &failed);
	ck_assert(failed);
}
END_TEST

/* Neither mapping over nor unlocking works: the addresses stay busy and claimed, for a later try. */
START_TEST(nothing_can_be_undone)
{
	const long resident = pinned_proc_kb("status", "VmRSS:");
	struct pinned now;
	uint32_t first;

	ck_assert_int_eq(new_chunk(2, &first), 0);
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	ps_fault_set(PS_OS_MUNLOCK, 1, UINT_MAX, ENOMEM);
	ck_assert_uint_eq(release(first), 0);
	pinned_look(&now);
	ck_assert_uint_eq(now.busy, 2);
	ck_assert_uint_eq(now.ranges, 0);
	ck_assert_uint_eq(now.claimed, 2 * PS_GRANULE);
	ck_assert_int_eq(now.locked_kb, (long)(2 * PS_GRANULE >> 10));
	ck_assert_uint_eq(ps_table()->locked_bytes, 0);
	/* It is the pages that are short of: those at least are gone. */
	ck_assert_int_lt(pinned_proc_kb("status", "VmRSS:") - resident,
			 (long)(2 * PS_GRANULE >> 10));
	ck_assert_uint_eq(ps_chunk_retry(), 0);
	pinned_look(&now);
	ck_assert_uint_eq(now.busy, 2);
	ps_fault_clear();
	ck_assert_uint_eq(ps_chunk_retry(), 2 * PS_GRANULE);
	pinned_check_nothing();
}
END_TEST

START_TEST(claim_is_refused)
{
	uint32_t first;

	ps_config.limit = 3 * PS_GRANULE;
	ck_assert_int_eq(new_chunk(4, &first), -ENOMEM);
	ck_assert_int_eq(why.limit, PS_LIMIT_PROCESS);
	pinned_check_nothing();
	ck_assert_int_eq(new_chunk(3, &first), 0);
	release(first);
	ps_config.limit = UINT64_MAX;
	pinned_check_nothing();
}
END_TEST

START_TEST(window_is_used_up)
{
	uint32_t first, more;

	pinned_new_window(64 * MIB);
	ck_assert_int_eq(new_chunk(33, &first), -ENOMEM);
	ck_assert_int_eq(why.limit, PS_LIMIT_WINDOW);
	ck_assert_int_eq(new_chunk(32, &first), 0);
	ck_assert_int_eq(new_chunk(1, &more), -ENOMEM);
	release(first);
	pinned_check_nothing();
	pinned_new_window(0);
}
END_TEST

/* Uses up the table's room; what can be added after that needs the table to grow. */
static unsigned fill_table(int *slots, unsigned max)
{
	unsigned n = 0;

	while (n < max && ps_table()->range_used < ps_table()->range_capacity) {
		slots[n] = ps_table_add(4096 * (n + 1), 4096, PINSHIM_RANGE_FOREIGN);
		ck_assert_int_ge(slots[n++], 0);
	}
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	return n;
}

START_TEST(table_has_no_room)
{
	static int slots[100000];
	uint32_t first, more;
	unsigned filled;

	ck_assert_int_eq(new_chunk(4, &first), 0);
	filled = fill_table(slots, 100000);
	ck_assert_int_eq(new_chunk(1, &more), -ENOMEM);
	ck_assert_str_eq(why.where, "publishing");
	ck_assert_int_eq(pinned_locked_kb(), (long)(4 * PS_GRANULE >> 10));
	ck_assert_uint_eq(ps_budget_claimed(), 4 * PS_GRANULE);
	ck_assert_int_eq(split(first, first + 1), -ENOMEM);
	ck_assert_int_eq(isolate(first + 2), -ENOMEM);
	ck_assert_int_eq(ps_chunk_extend(first, 1), -ENOMEM);
	/* Room for one: the first cut of two is made, and stands. */
	ps_table_remove(slots[0]);
	ck_assert_int_eq(isolate(first + 2), -ENOMEM);
	ps_fault_clear();
	for (unsigned i = 1; i < filled; i++)
		ps_table_remove(slots[i]);
	pinned_check();
	ck_assert_uint_eq(ps_window.run[first].count, 2);
	release(first);
	release(first + 2);
	pinned_check_nothing();
}
END_TEST

START_TEST(split_isolate_merge)
{
	uint32_t first;

	ck_assert_int_eq(new_chunk(9, &first), 0);
	pinned_fill(ps_granule_address(first), 9 * PS_GRANULE, 7);
	ck_assert_int_eq(split(first, first + 4), 0);
	pinned_check();
	ck_assert_int_eq(isolate(first + 6), 0);
	pinned_check();
	ck_assert_uint_eq(ps_table()->chunks, 4);
	ck_assert_int_eq(isolate(first + 6), 0);
	ck_assert_int_eq(isolate(first), 0);
	ck_assert_int_eq(isolate(first + 8), 0);
	pinned_check();
	ck_assert_uint_eq(ps_table()->chunks, 6);
	ck_assert_int_eq(pinned_locked_kb(), (long)(9 * PS_GRANULE >> 10));
	for (int i = 0; i < 5; i++)
		merge(first, first + ps_window.run[first].count);
	pinned_check();
	ck_assert_uint_eq(ps_window.run[first].count, 9);
	ck_assert_uint_eq(ps_table()->chunks, 1);
	ck_assert(pinned_filled(ps_granule_address(first), 9 * PS_GRANULE, 7));
	release(first);
	pinned_check_nothing();
}
END_TEST

/* One granule given back out of the middle unlocks nothing else. */
START_TEST(release_of_the_middle)
{
	uint32_t first;

	ck_assert_int_eq(new_chunk(3, &first), 0);
	pinned_fill(ps_granule_address(first), 3 * PS_GRANULE, 3);
	ck_assert_int_eq(isolate(first + 1), 0);
	ck_assert_uint_eq(release(first + 1), PS_GRANULE);
	pinned_check();
	ck_assert(pinned_filled(ps_granule_address(first), PS_GRANULE, 3));
	ck_assert_int_eq(pinned_locked_kb(), (long)(2 * PS_GRANULE >> 10));
	release(first);
	release(first + 2);
	pinned_check_nothing();
}
END_TEST

START_TEST(extend_in_place)
{
	uint32_t first, next;
	unsigned nth;

	ck_assert_int_eq(new_chunk(2, &first), 0);
	pinned_fill(ps_granule_address(first), 2 * PS_GRANULE, 5);
	ck_assert_int_eq(ps_chunk_extend(first, 3), 0);
	pinned_check();
	ck_assert_uint_eq(ps_window.run[first].count, 5);
	ck_assert(pinned_filled(ps_granule_address(first), 2 * PS_GRANULE, 5));
	ck_assert(pinned_is_zero(ps_granule_address(first + 2), 3 * PS_GRANULE));
	for (nth = 1; nth <= 2; nth++) {
		ps_fault_set(PS_OS_MLOCK, 1, UINT_MAX, ENOMEM);
		ck_assert_int_eq(ps_chunk_extend(first, nth), -ENOMEM);
		ps_fault_clear();
		pinned_check();
		ck_assert_uint_eq(ps_window.run[first].count, 5);
	}
	ck_assert_int_eq(new_chunk(1, &next), 0);
	ck_assert_uint_eq(next, first + 5);
	ck_assert_int_eq(ps_chunk_extend(first, 1), -ENOMEM);
	release(first);
	release(next);
	pinned_check_nothing();
}
END_TEST

START_TEST(huge_pages_when_wanted)
{
	uint32_t first;

	ck_assert_int_eq(new_chunk(2, &first), 0);
	if (ps_table()->huge_bytes == 0)
		pinned_skip("huge_pages_when_wanted", "no huge pages are to be had here");
	else
		ck_assert(ps_window.granule[first] & PS_GRANULE_HUGE);
	release(first);
	ps_config.hugepages = PS_HUGEPAGES_OFF;
	ck_assert_int_eq(new_chunk(2, &first), 0);
	ck_assert_uint_eq(ps_table()->huge_bytes, 0);
	ck_assert_int_eq(ps_os_huge_bytes(ps_granule_address(first), 2 * PS_GRANULE), 0);
	pinned_check();
	release(first);
	pinned_check_nothing();
}
END_TEST

static long pool(long pages)
{
	FILE *file = fopen("/proc/sys/vm/nr_hugepages", pages < 0 ? "r" : "w");
	long now = -1;

	if (file == NULL)
		return -1;
	if (pages >= 0)
		fprintf(file, "%ld\n", pages);
	else if (fscanf(file, "%ld", &now) != 1)
		now = -1;
	fclose(file);
	return pages >= 0 ? pool(-1) : now;
}

START_TEST(hugetlb_pool_is_empty)
{
	uint32_t first;

	if (pool(-1) != 0)
		return pinned_skip("hugetlb_pool_is_empty", "the pool is not ours to empty");
	ps_config.hugepages = PS_HUGEPAGES_HUGETLB;
	for (uint32_t count = 1; count <= 20; count += 19) {
		ck_assert_int_eq(new_chunk(count, &first), -ENOMEM);
		ck_assert_int_eq(why.limit, PS_LIMIT_HUGETLB);
		pinned_check_nothing();
	}
}
END_TEST

/* Pages of the pool are counted as locked by us, though not by the kernel's VmLck. */
START_TEST(hugetlb)
{
	uint32_t first, more;

	pool_changed = pool(-1) == 0;
	if (!pool_changed || pool(4) < 4)
		return pinned_skip("hugetlb", "no pool of 4 huge pages can be had");
	ps_config.hugepages = PS_HUGEPAGES_HUGETLB;
	/* What is in the pool needs no free memory; no earlier reading says that there is some. */
	ps_budget_fork_child();
	ps_config.reserve = UINT64_MAX / 2;
	ck_assert_int_eq(new_chunk(3, &first), 0);
	ps_config.reserve = 0;
	ck_assert(ps_window.granule[first] & PS_GRANULE_HUGE);
	ck_assert_uint_eq(ps_table()->huge_bytes, 3 * PS_GRANULE);
	ck_assert(pinned_is_zero(ps_granule_address(first), 3 * PS_GRANULE));
	pinned_fill(ps_granule_address(first), 3 * PS_GRANULE, 9);
	ck_assert_int_eq(new_chunk(2, &more), -ENOMEM);
	ck_assert_int_eq(why.limit, PS_LIMIT_HUGETLB);
	/* munlockall does not unlock them, so nothing needs to be locked again. */
	ps_fault_set(PS_OS_MLOCK, 1, UINT_MAX, ENOMEM);
	ck_assert_uint_eq(ps_chunk_relock(), 0);
	ps_fault_clear();
	pinned_check();
	ck_assert(ps_window.granule[first] & PS_GRANULE_LOCKED);
	ck_assert_int_eq(isolate(first + 1), 0);
	ck_assert_uint_eq(release(first + 1), PS_GRANULE);
	pinned_check();
	ck_assert(pinned_filled(ps_granule_address(first), PS_GRANULE, 9));
	/* Undone without mmap(): the pages must go back to the pool all the same. */
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	ck_assert_uint_eq(release(first), PS_GRANULE);
	ps_fault_clear();
	release(first + 2);
	pinned_check_nothing();
	ck_assert_int_eq(new_chunk(4, &first), 0);
	ck_assert(pinned_is_zero(ps_granule_address(first), 4 * PS_GRANULE));
	release(first);
	pinned_check_nothing();
	ck_assert_int_eq(pool(0), 0);
	pool_changed = false;
}
END_TEST

START_TEST(replaced)
{
	uint32_t a, b, c;

	ck_assert_int_eq(new_chunk(2, &a), 0);
	ck_assert_int_eq(new_chunk(2, &b), 0);
	ck_assert_int_eq(new_chunk(2, &c), 0);
	/* The last byte before b and the first after it are not b's. */
	ps_chunk_replaced((char *)ps_granule_address(b), 2 * PS_GRANULE);
	ck_assert(ps_window.granule[a] & PS_GRANULE_LOCKED);
	ck_assert_uint_eq(ps_window.granule[b], NOT_OURS);
	ck_assert(ps_window.granule[c] & PS_GRANULE_LOCKED);
	ck_assert_uint_eq(ps_table()->locked_bytes, 4 * PS_GRANULE);
	ck_assert_uint_eq(ps_budget_claimed(), 4 * PS_GRANULE);
	ps_chunk_replaced((char *)ps_granule_address(b) - 1, 1);
	ck_assert_uint_eq(ps_window.granule[a], NOT_OURS);
	ck_assert(ps_window.granule[c] & PS_GRANULE_LOCKED);
	ps_chunk_replaced((char *)ps_granule_address(0), ps_window.size);
	ck_assert_uint_eq(ps_table()->locked_bytes, 0);
	ck_assert_uint_eq(release(a), 0);
	ck_assert_uint_eq(release(b), 0);
	ck_assert_uint_eq(release(c), 0);
	pinned_check_nothing();
}
END_TEST

/* What is only protected otherwise stays locked; that it was is not forgotten with the lock. */
START_TEST(changed)
{
	uint32_t a, b;

	ck_assert_int_eq(new_chunk(2, &a), 0);
	ck_assert_int_eq(new_chunk(2, &b), 0);
	ps_chunk_changed((char *)ps_granule_address(b) - 1, 1);
	ck_assert(ps_window.granule[a] & PS_GRANULE_CHANGED);
	ck_assert(!(ps_window.granule[b] & PS_GRANULE_CHANGED));
	ps_chunk_changed((char *)ps_granule_address(0), ps_window.size);
	for (uint32_t i = a; i < b + 2; i++)
		ck_assert_uint_eq(ps_window.granule[i] & (PS_GRANULE_CHANGED | PS_GRANULE_LOCKED),
				  PS_GRANULE_CHANGED | PS_GRANULE_LOCKED);
	pinned_check();
	ps_fault_set(PS_OS_MLOCK, 1, 2, ENOMEM);
	ck_assert_uint_eq(ps_chunk_relock(), 2);
	ps_fault_clear();
	ck_assert_uint_eq(ps_window.granule[a], NOT_OURS);
	release(a);
	release(b);
	ck_assert_int_eq(new_chunk(2, &a), 0);
	ck_assert(!(ps_window.granule[a] & PS_GRANULE_CHANGED));
	release(a);
	pinned_check_nothing();
}
END_TEST

START_TEST(relock)
{
	uint32_t a, b;

	ck_assert_int_eq(new_chunk(2, &a), 0);
	ck_assert_int_eq(new_chunk(3, &b), 0);
	ck_assert_int_eq(syscall(SYS_munlockall), 0);
	ck_assert_int_eq(pinned_locked_kb(), 0);
	ck_assert_uint_eq(ps_chunk_relock(), 0);
	pinned_check();
	ck_assert_int_eq(syscall(SYS_munlockall), 0);
	ps_fault_set(PS_OS_MLOCK, 2, 2, ENOMEM);
	ck_assert_uint_eq(ps_chunk_relock(), 1);
	ps_fault_clear();
	pinned_check();
	ck_assert_uint_eq(ps_window.granule[b], PS_GRANULE_LARGE | PS_GRANULE_INHERITED);
	release(a);
	release(b);
	pinned_check_nothing();
}
END_TEST

/* A chunk that is no longer locked does not become so by being joined. */
START_TEST(merge_of_locked_and_not)
{
	uint32_t first;

	for (uint32_t lost = 0; lost <= 2; lost += 2) {
		ck_assert_int_eq(new_chunk(4, &first), 0);
		ck_assert_int_eq(split(first, first + 2), 0);
		ps_chunk_replaced(ps_granule_address(first + lost), 1);
		merge(first, first + 2);
		for (uint32_t i = first; i < first + 4; i++)
			ck_assert(!(ps_window.granule[i] & PS_GRANULE_LOCKED));
		ck_assert_uint_eq(ps_table()->locked_bytes, 0);
		ck_assert_uint_eq(ps_table()->chunks, 0);
		ck_assert_uint_eq(ps_budget_claimed(), 0);
		release(first);
		pinned_check_nothing();
	}
}
END_TEST

#define THREADS 4
static atomic_bool stop;

static void *pin_and_unpin(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	struct ps_refusal refusal;
	uint32_t first;

	for (int turn = 0; turn < 150; turn++)
		if (ps_chunk_new(1 + (uint32_t)rand_r(&seed) % 3, 1, PS_GRANULE_LARGE, &first,
				 &refusal) == 0)
			release(first);
	return NULL;
}

static void run_threads(void *(*main)(void *), void (*meanwhile)(void))
{
	pthread_t thread[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, main, (void *)(i + 1)), 0);
	if (meanwhile)
		meanwhile();
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

static void fail_now_and_then(void)
{
	static const enum ps_os_call call[] = { PS_OS_MLOCK, PS_OS_MPROTECT, PS_OS_MMAP };

	for (int i = 0; i < 300; i++) {
		ps_fault_set(call[i % 3], 1, 1 + (unsigned)i % 3, ENOMEM);
		usleep(200);
	}
	ps_fault_clear();
}

START_TEST(racing_failures_lose_no_addresses)
{
	run_threads(pin_and_unpin, fail_now_and_then);
	ps_fault_clear();
	pinned_check_nothing();
	ck_assert_uint_le(ps_window.frontier, 4096);
}
END_TEST

/* The program unlocks everything while threads pin: what is published is locked in the end. */
static void *unlock_and_relock(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		syscall(SYS_munlockall);
		ps_chunk_relock();
	}
	return NULL;
}

START_TEST(relock_while_pinning)
{
	enum { CHUNKS = 300 };
	static uint32_t first[CHUNKS];
	pthread_t unlocker;

	ps_config.hugepages = PS_HUGEPAGES_OFF;
	for (int turn = 0; turn < 20; turn++) {
		const int chunks = turn + 1;

		atomic_store(&stop, false);
		ck_assert_int_eq(pthread_create(&unlocker, NULL, unlock_and_relock, NULL), 0);
		for (int i = 0; i < chunks; i++)
			ck_assert_int_eq(new_chunk(1, &first[i]), 0);
		atomic_store(&stop, true);
		pthread_join(unlocker, NULL);
		pinned_check();
		for (int i = 0; i < chunks; i++)
			release(first[i]);
		pinned_check_nothing();
	}
}
END_TEST

/* Uses up vm.max_map_count with pages of alternating protection; stops where the kernel does. */
static char *use_up_maps(size_t *length)
{
	char *area;

	*length = (size_t)300 << 20;
	area = mmap(NULL, *length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(area, MAP_FAILED);
	for (size_t at = 4096; at < *length; at += 8192)
		if (mprotect(area + at, 4096, PROT_READ) < 0)
			break;
	return area;
}

/* mmap() over part of a mapping is refused when there may be no more mappings. */
START_TEST(no_more_maps)
{
	struct pinned now;
	uint32_t a, b, c, more;
	size_t length;
	char *area;

	if (SANITIZED)
		return pinned_skip("no_more_maps", "the sanitizer needs mappings of its own");
	ck_assert_int_eq(new_chunk(1, &a), 0);
	ck_assert_int_eq(new_chunk(1, &b), 0);
	ck_assert_int_eq(new_chunk(1, &c), 0);
	pinned_fill(ps_granule_address(a), PS_GRANULE, 1);
	area = use_up_maps(&length);
	ck_assert_int_eq(new_chunk(1, &more), -ENOMEM);
	release(b);
	pinned_look(&now);
	ck_assert(pinned_filled(ps_granule_address(a), PS_GRANULE, 1));
	/* Its ends may be one mapping with a neighbour, and cutting there needs a mapping more. */
	ck_assert_int_eq(munmap(area + 4096, length / 2), 0);
	ck_assert_int_eq(munmap(area, length), 0);
	ck_assert_uint_eq(now.claimed, (uint64_t)now.locked_kb << 10);
	ck_assert_uint_eq(now.claimed, now.published + now.busy * PS_GRANULE);
	release(a);
	release(c);
	pinned_look(&now);
	ck_assert_uint_eq(ps_chunk_retry(), now.busy * PS_GRANULE);
	pinned_check_nothing();
}
END_TEST

/* Of CUDA host memory: nothing is left behind whatever fails. Without advice it is pinned, without mmap not. */
START_TEST(every_call_for_a_shared_chunk_fails)
{
	bool failed;

	heap = PS_HEAP_CUDA;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (unsigned nth = 1; nth <= 8; nth++)
			for (uint32_t count = 1; count <= 20; count += 19) {
				const bool for_ever = nth > 4;
				const unsigned from = for_ever ? nth - 4 : nth;

				ps_fault_set(calls[i].call, from, for_ever ? UINT_MAX : from,
					     calls[i].error);
				try_with_fault(count, &failed);
				/* Not the first alone: a claim may need a stack. */
				if (for_ever && from == 1 && calls[i].call == PS_OS_MMAP)
					ck_assert_msg(failed, "%s", calls[i].name);
				if (calls[i].call == PS_OS_MADVISE)
					ck_assert_msg(!failed, "%s", calls[i].name);
			}
}
END_TEST

/* After mlockall(MCL_FUTURE): neither addresses that are only reserved count as locked, nor pages twice. */
START_TEST(locked_for_the_future)
{
	const long limit = (long)(10 * PS_GRANULE >> 10);
	uint32_t first;
	long before;

	if (SANITIZED) {
		puts("skip - locked_for_the_future: the sanitizer's own mappings would be, too");
		return;
	}
	heap = _i ? PS_HEAP_CUDA : PS_HEAP_MALLOC;
	ck_assert_int_eq(syscall(SYS_mlockall, MCL_FUTURE), 0);
	before = pinned_locked_kb();
	for (int turn = 0; turn < 3; turn++) {
		ck_assert_int_eq(new_chunk(10, &first), 0);
		ck_assert_int_lt(pinned_locked_kb() - before, limit + limit / 2);
		release(first);
		ck_assert_int_lt(pinned_locked_kb() - before, limit / 2);
	}
	ck_assert_int_eq(syscall(SYS_munlockall), 0);
	pinned_check_nothing();
}
END_TEST

/* A child may use it, and what comes to lie there next must not be the same: it stays busy. */
START_TEST(shared_chunk_cannot_be_unmapped)
{
	struct pinned now;
	uint32_t first, next;

	heap = PS_HEAP_CUDA;
	ck_assert_int_eq(new_chunk(2, &first), 0);
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	ck_assert_uint_eq(release(first), 0);
	ck_assert_uint_eq(ps_chunk_retry(), 0);
	ps_fault_clear();
	pinned_look(&now);
	ck_assert_uint_eq(now.busy, 2);
	ck_assert_uint_eq(now.ranges, 0);
	ck_assert_uint_eq(now.claimed, 2 * PS_GRANULE);
	heap = PS_HEAP_MALLOC;
	ck_assert_int_eq(new_chunk(2, &next), 0);
	ck_assert_uint_ne(first, next);
	/* What goes now makes room for it to go, too. */
	ck_assert_uint_eq(release(next), 4 * PS_GRANULE);
	ck_assert_uint_eq(ps_chunk_retry(), 0);
	pinned_check_nothing();
}
END_TEST

/* Cut in two, its memory would be given back only when the second half is. */
START_TEST(shared_chunk_stays_whole)
{
	uint32_t first;

	heap = PS_HEAP_CUDA;
	ck_assert_int_eq(new_chunk(4, &first), 0);
	ck_assert_int_eq(split(first, first + 2), -ENOMEM);
	ck_assert_int_eq(isolate(first + 1), -ENOMEM);
	ck_assert_uint_eq(ps_window.run[first].count, 4);
	pinned_check();
	ck_assert_uint_eq(release(first), 4 * PS_GRANULE);
	pinned_check_nothing();
}
END_TEST

/*
 * Whatever the administrator wants for shared memory at a fault. The third advice asks for them: after those
 * for huge pages and for core files.
 */
START_TEST(shared_chunk_in_huge_pages)
{
	static const struct {
		unsigned first, last;
		uint32_t huge;
	} refused[] = { { 0, 0, 20 }, { 3, 3, 20 }, { 3, UINT_MAX, 0 } };
	uint32_t first;

	for (int i = 0; i < 2; i++) {
		heap = i == 0 ? PS_HEAP_MALLOC : PS_HEAP_CUDA;
		ck_assert_int_eq(new_chunk(20, &first), 0);
		if (ps_table()->huge_bytes < 20 * PS_GRANULE) {
			puts("skip - shared_chunk_in_huge_pages: there are none, or no MADV_COLLAPSE");
			release(first);
			return;
		}
		release(first);
	}
	ps_fault_set(PS_OS_MADVISE, refused[_i].first, refused[_i].last, ENOMEM);
	ck_assert_int_eq(new_chunk(20, &first), 0);
	ps_fault_clear();
	ck_assert_uint_eq(ps_table()->huge_bytes, refused[_i].huge * PS_GRANULE);
	pinned_check();
	release(first);
	pinned_check_nothing();
}
END_TEST

/* Where the kernel does not say it of a range, the whole window is counted. */
START_TEST(huge_pages_are_counted_without_a_scan)
{
	uint32_t first, second;
	uint64_t told;

	heap = _i ? PS_HEAP_CUDA : PS_HEAP_MALLOC;
	ck_assert_int_eq(new_chunk(20, &first), 0);
	told = ps_table()->huge_bytes;
	release(first);
	ps_fault_set(PS_OS_PAGEMAP_SCAN, 1, UINT_MAX, ENOTTY);
	ck_assert_int_eq(new_chunk(20, &first), 0);
	ps_chunk_count_huge();
	ck_assert_uint_eq(ps_table()->huge_bytes, told);
	ck_assert_int_eq(new_chunk(10, &second), 0);
	ps_chunk_count_huge();
	ck_assert_uint_eq(ps_table()->huge_bytes, told / 2 * 3);
	release(first);
	ck_assert_uint_eq(ps_table()->huge_bytes, told / 2);
	/* Nothing is said where that cannot be read either. */
	ps_fault_set(PS_OS_OPEN, 1, UINT_MAX, EACCES);
	ps_chunk_count_huge();
	ps_fault_clear();
	ck_assert_uint_eq(ps_table()->huge_bytes, told / 2);
	release(second);
	pinned_check_nothing();
}
END_TEST

/* The child sees what the parent writes, and what it unmaps stays the parent's. */
START_TEST(shared_with_a_child)
{
	volatile char *memory;
	int ends[2], status;
	uint32_t first;
	pid_t child;
	char go = 0;

	heap = PS_HEAP_CUDA;
	ck_assert_int_eq(new_chunk(_i ? 20 : 1, &first), 0);
	memory = ps_granule_address(first);
	memory[0] = 1;
	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		bool good;

		ps_table_fork_child();
		ps_budget_fork_child();
		ps_chunk_fork_child();
		good = read(ends[0], &go, 1) == 1 && memory[0] == 2;
		memory[1] = 3;
		good &= release(first) == 0 && ps_window.granule[first] == PS_GRANULE_FREE;
		_exit(!good);
	}
	memory[0] = 2;
	ck_assert_int_eq(write(ends[1], &go, 1), 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(memory[0], 2);
	ck_assert_int_eq(memory[1], 3);
	pinned_check();
	release(first);
	pinned_check_nothing();
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* In a child nothing is locked, published or claimed; what somebody was working on is not lost. */
START_TEST(forked_child)
{
	uint32_t a, busy;
	int status;
	pid_t child;

	ck_assert_int_eq(new_chunk(2, &a), 0);
	ck_assert_int_eq(new_chunk(2, &busy), 0);
	ps_lock(&ps_window.lock);
	const uint8_t was = ps_chunk_busy(busy);
	ps_unlock(&ps_window.lock);
	child = fork();
	if (child == 0) {
		ps_table_fork_child();
		ps_budget_fork_child();
		ps_chunk_fork_child();
		_exit(ps_window.granule[a] == (PS_GRANULE_LARGE | PS_GRANULE_INHERITED) &&
				      ps_window.granule[busy] == PS_GRANULE_FREE &&
				      ps_budget_claimed() == 0 && release(a) == 0 &&
				      ps_window.granule[a] == PS_GRANULE_FREE
			      ? 0
			      : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ps_chunk_release(busy, was);
	pinned_check();
	release(a);
	pinned_check_nothing();
}
END_TEST

/* Last: after it the table has no file any more. */
START_TEST(table_file_cannot_be_had)
{
	bool failed;

	ps_fault_set(PS_OS_FALLOCATE, 1, UINT_MAX, ENOSPC);
	try_with_fault(1, &failed);
	ck_assert(!failed);
}
END_TEST

static void add(TCase *tcase)
{
	tcase_set_timeout(tcase, 100);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, a_chunk_is_locked_zero_and_published, 0, 2);
	tcase_add_test(tcase, alignment);
	tcase_add_loop_test(tcase, every_call_fails_in_turn, 0, 4);
	tcase_add_test(tcase, last_step_of_a_large_chunk_fails);
	tcase_add_test(tcase, undoing_fails);
	tcase_add_test(tcase, nothing_can_be_undone);
	tcase_add_test(tcase, claim_is_refused);
	tcase_add_test(tcase, window_is_used_up);
	tcase_add_test(tcase, split_isolate_merge);
	tcase_add_test(tcase, release_of_the_middle);
	tcase_add_test(tcase, extend_in_place);
	tcase_add_test(tcase, huge_pages_when_wanted);
	tcase_add_test(tcase, hugetlb_pool_is_empty);
	tcase_add_test(tcase, hugetlb);
	tcase_add_test(tcase, replaced);
	tcase_add_test(tcase, changed);
	tcase_add_test(tcase, relock);
	tcase_add_test(tcase, merge_of_locked_and_not);
	tcase_add_test(tcase, racing_failures_lose_no_addresses);
	tcase_add_test(tcase, relock_while_pinning);
	tcase_add_test(tcase, no_more_maps);
	tcase_add_test(tcase, every_call_for_a_shared_chunk_fails);
	tcase_add_loop_test(tcase, locked_for_the_future, 0, 2);
	tcase_add_test(tcase, shared_chunk_cannot_be_unmapped);
	tcase_add_test(tcase, shared_chunk_stays_whole);
	tcase_add_loop_test(tcase, shared_chunk_in_huge_pages, 0, 3);
	tcase_add_loop_test(tcase, huge_pages_are_counted_without_a_scan, 0, 2);
	tcase_add_loop_test(tcase, shared_with_a_child, 0, 2);
	tcase_add_test(tcase, forked_child);
	tcase_add_test(tcase, table_has_no_room);
	tcase_add_test(tcase, table_file_cannot_be_had);
}

int main(void)
{
	return pinned_main("chunk", add);
}
