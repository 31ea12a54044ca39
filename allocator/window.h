/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_WINDOW_H
#define PS_WINDOW_H
/*
 * The window: one reserved range of addresses in which the whole heap lies, cut into granules of
 * 2 MiB. It hands out and takes back runs of granules; what is in them is the business of chunk.h.
 *
 * Beside the window lie its own notes, reserved with it and made accessible as the frontier rises:
 * a byte and a record for each granule, and a byte for each 512 bytes of heap (heap.c).
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock.h"

#define PS_GRANULE_SHIFT 21
#define PS_GRANULE ((size_t)1 << PS_GRANULE_SHIFT)

/* Blocks begin on multiples of this; each such place has a byte in ps_window.origin. */
#define PS_QUANTUM_SHIFT 9

/* What a granule's byte says: one state and some flags. */
enum ps_granule {
	PS_GRANULE_FREE = 0,  /* not ours to touch: no access, or never used */
	PS_GRANULE_BUSY = 1,  /* taken, being pinned or unpinned, or lost to a failed unpin */
	PS_GRANULE_SLAB = 2,  /* of a chunk that jemalloc's extents are carved from */
	PS_GRANULE_LARGE = 3, /* of a chunk that is one large block, live or kept for reuse */
	PS_GRANULE_STATE = 0x03,

	PS_GRANULE_SHARED = 0x04, /* shared with forked children; kept while busy */
	PS_GRANULE_LOCKED = 0x08, /* locked in memory by this process */
	PS_GRANULE_DRIVER = 0x10, /* of a heap that the driver is told of; kept while busy */
	PS_GRANULE_HEAP = PS_GRANULE_DRIVER | PS_GRANULE_SHARED, /* mask: which heap */
	PS_GRANULE_INHERITED =
		0x20, /* not locked by this process, not counted: its parent's, or it lost its lock */
	PS_GRANULE_HUGE = 0x40, /* in a huge page */
	PS_GRANULE_CHANGED =
		0x80, /* the program has changed mappings somewhere in the chunk: if that is still
		       * locked, their protection or advice alone, else what is mapped too */
};

#define PS_NO_RUN UINT32_MAX

/* A run of granules: a chunk, or free addresses. The record of its first granule holds it. */
struct ps_run {
	uint32_t first;          /* in every granule of the run: index of the first */
	uint32_t count;          /* granules */
	uint32_t next, previous; /* on the list of free runs, or of kept blocks */
	uint32_t chain;          /* kept blocks: the next of about this size */
	int32_t slot;            /* chunks: the range in the table, or -1 */
	uint32_t huge;           /* chunks: 4 KiB pages of it that were in huge pages when pinned */
	uint32_t returned;  /* per granule, slabs: 4 KiB pages in no extent of jemalloc's ... */
	uint8_t kept;       /* large: freed, and kept for reuse */
	uint8_t registered; /* chunks: enum ps_registered of chunk.h */
	uint64_t unused[8]; /* ... and which these are, a bit each */
};

struct ps_window {
	uintptr_t base; /* 2 MiB-aligned */
	size_t size;    /* bytes; 0 before it is reserved: nothing is ours then */

	uint8_t *granule;   /* enum ps_granule of each; written under the lock, read without */
	struct ps_run *run; /* the record of each */
	uint8_t *origin;    /* a byte per 512 bytes: 0, or 1 + entry point of the block there */
	atomic_uint_fast32_t
		frontier; /* granules below it have been used, their notes accessible */

	struct ps_lock lock; /* guards all runs, lists and granule bytes */
	uint32_t free_runs;  /* first free run below the frontier, or PS_NO_RUN */
	uint32_t committed;  /* granules whose notes are accessible */
};

/* Hidden and never moved, so that the test below is one subtraction and one compare. */
extern struct ps_window ps_window __attribute__((visibility("hidden")));

static inline bool ps_in_window(const void *pointer)
{
	return (uintptr_t)pointer - ps_window.base < ps_window.size;
}

