/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts whose requests go through an io_uring.
 *
 * Slots say what is in flight. They are taken under the submission lock and given back under the
 * completion lock, through a queue of numbers with one end under each, so that neither side waits
 * for the other.
 */
#include <errno.h>
#include <linux/ioprio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "config.h"
#include "context_state.h"
#include "count.h"
#include "deadline.h"
#include "os.h"
#include "trace.h"

#define BATCH 128       /* requests handed to the kernel at once */
#define SLOTS_MAX 32768 /* contexts for more requests use the kernel's AIO */
#define IDLE 8          /* rings that are kept for the next contexts */
#define WAKE UINT64_MAX /* user_data of what only wakes */
#define LOOK 100000000  /* nanoseconds after which one of several readers looks again */

#define ADDRESS_BITS 48 /* programs rarely have memory above: kernel AIO sees to it */

/* Flags that mean the same to both. */
#define FLAGS_SERVED (RWF_DSYNC | RWF_SYNC | RWF_NOWAIT)

struct request {
	struct ps_transfer transfer;
	struct iovec single;
	const struct ps_file *file;
	bool fsync; /* else a transfer */
};

_Static_assert(PS_SLOT_DIRECT == (int)PS_TRACE_DIRECT && PS_SLOT_FIXED == (int)PS_TRACE_FIXED &&
		       PS_SLOT_PASSED == (int)PS_TRACE_PASSED &&
		       PS_SLOT_BOUNCE == (int)PS_TRACE_BOUNCE && PS_SLOT_DONE == (int)PS_TRACE_DONE,
	       "slots are traced with their own numbers");

/* What was prepared and not yet handed over. */
struct batch {
	unsigned prepared;
	unsigned of_kind[PS_SLOT_KINDS]; /* of these */
	long accepted;
	int error; /* that ended it, or 0 */
};

uint32_t ps_by_ring_in_flight(const struct ps_context *context)
{
	const uint32_t slots = atomic_load_explicit(&context->slots, memory_order_relaxed);
	const uint32_t given = atomic_load_explicit(&context->given, memory_order_acquire);

	if (slots == 0)
		return 0;
	return slots - (given - atomic_load_explicit(&context->taken, memory_order_relaxed));
}

static int take_slot(struct ps_context *context, uint32_t *number)
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
static uint32_t untake_slot(struct ps_context *context)
{
	const uint32_t taken = atomic_load_explicit(&context->taken, memory_order_relaxed) - 1;

	atomic_store_explicit(&context->taken, taken, memory_order_relaxed);
	return context->slot[taken & (context->slots - 1)].free;
}

/* Completion lock. */
static void give_slot(struct ps_context *context, uint32_t number)
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
static atomic_int syncing;

static void add_syncing(struct ps_context *context, int count)
{
	atomic_fetch_add(&context->syncing, count);
	atomic_fetch_add(&syncing, count);
}

/* A ring and what belongs to it. */
struct parts {
	struct ps_ring ring;
	struct ps_fixed fixed;
	struct ps_slot *slot; /* NULL: there is none */
	struct ps_bounce *bounce;
	uint32_t slots;
	pid_t maker;
};

/* Rings without a context. Lock: make, of context.c. */
static struct parts idle[IDLE];

static size_t slot_bytes(uint32_t slots)
{
	return slots * (sizeof(struct ps_slot) + sizeof(struct io_event));
}

static void end_parts(struct parts *parts)
{
	ps_ring_close(&parts->ring);
	ps_fixed_end(&parts->fixed);
	if (parts->bounce != NULL)
		ps_os_munmap(parts->bounce, parts->slots * sizeof(*parts->bounce));
	ps_os_munmap(parts->slot, slot_bytes(parts->slots));
	parts->slot = NULL;
}

