/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges in the tree of segment.h, whose `pins` holds what we need to know of each, packed: 48 bits of
 * context, which is an address, and 8 each of kind and entry point. Whether something is pinned, and
 * that nothing is there, is found without the lock.
 */
#include "tracked.h"

#include <errno.h>

#include "foreign.h"
#include "lock.h"
#include "segment.h"
#include "table.h"
#include "trace.h"

static struct {
	struct ps_lock lock;
	struct ps_segments ranges;
} tracked = { .ranges = PS_SEGMENTS_INIT };

static uint64_t pack(const struct ps_tracked *range)
{
	return (uint64_t)range->context << 16 | (uint64_t)range->kind << 8 | range->entry;
}

static void unpack(const struct ps_segment *segment, struct ps_tracked *range)
{
	*range = (struct ps_tracked){
		.base = segment->base,
		.length = segment->end - segment->base,
		.kind = (enum ps_tracked_kind)(segment->pins >> 8 & 0xff),
		.entry = segment->pins & 0xff,
		.context = segment->pins >> 16,
	};
}

static uintptr_t page_of(uintptr_t address)
{
	return address & ~(uintptr_t)4095;
}

/* Bytes of the pages that a range lies in. */
static int64_t page_bytes(const struct ps_tracked *range)
{
	return (int64_t)(page_of(range->base + range->length + 4095) - page_of(range->base));
}

/* Adds a range to the gauges, or takes it away again. */
static void count(const struct ps_tracked *range, int sign)
{
	const int64_t bytes = sign * page_bytes(range);

	if (range->kind == PS_TRACKED_ALLOCATED || range->kind == PS_TRACKED_REGISTERED)
		ps_table_gauges(0, 0, bytes, bytes, 0);
	else if (range->kind == PS_TRACKED_BLOCK)
		ps_table_gauges(0, 0, 0, bytes, 0);
}

/* What is published of a kind; 0: nothing of its own. */
static uint32_t flags_of(enum ps_tracked_kind kind)
{
	switch (kind) {
	case PS_TRACKED_ALLOCATED:
	case PS_TRACKED_REGISTERED:
		return PINSHIM_RANGE_FOREIGN | PINSHIM_RANGE_REGISTERED;
	case PS_TRACKED_BLOCK:
		return PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_REGISTERED | PINSHIM_RANGE_HEAP_MALLOC;
	default:
		return 0;
	}
}

static void trace(const struct ps_tracked *range, bool registered)
{
	const uint32_t flags = flags_of(range->kind);

	if (!(flags & PINSHIM_RANGE_REGISTERED))
		return;
	/* CUDA did it before we were told. */
	if (registered)
		ps_trace_register(range->base, range->length, flags, 0, ps_os_now());
	else
		ps_trace_unregister(range->base, range->length, flags, 0, ps_os_now());
}

/* Asks for the table first: that is where a child of a raw clone() notices what it is. */
static void begin(void)
{
	(void)ps_table();
	ps_lock(&tracked.lock);
}

/* The first range with a byte in [base, base+length). Lock held. */
static struct ps_segment *touching(uintptr_t base, size_t length)
{
	struct ps_segment *segment = ps_segment_at_or_above(&tracked.ranges, base);

	if (segment == NULL || length == 0)
		return NULL;
	return segment->base <= base || segment->base - base < length ? segment : NULL;
}

static int publish(const struct ps_tracked *range, int *slot)
{
	*slot = -1;
	if (flags_of(range->kind) == 0)
		return 0;
	*slot = ps_table_add(page_of(range->base), (size_t)page_bytes(range),
			     flags_of(range->kind));
	return *slot < 0 ? -ENOMEM : 0;
}

int ps_tracked_add(const struct ps_tracked *range)
{
	struct ps_segment *segment;
	int slot, r;

	begin();
	r = touching(range->base, range->length) != NULL ? -EEXIST : 0;
	if (r == 0)
		r = ps_segments_reserve(&tracked.ranges, 1);
	if (r == 0)
		r = publish(range, &slot);
	if (r == 0) {
		segment = ps_segment_add_as(&tracked.ranges, range->base,
					    range->base + range->length,
					    range->kind <= PS_TRACKED_REGISTERED);
		segment->pins = pack(range);
		segment->slot = slot;
		/* From now on the program's unmapping is looked at. */
		atomic_fetch_add(&ps_foreign_segments, 1);
		count(range, 1);
		trace(range, true);
	}
	ps_unlock(&tracked.lock);
	return r;
}

/* Lock held. */
static void take_out(struct ps_segment *segment, struct ps_tracked *range)
{
	unpack(segment, range);
	if (segment->slot >= 0)
		ps_table_remove(segment->slot);
	count(range, -1);
	trace(range, false);
	ps_segment_remove(&tracked.ranges, segment);
	atomic_fetch_sub(&ps_foreign_segments, 1);
}

bool ps_tracked_touching(const void *address, size_t length, struct ps_tracked *found)
{
	const uintptr_t base = (uintptr_t)address;
	const uintptr_t end = length < UINTPTR_MAX - base ? base + length : UINTPTR_MAX;
	struct ps_segment *segment;

	(void)ps_table();
	/* Every free() of the program may ask, and the answer is no: that much without the lock. */
	if (end <= base || !ps_segments_touch(&tracked.ranges, &tracked.lock, base, end))
		return false;
	begin();
	segment = touching(base, length);
	if (segment != NULL)
		unpack(segment, found);
	ps_unlock(&tracked.lock);
	return segment != NULL;
}

bool ps_tracked_find(const void *base, struct ps_tracked *found)
{
	return ps_tracked_touching(base, 1, found) && found->base == (uintptr_t)base;
}

bool ps_tracked_remove(const void *base, struct ps_tracked *removed)
{
	struct ps_segment *segment;

	begin();
	segment = touching((uintptr_t)base, 1);
	if (segment != NULL && segment->base != (uintptr_t)base)
		segment = NULL;
	if (segment != NULL)
		take_out(segment, removed);
	ps_unlock(&tracked.lock);
	return segment != NULL;
}

bool ps_tracked_is_pinned(const void *address, size_t length)
{
	const uintptr_t base = (uintptr_t)address, end = base + (length > 0 ? length : 1);

	(void)ps_table();
	return end > base && ps_segments_cover(&tracked.ranges, &tracked.lock, base, end);
}

bool ps_tracked_remove_of(uintptr_t context, uintptr_t *from, struct ps_tracked *removed)
{
	struct ps_segment *segment;

	begin();
	while ((segment = ps_segment_at_or_above(&tracked.ranges, *from)) != NULL) {
		*from = segment->end;
		if (segment->pins >> 16 == context)
			break;
	}
	if (segment != NULL)
		take_out(segment, removed);
	ps_unlock(&tracked.lock);
	return segment != NULL;
}

void ps_tracked_fork_prepare(void)
{
	ps_lock(&tracked.lock);
}

void ps_tracked_fork_parent(void)
{
	ps_unlock(&tracked.lock);
}

void ps_tracked_fork_child(void)
{
	ps_lock_reset(&tracked.lock);
	ps_segments_forget(&tracked.ranges);
}
