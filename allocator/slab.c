/* SPDX-License-Identifier: BSD-2-Clause */
#include "slab.h"

#include "chunk.h"
#include "counters.h"
#include "window.h"

#define PAGE ((size_t)4096)
#define PAGES_PER_GRANULE (PS_GRANULE / PAGE)

/* Granules of chunks that all pages came back of, waiting for the end of a trim. */
static atomic_size_t trimmed_bytes;

/*
 * Some complete granule is still pinned, because the table had no room for what cutting it out makes,
 * or because its chunk was registered (shared chunks wait for ps_slab_give_unused()).
 */
static atomic_bool left_behind;

/* Extents of this size and more fit into no unused pages of this heap. */
static atomic_size_t no_pages[PS_HEAPS] = { SIZE_MAX, SIZE_MAX, SIZE_MAX };

static bool is_slab_of(uint32_t granule, enum ps_heap heap)
{
	const uint8_t byte = ps_window.granule[granule];

	return (byte & (PS_GRANULE_STATE | PS_GRANULE_LOCKED)) ==
		       (PS_GRANULE_SLAB | PS_GRANULE_LOCKED) &&
	       ps_granule_heap(byte) == heap;
}

static bool page_unused(uint32_t granule, uint32_t page)
{
	return ps_window.run[granule].unused[page / 64] >> page % 64 & 1;
}

/* Marks pages of a granule unused, or used again. Window's lock held. */
static void mark_pages(uint32_t granule, uint32_t page, uint32_t pages, bool unused)
{
	struct ps_run *run = &ps_window.run[granule];

	for (uint32_t i = page; i < page + pages; i++)
		run->unused[i / 64] ^= UINT64_C(1) << i % 64;
	run->returned += unused ? pages : -pages;
}

/* Is it a chunk to carve from of which all pages came back? Window's lock held. */
static bool all_unused(uint32_t first)
{
	const uint32_t end = first + ps_window.run[first].count;
	uint32_t i = first;

	if ((ps_window.granule[first] & PS_GRANULE_STATE) != PS_GRANULE_SLAB)
		return false;
	while (i < end && ps_window.run[i].returned == PAGES_PER_GRANULE)
		i++;
	return i == end;
}

/*
 * What can be unpinned now that a granule is complete: the granule, which becomes a chunk of its own, or
 * its chunk, if that stays whole and the driver need not be asked. PS_NO_RUN if nothing can. Window's
 * lock held.
 */
static uint32_t complete(uint32_t granule)
{
	const uint32_t first = ps_window.run[granule].first;

	if (!ps_chunk_stays_whole(first) && ps_chunk_isolate(granule) == 0)
		return granule;
	if (ps_window.granule[granule] & PS_GRANULE_SHARED)
		return !ps_window.run[first].registered && all_unused(first) ? first : PS_NO_RUN;
	atomic_store(&left_behind, true);
	return PS_NO_RUN;
}

/* Takes pages of a granule back from jemalloc, and unpins what that makes complete. */
static void give_granule(uint32_t granule, uint32_t page, uint32_t pages)
{
	uint32_t unused = PS_NO_RUN;
	uint8_t was = 0;

	ps_lock(&ps_window.lock);
	mark_pages(granule, page, pages, true);
	ps_fits_again(&no_pages[ps_granule_heap(ps_granule_byte(granule))]);
	if ((ps_window.granule[granule] & PS_GRANULE_STATE) == PS_GRANULE_SLAB &&
	    ps_window.run[granule].returned == PAGES_PER_GRANULE)
		unused = complete(granule);
	if (unused != PS_NO_RUN)
		was = ps_chunk_busy(unused);
	ps_unlock(&ps_window.lock);
	if (unused != PS_NO_RUN)
		atomic_fetch_add(&trimmed_bytes, ps_chunk_release(unused, was));
}

static uint32_t page_of(const char *address)
{
	return (uint32_t)((uintptr_t)address % PS_GRANULE / PAGE);
}

