/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_BY_RING_H
#define PS_BY_RING_H
/*
 * Contexts whose requests go through an io_uring: what the parts of that engine share. by_ring.c
 * submits, by_ring_reap.c fetches what has completed, by_ring_open.c makes rings and keeps them.
 *
 * Slots say what is in flight. They are taken under the submission lock and given back under the
 * completion lock, through a queue of numbers with one end under each, so that neither side waits
 * for the other.
 */
#include <errno.h>

#include "context_state.h"

#define PS_RING_BATCH 128       /* requests handed to the kernel at once */
#define PS_RING_WAKE UINT64_MAX /* user_data of what only wakes */

/* Takes a free one; -EAGAIN where no more may be in flight. Submission lock. */
static inline int ps_slot_take(struct ps_context *context, uint32_t *number)
{
	const uint32_t taken = atomic_load_explicit(&context->taken, memory_order_relaxed);

	/* As the kernel counts what was not reaped. */
	if (ps_by_ring_in_flight(context) + atomic_load(&context->done_count) >= context->most)
		return -EAGAIN;
	*number = context->slot[taken & (context->slots - 1)].free;
	atomic_store_explicit(&context->taken, taken + 1, memory_order_relaxed);
	return 0;
}

/*
 * Puts back what was taken last, and returns its number: its entry in the queue is still there, for what is
 * given back goes where older ones were. Submission lock.
 */
static inline uint32_t ps_slot_untake(struct ps_context *context)
{
	const uint32_t taken = atomic_load_explicit(&context->taken, memory_order_relaxed) - 1;

	atomic_store_explicit(&context->taken, taken, memory_order_relaxed);
	return context->slot[taken & (context->slots - 1)].free;
}

/* Completion lock. */
static inline void ps_slot_give(struct ps_context *context, uint32_t number)
{
	const uint32_t given = atomic_load_explicit(&context->given, memory_order_relaxed);

	context->slot[given & (context->slots - 1)].free = number;
	atomic_store_explicit(&context->given, given + 1, memory_order_release);
}

/*
 * fsyncs that rings have in flight. The kernel has a thread of its own do each; when one sleeps while
 * another waits, it has the program's thread make one more, for which it interrupts it (EINTR). So there is
 * one at a time, and the kernel's AIO serves the others.
 */
extern atomic_int ps_by_ring_syncing;

static inline void ps_by_ring_add_syncing(struct ps_context *context, int count)
{
	atomic_fetch_add(&context->syncing, count);
	atomic_fetch_add(&ps_by_ring_syncing, count);
}

#endif
