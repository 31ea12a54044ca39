/* SPDX-License-Identifier: BSD-2-Clause */
#include "pinned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "heap.h"
#include "os.h"
#include "table.h"
#include "window.h"

static char directory[] = "/tmp/test_pinned.XXXXXX";
static long locked_at_start;

#if UNDER_TSAN
/*
 * Children of programs with threads are what some cases are about; and jemalloc takes more locks before
 * a fork than the search for deadlocks can follow.
 */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0:detect_deadlocks=0";
}
#endif

long pinned_proc_kb(const char *file, const char *field)
{
	char path[64], text[4096];
	const char *found;

	snprintf(path, sizeof(path), "/proc/self/%s", file);
	if (ps_os_read_file(path, text, sizeof(text)) <= 0)
		return -1;
	found = strstr(text, field);
	return found ? strtol(found + strlen(field), NULL, 10) : -1;
}

long pinned_locked_kb(void)
{
	return pinned_proc_kb("status", "VmLck:") - locked_at_start;
}

static const struct pinshim_range *ranges(void)
{
	return (const void *)((const char *)ps_table() + ps_table()->ranges_offset);
}

void pinned_look(struct pinned *now)
{
	const struct pinshim_table *table = ps_table();

	memset(now, 0, sizeof(*now));
	now->locked_kb = pinned_locked_kb();
	now->claimed = ps_budget_claimed();
	now->present = table->present_bytes;
	now->gauge = table->locked_bytes;
	now->huge_gauge = table->huge_bytes;
	now->chunks = table->chunks;
	for (uint32_t i = 0; i < table->range_used; i++) {
		now->ranges += ranges()[i].length > 0;
		now->published += ranges()[i].length;
	}
	for (uint32_t i = 0; i < ps_window.frontier; i++) {
		now->granules += ps_window.granule[i] != PS_GRANULE_FREE;
		now->busy += (ps_window.granule[i] & PS_GRANULE_STATE) == PS_GRANULE_BUSY;
	}
}

/* A locked chunk is one range of the table, exactly. */
static void check_published(uint32_t first)
{
	const struct ps_run *run = &ps_window.run[first];
	const uint8_t byte = ps_window.granule[first];
	const struct pinshim_range *range;

	ck_assert_int_ge(run->slot, 0);
	ck_assert_int_lt(run->slot, (int)ps_table()->range_used);
	range = ranges() + run->slot;
	ck_assert_uint_eq(range->base, (uintptr_t)ps_granule_address(first));
	ck_assert_uint_eq(range->length, (uint64_t)run->count << PS_GRANULE_SHIFT);
	ck_assert_uint_eq(range->flags & PINSHIM_RANGE_LOCKED, PINSHIM_RANGE_LOCKED);
	ck_assert_int_eq(!(range->flags & PINSHIM_RANGE_HUGE), !(byte & PS_GRANULE_HUGE));
	ck_assert_int_eq(!(range->flags & PINSHIM_RANGE_HEAP_CUDA), !(byte & PS_GRANULE_DRIVER));
	ck_assert_int_eq(!(range->flags & PINSHIM_RANGE_REGISTERED),
			 run->registered != PS_REGISTERED);
}

/* Every granule of a run says the same. */
static void check_run(uint32_t first)
{
	const struct ps_run *run = &ps_window.run[first];

	ck_assert_uint_eq(run->first, first);
	ck_assert_uint_gt(run->count, 0);
	ck_assert_uint_le(first + run->count, ps_window.frontier);
	for (uint32_t i = first; i < first + run->count; i++) {
		ck_assert_uint_eq(ps_window.run[i].first, first);
		ck_assert_uint_eq(ps_window.granule[i], ps_window.granule[first]);
	}
	if (ps_window.granule[first] & PS_GRANULE_LOCKED)
		check_published(first);
}

/* The list has each free run once, and no two free runs touch. */
static void check_free_runs(void)
{
	uint32_t listed = 0, found = 0;
	bool before = false;

	for (uint32_t i = ps_window.free_runs; i != PS_NO_RUN; i = ps_window.run[i].next) {
		ck_assert_uint_eq(ps_window.granule[i], PS_GRANULE_FREE);
		ck_assert_uint_lt(listed++, ps_window.frontier);
	}
	for (uint32_t i = 0; i < ps_window.frontier; i += ps_window.run[i].count) {
		const bool now = ps_window.granule[i] == PS_GRANULE_FREE;

		ck_assert_msg(!(now && before), "free runs side by side at granule %u", i);
		before = now;
		found += now;
	}
	ck_assert_uint_eq(listed, found);
}

