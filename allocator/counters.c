/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting. No lock; may be called with any lock held.
 *
 * The live peak is sampled, because adding up the stripes fetches the cache lines of all threads: a
 * thread looks after each of its first requests, so that small programs see exact numbers, and then
 * whenever it was served as much again as can matter, 1/64 of the peak.
 */
#include "counters.h"

#define SAMPLED_FIRST 64                   /* requests of a thread that are all looked at */
#define SAMPLE_BYTES ((uint64_t)256 << 10) /* served between looks, at least */

_Thread_local struct ps_thread ps_thread __attribute__((tls_model("initial-exec")));

uint16_t ps_counters_choose(void)
{
	static atomic_uint next;
	unsigned turn = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);

	ps_thread.stripe = (uint16_t)(1 + turn % PINSHIM_STRIPES);
	return ps_thread.stripe;
}

void ps_count_peak(uint64_t *peak, uint64_t value)
{
	uint64_t seen = ps_count_get(peak);

	while (seen < value && !__atomic_compare_exchange_n(peak, &seen, value, true,
							    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* Looks at the live bytes of an entry point if enough was served since the last time. */
static void sample(enum pinshim_entry_point entry, size_t bytes)
{
	uint64_t *peak = &ps_table()->live_peak_bytes[entry];
	uint64_t step = ps_count_get(peak) / 64;
	struct pinshim_entry sum;

	ps_thread.unsampled += bytes;
	if (ps_thread.looked < SAMPLED_FIRST)
		ps_thread.looked++;
	else if (ps_thread.unsampled < (step > SAMPLE_BYTES ? step : SAMPLE_BYTES))
		return;
	ps_thread.unsampled = 0;
	ps_count_sum(ps_table(), entry, &sum);
	/* A block may be freed between two loads: the difference can then be below zero. */
	if ((int64_t)(sum.served_bytes - sum.freed_bytes) > 0)
		ps_count_peak(peak, sum.served_bytes - sum.freed_bytes);
}

void ps_count_served(enum pinshim_entry_point entry, size_t requested, size_t bytes)
{
	struct pinshim_entry *count = &ps_stripe()->entry[entry];

	ps_count_add(&count->calls, 1);
	ps_count_add(&count->served, 1);
	ps_count_add(&count->requested_bytes, requested);
	ps_count_add(&count->served_bytes, bytes);
	sample(entry, bytes);
}

void ps_count_freed(enum pinshim_entry_point entry, size_t bytes)
{
	struct pinshim_entry *count = &ps_stripe()->entry[entry];

	ps_count_add(&count->freed, 1);
	ps_count_add(&count->freed_bytes, bytes);
}

void ps_count_fallback(enum pinshim_entry_point entry)
{
	struct pinshim_entry *count = &ps_stripe()->entry[entry];

	ps_count_add(&count->calls, 1);
	ps_count_add(&count->fallback, 1);
}

void ps_count_failed(enum pinshim_entry_point entry)
{
	struct pinshim_entry *count = &ps_stripe()->entry[entry];

	ps_count_add(&count->calls, 1);
	ps_count_add(&count->failed, 1);
}

/* As bytes go, the block was freed and served anew; as blocks go, nothing happened. */
void ps_count_resized(enum pinshim_entry_point entry, size_t requested, size_t from, size_t to)
{
	struct pinshim_entry *count = &ps_stripe()->entry[entry];

	ps_count_add(&count->requested_bytes, requested);
	ps_count_add(&count->served_bytes, to);
	ps_count_add(&count->freed_bytes, from);
	if (to > from)
		sample(entry, to - from);
}

uint64_t ps_count_retained(const struct pinshim_table *table)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PINSHIM_STRIPES; i++)
		sum += ps_count_get(&table->stripe[i].retained_bytes);
	/* Read while blocks come and go, a sum can be below zero for a moment. */
	return (int64_t)sum > 0 ? sum : 0;
}