/* false where everything is taken. */
static bool keep_idle(struct parts *parts)
{
	for (unsigned i = 0; i < IDLE; i++) {
		if (idle[i].slot != NULL)
			continue;
		ps_fixed_clear(&parts->fixed, &parts->ring);
		idle[i] = *parts;
		return true;
	}
	return false;
}

/* Gives the context a ring that was kept, if one is fit for it. */
static bool take_idle(struct ps_context *context, enum ps_ring_kind kind)
{
	for (unsigned i = 0; i < IDLE; i++) {
		struct parts *kept = &idle[i];

		if (kept->slot == NULL || kept->slots < context->most || kept->ring.kind != kind ||
		    (kind == PS_RING_DEFERRED && kept->maker != ps_os_gettid()))
			continue;
		context->ring = kept->ring;
		context->fixed = kept->fixed;
		context->slot = kept->slot;
		context->bounce = kept->bounce;
		context->slots = kept->slots;
		context->maker = kept->maker;
		kept->slot = NULL;
		return true;
	}
	return false;
}

static int open_ring(struct ps_context *context, enum ps_ring_kind kind)
{
	uint32_t slots = 1;
	void *memory;
	int error;

	while (slots < context->most)
		slots *= 2;
	error = ps_os_mmap(NULL, slot_bytes(slots), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory);
	if (error < 0)
		return error;
	error = ps_ring_open(&context->ring, slots < BATCH ? slots : BATCH, slots, kind);
	if (error < 0) {
		ps_os_munmap(memory, slot_bytes(slots));
		return error;
	}
	context->fixed = (struct ps_fixed){ .generation = 0 };
	context->slot = memory;
	context->slots = slots;
	context->maker = ps_os_gettid();
	return 0;
}

int ps_by_ring_begin(struct ps_context *context, enum ps_ring_kind kind)
{
	int error;

	if (context->most > SLOTS_MAX)
		return -E2BIG;
	if (!take_idle(context, kind)) {
		error = open_ring(context, kind);
		if (error < 0)
			return error;
	}
	context->done = (struct io_event *)(context->slot + context->slots);
	for (uint32_t i = 0; i < context->slots; i++)
		context->slot[i].free = i;
	atomic_store(&context->in_hand, 0);
	atomic_store(&context->taken, 0);
	atomic_store(&context->given, context->slots);
	return 0;
}

/* Takes the ring from the context: whoever still looks for completions finds none. */
static struct parts detach(struct ps_context *context)
{
	struct parts parts;

	ps_lock(&context->completion);
	parts = (struct parts){ context->ring,   context->fixed, context->slot,
				context->bounce, context->slots, context->maker };
	context->slot = NULL;
	context->bounce = NULL;
	context->done = NULL;
	context->done_first = 0;
	atomic_store(&context->done_count, 0);
	atomic_store(&context->slots, 0);
	/* What is in flight all the same is no longer ours to see. */
	add_syncing(context, -atomic_load(&context->syncing));
	ps_unlock(&context->completion);
	return parts;
}

void ps_by_ring_end(struct ps_context *context, bool forked)
{
	const bool keep = !forked && !context->owned && ps_by_ring_in_flight(context) == 0;
	struct parts parts;

	if (context->slot == NULL)
		return;
	parts = detach(context);
	if (!keep || !keep_idle(&parts))
		end_parts(&parts);
}

void ps_by_ring_fork_child(void)
{
	for (unsigned i = 0; i < IDLE; i++)
		if (idle[i].slot != NULL)
			end_parts(&idle[i]);
}

/* The kernel's AIO checks a priority when it is submitted, and who may have a real-time one. */
static bool priority_serves(const struct iocb *iocb)
{
	const unsigned class = IOPRIO_PRIO_CLASS(iocb->aio_reqprio);

	return !(iocb->aio_flags & IOCB_FLAG_IOPRIO) ||
	       ((class == IOPRIO_CLASS_BE || class == IOPRIO_CLASS_IDLE) &&
		IOPRIO_PRIO_DATA(iocb->aio_reqprio) < 8);
}

