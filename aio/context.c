/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The contexts of a program: which there are, which engine each has, and how they end.
 *
 * They are found by the kernel's id without a lock: a context, once made, stays in its bucket for
 * good and is used again for ids that fall into the same one. One lock for making and ending them and
 * their rings (make), which is innermost, and held across a fork: a child must not find a half of
 * either. Rules and the order of the other locks: context.h.
 */
#include "context.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#include "config.h"
#include "context_state.h"
#include "count.h"
#include "deadline.h"
#include "kernel.h"
#include "log.h"
#include "memory.h"
#include "os.h"
#include "pinned.h"
#include "start.h"
#include "threads.h"

#define BUCKETS 256
#define AT_A_TIME 64 /* contexts that memory is got for */
#define PAGE_SHIFT 12
#define TRIES 100 /* of lock_soon(), for 10 ms */

static _Atomic(struct ps_context *) buckets[BUCKETS];
static struct ps_lock make = PS_LOCK_INIT;

/* What settling is said for, once each. */
enum cause { CAUSE_REQUEST, CAUSE_THREAD, CAUSE_RING, CAUSE_HANDLER, CAUSES };

static _Atomic(struct ps_context *) *bucket_of(aio_context_t id)
{
	const uint64_t page = id >> PAGE_SHIFT;

	return &buckets[(page ^ page >> 8) % BUCKETS];
}

static struct ps_context *find(aio_context_t id)
{
	struct ps_context *context = atomic_load_explicit(bucket_of(id), memory_order_acquire);

	while (context != NULL && atomic_load_explicit(&context->id, memory_order_acquire) != id)
		context = context->next;
	return id != 0 ? context : NULL;
}

/* Memory for a new one, of zeros: many at a time, for mappings are limited, and each context has one already. */
static struct ps_context *take_memory(void)
{
	static struct ps_context *next;
	static unsigned left;
	void *memory;

	if (left == 0) {
		if (ps_os_mmap(NULL, AT_A_TIME * sizeof(*next), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory) < 0)
			return NULL;
		next = memory;
		left = AT_A_TIME;
	}
	left--;
	return next++;
}

/* One that is not in use, or a new one; NULL where there is no memory. Lock: make. */
static struct ps_context *make_context(aio_context_t id)
{
	_Atomic(struct ps_context *) *bucket = bucket_of(id);
	struct ps_context *context = atomic_load(bucket);

	while (context != NULL && atomic_load(&context->id) != 0)
		context = context->next;
	if (context != NULL)
		return context;
	context = take_memory();
	if (context == NULL)
		return NULL;
	context->next = atomic_load(bucket);
	atomic_store_explicit(bucket, context, memory_order_release);
	return context;
}

/* In a child: what its parent had does not exist. */
static void forget(struct ps_context *context)
{
	ps_lock_reset(&context->submission);
	ps_lock_reset(&context->completion);
	ps_by_ring_end(context, true);
	ps_by_kernel_end(context);
	atomic_store(&context->waiting, 0);
	atomic_store(&context->id, 0);
}

int ps_context_setup(unsigned events, aio_context_t *id)
{
	const int error = ps_kernel_setup(events, id);
	const struct ps_kernel_ring *ring;
	struct ps_context *context;

	if (error < 0 || ps_holds_any())
		return error;
	ring = (const struct ps_kernel_ring *)*id;
	/* A kernel with another ring is left alone. */
	if (ring->magic != PS_KERNEL_RING_MAGIC)
		return error;
	ps_memory_publish();
	ps_pinned_look();
	ps_aio_count(PS_AIO(contexts), 1);
	ps_hold(&make);
	/* The child of a raw clone(), where no handler runs, may get an id that its parent had. */
	context = find(*id);
	if (context != NULL)
		forget(context);
	context = make_context(*id);
	if (context != NULL) {
		context->most = ring->nr - 1;
		context->owned = false;
		context->alone = ps_lock_alone();
		ps_files_begin(&context->files);
		atomic_store(&context->interrupted, false);
		/* A handler may have forked while it was waited for. */
		atomic_store(&context->waiting, 0);
		context->fixed = (struct ps_fixed){ .generation = 0 };
		atomic_store(&context->engine, PS_ENGINE_UNDECIDED);
		atomic_store_explicit(&context->id, *id, memory_order_release);
	}
	ps_let_go(&make);
	return error;
}

