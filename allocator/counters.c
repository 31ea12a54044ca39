/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting. No lock; may be called with any lock held.
 *
 * The live peak is sampled, because adding up the stripes fetches the cache lines of all threads. A
 * stripe looks when it holds more than it ever did when it looked before, by 1/64 of the peak, and
 * when another has grown since; so threads that free as much as they allocate never look. A thread
 * looks after each of its first requests, too, so that small programs see exact numbers.
 */
#include "counters.h"

#include <errno.h>
#include <string.h>

#include "os.h"
#include "syscall.h"

#define SAMPLED_FIRST 64                  /* requests of a thread that are all looked at */
#define SAMPLE_BYTES ((int64_t)256 << 10) /* that a stripe must have grown by, at least */

/*
 * How much of an entry point a stripe must hold, in bytes, for that to be news to all. Threads that
 * share one may overwrite each other: a look more or less.
 */
static int64_t news[PINSHIM_STRIPES][PINSHIM_ENTRIES_MAX] __attribute__((aligned(64)));

_Thread_local struct ps_thread ps_thread __attribute__((tls_model("initial-exec")));

/* The ids of the threads that have a stripe of their own; 0: nobody has had it. */
static atomic_int owners[PS_STRIPES_OWN];

/* Takes a stripe that nobody has, or whose thread is gone. */
static bool take_own(int thread, unsigned *stripe)
{
	for (unsigned i = 0; i < PS_STRIPES_OWN; i++) {
		int owner = atomic_load_explicit(&owners[i], memory_order_relaxed);

		if (owner != 0 && ps_syscall3(SYS_tgkill, ps_process->pid, owner, 0) != -ESRCH)
			continue;
		/* What it counted last is in the memory before its id is free. */
		if (atomic_compare_exchange_strong(&owners[i], &owner, thread)) {
			*stripe = i;
			return true;
		}
	}
	return false;
}

uint16_t ps_counters_choose(void)
{
	static atomic_uint next;
	unsigned stripe;

	/* A child of vfork() has the parent's memory, but not its threads. */
	if (!ps_table_is_ours() || !take_own(ps_os_gettid(), &stripe))
		stripe = PS_STRIPES_OWN +
			 atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) %
				 (PINSHIM_STRIPES - PS_STRIPES_OWN);
	for (unsigned i = 0; i < PINSHIM_ENTRIES_MAX; i++)
		__atomic_store_n(&ps_table()->stripe[stripe].entry[i].look, PS_LOOK_NOW,
				 __ATOMIC_RELAXED);
	ps_thread.stripe = (uint16_t)(1 + stripe);
	return ps_thread.stripe;
}

void ps_count_peak(uint64_t *peak, uint64_t value)
{
	uint64_t seen = ps_count_get(peak);

	while (seen < value && !__atomic_compare_exchange_n(peak, &seen, value, true,
							    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* Raises the peak of an entry point to what all stripes hold together. */
static void look_at_all(enum pinshim_entry_point entry)
{
	struct pinshim_entry sum;

	ps_count_sum(ps_table(), entry, &sum);
	/* A block may be freed between two loads: the difference can then be below zero. */
	if ((int64_t)(sum.served_bytes - sum.freed_bytes) > 0)
		ps_count_peak(&ps_table()->live_peak_bytes[entry],
			      sum.served_bytes - sum.freed_bytes);
}

/* All stripes are to look at their next request. */
static void tell_all(enum pinshim_entry_point entry)
{
	for (unsigned i = 0; i < PINSHIM_STRIPES; i++) {
		uint64_t *look = &ps_table()->stripe[i].entry[entry].look;

		if (ps_count_get(look) != PS_LOOK_NOW)
			__atomic_store_n(look, PS_LOOK_NOW, __ATOMIC_RELAXED);
	}
}

/*
 * Looks, after this stripe has served something. When to look next is written first: another that
 * grows, and says so too early to be heeded, is then seen here.
 */
void ps_count_look(enum pinshim_entry_point entry, struct pinshim_entry *count)
{
	int64_t *here = &news[ps_stripe_index()][entry];
	const int64_t live = ps_count_live(count);
	const int64_t step = (int64_t)(ps_count_get(&ps_table()->live_peak_bytes[entry]) / 64);
	uint64_t next = PS_LOOK_NOW;

	if (live >= (int64_t)ps_count_get((uint64_t *)here)) {
		tell_all(entry);
		__atomic_store_n(here, live + (step > SAMPLE_BYTES ? step : SAMPLE_BYTES),
				 __ATOMIC_RELAXED);
	}
	if (ps_thread.looked < SAMPLED_FIRST)
		ps_thread.looked++;
	else
		next = PS_LOOK_AT(ps_count_get((uint64_t *)here));
	__atomic_store_n(&count->look, next, __ATOMIC_SEQ_CST);
	look_at_all(entry);
}

void ps_counters_fork_child(void)
{
	memset(news, 0, sizeof(news));
	for (unsigned i = 0; i < PS_STRIPES_OWN; i++)
		atomic_store(&owners[i], 0);
	/* The one thread there is keeps its stripe. */
	if (ps_thread.stripe != 0 && ps_stripe_is_own())
		atomic_store(&owners[ps_stripe_index()], ps_os_gettid());
}

static struct pinshim_entry *of_this_thread(enum pinshim_entry_point entry)
{
	return &ps_stripe()->entry[entry];
}

void ps_count_served_shared(enum pinshim_entry_point entry, size_t requested, size_t bytes)
{
	struct pinshim_entry *count = of_this_thread(entry);

	ps_count_add(&count->served, 1);
	ps_count_add(&count->requested_bytes, requested);
	ps_count_add(&count->served_bytes, bytes);
	if (ps_count_is_time(count))
		ps_count_look(entry, count);
}

void ps_count_unserved(enum pinshim_entry_point entry, size_t requested, size_t bytes)
{
	struct pinshim_entry *count = of_this_thread(entry);

	ps_count_sub(&count->served, 1);
	ps_count_sub(&count->requested_bytes, requested);
	ps_count_sub(&count->served_bytes, bytes);
}

void ps_count_freed_shared(enum pinshim_entry_point entry, size_t bytes)
{
	struct pinshim_entry *count = of_this_thread(entry);

	ps_count_add(&count->freed, 1);
	ps_count_add(&count->freed_bytes, bytes);
}

void ps_count_fallback(enum pinshim_entry_point entry)
{
	ps_count_add(&of_this_thread(entry)->fallback, 1);
}

void ps_count_failed(enum pinshim_entry_point entry)
{
	ps_count_add(&of_this_thread(entry)->failed, 1);
}

/* As bytes go, the block was freed and served anew; as blocks go, nothing happened. */
void ps_count_resized(enum pinshim_entry_point entry, size_t requested, size_t from, size_t to)
{
	struct pinshim_entry *count = of_this_thread(entry);

	ps_count_add(&count->requested_bytes, requested);
	ps_count_add(&count->served_bytes, to);
	ps_count_add(&count->freed_bytes, from);
	if (to > from && ps_count_is_time(count))
		ps_count_look(entry, count);
}

uint64_t ps_count_retained(const struct pinshim_table *table)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PINSHIM_STRIPES; i++)
		sum += ps_count_get(&table->stripe[i].retained_bytes);
	/* Read while blocks come and go, a sum can be below zero for a moment. */
	return (int64_t)sum > 0 ? sum : 0;
}