/* A write that would make the file longer? The kernel's AIO does these in order, one by one. */
static bool extends(struct ps_context *context, const struct request *request)
{
	const uint64_t end = request->transfer.offset + request->transfer.length;

	return request->transfer.write && end > request->file->size &&
	       end > ps_file_size(&context->files, request->file);
}

static bool read_transfer(struct ps_context *context, const struct iocb *iocb,
			  struct request *request)
{
	if (ps_transfer_of(iocb, &request->single, &request->transfer) < 0)
		return false;
	for (unsigned i = 0; i < request->transfer.parts; i++)
		if ((uint64_t)(uintptr_t)request->transfer.part[i].iov_base >> ADDRESS_BITS != 0)
			return false;
	if (!ps_file_allows(request->file, request->transfer.write))
		return false;
	if (request->transfer.flags & ~FLAGS_SERVED || request->transfer.length > PS_TRANSFER_MAX)
		return false;
	return !extends(context, request);
}

/* What an iocb asks for, if a ring serves it exactly as the kernel's AIO does. */
static bool read_request(struct ps_context *context, const struct iocb *iocb,
			 struct request *request)
{
	if ((uintptr_t)iocb < PS_IOCB_LOWEST || iocb->aio_reserved2 != 0 ||
	    iocb->aio_flags & ~(uint32_t)IOCB_FLAG_IOPRIO || !priority_serves(iocb))
		return false;
	request->file = ps_file_get(&context->files, (int)iocb->aio_fildes);
	if (request->file == NULL || !(request->file->is & PS_FILE_DIRECT) ||
	    !(request->file->is & PS_FILE_NOWAIT) || request->file->is & PS_FILE_APPEND)
		return false;
	request->fsync = iocb->aio_lio_opcode == IOCB_CMD_FSYNC ||
			 iocb->aio_lio_opcode == IOCB_CMD_FDSYNC;
	if (request->fsync && context->ring.kind == PS_RING_DEFERRED && atomic_load(&syncing) > 0)
		return false;
	if (request->fsync)
		return iocb->aio_buf == 0 && iocb->aio_offset == 0 && iocb->aio_nbytes == 0 &&
		       iocb->aio_rw_flags == 0;
	return read_transfer(context, iocb, request);
}

bool ps_by_ring_serves(struct ps_context *context, const struct iocb *iocb)
{
	struct request request;

	return read_request(context, iocb, &request);
}

static void prepare_fsync(struct ps_context *context, struct io_uring_sqe *sqe,
			  struct ps_slot *slot, const struct iocb *iocb)
{
	io_uring_prep_fsync(sqe, (int)iocb->aio_fildes,
			    iocb->aio_lio_opcode == IOCB_CMD_FDSYNC ? IORING_FSYNC_DATASYNC : 0);
	slot->kind = PS_SLOT_PASSED;
	slot->length = 0;
	add_syncing(context, 1);
}

/*
 * One buffer: registered memory has operations of its own, which do not refuse misaligned memory as
 * others do.
 */
static void prepare_single(struct ps_context *context, struct io_uring_sqe *sqe,
			   struct ps_slot *slot, const struct ps_transfer *transfer, bool aligned)
{
	const struct iovec *part = transfer->part;
	const int place = aligned ? ps_fixed_find(&context->fixed, &context->ring,
						  (uintptr_t)part->iov_base, part->iov_len)
				  : -1;
	const unsigned length = (unsigned)part->iov_len;

	slot->kind = place >= 0 ? PS_SLOT_FIXED : PS_SLOT_DIRECT;
	if (place >= 0 && transfer->write)
		io_uring_prep_write_fixed(sqe, transfer->fd, part->iov_base, length,
					  transfer->offset, place);
	else if (place >= 0)
		io_uring_prep_read_fixed(sqe, transfer->fd, part->iov_base, length,
					 transfer->offset, place);
	else if (transfer->write)
		io_uring_prep_write(sqe, transfer->fd, part->iov_base, length, transfer->offset);
	else
		io_uring_prep_read(sqe, transfer->fd, part->iov_base, length, transfer->offset);
}

