/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What rings have completed. Takes the completion lock; waiting is done without, and nobody gives up a ring
 * while others wait for it (ps_context.waiting).
 */
#include <string.h>

#include "by_ring.h"
#include "count.h"
#include "deadline.h"
#include "os.h"
#include "trace.h"

#define LOOK 100000000 /* nanoseconds after which one of several readers looks again */

/*
 * Reads completions into events. A bounced one keeps its slot, whose number and 1 is in res2: data is
 * copied when the lock is free. Completion lock.
 */
static long read_completions(struct ps_context *context, long most, struct io_event *events,
			     struct ps_tally *tally)
{
	struct io_uring_cqe *cqe;
	unsigned head, seen = 0;
	long count = 0;

	if (atomic_load_explicit(&context->slots, memory_order_relaxed) == 0)
		return 0;
	io_uring_for_each_cqe(&context->ring.uring, head, cqe)
	{
		const uint64_t number = cqe->user_data;
		struct ps_slot *slot = &context->slot[number & (context->slots - 1)];

		if (count == most)
			break;
		seen++;
		if (number == PS_RING_WAKE)
			continue;
		events[count] = (struct io_event){ .data = slot->data,
						   .obj = slot->object,
						   .res = slot->kind == PS_SLOT_DONE ? slot->result
										     : cqe->res };
		if (slot->kind == PS_SLOT_BOUNCE) {
			events[count].res2 = (int64_t)number + 1;
			atomic_fetch_add(&context->in_hand, 1);
		} else {
			ps_tally_add(tally, events[count].res, slot->length);
			ps_trace_io_complete(slot->object, PS_TRACE_RING, slot->kind,
					     events[count].res);
			if (slot->kind == PS_SLOT_PASSED)
				ps_by_ring_add_syncing(context, -1);
			ps_slot_give(context, (uint32_t)number);
		}
		count++;
	}
	io_uring_cq_advance(&context->ring.uring, seen);
	return count;
}

/* Copies what was read into bounce buffers. */
static void end_bounces(struct ps_context *context, long count, struct io_event *events,
			struct ps_tally *tally)
{
	for (long i = 0; i < count; i++) {
		const uint32_t number = (uint32_t)(events[i].res2 - 1);

		if (events[i].res2 == 0)
			continue;
		events[i].res2 = 0;
		events[i].res = ps_bounce_end(&context->bounce[number], events[i].res);
		ps_tally_add(tally, events[i].res, context->slot[number].length);
		ps_trace_io_complete(events[i].obj, PS_TRACE_RING, PS_TRACE_BOUNCE, events[i].res);
		ps_completion_lock(context);
		ps_slot_give(context, number);
		atomic_fetch_sub(&context->in_hand, 1);
		ps_completion_unlock(context);
	}
}

/* What is there now. */
static long reap(struct ps_context *context, long most, struct io_event *events)
{
	struct ps_tally tally = { 0 };
	long count;

	ps_completion_lock(context);
	count = read_completions(context, most, events, &tally);
	ps_completion_unlock(context);
	end_bounces(context, count, events, &tally);
	ps_tally_count(&tally);
	return count;
}

long ps_by_ring_take(struct ps_context *context, long most, struct io_event *events)
{
	unsigned kept;
	long count;

	if (atomic_load_explicit(&context->done_count, memory_order_acquire) == 0)
		return 0;
	ps_completion_lock(context);
	kept = atomic_load(&context->done_count);
	count = most < (long)kept ? most : (long)kept;
	/* Another reader may have had them, or the context ended, since it was looked at without the lock. */
	if (count > 0) {
		memcpy(events, context->done + context->done_first,
		       (size_t)count * sizeof(events[0]));
		context->done_first += (uint32_t)count;
		atomic_store(&context->done_count, kept - (unsigned)count);
	}
	ps_completion_unlock(context);
	return count;
}

/* The same, and what was kept before. */
static long reap_all(struct ps_context *context, long most, struct io_event *events)
{
	const long kept = ps_by_ring_take(context, most, events);

	return kept + reap(context, most - kept, events + kept);
}

/*
 * Is there nothing to be reaped? Reads the ring, without a lock: only for the only thread, or between
 * begin_waiting() and end_waiting(), while the ring is there.
 */
