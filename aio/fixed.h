/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_FIXED_H
#define PS_FIXED_H
/*
 * The pinned memory that one ring has registered, so that requests inside it need not look up and hold
 * its pages each time: pieces of up to 64 MiB (pinned.h), each registered at the first request inside.
 *
 * A registration holds the pages that were there when it was made. If the memory is unpinned and
 * pinned again it has other pages, and I/O through the old registration would read and write the wrong
 * ones; so before anything is submitted the table's generation is compared, and pieces that no
 * longer are what they were are dropped first.
 *
 * Used under the submission lock of the ring's owner.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pinned.h"
#include "ring.h"

/* Pieces a ring can have, which is what the kernel allows: 1 TiB. What is more is not registered. */
#define PS_FIXED_PLACES 16384

struct ps_places;

struct ps_fixed {
	uint64_t generation;      /* of the table when the pieces were last looked over */
	uintptr_t low, high;      /* heap memory lies between these: no other is looked up */
	unsigned used;            /* places up to the last that ever had a piece */
	bool full;                /* every place has a piece */
	bool off;                 /* registering failed for good: it is not tried again */
	struct ps_places *places; /* from mmap; NULL before the first piece */
	/* What was found last: its piece (length 0: none) and place. */
	uintptr_t found_base;
	size_t found_length;
	int found;
};

/* Drops what is stale: the generation is this one now. */
void ps_fixed_refresh_to(struct ps_fixed *fixed, struct ps_ring *ring, uint64_t generation);

/* Drops what is stale. Before each batch of ps_fixed_find(). */
static inline void ps_fixed_refresh(struct ps_fixed *fixed, struct ps_ring *ring)
{
	const uint64_t generation = ps_pinned_generation();

	if (__builtin_expect(generation != fixed->generation, 0))
		ps_fixed_refresh_to(fixed, ring, generation);
}

/* As ps_fixed_find(), for what does not lie in the piece that was found last. */
int ps_fixed_find_anew(struct ps_fixed *fixed, struct ps_ring *ring, uintptr_t address,
		       size_t length);

/*
 * The place of the registered piece that contains [address, address+length), registering it if it is
 * pinned and not registered yet. -1: use the ordinary operation. The first failure for want of
 * RLIMIT_MEMLOCK is said at log level info; the request goes on without.
 */
static inline int ps_fixed_find(struct ps_fixed *fixed, struct ps_ring *ring, uintptr_t address,
				size_t length)
{
	const uintptr_t offset = address - fixed->found_base;

	if (__builtin_expect(offset < fixed->found_length &&
				     length <= fixed->found_length - offset && length > 0,
			     1))
		return fixed->found;
	if (address - fixed->low >= fixed->high - fixed->low || length == 0)
		return -1;
	return ps_fixed_find_anew(fixed, ring, address, length);
}

/* Drops all pieces: the ring is going to be used for something else. */
void ps_fixed_clear(struct ps_fixed *fixed, struct ps_ring *ring);

/* Lets go of its own memory; the ring itself is closed, or forgotten, by its owner. */
void ps_fixed_end(struct ps_fixed *fixed);

#endif