static void prepare_transfer(struct ps_context *context, struct io_uring_sqe *sqe,
			     struct ps_slot *slot, const struct ps_transfer *transfer, bool aligned)
{
	slot->length = transfer->length;
	if (transfer->parts == 1) {
		prepare_single(context, sqe, slot, transfer, aligned);
	} else {
		slot->kind = PS_SLOT_DIRECT;
		if (transfer->write)
			io_uring_prep_writev(sqe, transfer->fd, transfer->part, transfer->parts,
					     transfer->offset);
		else
			io_uring_prep_readv(sqe, transfer->fd, transfer->part, transfer->parts,
					    transfer->offset);
	}
	sqe->rw_flags = transfer->flags;
}

static bool make_bounces(struct ps_context *context)
{
	void *memory;

	if (context->bounce == NULL &&
	    ps_os_mmap(NULL, context->slots * sizeof(struct ps_bounce), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory) == 0)
		context->bounce = memory;
	return context->bounce != NULL;
}

/* By way of a bounce buffer. false where it cannot be had. */
static bool prepare_bounce(struct ps_context *context, struct io_uring_sqe *sqe, uint32_t number,
			   const struct request *request)
{
	struct ps_slot *slot = &context->slot[number];
	struct ps_transfer aligned = request->transfer;
	struct ps_bounce *bounce;
	struct iovec part;

	if (!ps_repair_is_bounce(request->file, &request->transfer) || !make_bounces(context))
		return false;
	bounce = &context->bounce[number];
	if (ps_bounce_begin(bounce, request->file, &request->transfer) < 0)
		return false;
	part = (struct iovec){ bounce->buffer.memory, bounce->length };
	aligned.part = &part;
	aligned.parts = 1;
	aligned.offset = bounce->offset;
	prepare_single(context, sqe, slot, &aligned, true);
	sqe->rw_flags = aligned.flags;
	slot->length = request->transfer.length;
	slot->kind = PS_SLOT_BOUNCE;
	return true;
}

static void count_accepted(const struct batch *batch)
{
	const unsigned *of_kind = batch->of_kind;
	const unsigned repaired = of_kind[PS_SLOT_BOUNCE] + of_kind[PS_SLOT_DONE];
	uint64_t *words = ps_aio_words();

	ps_aio_add(words, PS_AIO(submitted), batch->prepared);
	ps_aio_add(words, PS_AIO(fixed), of_kind[PS_SLOT_FIXED]);
	ps_aio_add(words, PS_AIO(direct), of_kind[PS_SLOT_DIRECT]);
	ps_aio_add(words, PS_AIO(passed), of_kind[PS_SLOT_PASSED]);
	ps_aio_add(words, PS_AIO(bounced), repaired);
	ps_aio_add(words, PS_AIO(repaired), repaired);
}

/* Takes back the last of what was prepared. */
static void take_back(struct ps_context *context, struct batch *batch)
{
	const uint32_t number = untake_slot(context);
	const uint32_t kind = context->slot[number].kind;

	batch->prepared--;
	batch->of_kind[kind]--;
	if (kind == PS_SLOT_BOUNCE)
		ps_bounce_end(&context->bounce[number], -ECANCELED);
	else if (kind == PS_SLOT_PASSED)
		add_syncing(context, -1);
}

