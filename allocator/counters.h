/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_COUNTERS_H
#define PS_COUNTERS_H
/*
 * Counting, from the allocation paths.
 *
 * A thread counts in one of PINSHIM_STRIPES stripes of the table. PS_STRIPES_OWN of them have one
 * living thread each, or none: it alone adds to its counters, so that needs no locked instruction, of
 * which each costs as much as five divisions. The others are shared, but only when there are more
 * threads than that, so a counter's cache line stays with its core. Whoever else has to add to a stripe
 * adds to a shared one: only the sums of stripes have a meaning. The stripes lie in the table's own
 * pages, so a live reader and whoever looks after a SIGKILL see exact numbers; no seqlock is involved.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "table.h"

/* For tests/bench/accounting.py, which measures what counting each block costs: the difference. */
#ifdef PS_UNCOUNTED
#define PS_BLOCKS_UNCOUNTED true
#else
#define PS_BLOCKS_UNCOUNTED false
#endif

/* All thread-local state of the library: few words, because static TLS is scarce (jemalloc#2472). */
struct ps_thread {
	uint16_t depth;  /* >0: inside pinshim, so the program's allocator calls pass through */
	uint16_t stripe; /* 1 + index, 0 not yet chosen */
	uint16_t arena;  /* 1 + index, 0 not yet chosen */
	uint16_t looked; /* requests whose live peak was looked at, up to a bound */
	uint16_t driver; /* >0: at a place where a GPU's driver may be called (driver.h) */
	uint16_t error;  /* CUDA error of ours that cudaGetLastError() has to give, or 0 */
};

extern _Thread_local struct ps_thread ps_thread __attribute__((tls_model("initial-exec")));

/* Chooses a stripe for this thread. Returns 1 + index. */
uint16_t ps_counters_choose(void);

static inline unsigned ps_stripe_index(void)
{
	uint16_t stripe = ps_thread.stripe;

	if (__builtin_expect(stripe == 0, 0))
		stripe = ps_counters_choose();
	return stripe - 1u;
}

static inline struct pinshim_stripe *ps_stripe(void)
{
	return &ps_table()->stripe[ps_stripe_index()];
}

static inline void ps_count_add(uint64_t *counter, uint64_t amount)
{
	__atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
}

static inline void ps_count_sub(uint64_t *counter, uint64_t amount)
{
	__atomic_fetch_sub(counter, amount, __ATOMIC_RELAXED);
}

