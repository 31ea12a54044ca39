/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks. Kept blocks are on one list, the last freed first, under the window's lock, and on a
 * chain by exact size, so that a loop that frees and asks again finds its block in constant time.
 * The lock is held for list work only; pinning and unpinning happen outside.
 *
 * In front of the list each stripe of threads has a pocket for the block it freed last, taken and
 * filled without the lock: with two threads, passing a lock to and fro costs several times what the
 * rest does. What pockets may hold is set aside from PINSHIM_RETAIN beforehand (credit), so filling
 * one counts nothing that threads share. Blocks of other heaps than malloc's go to the list.
 */
#include "large.h"

#include <errno.h>
#include <stdatomic.h>

#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "window.h"

/* How many kept blocks are looked at for one that nearly fits, after none fitted exactly. */
#define SEARCH_MAX 256
#define CHAINS 256

static struct {
	uint32_t newest, oldest; /* the list of kept blocks, or PS_NO_RUN */
	uint32_t chain[CHAINS];  /* newest kept block of this many granules modulo CHAINS */
	uint64_t granules;       /* in blocks of the list */
	uint64_t credit;         /* granules set aside for pockets */
	bool ready;              /* the heads above were set to PS_NO_RUN */
} kept;

static struct pocket {
	atomic_uint_fast64_t block; /* count << 32 | first of the block in it; 0: empty */
	atomic_uint_fast32_t
		credit; /* most granules it may hold; written under the window's lock */
} __attribute__((aligned(64))) pockets[PINSHIM_STRIPES];

static struct pocket *my_pocket(void)
{
	return &pockets[ps_stripe_index()];
}

static void prepare(void)
{
	if (kept.ready)
		return;
	kept.newest = kept.oldest = PS_NO_RUN;
	for (unsigned i = 0; i < CHAINS; i++)
		kept.chain[i] = PS_NO_RUN;
	kept.ready = true;
}

/* Counts granules that are kept from now on, or no longer. */
static void count_kept(int64_t granules)
{
	ps_count_here(&ps_stripe()->retained_bytes, (uint64_t)granules << PS_GRANULE_SHIFT);
}

static void chain_remove(uint32_t first)
{
	uint32_t *link = &kept.chain[ps_window.run[first].count % CHAINS];

	while (*link != first)
		link = &ps_window.run[*link].chain;
	*link = ps_window.run[first].chain;
}

static void keep(uint32_t first)
{
	struct ps_run *run = &ps_window.run[first];

	run->kept = 1;
	run->previous = PS_NO_RUN;
	run->next = kept.newest;
	if (run->next != PS_NO_RUN)
		ps_window.run[run->next].previous = first;
	else
		kept.oldest = first;
	kept.newest = first;
	run->chain = kept.chain[run->count % CHAINS];
	kept.chain[run->count % CHAINS] = first;
	kept.granules += run->count;
	count_kept(run->count);
}

static void unkeep(uint32_t first)
{
	struct ps_run *run = &ps_window.run[first];

	chain_remove(first);
	if (run->previous != PS_NO_RUN)
		ps_window.run[run->previous].next = run->next;
	else
		kept.newest = run->next;
	if (run->next != PS_NO_RUN)
		ps_window.run[run->next].previous = run->previous;
	else
		kept.oldest = run->previous;
	run->kept = 0;
	kept.granules -= run->count;
	count_kept(-(int64_t)run->count);
}

static bool aligned(uint32_t first, uint32_t align)
{
	return (((ps_window.base >> PS_GRANULE_SHIFT) + first) & (align - 1)) == 0;
}

/* Is it of this heap and still locked? One that lost its lock waits for its turn to be unpinned. */
static bool of_heap(uint32_t first, enum ps_heap heap)
{
	const uint8_t byte = ps_window.granule[first];

	return byte & PS_GRANULE_LOCKED && ps_granule_heap(byte) == heap;
}

/* Can two kept blocks that lie side by side be one? */
static bool alike(uint32_t first, uint32_t second)
{
	const uint8_t kind = PS_GRANULE_LOCKED | PS_GRANULE_HEAP;

	return !ps_chunk_stays_whole(first) && !ps_chunk_stays_whole(second) &&
	       ((ps_window.granule[first] ^ ps_window.granule[second]) & kind) == 0;
}

/* A kept block of exactly count granules; PS_NO_RUN if none. */
static uint32_t find_exact(uint32_t count, uint32_t align, enum ps_heap heap)
{
	for (uint32_t i = kept.chain[count % CHAINS]; i != PS_NO_RUN; i = ps_window.run[i].chain)
		if (ps_window.run[i].count == count && of_heap(i, heap) && aligned(i, align))
			return i;
	return PS_NO_RUN;
}

