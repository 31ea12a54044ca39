/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CONTEXT_STATE_H
#define PS_CONTEXT_STATE_H
/*
 * What a context is, shared by context.c and its two engines; context.h has the rules.
 */
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "file.h"
#include "fixed.h"
#include "held.h"
#include "repair.h"
#include "ring.h"

/*
 * Can the program have something there? Not in the first page and not where the kernel is: it says EFAULT of
 * that. What lies in between and is not mapped is not told from what is.
 */
static inline bool ps_may_be_there(const void *address)
{
	return (uintptr_t)address >= 4096 && (uintptr_t)address >> 48 == 0;
}

enum ps_engine {
	PS_ENGINE_UNDECIDED,
	PS_ENGINE_RING,
	PS_ENGINE_KERNEL, /* for good */
	PS_ENGINE_ENDED, /* io_destroy() is on its way: nothing may be asked of the kernel any more */
};

/* A request that a ring has in flight. Programs may reuse an iocb once it was submitted. */
struct ps_slot {
	uint64_t object; /* address of the program's iocb, which io_event.obj gives back */
	uint64_t data;   /* its aio_data */
	uint64_t length; /* bytes asked for; 0 for what transfers none */
	int64_t result;  /* with PS_SLOT_DONE: what the request came to */
	uint32_t kind;   /* enum ps_slot_kind */
	uint32_t
		free; /* of the queue of free slots, which has its entries in the slots: a number */
};

enum ps_slot_kind {
	PS_SLOT_DIRECT,
	PS_SLOT_FIXED,
	PS_SLOT_PASSED, /* fsync */
	PS_SLOT_BOUNCE, /* by ps_context.bounce, at the slot's number */
	PS_SLOT_DONE,   /* was done already; the ring only says so */
	PS_SLOT_KINDS,
};

/* A request that the kernel's AIO has in flight in place of the program's own. */
struct ps_record {
	struct iocb iocb; /* what was submitted: io_event.obj points here */
	uint64_t object;
	uint64_t data;
	uint64_t length;
	int64_t result;          /* with done */
	bool done;               /* was done already; the kernel only says so */
	struct ps_bounce bounce; /* unless done */
	struct ps_record *next;  /* of those not in use */
};

#define PS_RECORDS 256 /* requests that one context can have in repair with the kernel's AIO */

struct ps_context {
	_Atomic(aio_context_t) id; /* the kernel's; 0: not in use */
	atomic_uint engine;        /* enum ps_engine, which only goes up */
	atomic_bool
		interrupted; /* a handler has changed the engine, and left the rest of it to us */
	bool owned;          /* ps_context_own() */
	atomic_bool
		alone; /* it, or its ring, was made when the C library knew of no other thread */
	unsigned most; /* requests the kernel lets be in flight */
	struct ps_lock submission;
	struct ps_lock completion;
	atomic_uint waiting; /* threads that wait for the ring, and look at it when they wake */
	atomic_uint awaited; /* completions that the last of them sleeps for */

	/* Under the submission lock. */
	struct ps_files files;
	struct ps_fixed fixed;
	_Atomic(uint32_t) taken; /* slots taken from the queue of free ones, ever */

	/* Of a ring. */
	struct ps_ring ring;
	pid_t maker;          /* the thread that made it */
	struct ps_slot *slot; /* slots of them, a power of two; NULL before the first request */
	_Atomic(uint32_t)
		slots; /* 0: there is no ring, or none any more; becomes 0 under the completion lock */
	struct ps_bounce *bounce; /* one a slot, made at the first bounce */
	_Atomic(uint32_t)
		given; /* slots put back into the queue, ever; under the completion lock */
	_Atomic(uint32_t) in_hand; /* completions whose data somebody is copying; the same */
	atomic_int syncing;        /* fsyncs that its ring has in flight */

	/* What a ring completed before the context settled; under the completion lock. */
	struct io_event *done; /* as many as slots */
	uint32_t done_first;
	atomic_uint done_count;

	/* Of repairs with the kernel's AIO; under the completion lock. */
	struct ps_record *record; /* PS_RECORDS of them, made at the first */
	struct ps_record *spare_record;
	atomic_uint records; /* in flight */

	struct ps_context *next; /* of the same bucket, for good */
};

static inline struct ps_kernel_ring *ps_context_kernel_ring(const struct ps_context *context)
{
	return (struct ps_kernel_ring *)atomic_load_explicit(&context->id, memory_order_relaxed);
}

static inline unsigned ps_context_engine(const struct ps_context *context)
{
	return atomic_load_explicit(&context->engine, memory_order_acquire);
}

/* Is it that of the only thread, which still is the only one? */
static inline bool ps_context_is_alone(const struct ps_context *context)
{
	return atomic_load_explicit(&context->alone, memory_order_relaxed) && ps_lock_alone();
}

