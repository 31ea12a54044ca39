/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions of pinshim.h, for programs that know of us.
 */
#define PINSHIM_IMPLEMENTATION
#include "pinshim.h"

#include <stdbool.h>
#include <string.h>

#include "budget.h"
#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "foreign.h"
#include "heap.h"
#include "malloc.h"
#include "registration.h"
#include "table.h"
#include "tracked.h"

/* Switched off, or without a window: as if the library were not there. */
static bool absent(void)
{
	return ps_window.size == 0;
}

/* Also where the heap must not be entered: in a handler of fork that runs while it is held still. */
static bool inert(void)
{
	return absent() || ps_thread.depth > 0;
}

int pinshim_present(void)
{
	return !absent();
}

int pinshim_is_pinned(const void *address, size_t length)
{
	if (ps_in_window(address))
		return ps_heap_is_pinned(address, length);
	return ps_tracked_is_pinned(address, length) || ps_foreign_is_pinned(address, length);
}

void *pinshim_alloc(size_t size, size_t alignment)
{
	const int saved = errno;
	struct ps_refusal why;
	void *block;

	if (inert() || (alignment & (alignment - 1)) != 0) {
		errno = inert() ? ENOSYS : EINVAL;
		return NULL;
	}
	block = ps_registration_alloc(PINSHIM_ENTRY_PINSHIM_ALLOC, size, alignment, &why);
	/* Locked is what was promised; registered it is where that is possible. */
	if (block != NULL)
		(void)ps_registration_cover(block);
	if (block == NULL) {
		ps_count_failed(PINSHIM_ENTRY_PINSHIM_ALLOC);
		ps_budget_refuse(&why, "an error");
	}
	errno = block == NULL ? ENOMEM : saved;
	return block;
}

int pinshim_free(void *block)
{
	if (block == NULL)
		return 0;
	if (absent())
		return -ENOSYS;
	if (!ps_in_window(block))
		return -EINVAL;
	ps_registration_park(block, "pinshim_free()");
	return 0;
}

/* Pins what is not the heap's. 0 or -errno. */
static int pin_foreign(const void *address, size_t length)
{
	struct ps_refusal why;
	int r;

	ps_malloc_watch_foreign();
	ps_thread.depth++;
	r = ps_foreign_pin(address, length, &why);
	ps_thread.depth--;
	if (r == -ENOMEM)
		ps_budget_refuse(&why, "an error");
	return r;
}

int pinshim_pin(const void *address, size_t length)
{
	int r = 0;

	if (inert())
		return -ENOSYS;
	if (!ps_heap_is_pinned(address, length))
		r = pin_foreign(address, length);
	if (r < 0)
		ps_count_failed(PINSHIM_ENTRY_PINSHIM_PIN);
	else
		ps_count_served(PINSHIM_ENTRY_PINSHIM_PIN, length, length);
	return r;
}

int pinshim_unpin(const void *address, size_t length)
{
	int r = 0;

	if (inert())
		return -ENOSYS;
	if (!ps_heap_is_pinned(address, length)) {
		ps_thread.depth++;
		r = ps_foreign_unpin(address, length);
		ps_thread.depth--;
	}
	if (r == 0)
		ps_count_freed(PINSHIM_ENTRY_PINSHIM_PIN, length);
	return r;
}

void *pinshim_pin_copy(const void *source, size_t length)
{
	void *copy;

	if (source == NULL) {
		errno = inert() ? ENOSYS : EINVAL;
		return NULL;
	}
	copy = pinshim_alloc(length, 0);
	if (copy != NULL)
		memcpy(copy, source, length);
	return copy;
}

static uint64_t refusals(const struct pinshim_table *table)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PS_LIMITS; i++)
		sum += ps_count_get(&table->refused[i]);
	return sum;
}

/* Adds up the entry points that hand out blocks or pins. */
static void sum_entries(const struct pinshim_table *table, struct pinshim_stats *stats)
{
	for (unsigned i = 0; i < PINSHIM_ENTRIES; i++) {
		struct pinshim_entry sum;

		ps_count_sum(table, (enum pinshim_entry_point)i, &sum);
		stats->served += sum.served;
		stats->fallback += sum.fallback;
		stats->failed += sum.failed;
		stats->live_blocks += sum.served - sum.freed;
		stats->live_bytes += sum.served_bytes - sum.freed_bytes;
	}
}

int pinshim_stats(struct pinshim_stats *stats, size_t size)
{
	const struct pinshim_table *table = ps_table();
	struct pinshim_stats now = {
		.pinned_bytes = ps_count_get(&table->pinned_bytes),
		.pinned_peak_bytes = ps_count_get(&table->pinned_peak_bytes),
		.locked_bytes = ps_count_get(&table->locked_bytes),
		.registered_bytes = ps_count_get(&table->registered_bytes),
		.foreign_bytes = ps_count_get(&table->foreign_bytes),
		.retained_bytes = ps_count_retained(table),
		.refused = refusals(table),
	};

	if (absent())
		return -ENOSYS;
	if (stats == NULL || size == 0)
		return -EINVAL;
	ps_chunk_count_huge();
	now.huge_bytes = ps_count_get(&table->huge_bytes);
	sum_entries(table, &now);
	memset(stats, 0, size);
	memcpy(stats, &now, size < sizeof(now) ? size : sizeof(now));
	return 0;
}

size_t pinshim_trim(size_t keep)
{
	size_t unpinned;

	if (inert())
		return 0;
	ps_registration_unpark();
	ps_thread.driver++;
	unpinned = ps_heap_trim(keep);
	ps_thread.driver--;
	return unpinned;
}

int pinshim_publish(void)
{
	return inert() ? -ENOSYS : ps_table_publish();
}
