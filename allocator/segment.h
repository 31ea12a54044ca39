/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_SEGMENT_H
#define PS_SEGMENT_H
/*
 * Disjoint segments of addresses, ordered, in a treap: a binary search tree by address whose nodes
 * also have random weights, no child a greater one than its parent, which keeps it flat.
 *
 * Takes no lock; foreign.c has the rules. Nodes come from mmap, in slabs that are never returned.
 * base and end may be changed in place as long as the order stays and no two segments overlap, or
 * for the moment of a join.
 */
#include <stddef.h>
#include <stdint.h>

#define PS_SEGMENTS_SLAB ((size_t)64 << 10) /* bytes of nodes that are mapped at a time */

struct ps_segment {
	uintptr_t base;
	uintptr_t end;
	struct ps_segment *child[2]; /* of lower, of higher addresses; [0] chains spare nodes */
	uint64_t pins;               /* the owner's: of each page of it */
	uint32_t weight;
	int slot; /* the owner's: in the table */
} __attribute__((aligned(64)));

struct ps_segments {
	struct ps_segment *root;
	struct ps_segment *spares; /* nodes not in use */
	size_t spare;              /* how many */
	uint32_t random;           /* state of the generator of weights, never 0 */
};

#define PS_SEGMENTS_INIT                                                                           \
	{                                                                                          \
		.random = 2463534242u                                                              \
	}

/*
 * The segment that contains address, or else the first above it, or NULL. The way down is chosen
 * without a branch: it is a coin toss at each level, and guessing wrong costs more than looking.
 */
static inline struct ps_segment *ps_segment_at_or_above(const struct ps_segments *segments,
							uintptr_t address)
{
	struct ps_segment *segment = segments->root, *above = NULL;

	while (segment) {
		int higher = segment->end <= address;
		int within = (segment->base <= address) & !higher;

		if (within)
			return segment;
		above = higher ? above : segment;
		segment = segment->child[higher];
	}
	return above;
}

/* Makes sure of this many spare nodes. 0 or -errno of mmap. */
int ps_segments_reserve(struct ps_segments *segments, size_t nodes);

/* Adds [base, end), which overlaps none. There must be a spare node. */
struct ps_segment *ps_segment_add(struct ps_segments *segments, uintptr_t base, uintptr_t end);

void ps_segment_remove(struct ps_segments *segments, struct ps_segment *segment);

#endif