/* One of its locks, without a locked instruction where there is nobody else. */
static inline void ps_context_lock(const struct ps_context *context, struct ps_lock *lock,
				   enum ps_held held)
{
	ps_holding(held);
	if (atomic_load_explicit(&context->alone, memory_order_relaxed))
		ps_lock_lightly(lock);
	else
		ps_lock(lock);
}

static inline void ps_context_unlock(const struct ps_context *context, struct ps_lock *lock,
				     enum ps_held held)
{
	if (atomic_load_explicit(&context->alone, memory_order_relaxed))
		ps_unlock_lightly(lock);
	else
		ps_unlock(lock);
	ps_held_no_more(held);
}

static inline void ps_submission_lock(struct ps_context *context)
{
	ps_context_lock(context, &context->submission, PS_HELD_SUBMISSION);
}

static inline void ps_submission_unlock(struct ps_context *context)
{
	ps_context_unlock(context, &context->submission, PS_HELD_SUBMISSION);
}

static inline void ps_completion_lock(struct ps_context *context)
{
	ps_context_lock(context, &context->completion, PS_HELD_OTHER);
}

static inline void ps_completion_unlock(struct ps_context *context)
{
	ps_context_unlock(context, &context->completion, PS_HELD_OTHER);
}

/* by_ring.c, by_ring_reap.c, by_ring_open.c */

/*
 * Opens a ring and what belongs to it, or takes one that was kept. 0; -errno, after which the context has
 * none. Submission lock, and make.
 */
int ps_by_ring_begin(struct ps_context *context, enum ps_ring_kind kind);

/*
 * Submits what a ring can serve. Returns how many were accepted, or -errno for the first; *for_kernel is set
 * where the next one is for the kernel's AIO to answer. Submission lock.
 */
int ps_by_ring_submit(struct ps_context *context, long count, struct iocb **iocbs,
		      bool *for_kernel);

/* As ps_context_expect(). Submission lock. */
void ps_by_ring_expect(struct ps_context *context, uintptr_t memory, size_t length);

/*
 * As ps_context_getevents(). Where the context settles meanwhile it returns what it has, and *settled says
 * that the rest is to be had of the kernel's AIO.
 */
int ps_by_ring_getevents(struct ps_context *context, long least, long most, struct io_event *events,
			 struct timespec *timeout, const sigset_t *mask, bool *settled);

/*
 * Waits for what the kernel has in flight and keeps it for ps_by_ring_take(); -errno where another thread
 * alone can enter the ring. Submission lock.
 */
int ps_by_ring_drain(struct ps_context *context);

/*
 * Waits until all that the ring has in flight is done, or no more of it is for a second, and leaves it there; what
 * it has not begun it never will. For a signal's handler that has interrupted who submits or reaps. Takes no lock.
 */
void ps_by_ring_wait_out(struct ps_context *context);

/* Moves events that were kept to the program. Takes the completion lock. */
long ps_by_ring_take(struct ps_context *context, long most, struct io_event *events);

/* Wakes threads that sleep on the ring, which will see that the engine is another. Submission lock. */
void ps_by_ring_wake(struct ps_context *context);

/* Requests that the ring has in flight, or that completed and were not asked for. */
static inline uint32_t ps_by_ring_in_flight(const struct ps_context *context)
{
	const uint32_t slots = atomic_load_explicit(&context->slots, memory_order_relaxed);
	const uint32_t given = atomic_load_explicit(&context->given, memory_order_acquire);

	if (slots == 0)
		return 0;
	return slots - (given - atomic_load_explicit(&context->taken, memory_order_relaxed));
}

/*
 * Gives up the ring and what belongs to it, which nobody uses any more. A few rings of the program's
 * contexts that have nothing in flight are kept for the next contexts: closing one interrupts, as a signal
 * would, what the thread that made it waits in next. In a forked child it is let go. Lock: make, of
 * context.c.
 */
void ps_by_ring_end(struct ps_context *context, bool forked);

/* In a forked child: lets the rings go that were kept. */
void ps_by_ring_fork_child(void);

/* Is it one that a ring serves exactly as the kernel's AIO does? See context.h. Submission lock. */
bool ps_by_ring_serves(struct ps_context *context, const struct iocb *iocb);

/* by_kernel.c */

/* Submits to the kernel's AIO, repairing what is misaligned. Takes the submission lock. */
int ps_by_kernel_submit(struct ps_context *context, long count, struct iocb **iocbs);

int ps_by_kernel_getevents(struct ps_context *context, long least, long most,
			   struct io_event *events, struct timespec *timeout, const sigset_t *mask);

/* Waits for the repairs in flight, whose events are dropped: the context is being destroyed. */
void ps_by_kernel_drain(struct ps_context *context);

/* Frees what belongs to repairs. Nobody uses it. */
void ps_by_kernel_end(struct ps_context *context);

#endif