/* Does a block of more than count granules serve? One that stays whole may waste 1/32 of it. */
static bool serves(uint32_t first, uint32_t count)
{
	const uint32_t has = ps_window.run[first].count;

	return !ps_chunk_stays_whole(first) || has - count <= has / 32;
}

/* The smallest kept block of more than count granules among the newest; PS_NO_RUN if none. */
static uint32_t find_larger(uint32_t count, uint32_t align, enum ps_heap heap)
{
	uint32_t best = PS_NO_RUN, seen = 0;

	for (uint32_t i = kept.newest; i != PS_NO_RUN && seen < SEARCH_MAX;
	     i = ps_window.run[i].next, seen++)
		if (ps_window.run[i].count > count && of_heap(i, heap) && aligned(i, align) &&
		    serves(i, count) &&
		    (best == PS_NO_RUN || ps_window.run[i].count < ps_window.run[best].count))
			best = i;
	return best;
}

/* Joins kept blocks that lie side by side, so that several small ones can serve a large request. */
static void join_kept(void)
{
	uint32_t next;

	for (uint32_t i = kept.newest; i != PS_NO_RUN; i = next) {
		const uint32_t after = i + ps_window.run[i].count;

		next = ps_window.run[i].next;
		/* What follows may be kept, live, or free; only kept is joined, and then tried again. */
		if (after >= atomic_load(&ps_window.frontier) ||
		    (ps_window.granule[after] & PS_GRANULE_STATE) != PS_GRANULE_LARGE ||
		    !ps_window.run[after].kept || !alike(i, after))
			continue;
		unkeep(i);
		unkeep(after);
		ps_chunk_merge(i, after);
		keep(i);
		next = i;
	}
}

/* Takes a kept block for count granules, cutting off what is too much. PS_NO_RUN if none serves. */
static uint32_t take_kept(uint32_t count, uint32_t align, enum ps_heap heap)
{
	uint32_t found = find_exact(count, align, heap);

	if (found != PS_NO_RUN) {
		unkeep(found);
		return found;
	}
	found = find_larger(count, align, heap);
	if (found == PS_NO_RUN)
		return found;
	unkeep(found);
	if (ps_chunk_stays_whole(found))
		return found;
	if (ps_chunk_split(found, found + count) == 0) {
		keep(found + count);
		return found;
	}
	keep(found);
	return PS_NO_RUN;
}

/*
 * Puts what is in pockets on the list and takes their credit back, when blocks are looked for or the
 * list is over its limit. Window's lock held.
 */
static void empty_pockets(void)
{
	for (unsigned i = 0; i < PINSHIM_STRIPES; i++) {
		uint64_t block;

		atomic_store(&pockets[i].credit, 0);
		block = atomic_exchange(&pockets[i].block, 0);
		if (block == 0)
			continue;
		count_kept(-(int64_t)(block >> 32));
		keep((uint32_t)block);
	}
	kept.credit = 0;
}

/* A block of exactly count granules from this thread's pocket; PS_NO_RUN if it has none. */
static uint32_t take_from_pocket(uint32_t count)
{
	struct pocket *pocket = my_pocket();
	uint64_t block = atomic_load_explicit(&pocket->block, memory_order_relaxed);

	if (block >> 32 != count || !atomic_compare_exchange_strong(&pocket->block, &block, 0))
		return PS_NO_RUN;
	count_kept(-(int64_t)count);
	if (ps_granule_byte((uint32_t)block) & PS_GRANULE_LOCKED)
		return (uint32_t)block;
	/* It lost its lock since it was freed: it goes the way of those. */
	ps_large_free((uint32_t)block);
	return PS_NO_RUN;
}

/* Puts a freed block into this thread's pocket if that is empty and has the credit for it. */
static bool put_into_pocket(uint32_t first, uint32_t count)
{
	struct pocket *pocket = my_pocket();
	uint64_t block = (uint64_t)count << 32 | first, empty = 0;

	if (atomic_load_explicit(&pocket->credit, memory_order_relaxed) < count)
		return false;
	count_kept(count);
	if (!atomic_compare_exchange_strong(&pocket->block, &empty, block)) {
		count_kept(-(int64_t)count);
		return false;
	}
	/* Emptying takes the credit first: either it finds this block, or we see that credit is gone. */
	if (atomic_load(&pocket->credit) >= count ||
	    !atomic_compare_exchange_strong(&pocket->block, &block, 0))
		return true;
	count_kept(-(int64_t)count);
	return false;
}

/* Sets credit aside, so that the next free of so many granules goes to the pocket. Lock held. */
static void give_credit(uint32_t count)
{
	const uint64_t retain = ps_budget_retain() >> PS_GRANULE_SHIFT;
	struct pocket *pocket = my_pocket();
	const uint64_t had = atomic_load(&pocket->credit);

	if (had >= count || kept.granules + kept.credit - had + count > retain)
		return;
	atomic_store(&pocket->credit, count);
	kept.credit += count - had;
}

