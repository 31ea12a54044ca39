/* SPDX-License-Identifier: BSD-2-Clause */
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "os.h"
#include "segment.h"

static uint32_t draw(struct ps_segments *segments)
{
	segments->random ^= segments->random << 13; /* Marsaglia's xorshift32 */
	segments->random ^= segments->random >> 17;
	segments->random ^= segments->random << 5;
	return segments->random;
}

static void put(struct ps_segments *segments, struct ps_segment *node)
{
	node->child[0] = segments->spares;
	segments->spares = node;
	segments->spare++;
}

int ps_segments_reserve(struct ps_segments *segments, size_t nodes)
{
	while (segments->spare < nodes) {
		struct ps_segment *slab;
		void *memory;
		int error = ps_os_mmap(NULL, PS_SEGMENTS_SLAB, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory);

		if (error)
			return error;
		slab = memory;
		for (size_t i = PS_SEGMENTS_SLAB / sizeof(*slab); i-- > 0;)
			put(segments, &slab[i]);
	}
	return 0;
}

struct ps_segment *ps_segment_add(struct ps_segments *segments, uintptr_t base, uintptr_t end)
{
	struct ps_segment *node = segments->spares, **link = &segments->root, *below;
	struct ps_segment **lower = &node->child[0], **higher = &node->child[1];

	segments->spares = node->child[0];
	segments->spare--;
	node->base = base;
	node->end = end;
	node->weight = draw(segments);
	while (*link && (*link)->weight >= node->weight)
		link = &(*link)->child[(*link)->base < base];
	below = *link;
	*link = node;
	/* What was here is split: each part hangs where the last one of its side left off. */
	while (below) {
		int is_lower = below->base < base;
		struct ps_segment ***side = is_lower ? &lower : &higher;

		**side = below;
		*side = &below->child[is_lower];
		below = **side;
	}
	*lower = *higher = NULL;
	return node;
}

void ps_segment_remove(struct ps_segments *segments, struct ps_segment *segment)
{
	struct ps_segment **link = &segments->root;
	struct ps_segment *lower = segment->child[0], *higher = segment->child[1];

	while (*link != segment)
		link = &(*link)->child[(*link)->base < segment->base];
	while (lower && higher) {
		struct ps_segment **top = lower->weight >= higher->weight ? &lower : &higher;

		*link = *top;
		link = &(*top)->child[top == &lower];
		*top = *link;
	}
	*link = lower ? lower : higher;
	put(segments, segment);
}
