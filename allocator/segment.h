/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_SEGMENT_H
#define PS_SEGMENT_H
/*
 * Disjoint segments of addresses, ordered, in a B+-tree: the leaves list segments, the nodes above
 * list where the nodes below begin. Among ten thousand a search passes three nodes, and looks at two
 * or three cache lines of each.
 *
 * One thread at a time changes it, under a lock of the owner's (foreign.c has the rules), or holds
 * still whoever might, and reads it. ps_segments_cover() and ps_segments_touch() are for all others:
 * they write nothing and take the lock only where changes keep coming in between.
 *
 * Memory comes from mmap, in slabs that are never returned.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock.h"

#define PS_SEGMENTS_SLAB ((size_t)64 << 10) /* bytes that are mapped at a time */

struct ps_segment {
	uintptr_t base; /* these two are changed by ps_segment_resize() only */
	uintptr_t end;
	union {
		uint64_t pins;           /* the owner's: of each page of it */
		struct ps_segment *next; /* of the spare ones */
	};
	int slot;    /* the owner's: in the table */
	bool pinned; /* what ps_segments_cover() says of it */
};

struct ps_node;

struct ps_segments {
	uint64_t sequence;    /* odd while the tree changes */
	struct ps_node *root; /* NULL: there is no segment */
	unsigned levels;      /* of nodes */

	struct ps_segment *spares;   /* not in use */
	size_t spare;                /* how many */
	struct ps_node *spare_nodes; /* chained by their first place */
	size_t spare_node;
} __attribute__((aligned(64))); /* readers have it in their caches, and not the lock beside it */

#define PS_SEGMENTS_INIT                                                                           \
	{                                                                                          \
		.root = NULL                                                                       \
	}

/* The segment that contains address, or else the first above it, or NULL. */
struct ps_segment *ps_segment_at_or_above(const struct ps_segments *segments, uintptr_t address);

/* Makes sure that this many segments can be added. 0 or -errno of mmap. */
int ps_segments_reserve(struct ps_segments *segments, size_t count);

/* Adds [base, end), where none begins. There must be memory for it: see ps_segments_reserve(). */
struct ps_segment *ps_segment_add_as(struct ps_segments *segments, uintptr_t base, uintptr_t end,
				     bool pinned);

static inline struct ps_segment *ps_segment_add(struct ps_segments *segments, uintptr_t base,
						uintptr_t end)
{
	return ps_segment_add_as(segments, base, end, true);
}

void ps_segment_remove(struct ps_segments *segments, struct ps_segment *segment);

/*
 * Moves the borders of a segment. The order must stay, and no two segments overlap, but for the
 * moment until the next change.
 */
void ps_segment_resize(struct ps_segments *segments, struct ps_segment *segment, uintptr_t base,
		       uintptr_t end);

/*
 * Is all of [base, end) in pinned segments? Any thread may ask; the answer was true at one moment
 * during the call. lock is what is held while the tree is changed, and not held by the caller.
 */
bool ps_segments_cover(const struct ps_segments *segments, struct ps_lock *lock, uintptr_t base,
		       uintptr_t end);

/* Is any address of [base, end), which is not empty, in a segment? As above. */
bool ps_segments_touch(const struct ps_segments *segments, struct ps_lock *lock, uintptr_t base,
		       uintptr_t end);

/*
 * In a forked child: there is no segment any more. A thread that is not here may have been changing
 * the tree, so nothing of it is looked at, and its memory is not used again.
 */
void ps_segments_forget(struct ps_segments *segments);

#endif