static bool is_empty(const struct ps_context *context)
{
	const struct io_uring_cq *queue = &context->ring.uring.cq;

	return atomic_load_explicit(&context->slots, memory_order_relaxed) != 0 &&
	       atomic_load_explicit(&context->done_count, memory_order_relaxed) == 0 &&
	       __atomic_load_n(queue->khead, __ATOMIC_RELAXED) ==
		       __atomic_load_n(queue->ktail, __ATOMIC_ACQUIRE);
}

/* Keeps events for ps_by_ring_take(). There is room for as many as there are slots. */
static void keep(struct ps_context *context, const struct io_event *events, long count)
{
	unsigned kept;

	ps_completion_lock(context);
	kept = atomic_load(&context->done_count);
	memmove(context->done, context->done + context->done_first, kept * sizeof(events[0]));
	context->done_first = 0;
	memcpy(context->done + kept, events, (size_t)count * sizeof(events[0]));
	atomic_store_explicit(&context->done_count, kept + (unsigned)count, memory_order_release);
	ps_completion_unlock(context);
}

int ps_by_ring_drain(struct ps_context *context)
{
	static const struct timespec a_moment = { .tv_nsec = PS_MILLISECOND };
	struct io_event events[64];
	const long most = sizeof(events) / sizeof(events[0]);

	while (ps_by_ring_in_flight(context) > atomic_load(&context->in_hand)) {
		const long count = reap(context, most, events);
		int error;

		if (count > 0) {
			keep(context, events, count);
			continue;
		}
		/* Another thread may have the last one in hand, so that no more is to come. */
		error = ps_ring_wait(&context->ring, 1, &a_moment, NULL);
		if (error < 0 && error != -EINTR && error != -ETIME)
			return error;
	}
	return 0;
}

/* What was prepared and the kernel has not seen yet will do nothing. How many that are. */
static unsigned make_harmless(struct io_uring_sq *queue)
{
	const unsigned seen = IO_URING_READ_ONCE(*queue->khead);

	for (unsigned i = seen; i != queue->sqe_tail; i++) {
		struct io_uring_sqe *sqe = &queue->sqes[i & queue->ring_mask];
		const uint64_t number = sqe->user_data;

		io_uring_prep_nop(sqe);
		sqe->user_data = number;
	}
	return queue->sqe_tail - seen;
}

void ps_by_ring_wait_out(struct ps_context *context)
{
	static const struct timespec a_while = { .tv_sec = 1 };
	const unsigned unseen = make_harmless(&context->ring.uring.sq);
	unsigned ready = io_uring_cq_ready(&context->ring.uring), before;
	int error;

	do {
		before = ready;
		if (ready + unseen >= ps_by_ring_in_flight(context))
			return;
		error = ps_ring_wait(&context->ring, ready + 1, &a_while, NULL);
		ready = io_uring_cq_ready(&context->ring.uring);
	} while (ready > before || error == -EINTR);
}

/* Completions that mean nothing. false: not all were to be had. */
static bool complete_nothing(struct ps_context *context, unsigned count)
{
	int submitted;

	for (unsigned i = 0; i < count; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&context->ring.uring);

		io_uring_prep_nop(sqe);
		sqe->user_data = PS_RING_WAKE;
	}
	submitted = ps_ring_submit(&context->ring);
	if (submitted < 0)
		submitted = 0;
	ps_ring_unprepare(&context->ring, count - (unsigned)submitted);
	return (unsigned)submitted == count;
}

/* Whoever sleeps on a deferred ring is its one thread: this is its handler, before which it was about to sleep. */
void ps_by_ring_wake(struct ps_context *context)
{
	unsigned left = 1, some;

	if (atomic_load(&context->waiting) == 0)
		return;
	if (context->ring.kind == PS_RING_DEFERRED)
		left = atomic_load(&context->awaited);
	do {
		some = left < PS_RING_BATCH ? left : PS_RING_BATCH;
		left -= some;
	} while (complete_nothing(context, some) && left > 0);
}