void ps_context_expect(aio_context_t id, const void *memory, size_t length)
{
	struct ps_context *context = find(id);

	if (context == NULL)
		return;
	ps_submission_lock(context);
	if (ps_context_engine(context) == PS_ENGINE_RING)
		ps_by_ring_expect(context, (uintptr_t)memory, length);
	ps_submission_unlock(context);
}

void ps_context_own(aio_context_t id)
{
	struct ps_context *context = find(id);

	if (context != NULL) {
		context->owned = true;
		context->alone = false;
	}
}

bool ps_context_is_ours(aio_context_t id)
{
	return find(id) != NULL;
}

static void say_kernel(const char *why)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		ps_log(PS_LOG_INFO, "asynchronous I/O uses the kernel's AIO: %s", why);
}

/*
 * The engine for an undecided context, which has a ring then if it may. Submission lock, and no handler comes in
 * between.
 */
static enum ps_engine choose(struct ps_context *context)
{
	bool single;
	int error;

	if (ps_config.aio == PS_AIO_LIBAIO || ps_config.aio == PS_AIO_OFF || !ps_aio_ring_allowed())
		return PS_ENGINE_KERNEL;
	single = context->owned || ps_threads_single();
	if (!single && ps_config.aio != PS_AIO_URING) {
		say_kernel("the process has several threads: PINSHIM_AIO=uring uses io_uring all "
			   "the same");
		return PS_ENGINE_KERNEL;
	}
	ps_hold(&make);
	error = ps_by_ring_begin(context, single ? PS_RING_DEFERRED : PS_RING_SHARED);
	if (error == -EINVAL && ps_config.aio == PS_AIO_URING)
		error = ps_by_ring_begin(context, PS_RING_SHARED);
	ps_let_go(&make);
	if (error < 0) {
		say_kernel(error == -ENOMEM ? "io_uring may not lock its memory: raise "
					      "RLIMIT_MEMLOCK (ulimit -l)"
					    : "an io_uring cannot be made for a context");
		return PS_ENGINE_KERNEL;
	}
	context->alone = !context->owned && ps_lock_alone();
	ps_context_kernel_ring(context)->magic = 0;
	ps_aio_count(PS_AIO(rings), 1);
	return PS_ENGINE_RING;
}

/* Submission lock. */
static void decide(struct ps_context *context)
{
	const uint64_t mask = ps_signals_block();

	if (ps_context_engine(context) == PS_ENGINE_UNDECIDED)
		atomic_store(&context->engine, choose(context));
	ps_signals_restore(mask);
}

static void say_settled(enum cause cause)
{
	static const char *const what[CAUSES] = {
		[CAUSE_REQUEST] = "a request that io_uring does not serve as the kernel's AIO does",
		[CAUSE_THREAD] = "the process gets a second thread",
		[CAUSE_RING] = "its io_uring refused a request",
		[CAUSE_HANDLER] = "a signal's handler submitted while its io_uring was in use",
	};
	static atomic_uint said;

	if (!(atomic_fetch_or(&said, 1u << cause) & 1u << cause))
		ps_log(PS_LOG_INFO, "a context goes on with the kernel's AIO: %s", what[cause]);
}

/* No handler comes in between. Submission lock. */
static void go_to_kernel(struct ps_context *context, enum cause cause)
{
	const bool interrupted = atomic_exchange(&context->interrupted, false);

	if (ps_context_engine(context) == PS_ENGINE_RING || (interrupted && context->slots > 0)) {
		if (context->record == NULL && ps_by_ring_in_flight(context) == 0 &&
		    atomic_load(&context->done_count) == 0)
			ps_context_kernel_ring(context)->magic = PS_KERNEL_RING_MAGIC;
		/* Memory that is registered stays in memory, even if the program gives it back. */
		ps_fixed_clear(&context->fixed, &context->ring);
		ps_aio_count(PS_AIO(settled), 1);
		say_settled(cause);
	}
	atomic_store(&context->engine, PS_ENGINE_KERNEL);
	if (context->slots > 0)
		ps_by_ring_wake(context);
}

