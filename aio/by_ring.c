/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests on their way into a ring. All of it under the submission lock.
 */
#include <linux/ioprio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "by_ring.h"
#include "config.h"
#include "count.h"
#include "os.h"
#include "trace.h"

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
	if (!ps_may_be_there(iocb) || iocb->aio_reserved2 != 0 ||
	    iocb->aio_flags & ~(uint32_t)IOCB_FLAG_IOPRIO || !priority_serves(iocb))
		return false;
	request->file = ps_file_get(&context->files, (int)iocb->aio_fildes);
	if (request->file == NULL || !(request->file->is & PS_FILE_DIRECT) ||
	    !(request->file->is & PS_FILE_NOWAIT) || request->file->is & PS_FILE_APPEND)
		return false;
	request->fsync = iocb->aio_lio_opcode == IOCB_CMD_FSYNC ||
			 iocb->aio_lio_opcode == IOCB_CMD_FDSYNC;
	if (request->fsync && context->ring.kind == PS_RING_DEFERRED &&
	    atomic_load(&ps_by_ring_syncing) > 0)
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
	ps_by_ring_add_syncing(context, 1);
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
	const uint32_t number = ps_slot_untake(context);
	const uint32_t kind = context->slot[number].kind;

	batch->prepared--;
	batch->of_kind[kind]--;
	if (kind == PS_SLOT_BOUNCE)
		ps_bounce_end(&context->bounce[number], -ECANCELED);
	else if (kind == PS_SLOT_PASSED)
		ps_by_ring_add_syncing(context, -1);
}

/* Gives the batch to the kernel; what it does not take is as if it had never been prepared. */
static void hand_over(struct ps_context *context, struct batch *batch)
{
	int submitted;
	unsigned taken;

	if (batch->prepared == 0)
		return;
	/* A signal's handler may have ended the context. */
	submitted = ps_context_engine(context) == PS_ENGINE_ENDED ? -EINVAL
								  : ps_ring_submit(&context->ring);
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
	if (ps_slot_take(context, &number) < 0)
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
		if (batch.prepared == PS_RING_BATCH)
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