/* Gives the batch to the kernel; what it does not take is as if it had never been prepared. */
static void hand_over(struct ps_context *context, struct batch *batch)
{
	int submitted;
	unsigned taken;

	if (batch->prepared == 0)
		return;
	submitted = ps_ring_submit(&context->ring);
	taken = submitted > 0 ? (unsigned)submitted : 0;
	if (taken < batch->prepared) {
		batch->error = submitted < 0 && submitted != -EBUSY ? submitted : -EAGAIN;
		ps_ring_unprepare(&context->ring, batch->prepared - taken);
		while (batch->prepared > taken)
			take_back(context, batch);
	}
	count_accepted(batch);
	batch->accepted += batch->prepared;
	batch->prepared = 0;
	memset(batch->of_kind, 0, sizeof(batch->of_kind));
}

/* Does a misaligned request here and now; the ring only carries the news, so that sleepers wake. */
static void prepare_done(struct io_uring_sqe *sqe, struct ps_slot *slot,
			 const struct request *request)
{
	slot->length = request->transfer.length;
	slot->kind = PS_SLOT_DONE;
	slot->result = ps_repair_now(request->file, &request->transfer);
	io_uring_prep_nop(sqe);
}

static void prepare_repair(struct ps_context *context, uint32_t number,
			   const struct request *request)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&context->ring.uring);

	if (!prepare_bounce(context, sqe, number, request))
		prepare_done(sqe, &context->slot[number], request);
	sqe->user_data = number;
}

/*
 * Prepares one request. 0; -EAGAIN where no more may be in flight; -errno where what was prepared before
 * was not all taken, and nothing has begun of this one.
 */
static int prepare(struct ps_context *context, struct batch *batch, struct iocb *iocb,
		   const struct request *request)
{
	const bool aligned = request->fsync || !ps_repair_needed(request->file, &request->transfer);
	const bool repair = !aligned && ps_config.aio_repair == PS_AIO_REPAIR_ON;
	struct io_uring_sqe *sqe;
	struct ps_slot *slot;
	uint32_t number;

	/* What was prepared before need not wait for it. */
	if (repair)
		hand_over(context, batch);
	if (batch->error != 0)
		return batch->error;
	if (take_slot(context, &number) < 0)
		return -EAGAIN;
	slot = &context->slot[number];
	slot->object = (uint64_t)(uintptr_t)iocb;
	slot->data = iocb->aio_data;
	if (repair) {
		prepare_repair(context, number, request);
	} else if (request->fsync) {
		sqe = io_uring_get_sqe(&context->ring.uring);
		prepare_fsync(context, sqe, slot, iocb);
		sqe->user_data = number;
	} else {
		sqe = io_uring_get_sqe(&context->ring.uring);
		prepare_transfer(context, sqe, slot, &request->transfer, aligned);
		if (iocb->aio_flags & IOCB_FLAG_IOPRIO)
			sqe->ioprio = (uint16_t)iocb->aio_reqprio;
		sqe->user_data = number;
	}
	ps_trace_io_submit(iocb, PS_TRACE_RING, slot->kind, slot->length);
	/* As the kernel marks what it accepted. */
	if (iocb->aio_key != 0)
		iocb->aio_key = 0;
	batch->of_kind[slot->kind]++;
	batch->prepared++;
	return 0;
}

int ps_by_ring_submit(struct ps_context *context, long count, struct iocb **iocbs, bool *for_kernel)
{
	struct batch batch = { 0 };
	struct request request;

	*for_kernel = false;
	ps_fixed_refresh(&context->fixed, &context->ring);
	for (long i = 0; i < count && batch.error == 0; i++) {
		if (!read_request(context, iocbs[i], &request)) {
			*for_kernel = true;
			break;
		}
		batch.error = prepare(context, &batch, iocbs[i], &request);
		if (batch.prepared == BATCH)
			hand_over(context, &batch);
	}
	hand_over(context, &batch);
	if (batch.error != 0)
		*for_kernel = false;
	return batch.accepted > 0 ? (int)batch.accepted : batch.error;
}