static inline uint64_t ps_count_get(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/*
 * Adds to a counter that no other thread adds to: of a stripe that this one has to itself, or because there is
 * no other thread. One instruction, so that a signal handler that counts, too, comes before or after it.
 */
static inline void ps_count_own(uint64_t *counter, uint64_t amount)
{
#if defined(__x86_64__)
	__asm__("addq %1, %0" : "+m"(*counter) : "er"(amount) : "cc");
#else
	ps_count_add(counter, amount);
#endif
}

static inline bool ps_stripe_is_own(void)
{
	return ps_stripe_index() < PS_STRIPES_OWN;
}

/* Adds to a counter of this thread's stripe, whether others count there, too, or not. */
static inline void ps_count_here(uint64_t *counter, uint64_t amount)
{
	if (__builtin_expect(ps_stripe_is_own(), 1))
		ps_count_own(counter, amount);
	else
		ps_count_add(counter, amount);
}

/* Notes a way in (PINSHIM_REACHED_*): a load, but for the first time. */
static inline void ps_count_reached(uint64_t way)
{
	uint64_t *reached = &ps_table()->hooks_reached;

	if (__builtin_expect(!(ps_count_get(reached) & way), 0))
		__atomic_fetch_or(reached, way, __ATOMIC_RELAXED);
}

/* Raises *peak to value if it is lower. */
void ps_count_peak(uint64_t *peak, uint64_t value);

/* In a forked child, whose counters begin at zero. */
void ps_counters_fork_child(void);

/* pinshim_entry.look: a stripe looks when it holds that many bytes; at first, at each request. */
#define PS_LOOK_AT(live) ((uint64_t)(live) + (UINT64_C(1) << 63))
#define PS_LOOK_NOW UINT64_C(0)

/* Bytes of an entry point that a stripe holds; below zero where it freed what others were served. */
static inline int64_t ps_count_live(const struct pinshim_entry *count)
{
	return (int64_t)(ps_count_get(&count->served_bytes) - ps_count_get(&count->freed_bytes));
}

/* Has this stripe served so much more that it is time to look at the live peak? */
static inline bool ps_count_is_time(const struct pinshim_entry *count)
{
	return __builtin_expect(PS_LOOK_AT(ps_count_live(count)) >= ps_count_get(&count->look), 0);
}

/* Looks. count is what this thread's stripe has of the entry point. */
void ps_count_look(enum pinshim_entry_point entry, struct pinshim_entry *count);

/* This thread's counters of an entry point if nobody else adds to them; else NULL. */
static inline struct pinshim_entry *ps_count_mine(enum pinshim_entry_point entry)
{
	struct pinshim_stripe *own = __atomic_load_n(&ps_process->own[ps_thread.stripe],
						     __ATOMIC_RELAXED);

	return __builtin_expect(own != NULL, 1) ? &own->entry[entry] : NULL;
}

/* For threads without a stripe of their own. */
void ps_count_served_shared(enum pinshim_entry_point entry, size_t requested, size_t bytes);
void ps_count_freed_shared(enum pinshim_entry_point entry, size_t bytes);

/* A request was served: requested bytes asked for, bytes handed out. Samples the live peak. */
static inline void ps_count_served(enum pinshim_entry_point entry, size_t requested, size_t bytes)
{
	struct pinshim_entry *count;

	if (PS_BLOCKS_UNCOUNTED)
		return;
	count = ps_count_mine(entry);
	if (count == NULL) {
		ps_count_served_shared(entry, requested, bytes);
		return;
	}
	ps_count_own(&count->served, 1);
	ps_count_own(&count->requested_bytes, requested);
	ps_count_own(&count->served_bytes, bytes);
	if (ps_count_is_time(count))
		ps_count_look(entry, count);
}

/* It was not after all: the block is taken back before anybody had it. */
void ps_count_unserved(enum pinshim_entry_point entry, size_t requested, size_t bytes);
/* A served block of this entry point was freed. */
static inline void ps_count_freed(enum pinshim_entry_point entry, size_t bytes)
{
	struct pinshim_entry *count;

	if (PS_BLOCKS_UNCOUNTED)
		return;
	count = ps_count_mine(entry);
	if (count == NULL) {
		ps_count_freed_shared(entry, bytes);
		return;
	}
	ps_count_own(&count->freed, 1);
	ps_count_own(&count->freed_bytes, bytes);
}

/* A request went to the next allocator, or was answered with an error. */
void ps_count_fallback(enum pinshim_entry_point entry);
void ps_count_failed(enum pinshim_entry_point entry);

/* A served block changed its size in place. */
void ps_count_resized(enum pinshim_entry_point entry, size_t requested, size_t from, size_t to);

/* Requests that an entry point was responsible for, of a sum. */
static inline uint64_t ps_count_calls(const struct pinshim_entry *sum)
{
	return sum->served + sum->fallback + sum->failed;
}

/* Sums an entry point over the stripes of any table, this process's or one that was read. */
void ps_count_sum(const struct pinshim_table *table, enum pinshim_entry_point entry,
		  struct pinshim_entry *sum);

/* Sums the asynchronous I/O of any table over its stripes. */
void ps_count_aio_sum(const struct pinshim_table *table, struct pinshim_aio *sum);

/* Bytes of freed large blocks kept for reuse, summed over the stripes of any table. */
uint64_t ps_count_retained(const struct pinshim_table *table);

/* Names as the report and JSON use them: "malloc", "cudaHostAlloc", ... */
const char *ps_entry_name(enum pinshim_entry_point entry);

/* How many words of struct pinshim_aio are counters; those after them are reserved. */
#define PS_AIO_WORDS (offsetof(struct pinshim_aio, reserved) / sizeof(uint64_t))

/* The name of a word of struct pinshim_aio, which is its member's; NULL for one that is reserved. */
const char *ps_aio_name(unsigned word);

#endif