/*
 * For good. What the ring has in flight is not waited for, which could take long and may need this very
 * thread, unless another thread is about to ask for it. Submission lock.
 */
static void settle(struct ps_context *context, enum cause cause)
{
	uint64_t mask;

	if (cause == CAUSE_THREAD)
		ps_by_ring_drain(context);
	mask = ps_signals_block();
	if (ps_context_engine(context) != PS_ENGINE_ENDED)
		go_to_kernel(context, cause);
	ps_signals_restore(mask);
}

static void before_thread(struct ps_context *context)
{
	if (context->slots == 0 || context->owned || context->ring.kind != PS_RING_DEFERRED)
		return;
	ps_submission_lock(context);
	if (ps_context_engine(context) == PS_ENGINE_RING)
		settle(context, CAUSE_THREAD);
	else
		ps_by_ring_drain(context);
	ps_submission_unlock(context);
}

/*
 * A signal's handler submits what the thread that it has interrupted is in the middle of: the kernel's AIO has
 * it, and the context, which whoever is in the middle settles. Misaligned requests are refused.
 */
static int submit_interrupting(struct ps_context *context, aio_context_t id, long count,
			       struct iocb **iocbs)
{
	unsigned engine = ps_context_engine(context);

	while (engine < PS_ENGINE_KERNEL) {
		atomic_store(&context->interrupted, true);
		atomic_compare_exchange_weak(&context->engine, &engine, PS_ENGINE_KERNEL);
	}
	return ps_kernel_submit_ours(id, count, iocbs);
}

/* Wakes who waits for a context that has ended, and gives up what belongs to it. Submission lock. */
static void end(struct ps_context *context)
{
	/* One wake may be had by a thread that was about to look anyway. */
	while (atomic_load(&context->waiting) > 0) {
		if (context->slots > 0)
			ps_by_ring_wake(context);
		ps_os_sleep(PS_MILLISECOND / 10);
	}
	ps_hold(&make);
	ps_by_ring_end(context, false);
	ps_by_kernel_end(context);
	atomic_store(&context->id, 0);
	ps_let_go(&make);
}

/* Does what a handler has left to whom it interrupted, who holds nothing any more. */
static void after_handler(struct ps_context *context)
{
	if (!atomic_load_explicit(&context->interrupted, memory_order_relaxed) || ps_is_inside())
		return;
	ps_submission_lock(context);
	if (ps_context_engine(context) == PS_ENGINE_ENDED)
		end(context);
	else
		settle(context, CAUSE_HANDLER);
	ps_submission_unlock(context);
}

/* A thread was made in a way that nobody tells us of, but the C library knows. */
static void look_for_threads(struct ps_context *context)
{
	if (context->alone && !ps_lock_alone())
		before_thread(context);
}

/*
 * Submits what a ring serves. How many were accepted, or -errno; *for_kernel where the next is the
 * kernel's AIO's to answer.
 */
static int submit_by_ring(struct ps_context *context, long count, struct iocb **iocbs,
			  bool *for_kernel)
{
	int accepted = 0;

	*for_kernel = true;
	look_for_threads(context);
	ps_submission_lock(context);
	if (ps_context_engine(context) == PS_ENGINE_UNDECIDED &&
	    ps_by_ring_serves(context, iocbs[0]))
		decide(context);
	if (ps_context_engine(context) == PS_ENGINE_RING)
		accepted = ps_by_ring_submit(context, count, iocbs, for_kernel);
	/* A thread that may not enter the ring, or a ring that is broken: the kernel's AIO can. */
	if (accepted < 0 && accepted != -EAGAIN) {
		settle(context, CAUSE_RING);
		*for_kernel = true;
		accepted = 0;
	}
	ps_submission_unlock(context);
	after_handler(context);
	return accepted;
}

/* The next request is for the kernel's AIO. If it takes it, that has the context from now on. */
static int submit_and_settle(struct ps_context *context, struct iocb **iocbs)
{
	const int accepted = ps_by_kernel_submit(context, 1, iocbs);

	if (accepted == 1 && ps_context_engine(context) != PS_ENGINE_KERNEL) {
		ps_submission_lock(context);
		settle(context, CAUSE_REQUEST);
		ps_submission_unlock(context);
	}
	return accepted;
}