void ps_by_ring_expect(struct ps_context *context, uintptr_t memory, size_t length)
{
	ps_fixed_refresh(&context->fixed, &context->ring);
	(void)ps_fixed_find(&context->fixed, &context->ring, memory, length);
}

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
		if (number == WAKE)
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
				add_syncing(context, -1);
			give_slot(context, (uint32_t)number);
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
		ps_lock(&context->completion);
		give_slot(context, number);
		atomic_fetch_sub(&context->in_hand, 1);
		ps_unlock(&context->completion);
	}
}

/* What is there now. */
static long reap(struct ps_context *context, long most, struct io_event *events)
{
	struct ps_tally tally = { 0 };
	long count;

	ps_lock_lightly(&context->completion);
	count = read_completions(context, most, events, &tally);
	ps_unlock_lightly(&context->completion);
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
	ps_lock(&context->completion);
	kept = atomic_load(&context->done_count);
	count = most < (long)kept ? most : (long)kept;
	memcpy(events, context->done + context->done_first, (size_t)count * sizeof(events[0]));
	context->done_first += (uint32_t)count;
	atomic_store(&context->done_count, kept - (unsigned)count);
	ps_unlock(&context->completion);
	return count;
}

/* The same, and what was kept before. */
static long reap_all(struct ps_context *context, long most, struct io_event *events)
{
	const long kept = ps_by_ring_take(context, most, events);

	return kept + reap(context, most - kept, events + kept);
}

/*
 * Is there nothing to be reaped? Reads the ring, without a lock: only where no other thread can be about to
 * end the context.
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

	ps_lock(&context->completion);
	kept = atomic_load(&context->done_count);
	memmove(context->done, context->done + context->done_first, kept * sizeof(events[0]));
	context->done_first = 0;
	memcpy(context->done + kept, events, (size_t)count * sizeof(events[0]));
	atomic_store_explicit(&context->done_count, kept + (unsigned)count, memory_order_release);
	ps_unlock(&context->completion);
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

void ps_by_ring_wake(struct ps_context *context)
{
	struct io_uring_sqe *sqe;

	if (context->ring.kind == PS_RING_DEFERRED || atomic_load(&context->waiting) == 0)
		return;
	sqe = io_uring_get_sqe(&context->ring.uring);
	io_uring_prep_nop(sqe);
	sqe->user_data = WAKE;
	if (ps_ring_submit(&context->ring) < 1)
		ps_ring_unprepare(&context->ring, 1);
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
	int error = 0;

	while (*count < least && error == 0 && ps_context_engine(context) == PS_ENGINE_RING) {
		error = sleep_until(context, least - *count, deadline, mask);
		*count += reap_all(context, most - *count, events + *count);
	}
	return error == -ETIME ? 0 : error;
}

/* Until end_waiting() the ring is there: whoever ends the context first changes its engine, and then looks. */
static void begin_waiting(struct ps_context *context)
{
	if (ps_lock_alone())
		atomic_store_explicit(&context->waiting, atomic_load(&context->waiting) + 1,
				      memory_order_relaxed);
	else
		atomic_fetch_add(&context->waiting, 1);
}

static void end_waiting(struct ps_context *context)
{
	if (ps_lock_alone())
		atomic_store_explicit(&context->waiting, atomic_load(&context->waiting) - 1,
				      memory_order_release);
	else
		atomic_fetch_sub(&context->waiting, 1);
}

int ps_by_ring_getevents(struct ps_context *context, long least, long most, struct io_event *events,
			 struct timespec *timeout, const sigset_t *mask, bool *settled)
{
	const bool at_once = timeout != NULL && timeout->tv_sec <= 0 && timeout->tv_nsec <= 0;
	unsigned engine;
	int error = 0;
	long count;

	*settled = false;
	if (least < 0 || least > most)
		return -EINVAL;
	count = context->alone && is_empty(context) ? 0 : reap_all(context, most, events);
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
	if (count == 0 && engine == PS_ENGINE_ENDED)
		return -EINVAL;
	return count == 0 && error < 0 ? error : (int)count;
}
