/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Foreign ranges, in a tree of disjoint segments (segment.h): the pages in a segment have the same
 * number of pins, and one record of the table says that they are locked.
 *
 * Two locks, in this order. "changing" is held through every change and the system calls that belong
 * to it: locking 10 GiB takes seconds. "tree" is held only while the tree or the table is written,
 * and by those who walk the tree without "changing", so they never wait for an mlock. Who holds
 * "changing" reads the tree without "tree", since nobody else writes. Below them the locks of budget
 * and table are taken (lock.h). ps_foreign_is_pinned() and ps_foreign_touches() take none of them
 * (segment.h): every free() of a program with a pinned range asks the latter.
 *
 * The table never says more than the kernel holds: a page is published after it was locked and
 * withdrawn before it is unlocked. Where one record becomes two, or two become one, they overlap for
 * a moment rather than leave a gap: both claim what is true. So does the tree after each change.
 *
 * Locks of the kernel do not nest: "pages which have been locked several times by calls to mlock(),
 * mlock2(), or mlockall() will be unlocked by a single call to munlock()" (mlock(2)). So the last
 * unpin also undoes an mlock() that the program made on these pages, as any munlock() would.
 * Remembering every mlock() of a program for the sake of the few that it also pins is not worth it:
 * the data stays right. Only mlockall(MCL_FUTURE) is remembered: all memory is locked then from the
 * start, so that is what unpinning goes back to.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "budget.h"
#include "counters.h"
#include "foreign.h"
#include "lock.h"
#include "maps.h"
#include "os.h"
#include "segment.h"
#include "syscall.h"
#include "table.h"
#include "trace.h"

#define FLAGS (PINSHIM_RANGE_FOREIGN | PINSHIM_RANGE_LOCKED)

static struct {
	struct ps_lock changing;
	struct ps_lock tree;
	struct ps_segments segments;
	atomic_bool all_locked; /* mlockall(MCL_FUTURE) is in force */
} foreign = { .segments = PS_SEGMENTS_INIT };

atomic_size_t ps_foreign_segments;

static struct ps_segment *at_or_above(uintptr_t address)
{
	return ps_segment_at_or_above(&foreign.segments, address);
}

/* The segment that ends exactly at address, or NULL. */
static struct ps_segment *ending_at(uintptr_t address)
{
	struct ps_segment *segment = address ? at_or_above(address - 1) : NULL;

	return segment && segment->end == address ? segment : NULL;
}

/* Publishes locked pages as a new segment. -ENOMEM with nothing changed. */
static int add(uintptr_t base, uintptr_t end, uint64_t pins)
{
	struct ps_segment *segment;
	int slot;

	if (ps_segments_reserve(&foreign.segments, 1))
		return -ENOMEM;
	slot = ps_table_add(base, end - base, FLAGS);
	if (slot < 0)
		return slot;
	segment = ps_segment_add(&foreign.segments, base, end);
	segment->pins = pins;
	segment->slot = slot;
	atomic_fetch_add_explicit(&ps_foreign_segments, 1, memory_order_relaxed);
	return 0;
}

static void resize(struct ps_segment *segment, uintptr_t base, uintptr_t end)
{
	ps_segment_resize(&foreign.segments, segment, base, end);
	ps_table_set(segment->slot, base, end - base, FLAGS);
}

static void withdraw(struct ps_segment *segment)
{
	ps_table_remove(segment->slot);
	ps_segment_remove(&foreign.segments, segment);
	atomic_fetch_sub_explicit(&ps_foreign_segments, 1, memory_order_relaxed);
}

/* Makes address a border of the segment that contains it, if one does. -ENOMEM, nothing changed. */
static int split_at(uintptr_t address)
{
	struct ps_segment *segment = at_or_above(address);
	int error;

	if (!segment || segment->base >= address)
		return 0;
	error = add(address, segment->end, segment->pins);
	if (!error)
		resize(segment, segment->base, address);
	return error;
}

/* Takes [base, end) out of one segment. -ENOMEM, nothing changed, if that would leave two parts. */
static int carve(struct ps_segment *segment, uintptr_t base, uintptr_t end)
{
	if (segment->base < base && end < segment->end) {
		int error = add(end, segment->end, segment->pins);

		if (error)
			return error;
		resize(segment, segment->base, base);
	} else if (segment->base < base) {
		resize(segment, segment->base, base);
	} else if (end < segment->end) {
		resize(segment, end, segment->end);
	} else {
		withdraw(segment);
	}
	return 0;
}