int ps_context_submit(aio_context_t id, long count, struct iocb **iocbs)
{
	struct ps_context *context = find(id);
	bool for_kernel = true;
	int accepted = 0, more = 0;

	if (context == NULL || count <= 0 || !ps_may_be_there(iocbs))
		return ps_kernel_submit(id, count, iocbs);
	/* The kernel looks at no more, either. */
	if (count > (long)context->most)
		count = (long)context->most;
	if (ps_holds_any())
		return submit_interrupting(context, id, count, iocbs);
	if (ps_context_engine(context) != PS_ENGINE_KERNEL) {
		accepted = submit_by_ring(context, count, iocbs, &for_kernel);
		if (!for_kernel || accepted == count)
			return accepted;
		if (ps_context_engine(context) != PS_ENGINE_KERNEL) {
			more = submit_and_settle(context, iocbs + accepted);
			if (more != 1)
				return accepted > 0 ? accepted : more;
			accepted++;
		}
	}
	if (accepted < count) {
		more = ps_by_kernel_submit(context, count - accepted, iocbs + accepted);
		if (more > 0)
			accepted += more;
	}
	return accepted > 0 ? accepted : more;
}

/*
 * What a ring has in flight is never found by the kernel's io_cancel(2), and disk I/O cannot be
 * cancelled by either: its answer is the right one.
 */
int ps_context_cancel(aio_context_t id, struct iocb *iocb, struct io_event *event)
{
	return ps_kernel_cancel(id, iocb, event);
}

/*
 * A context settled while its ring had requests in flight: until these are done both are looked at in
 * turn, and then the kernel's AIO alone is waited for.
 */
static int getevents_of_both(struct ps_context *context, long least, long most,
			     struct io_event *events, struct timespec *timeout,
			     const sigset_t *mask)
{
	const uint64_t deadline = ps_deadline_of(timeout);
	struct timespec left, at_once = { 0 };
	int count = 0, more, error = 0;
	bool settled;

	while (ps_by_ring_in_flight(context) > 0) {
		more = ps_by_ring_getevents(context, 0, most - count, events + count, &at_once,
					    NULL, &settled);
		count += more > 0 ? more : 0;
		more = ps_by_kernel_getevents(context, 0, most - count, events + count, &at_once,
					      NULL);
		if (more < 0)
			return count > 0 ? count : more;
		count += more;
		if (count >= least || error < 0 || !ps_deadline_left(deadline, &left))
			return count > 0 ? count : error;
		if (ps_by_ring_in_flight(context) > 0)
			error = ps_os_sleep(PS_MILLISECOND);
	}
	ps_deadline_left(deadline, &left);
	more = ps_by_kernel_getevents(context, least - count, most - count, events + count,
				      deadline == PS_NO_DEADLINE ? NULL : &left, mask);
	return count > 0 ? count + (more > 0 ? more : 0) : more;
}

/* Who may sleep here before the first request must sleep where that will wake it. */
static void decide_for_waiting(struct ps_context *context)
{
	ps_submission_lock(context);
	if (ps_context_engine(context) == PS_ENGINE_UNDECIDED)
		decide(context);
	ps_submission_unlock(context);
}

static int getevents(struct ps_context *context, long least, long most, struct io_event *events,
		     struct timespec *timeout, const sigset_t *mask)
{
	int count = 0, more;
	bool settled;

	if (ps_context_engine(context) == PS_ENGINE_RING) {
		count = ps_by_ring_getevents(context, least, most, events, timeout, mask, &settled);
		if (count < 0 || !settled)
			return count;
	}
	if (ps_by_ring_in_flight(context) > 0 && least >= 0 && least <= most)
		more = getevents_of_both(context, least - count, most - count, events + count,
					 timeout, mask);
	else
		more = ps_by_kernel_getevents(context, least - count, most - count, events + count,
					      timeout, mask);
	if (count > 0)
		return count + (more > 0 ? more : 0);
	return more;
}

int ps_context_getevents(aio_context_t id, long least, long most, struct io_event *events,
			 struct timespec *timeout, const sigset_t *mask)
{
	struct ps_context *context = find(id);
	int count;