void pinned_check(void)
{
	uint64_t locked = 0, registered = 0, chunks = 0;
	struct pinned now;

	for (uint32_t i = 0; i < ps_window.frontier; i += ps_window.run[i].count) {
		check_run(i);
		if (!(ps_window.granule[i] & PS_GRANULE_LOCKED))
			continue;
		locked += (uint64_t)ps_window.run[i].count << PS_GRANULE_SHIFT;
		if (ps_window.run[i].registered == PS_REGISTERED)
			registered += (uint64_t)ps_window.run[i].count << PS_GRANULE_SHIFT;
		chunks++;
	}
	check_free_runs();
	pinned_look(&now);
	ck_assert_uint_eq(now.ranges, chunks);
	ck_assert_uint_eq(now.chunks, chunks);
	ck_assert_uint_eq(now.published, locked);
	ck_assert_uint_eq(now.gauge, locked);
	ck_assert_uint_eq(now.claimed, locked);
	ck_assert_uint_eq(now.present, locked);
	ck_assert_uint_eq(ps_table()->registered_bytes, registered);
	ck_assert_uint_le(now.huge_gauge, locked);
	if (ps_config.hugepages != PS_HUGEPAGES_HUGETLB)
		ck_assert_int_eq(now.locked_kb, (long)(locked >> 10));
}

void pinned_check_nothing(void)
{
	struct pinned now;

	pinned_check();
	pinned_look(&now);
	ck_assert_uint_eq(now.granules, 0);
	ck_assert_uint_eq(now.claimed, 0);
	ck_assert_uint_eq(now.huge_gauge, 0);
	ck_assert_int_eq(now.locked_kb, 0);
}

void pinned_new_window(uint64_t bytes)
{
	unsigned halvings = 0;

	if (ps_window.size > 0)
		ps_window_release();
	/* It begins with 1 TiB and halves as often as mmap refuses. */
	while (bytes > 0 && ((uint64_t)1 << 40) >> halvings > bytes)
		halvings++;
	if (halvings > 0)
		ps_fault_set(PS_OS_MMAP, 1, halvings, ENOMEM);
	ck_assert_int_eq(ps_window_reserve(0), 0);
	ps_fault_clear();
}

static uint64_t pattern(uint64_t seed, size_t i)
{
	return (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
}

void pinned_fill(void *block, size_t length, uint64_t seed)
{
	uint64_t word;
	size_t i = 0;

	for (; i + sizeof(word) <= length; i += sizeof(word)) {
		word = pattern(seed, i);
		memcpy((char *)block + i, &word, sizeof(word));
	}
	word = pattern(seed, i);
	memcpy((char *)block + i, &word, length - i);
}

bool pinned_filled(const void *block, size_t length, uint64_t seed)
{
	uint64_t word;
	size_t i = 0;

	for (; i + sizeof(word) <= length; i += sizeof(word)) {
		word = pattern(seed, i);
		if (memcmp((const char *)block + i, &word, sizeof(word)) != 0)
			return false;
	}
	word = pattern(seed, i);
	return memcmp((const char *)block + i, &word, length - i) == 0;
}

bool pinned_is_zero(const void *block, size_t length)
{
	const char *bytes = block;

	return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

void pinned_skip(const char *name, const char *reason)
{
	printf("skip - %s: %s\n", name, reason);
	fflush(stdout);
}

int pinned_main(const char *name, void (*add)(TCase *tcase))
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner;
	int failed;

	if (!mkdtemp(directory) || ps_table_start() < 0 || ps_window_reserve(0) < 0)
		return 1;
	ps_table_directory = directory;
	ps_config.threads = 2;
	/* The library's own tables and the test's are there before the first look. */
	locked_at_start = pinned_proc_kb("status", "VmLck:");
	add(tcase);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	ps_table_close();
	rmdir(directory);
	return failed != 0;
}
