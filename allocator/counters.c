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

/* For tests/bench/accounting.py, which measures what counting each block costs: the difference. */
#ifdef PS_UNCOUNTED
#define UNCOUNTED true
#else
#define UNCOUNTED false
#endif

#define SAMPLED_FIRST 64                  /* requests of a thread that are all looked at */
#define SAMPLE_BYTES ((int64_t)256 << 10) /* that a stripe must have grown by, at least */

/* When a stripe looks next. Threads that share one may overwrite each other: a look more or less. */
static struct look {
	int64_t live;    /* when it holds that much of the entry point, in bytes */
	uint64_t growth; /* and when that of the entry point is no longer what it was */
} looks[PINSHIM_STRIPES][PINSHIM_ENTRIES_MAX] __attribute__((aligned(64)));

/* How often any stripe was seen to have grown. Read at each request, written rarely. */
static uint64_t growths[PINSHIM_ENTRIES_MAX] __attribute__((aligned(64)));

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

/* Looks, after this stripe has served something. */
static __attribute__((noinline)) void look(enum pinshim_entry_point entry, struct look *look,
					   int64_t live)
{
	const bool grown = live >= (int64_t)ps_count_get((uint64_t *)&look->live);
	int64_t step;

	if (ps_thread.looked < SAMPLED_FIRST)
		ps_thread.looked++;
	if (grown)
		ps_count_add(&growths[entry], 1);
	look_at_all(entry);
	step = (int64_t)(ps_count_get(&ps_table()->live_peak_bytes[entry]) / 64);
	__atomic_store_n(&look->live, live + (step > SAMPLE_BYTES ? step : SAMPLE_BYTES),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&look->growth, ps_count_get(&growths[entry]), __ATOMIC_RELAXED);
}

/* Looks if there is reason to. */
static void sample(enum pinshim_entry_point entry, const struct pinshim_entry *count)
{
	struct look *mine = &looks[ps_stripe_index()][entry];
	const int64_t live = (int64_t)(ps_count_get(&count->served_bytes) -
				       ps_count_get(&count->freed_bytes));

	if (__builtin_expect(live >= (int64_t)ps_count_get((uint64_t *)&mine->live) ||
				     ps_count_get(&mine->growth) != ps_count_get(&growths[entry]) ||
				     ps_thread.looked < SAMPLED_FIRST,
			     0))
		look(entry, mine, live);
}

void ps_counters_fork_child(void)
{
	memset(looks, 0, sizeof(looks));
	for (unsigned i = 0; i < PS_STRIPES_OWN; i++)
		atomic_store(&owners[i], 0);
	/* The one thread there is keeps its stripe. */
	if (ps_thread.stripe != 0 && ps_stripe_is_own())
		atomic_store(&owners[ps_stripe_index()], ps_os_gettid());
}

void ps_count_served(enum pinshim_entry_point entry, size_t requested, size_t bytes)
{
	struct pinshim_entry *count = &ps_stripe()->entry[entry];
	const bool own = ps_stripe_is_own();

	if (UNCOUNTED)
		return;
	ps_count_own(&count->calls, 1, own);
	ps_count_own(&count->served, 1, own);
	ps_count_own(&count->requested_bytes, requested, own);
	ps_count_own(&count->served_bytes, bytes, own);
	sample(entry, count);
}

void ps_count_unserved(enum pinshim_entry_point entry, size_t requested, size_t bytes)
{
	struct pinshim_entry *count = &ps_stripe()->entry[entry];

	ps_count_sub(&count->calls, 1);
	ps_count_sub(&count->served, 1);
	ps_count_sub(&count->requested_bytes, requested);
	ps_count_sub(&count->served_bytes, bytes);
}

void ps_count_freed(enum pinshim_entry_point entry, size_t bytes)
{
	struct pinshim_entry *count = &ps_stripe()->entry[entry];

	const bool own = ps_stripe_is_own();

	if (UNCOUNTED)
		return;
	ps_count_own(&count->freed, 1, own);
	ps_count_own(&count->freed_bytes, bytes, own);
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
		sample(entry, count);
}

uint64_t ps_count_retained(const struct pinshim_table *table)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PINSHIM_STRIPES; i++)
		sum += ps_count_get(&table->stripe[i].retained_bytes);
	/* Read while blocks come and go, a sum can be below zero for a moment. */
	return (int64_t)sum > 0 ? sum : 0;
}