	if (context == NULL)
		return ps_kernel_getevents(id, least, most, events, timeout, mask);
	/* A signal's handler, which has interrupted who takes events: as one that came before there were any. */
	if (ps_held[PS_HELD_OTHER] > 0)
		return least > 0 ? -EINTR : 0;
	if (ps_held[PS_HELD_SUBMISSION] == 0) {
		if (ps_context_engine(context) == PS_ENGINE_UNDECIDED)
			decide_for_waiting(context);
		look_for_threads(context);
	}
	count = getevents(context, least, most, events, timeout, mask);
	after_handler(context);
	return count;
}

/*
 * A signal's handler ends what the thread that it has interrupted is in the middle of: what is in flight is
 * waited for, so that the program has its memory back, and the rest is left as it is.
 */
static int destroy_interrupting(struct ps_context *context, aio_context_t id)
{
	atomic_store(&context->engine, PS_ENGINE_ENDED);
	atomic_store(&context->interrupted, true);
	if (context->slots > 0)
		ps_by_ring_wait_out(context);
	return ps_kernel_destroy(id);
}

int ps_context_destroy(aio_context_t id)
{
	struct ps_context *context = find(id);

	if (context == NULL)
		return ps_kernel_destroy(id);
	if (ps_is_inside())
		return destroy_interrupting(context, id);
	ps_submission_lock(context);
	if (atomic_load(&context->id) != id) {
		ps_submission_unlock(context);
		return ps_kernel_destroy(id);
	}
	/* What another thread is copying for the program, it has it until it is done. */
	while (context->slots > 0 && ps_by_ring_drain(context) == 0 &&
	       ps_by_ring_in_flight(context) > 0)
		ps_os_sleep(PS_MILLISECOND / 10);
	ps_by_kernel_drain(context);
	atomic_store(&context->engine, PS_ENGINE_ENDED);
	end(context);
	ps_submission_unlock(context);
	return ps_kernel_destroy(id);
}

static void for_each(void (*act)(struct ps_context *context))
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct ps_context *context = atomic_load(&buckets[i]); context != NULL;
		     context = context->next)
			if (atomic_load(&context->id) != 0)
				act(context);
}

void ps_context_before_thread(void)
{
	for_each(before_thread);
}

/*
 * Takes a lock, if it is to be had within so many tries. Others let it go soon, but not this thread, if its signal
 * handler is what ends the process.
 */
static bool lock_soon(struct ps_lock *lock, enum ps_held held, unsigned tries)
{
	ps_holding(held);
	while (tries-- > 0) {
		if (ps_try_lock(lock))
			return true;
		ps_os_sleep(PS_MILLISECOND / 10);
	}
	ps_held_no_more(held);
	return false;
}

/* Whoever is in the middle of a submission, this thread's own signal handler too, is not waited for. */
static void at_exit(struct ps_context *context)
{
	if (context->slots == 0 || !lock_soon(&context->submission, PS_HELD_SUBMISSION, 1))
		return;
	if (lock_soon(&context->completion, PS_HELD_OTHER, TRIES)) {
		ps_completion_unlock(context);
		ps_by_ring_drain(context);
	}
	ps_submission_unlock(context);
}

void ps_context_at_exit(void)
{
	for_each(at_exit);
}

/*
 * What a ring has registered the kernel would copy to the child at once, huge pages piece by piece: private
 * pages that are pinned for a device cannot be left to both. It is registered again when it is used again. A
 * ring that only another thread may enter, a handle's, keeps what it has.
 */
static void before_fork(struct ps_context *context)
{
	if (context->slots == 0 || !lock_soon(&context->submission, PS_HELD_SUBMISSION, TRIES))
		return;
	if (context->slots > 0 &&
	    (context->ring.kind == PS_RING_SHARED || context->maker == ps_os_gettid()))
		ps_fixed_clear(&context->fixed, &context->ring);
	ps_submission_unlock(context);
}

void ps_context_fork_prepare(void)
{
	for_each(before_fork);
	ps_hold(&make);
}

void ps_context_fork_parent(void)
{
	ps_let_go(&make);
}

void ps_context_fork_child(void)
{
	ps_lock_reset(&make);
	for_each(forget);
	ps_by_ring_fork_child();
}