/* Makes one of neighbours with as many pins, at and between these addresses. */
static void join(uintptr_t base, uintptr_t end)
{
	struct ps_segment *segment = at_or_above(base ? base - 1 : 0), *next;

	while (segment && (next = at_or_above(segment->end)) != NULL && next->base <= end) {
		if (next->base != segment->end || next->pins != segment->pins) {
			segment = next;
			continue;
		}
		resize(segment, segment->base, next->end);
		withdraw(next);
	}
}

static bool covered(uintptr_t base, uintptr_t end)
{
	while (base < end) {
		struct ps_segment *segment = at_or_above(base);

		if (!segment || segment->base > base)
			return false;
		base = segment->end;
	}
	return true;
}

/* Moves *at to the start of the next part of [*at, end) that is in no segment; its end is *stop. */
static bool next_gap(uintptr_t *at, uintptr_t end, uintptr_t *stop)
{
	while (*at < end) {
		struct ps_segment *segment = at_or_above(*at);

		if (!segment || segment->base > *at) {
			*stop = segment && segment->base < end ? segment->base : end;
			return true;
		}
		*at = segment->end;
	}
	return false;
}

/* The pages that contain [address, address+length). false if there are none, or they wrap around. */
static bool pages(const void *address, size_t length, uintptr_t *base, uintptr_t *end)
{
	uintptr_t page = (uintptr_t)getpagesize(), start = (uintptr_t)address;

	*base = start & -page;
	*end = (start + length + page - 1) & -page;
	return length && start + length > start && *end > *base;
}

/*
 * Begins a change. The table is asked for first because that is where a child of a raw clone()
 * notices what it is, upon which ps_foreign_fork_child() runs and resets the locks.
 */
static void begin(void)
{
	(void)ps_table();
	ps_lock(&foreign.changing);
}

static void unlock_gaps(uintptr_t base, uintptr_t end)
{
	uintptr_t stop;

	for (; next_gap(&base, end, &stop); base = stop)
		ps_os_munlock((const void *)base, stop - base);
}

/*
 * Locks the gaps of [base, end): all of them or none. An mlock() that failed may have locked a part
 * of its range, so the undoing includes it.
 */
static int lock_gaps(uintptr_t base, uintptr_t end, struct ps_refusal *why)
{
	uintptr_t at, stop;
	int error;

	for (at = base; next_gap(&at, end, &stop); at = stop) {
		error = ps_os_mlock((const void *)at, stop - at);
		if (!error)
			continue;
		unlock_gaps(base, stop);
		if (!ps_maps_allow((const void *)at, stop - at, PROT_READ))
			return -EFAULT;
		ps_budget_kernel_refused("mlock", -error, stop - at, why);
		return -ENOMEM;
	}
	return 0;
}

/* A pin of a range by itself, beside one that was pinned once: the neighbour grows. */
static bool extend(uintptr_t base, uintptr_t end, uint64_t pins)
{
	struct ps_segment *before = ending_at(base), *after = at_or_above(base);

	if (after && after->base < end)
		return false;
	if (before && before->pins == pins)
		resize(before, before->base, end);
	else if (after && after->base == end && after->pins == pins)
		resize(after, base, after->end);
	else
		return false;
	return true;
}

/* Borders at base and end, and a segment without pins for each gap. -ENOMEM: see enter(). */
static int cover(uintptr_t base, uintptr_t end)
{
	uintptr_t at, stop;
	int error = split_at(base);

	if (!error)
		error = split_at(end);
	for (at = base; !error && next_gap(&at, end, &stop); at = stop)
		error = add(at, stop, 0);
	return error;
}

/* Adds pins to [base, end), whose pages are all locked now. -ENOMEM, nothing changed. */
static int enter(uintptr_t base, uintptr_t end, uint64_t pins)
{
	struct ps_segment *segment;
	int error = 0;

	ps_lock(&foreign.tree);
	if (!extend(base, end, pins)) {
		error = cover(base, end);
		for (uintptr_t at = base; at < end && (segment = at_or_above(at)) != NULL;) {
			if (segment->base >= end)
				break;
			at = segment->end;
			if (!error)
				segment->pins += pins;
			else if (!segment->pins)
				withdraw(segment);
		}
	}
	join(base, end);
	ps_unlock(&foreign.tree);
	return error;
}