/* As give_granule(), for a range that may span granules of one chunk. */
void ps_slab_give(const char *start, size_t length)
{
	while (length > 0) {
		const size_t rest = PS_GRANULE - (uintptr_t)start % PS_GRANULE;
		const size_t here = rest < length ? rest : length;

		give_granule(ps_granule_of(start), page_of(start), (uint32_t)(here / PAGE));
		start += here;
		length -= here;
	}
}

/* Where in a chunk an extent fits into unused pages; NULL if nowhere. Window's lock held. */
static char *find_unused(uint32_t first, size_t size, size_t align)
{
	uintptr_t begin = 0;
	char *address;

	for (uint32_t i = first; i < first + ps_window.run[first].count; i++) {
		address = ps_granule_address(i);
		for (uint32_t page = 0; page < PAGES_PER_GRANULE; page++, address += PAGE) {
			if (ps_window.run[i].returned == 0 || !page_unused(i, page))
				begin = 0;
			else if (begin == 0)
				begin = ((uintptr_t)address + align - 1) & ~(align - 1);
			if (begin != 0 && begin + size <= (uintptr_t)address + PAGE)
				return (char *)begin;
			if (ps_window.run[i].returned == 0)
				break;
		}
	}
	return NULL;
}

static void use_pages(const char *start, size_t length)
{
	for (; length > 0; start += PAGE, length -= PAGE)
		mark_pages(ps_granule_of(start), page_of(start), 1, false);
}

/*
 * A place for an extent among pages that jemalloc gave back or was never given: what a trim could not
 * unpin, gaps of alignments, rests of chunks. NULL if there is none.
 */
char *ps_slab_reuse(enum ps_heap heap, size_t size, size_t align)
{
	char *at = NULL;

	if (size >= atomic_load_explicit(&no_pages[heap], memory_order_relaxed))
		return NULL;
	ps_lock(&ps_window.lock);
	for (uint32_t i = 0; i < atomic_load(&ps_window.frontier) && at == NULL;
	     i += ps_window.run[i].count)
		if (is_slab_of(i, heap))
			at = find_unused(i, size, align);
	if (at != NULL)
		use_pages(at, size);
	else if (align <= PAGE)
		ps_fits_not(&no_pages[heap], size);
	ps_unlock(&ps_window.lock);
	return at;
}

/* Looks for complete granules that could not be cut out of their chunks before. */
void ps_slab_give_left_behind(void)
{
	if (!atomic_exchange(&left_behind, false))
		return;
	for (uint32_t i = 0; i < atomic_load(&ps_window.frontier); i++)
		give_granule(i, 0, 0);
}

/* Takes a chunk that stays whole and of which all pages came back. Its index, or PS_NO_RUN. */
static uint32_t take_unused(uint8_t *was)
{
	uint32_t found = PS_NO_RUN;

	ps_lock(&ps_window.lock);
	for (uint32_t i = 0; i < atomic_load(&ps_window.frontier) && found == PS_NO_RUN;
	     i += ps_window.run[i].count)
		if (ps_chunk_stays_whole(i) && all_unused(i) &&
		    (!ps_window.run[i].registered || ps_thread.driver > 0))
			found = i;
	if (found != PS_NO_RUN)
		*was = ps_chunk_busy(found);
	ps_unlock(&ps_window.lock);
	return found;
}

void ps_slab_give_unused(void)
{
	uint32_t first;
	uint8_t was;

	while ((first = take_unused(&was)) != PS_NO_RUN)
		atomic_fetch_add(&trimmed_bytes, ps_chunk_release(first, was));
}

size_t ps_slab_unpinned(void)
{
	return atomic_load(&trimmed_bytes);
}

void ps_slab_fork_child(void)
{
	for (unsigned heap = 0; heap < PS_HEAPS; heap++)
		atomic_store(&no_pages[heap], SIZE_MAX);
}