/* What of [base, end) lies in the window: [*from, *to). false if nothing does. */
static inline bool ps_part_in_window(uintptr_t base, uintptr_t end, uintptr_t *from, uintptr_t *to)
{
	const uintptr_t window_end = ps_window.base + ps_window.size;

	*from = base > ps_window.base ? base : ps_window.base;
	*to = end < window_end ? end : window_end;
	return *from < *to;
}

static inline uint32_t ps_granule_of(const void *pointer)
{
	return (uint32_t)(((uintptr_t)pointer - ps_window.base) >> PS_GRANULE_SHIFT);
}

static inline void *ps_granule_address(uint32_t index)
{
	return (void *)(ps_window.base + ((uintptr_t)index << PS_GRANULE_SHIFT));
}

/*
 * Three heaps. No chunk holds blocks of two: a chunk is registered with the driver as a whole, and is shared
 * with forked children (chunk.c) as a whole.
 */
enum ps_heap {
	PS_HEAP_MALLOC,  /* private, never registered */
	PS_HEAP_PINSHIM, /* pinshim_alloc(): private, registered */
	PS_HEAP_CUDA,    /* CUDA host memory: shared, registered */
	PS_HEAPS
};

/* The flags of a granule of this heap. */
static inline uint8_t ps_granule_flags(enum ps_heap heap)
{
	return heap == PS_HEAP_MALLOC    ? 0
	       : heap == PS_HEAP_PINSHIM ? PS_GRANULE_DRIVER
					 : PS_GRANULE_DRIVER | PS_GRANULE_SHARED;
}

/* The heap of a granule that is in use, from its byte. */
static inline enum ps_heap ps_granule_heap(uint8_t byte)
{
	return !(byte & PS_GRANULE_DRIVER)   ? PS_HEAP_MALLOC
	       : !(byte & PS_GRANULE_SHARED) ? PS_HEAP_PINSHIM
					     : PS_HEAP_CUDA;
}

/* The byte of a granule; PS_GRANULE_FREE beyond the frontier. Takes no lock. */
static inline uint8_t ps_granule_byte(uint32_t index)
{
	if (index >= atomic_load_explicit(&ps_window.frontier, memory_order_acquire))
		return PS_GRANULE_FREE;
	return __atomic_load_n(&ps_window.granule[index], __ATOMIC_RELAXED);
}

/*
 * Reserves the window: the larger of 1 TiB and four times ram bytes, halved until the kernel agrees,
 * no more than a quarter of RLIMIT_AS and no less than 64 MiB. 0; -ENOMEM when not even that can be had. Called once.
 */
int ps_window_reserve(uint64_t ram);

/*
 * Maps addresses that nobody can touch, that take no memory and are in no core file, as those of the window are where
 * there is no chunk: at address, or where the kernel likes, as flags for mmap(2) say. *start is where. 0 or
 * -errno of mmap. Takes no lock.
 */
int ps_window_vacate(void *address, size_t length, int flags, void **start);

/*
 * The address space of the process was limited to so many bytes: gives back what is not used of the window, down to
 * what would have been reserved under that limit. Takes the lock.
 */
void ps_window_fit(uint64_t limit);

/* Gives the reservation back; only for unit tests, when nothing is pinned. */
void ps_window_release(void);

/*
 * Takes a run of count granules that begins on a multiple of align granules (a power of two), marks
 * it busy and stores its first granule's index. 0; -ENOMEM when the addresses are used up.
 * Lock held.
 */
int ps_window_take(uint32_t count, uint32_t align, uint32_t *first);

/*
 * Takes count granules from index `at` on, if all are free. 0; -ENOMEM if not. Lock held.
 */
int ps_window_take_at(uint32_t at, uint32_t count);

/* Gives a run back, joined with free neighbours. Its memory is no longer accessible. Lock held. */
void ps_window_give(uint32_t first);

/* Makes records of a run of count granules from first on. Lock held. */
void ps_window_record(uint32_t first, uint32_t count);

/* Sets the byte of count granules from first on. Lock held. */
void ps_window_mark(uint32_t first, uint32_t count, uint8_t byte);

#endif