/* Bytes of [base, end) that are not in memory, so that locking them takes memory; all if unknown. */
static uint64_t absent_bytes(uintptr_t base, uintptr_t end)
{
	unsigned char resident[1024];
	uint64_t absent = 0;

	while (base < end) {
		const uintptr_t pages = (end - base) >> 12;
		const size_t part = pages < sizeof(resident) ? pages : sizeof(resident);

		if (ps_syscall3(SYS_mincore, base, part << 12, resident) < 0)
			return absent + (end - base);
		for (size_t i = 0; i < part; i++)
			absent += resident[i] & 1 ? 0 : 4096;
		base += part << 12;
	}
	return absent;
}

/* Pins whole pages, as often as pins says. With "changing" held. Errors as ps_foreign_pin(). */
static int pin(uintptr_t base, uintptr_t end, uint64_t pins, struct ps_refusal *why)
{
	uint64_t started = ps_os_now(), bytes = 0, fresh = 0;
	uintptr_t at, stop;
	int error;

	for (at = base; next_gap(&at, end, &stop); at = stop) {
		bytes += stop - at;
		fresh += absent_bytes(at, stop);
	}
	if (bytes && ps_budget_claim_fresh(bytes, fresh, why))
		return -ENOMEM;
	error = lock_gaps(base, end, why);
	ps_budget_arrived(fresh);
	if (error)
		goto release;
	error = enter(base, end, pins);
	if (error) {
		unlock_gaps(base, end);
		ps_budget_kernel_refused("mmap", -error, bytes, why);
		goto release;
	}
	if (bytes) {
		ps_table_gauges(0, 0, (int64_t)bytes, 0, 0);
		ps_count_add(&ps_table()->pins, 1);
		ps_count_add(&ps_table()->pin_nanoseconds, ps_os_now() - started);
		ps_trace_pin(base, bytes, 0, FLAGS, started);
	}
	return 0;
release:
	if (bytes)
		ps_budget_release(bytes);
	return error;
}

int ps_foreign_pin(const void *address, size_t length, struct ps_refusal *why)
{
	uintptr_t base, end;
	int error;

	if (!address || !pages(address, length, &base, &end))
		return -EINVAL;
	begin();
	error = pin(base, end, 1, why);
	ps_unlock(&foreign.changing);
	return error;
}

/* Forgets pages of one segment, whatever their pins. -ENOMEM as carve(). */
static int release(struct ps_segment *segment, uintptr_t base, uintptr_t end, bool unlock)
{
	const uint64_t began = ps_os_now();
	int error;

	ps_lock(&foreign.tree);
	error = carve(segment, base, end);
	ps_unlock(&foreign.tree);
	if (error)
		return error;
	if (unlock && !atomic_load_explicit(&foreign.all_locked, memory_order_relaxed))
		ps_os_munlock((const void *)base, end - base);
	ps_budget_release(end - base);
	ps_table_gauges(0, 0, -(int64_t)(end - base), 0, 0);
	ps_count_add(&ps_table()->unpins, 1);
	ps_trace_unpin(base, end - base, FLAGS, began);
	return 0;
}

/* A border at address, if pages on both sides of it are pinned more than once. */
static int part(uintptr_t address)
{
	struct ps_segment *segment = at_or_above(address);

	return segment && segment->pins > 1 ? split_at(address) : 0;
}

/* Takes a pin off [base, end), which is covered. -ENOMEM, nothing changed. */
static int unpin(uintptr_t base, uintptr_t end)
{
	uintptr_t stop;
	int error;

	ps_lock(&foreign.tree);
	error = part(base);
	if (!error)
		error = part(end);
	ps_unlock(&foreign.tree);
	for (uintptr_t at = base; !error && at < end; at = stop) {
		struct ps_segment *segment = at_or_above(at);

		stop = segment->end < end ? segment->end : end;
		if (segment->pins > 1)
			segment->pins--;
		else /* fails only where [base, end) lies inside this one segment */
			error = release(segment, at, stop, true);
	}
	ps_lock(&foreign.tree);
	join(base, end);
	ps_unlock(&foreign.tree);
	return error;
}

int ps_foreign_unpin(const void *address, size_t length)
{
	uintptr_t base, end;
	int error = -EINVAL;

	if (!pages(address, length, &base, &end))
		return -EINVAL;
	begin();
	if (covered(base, end))
		error = unpin(base, end);
	ps_unlock(&foreign.changing);
	return error;
}