static uint32_t reuse(uint32_t count, uint32_t align, enum ps_heap heap)
{
	uint32_t found;

	ps_lock(&ps_window.lock);
	prepare();
	found = take_kept(count, align, heap);
	if (found == PS_NO_RUN) {
		empty_pockets();
		if (kept.granules >= count)
			join_kept();
		found = take_kept(count, align, heap);
	}
	ps_unlock(&ps_window.lock);
	return found;
}

void *ps_large_alloc(uint32_t count, uint32_t align, enum ps_heap heap, bool *zeroed,
		     struct ps_refusal *why)
{
	const uint8_t what = PS_GRANULE_LARGE | ps_granule_flags(heap);
	uint32_t first = align == 1 && heap == PS_HEAP_MALLOC ? take_from_pocket(count) : PS_NO_RUN;

	if (first == PS_NO_RUN)
		first = reuse(count, align, heap);
	*zeroed = first == PS_NO_RUN;
	if (first == PS_NO_RUN && ps_chunk_new(count, align, what, &first, why) < 0)
		return NULL;
	return ps_granule_address(first);
}

/* May it be unpinned here? A registered one not where no driver may be called. */
static bool may_unpin(uint32_t first)
{
	return !ps_window.run[first].registered || ps_thread.driver > 0;
}

/* The longest kept block that may be unpinned here. */
static uint32_t find_oldest(void)
{
	uint32_t oldest = kept.oldest;

	while (oldest != PS_NO_RUN && !may_unpin(oldest))
		oldest = ps_window.run[oldest].previous;
	return oldest;
}

/* Takes the longest kept block off the list if more than keep bytes are kept. */
static bool take_oldest(size_t keep_bytes, uint32_t *first, uint8_t *was)
{
	bool taken = false;

	ps_lock(&ps_window.lock);
	prepare();
	empty_pockets();
	*first = find_oldest();
	if (*first != PS_NO_RUN && kept.granules << PS_GRANULE_SHIFT > keep_bytes) {
		unkeep(*first);
		*was = ps_chunk_busy(*first);
		taken = true;
	}
	ps_unlock(&ps_window.lock);
	return taken;
}

size_t ps_large_trim(size_t keep_bytes)
{
	size_t unpinned = 0;
	uint32_t first;
	uint8_t was;

	while (take_oldest(keep_bytes, &first, &was))
		unpinned += ps_chunk_release(first, was);
	return unpinned;
}

/* Keeps a freed block on the list. true if the list now holds more than it may. Lock held. */
static bool keep_freed(uint32_t first, bool cuda)
{
	const uint64_t retain = ps_budget_retain() >> PS_GRANULE_SHIFT;

	keep(first);
	if (!cuda)
		give_credit(ps_window.run[first].count);
	return kept.granules + kept.credit > retain;
}

void ps_large_free(uint32_t first)
{
	const uint8_t byte = ps_granule_byte(first);
	const uint32_t count = ps_window.run[first].count;
	/* What is not locked any more is no good to keep. */
	bool release = !(byte & PS_GRANULE_LOCKED) ||
		       (uint64_t)count << PS_GRANULE_SHIFT > ps_budget_retain();
	bool over = false;
	uint8_t was = 0;

	if (!release && !(byte & PS_GRANULE_DRIVER) && put_into_pocket(first, count))
		return;
	ps_lock(&ps_window.lock);
	prepare();
	release = release && may_unpin(first);
	if (release)
		was = ps_chunk_busy(first);
	else
		over = keep_freed(first, byte & PS_GRANULE_DRIVER);
	ps_unlock(&ps_window.lock);
	if (release)
		ps_chunk_release(first, was);
	if (over)
		ps_large_trim(ps_budget_retain());
}

size_t ps_large_size(uint32_t first)
{
	return (size_t)ps_window.run[first].count << PS_GRANULE_SHIFT;
}

bool ps_large_grow(uint32_t first, uint32_t count)
{
	return ps_chunk_extend(first, count - ps_window.run[first].count) == 0;
}

bool ps_large_shrink(uint32_t first, uint32_t count)
{
	bool cut;

	ps_lock(&ps_window.lock);
	cut = ps_chunk_split(first, first + count) == 0;
	ps_unlock(&ps_window.lock);
	if (cut)
		ps_large_free(first + count);
	return cut;
}

void ps_large_fork_child(void)
{
	prepare();
	empty_pockets();
	/* The child's own count begins at zero, and taking them off the list lowers it. */
	count_kept((int64_t)kept.granules);
	while (kept.oldest != PS_NO_RUN) {
		const uint32_t first = kept.oldest;

		unkeep(first);
		ps_chunk_release(first, ps_chunk_busy(first));
	}
}