/* Sleeps until there is something to look at. 0; -ETIME; -EINTR; other -errno. */
static int sleep_until(struct ps_context *context, long count, uint64_t deadline,
		       const sigset_t *mask)
{
	/* With several readers nobody knows how many are left when it comes to its own. */
	const bool shared = context->ring.kind == PS_RING_SHARED;
	const unsigned least = shared ? 1 : (unsigned)count;
	struct timespec left;
	bool whole;
	int error;

	if (!ps_deadline_left(deadline, &left))
		return -ETIME;
	/* Another reader may take the completion that was to wake this one: it looks again now and then. */
	whole = !shared || (deadline != PS_NO_DEADLINE && left.tv_sec == 0 && left.tv_nsec < LOOK);
	if (!whole)
		left = (struct timespec){ .tv_nsec = LOOK };
	error = ps_ring_wait(&context->ring, least,
			     whole && deadline == PS_NO_DEADLINE ? NULL : &left, mask);
	if (error == -ETIME && !whole)
		error = 0;
	if (error == -EEXIST) {
		/* Another thread's, that was made behind our back: its owner has to collect. */
		ps_os_sleep(PS_MILLISECOND);
		error = 0;
	}
	return error;
}

/*
 * Waits for events until the deadline. Whoever settles or ends the context changes the engine, and then
 * looks at waiting: until then the ring is there. What came is counted in *count. 0 or -errno.
 */
static int wait_for_events(struct ps_context *context, long least, long most,
			   struct io_event *events, uint64_t deadline, const sigset_t *mask,
			   long *count)
{
	const unsigned before = atomic_load_explicit(&context->awaited, memory_order_relaxed);
	int error = 0;

	while (*count < least && error == 0) {
		/* Before the engine is looked at: a handler that changes it then knows. */
		atomic_store_explicit(&context->awaited, (unsigned)(least - *count),
				      memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		if (ps_context_engine(context) != PS_ENGINE_RING)
			break;
		error = sleep_until(context, least - *count, deadline, mask);
		*count += reap_all(context, most - *count, events + *count);
	}
	/* This may be a handler, whose thread is about to sleep for more. */
	atomic_store_explicit(&context->awaited, before, memory_order_relaxed);
	return error == -ETIME ? 0 : error;
}

/* Until end_waiting() the ring is there: whoever ends the context first changes its engine, and then looks. */
static void begin_waiting(struct ps_context *context)
{
	ps_holding(PS_HELD_WAIT);
	if (ps_context_is_alone(context))
		atomic_store_explicit(&context->waiting, atomic_load(&context->waiting) + 1,
				      memory_order_relaxed);
	else
		atomic_fetch_add(&context->waiting, 1);
}

static void end_waiting(struct ps_context *context)
{
	if (ps_context_is_alone(context))
		atomic_store_explicit(&context->waiting, atomic_load(&context->waiting) - 1,
				      memory_order_release);
	else
		atomic_fetch_sub(&context->waiting, 1);
	ps_held_no_more(PS_HELD_WAIT);
}

int ps_by_ring_getevents(struct ps_context *context, long least, long most, struct io_event *events,
			 struct timespec *timeout, const sigset_t *mask, bool *settled)
{
	const bool at_once = ps_deadline_is_now(timeout);
	unsigned engine;
	int error = 0;
	long count;

	*settled = false;
	if (least < 0 || least > most)
		return -EINVAL;
	if (most > 0 && !ps_may_be_there(events))
		return least > 0 || ps_by_ring_in_flight(context) > 0 ? -EFAULT : 0;
	count = ps_context_is_alone(context) && is_empty(context) ? 0
								  : reap_all(context, most, events);
	if (count == most || (count >= least && least > 0 && !at_once))
		return (int)count;
	begin_waiting(context);
	if (atomic_load(&context->engine) != PS_ENGINE_ENDED) {
		ps_ring_collect(&context->ring);
		if (!is_empty(context))
			count += reap_all(context, most - count, events + count);
		if (count < least && !at_once)
			error = wait_for_events(context, least, most, events,
						ps_deadline_of(timeout), mask, &count);
	}
	engine = ps_context_engine(context);
	end_waiting(context);
	*settled = count < least && !at_once && engine == PS_ENGINE_KERNEL;
	if (count == 0 && error == 0 && engine == PS_ENGINE_ENDED)
		return -EINVAL;
	return count == 0 && error < 0 ? error : (int)count;
}