/* The first piece of a segment in [base, end), with "changing" held; NULL if there is none. */
static struct ps_segment *piece(uintptr_t base, uintptr_t end, uintptr_t *from, uintptr_t *to)
{
	struct ps_segment *segment = at_or_above(base);

	if (base >= end || !segment || segment->base >= end)
		return NULL;
	*from = segment->base > base ? segment->base : base;
	*to = segment->end < end ? segment->end : end;
	return segment;
}

size_t ps_foreign_drop(const void *address, size_t length, bool unlock)
{
	struct ps_segment *segment;
	uintptr_t base, end, from, to;
	size_t dropped = 0;

	if (!pages(address, length, &base, &end) || !ps_foreign_touches(address, length))
		return 0;
	begin();
	for (; (segment = piece(base, end, &from, &to)) != NULL; base = to) {
		/* No memory for the part above: it goes too, rather than claim what will be gone. */
		if (release(segment, from, to, unlock)) {
			to = segment->end;
			(void)release(segment, from, to, true);
		}
		dropped += to - from;
	}
	ps_unlock(&foreign.changing);
	return dropped;
}

int ps_foreign_discard(const void *address, size_t length, int advice)
{
	struct ps_refusal why;
	struct ps_segment *segment;
	uintptr_t base, end, from, to;
	int error = 0;

	if (!pages(address, length, &base, &end) || !ps_foreign_touches(address, length))
		return 0;
	begin();
	for (; !error && (segment = piece(base, end, &from, &to)) != NULL; base = to) {
		uint64_t pins = segment->pins;

		error = release(segment, from, to, true);
		if (error)
			break;
		error = ps_os_madvise((void *)from, to - from, advice);
		if (pin(from, to, pins, &why) == -ENOMEM)
			ps_budget_refuse(&why, "memory that is no longer pinned");
	}
	ps_unlock(&foreign.changing);
	return error;
}

bool ps_foreign_is_pinned(const void *address, size_t length)
{
	uintptr_t base = (uintptr_t)address, end = base + (length ? length : 1);

	(void)ps_table();
	return end > base && ps_segments_cover(&foreign.segments, &foreign.tree, base, end);
}

bool ps_foreign_touches(const void *address, size_t length)
{
	uintptr_t base, end;

	(void)ps_table();
	return pages(address, length, &base, &end) &&
	       ps_segments_touch(&foreign.segments, &foreign.tree, base, end);
}

int ps_foreign_gaps(const void *address, size_t length,
		    int (*gap)(const void *address, size_t length, void *context), void *context)
{
	uintptr_t at, end, stop;
	int result = 0;
	bool more;

	if (!pages(address, length, &at, &end))
		return 0;
	(void)ps_table();
	for (; !result; at = stop) {
		ps_lock(&foreign.tree);
		more = next_gap(&at, end, &stop);
		ps_unlock(&foreign.tree);
		if (!more)
			break;
		result = gap((const void *)at, stop - at, context);
	}
	return result;
}

void ps_foreign_all_locked(bool all)
{
	atomic_store_explicit(&foreign.all_locked, all, memory_order_relaxed);
}

size_t ps_foreign_relock(void)
{
	struct ps_segment *segment;
	size_t lost = 0;

	begin();
	for (uintptr_t at = 0; (segment = at_or_above(at)) != NULL;) {
		uintptr_t base = segment->base;

		at = segment->end;
		if (ps_os_mlock((const void *)base, at - base)) {
			lost += at - base;
			(void)release(segment, base, at, true);
		}
	}
	ps_unlock(&foreign.changing);
	return lost;
}

void ps_foreign_fork_prepare(void)
{
	ps_lock(&foreign.changing);
	ps_lock(&foreign.tree);
}

void ps_foreign_fork_parent(void)
{
	ps_unlock(&foreign.tree);
	ps_unlock(&foreign.changing);
}

void ps_foreign_fork_child(void)
{
	ps_lock_reset(&foreign.changing);
	ps_lock_reset(&foreign.tree);
	ps_segments_forget(&foreign.segments);
	atomic_store_explicit(&ps_foreign_segments, 0, memory_order_relaxed);
	atomic_store_explicit(&foreign.all_locked, false, memory_order_relaxed);
}
