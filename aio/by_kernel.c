/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts whose requests go to the kernel's AIO, as they come or repaired.
 *
 * A repaired request is submitted as a record of ours, whose address its event carries, so that the
 * event can be turned into the program's own. Who reads the completion ring without asking us would
 * see the record's, so the first record makes the ring's magic number 0. Programs that want an
 * eventfd notified may read it without looking at that: their misaligned requests are done at once, and
 * the event is had by writing as many bytes to /dev/null through the program's own iocb.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "config.h"
#include "context_state.h"
#include "count.h"
#include "deadline.h"
#include "descriptor.h"
#include "kernel.h"
#include "os.h"
#include "trace.h"

struct request {
	struct ps_transfer transfer;
	struct iovec single;
	struct ps_file file;
};

enum treatment { PASS, DIRECT, REPAIR };

/* /dev/null, open for writing; 0: not yet. -1 where it cannot be had. */
static atomic_int null_kept;

static int null_descriptor(void)
{
	int fd = atomic_load(&null_kept), none = 0;

	if (fd != 0)
		return fd;
	fd = ps_os_open("/dev/null", O_WRONLY, 0);
	fd = fd < 0 ? -1 : ps_descriptor_keep(fd);
	if (!atomic_compare_exchange_strong(&null_kept, &none, fd)) {
		ps_descriptor_close(fd);
		fd = none;
	}
	return fd;
}

/* What is to be done with a request. Submission lock. */
static enum treatment treat(struct ps_context *context, const struct iocb *iocb,
			    struct request *request)
{
	const struct ps_file *file;

	request->transfer.length = 0;
	if (!ps_may_be_there(iocb) ||
	    ps_transfer_of(iocb, &request->single, &request->transfer) < 0)
		return PASS;
	file = ps_file_get(&context->files, (int)iocb->aio_fildes);
	if (file == NULL || !(file->is & PS_FILE_DIRECT))
		return PASS;
	if (ps_config.aio_repair != PS_AIO_REPAIR_ON ||
	    !ps_file_allows(file, request->transfer.write) ||
	    !ps_repair_needed(file, &request->transfer))
		return DIRECT;
	request->file = *file;
	return REPAIR;
}

/* How many go as they are before one is to be repaired, and how many of these are direct I/O. */
static long count_untouched(struct ps_context *context, long count, struct iocb **iocbs,
			    struct request *request, long *direct)
{
	long i;

	*direct = 0;
	ps_submission_lock(context);
	for (i = 0; i < count; i++) {
		const enum treatment treatment = treat(context, iocbs[i], request);

		if (treatment == REPAIR)
			break;
		*direct += treatment == DIRECT;
		ps_trace_io_submit(iocbs[i], PS_TRACE_KERNEL,
				   treatment == DIRECT ? PS_TRACE_DIRECT : PS_TRACE_PASSED,
				   request->transfer.length);
	}
	ps_submission_unlock(context);
	return i;
}

/*
 * Submits what goes as it is. How many were accepted, or -errno. Those are not looked at again to be
 * counted: another thread may have reaped and freed them.
 */
static int submit_untouched(aio_context_t id, long count, struct iocb **iocbs, long direct)
{
	const int accepted = ps_kernel_submit_ours(id, count, iocbs);
	uint64_t *words;

	if (accepted > 0) {
		if (direct > accepted)
			direct = accepted;
		words = ps_aio_words();
		ps_aio_add(words, PS_AIO(submitted), (uint64_t)accepted);
		ps_aio_add(words, PS_AIO(direct), (uint64_t)direct);
		ps_aio_add(words, PS_AIO(passed), (uint64_t)(accepted - direct));
	}
	return accepted;
}

/* At the first repair. Completion lock. */
static void make_records(struct ps_context *context)
{
	const uint64_t mask = ps_signals_block();
	void *memory;

	/* The kernel's ring is no longer there where a handler has ended the context. */
	if (ps_context_engine(context) != PS_ENGINE_ENDED &&
	    ps_os_mmap(NULL, PS_RECORDS * sizeof(struct ps_record), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory) == 0) {
		context->record = memory;
		for (unsigned i = 0; i < PS_RECORDS; i++) {
			context->record[i].next = context->spare_record;
			context->spare_record = &context->record[i];
		}
		ps_context_kernel_ring(context)->magic = 0;
	}
	ps_signals_restore(mask);
}

static struct ps_record *take_record(struct ps_context *context)
{
	struct ps_record *record;

	ps_completion_lock(context);
	if (context->record == NULL)
		make_records(context);
	record = context->spare_record;
	if (record != NULL) {
		context->spare_record = record->next;
		atomic_fetch_add(&context->records, 1);
	}
	ps_completion_unlock(context);
	return record;
}

static void give_record(struct ps_context *context, struct ps_record *record)
{
	ps_completion_lock(context);
	record->next = context->spare_record;
	context->spare_record = record;
	atomic_fetch_sub(&context->records, 1);
	ps_completion_unlock(context);
}

/* A write to /dev/null, which completes with the number of bytes. */
static void make_null(struct iocb *iocb, int fd, uint64_t buffer, uint64_t length)
{
	iocb->aio_lio_opcode = IOCB_CMD_PWRITE;
	iocb->aio_fildes = (uint32_t)fd;
	iocb->aio_buf = buffer;
	iocb->aio_nbytes = length;
	iocb->aio_offset = 0;
	iocb->aio_rw_flags = 0;
}

/*
 * The request that goes to the kernel in place of iocb: aligned, or none because it is done. Done before the
 * kernel has accepted it: what it then refuses has happened all the same, which shows where the program
 * submits it again and it is an append.
 */
static void fill_record(struct ps_record *record, struct iocb *iocb, const struct request *request,
			int null)
{
	record->iocb = *iocb;
	record->object = (uint64_t)(uintptr_t)iocb;
	record->data = iocb->aio_data;
	record->length = request->transfer.length;
	record->done = !ps_repair_is_bounce(&request->file, &request->transfer) ||
		       ps_bounce_begin(&record->bounce, &request->file, &request->transfer) < 0;
	if (record->done) {
		record->result = ps_repair_now(&request->file, &request->transfer);
		make_null(&record->iocb, null, (uint64_t)(uintptr_t)record, 0);
		return;
	}
	record->iocb.aio_lio_opcode = request->transfer.write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
	record->iocb.aio_buf = (uint64_t)(uintptr_t)record->bounce.buffer.memory;
	record->iocb.aio_nbytes = record->bounce.length;
	record->iocb.aio_offset = (int64_t)record->bounce.offset;
}

static int submit_record(struct ps_context *context, aio_context_t id, struct iocb *iocb,
			 const struct request *request, int null)
{
	struct ps_record *record = take_record(context);
	struct iocb *submitted;
	int accepted;

	if (record == NULL)
		return -EAGAIN;
	fill_record(record, iocb, request, null);
	submitted = &record->iocb;
	ps_trace_io_submit(iocb, PS_TRACE_KERNEL, record->done ? PS_TRACE_DONE : PS_TRACE_BOUNCE,
			   record->length);
	accepted = ps_kernel_submit_ours(id, 1, &submitted);
	if (accepted != 1) {
		if (!record->done)
			ps_bounce_end(&record->bounce, -ECANCELED);
		give_record(context, record);
	}
	return accepted;
}

/* With the program's own iocb. An error is told by what the kernel says of the misaligned request. */
static int submit_notified(aio_context_t id, struct iocb *iocb, const struct request *request,
			   int null)
{
	const struct iocb saved = *iocb;
	const int64_t result = ps_repair_now(&request->file, &request->transfer);
	int accepted;

	if (result >= 0)
		make_null(iocb, null, (uint64_t)(uintptr_t)request->transfer.part[0].iov_base,
			  (uint64_t)result);
	ps_trace_io_submit(iocb, PS_TRACE_KERNEL, PS_TRACE_DONE, request->transfer.length);
	accepted = ps_kernel_submit_ours(id, 1, &iocb);
	*iocb = saved;
	return accepted;
}

/* 1 or -errno. */
static int submit_repaired(struct ps_context *context, aio_context_t id, struct iocb *iocb,
			   const struct request *request)
{
	const int null = null_descriptor();
	int accepted;

	if (null < 0)
		accepted = ps_kernel_submit_ours(id, 1, &iocb);
	else if (iocb->aio_flags & IOCB_FLAG_RESFD)
		accepted = submit_notified(id, iocb, request, null);
	else
		accepted = submit_record(context, id, iocb, request, null);
	if (accepted == 1) {
		ps_aio_count(PS_AIO(submitted), 1);
		ps_aio_count(PS_AIO(bounced), 1);
		ps_aio_count(PS_AIO(repaired), 1);
	}
	return accepted;
}

int ps_by_kernel_submit(struct ps_context *context, long count, struct iocb **iocbs)
{
	const aio_context_t id = atomic_load(&context->id);
	struct request request;
	long accepted = 0;
	int result = 0;

	while (accepted < count && result >= 0) {
		long direct, untouched = count_untouched(context, count - accepted,
							 iocbs + accepted, &request, &direct);

		if (untouched > 0) {
			result = submit_untouched(id, untouched, iocbs + accepted, direct);
			accepted += result > 0 ? result : 0;
			if (result < untouched)
				break;
		}
		if (accepted < count) {
			result = submit_repaired(context, id, iocbs[accepted], &request);
			accepted += result > 0 ? result : 0;
			if (result < 1)
				break;
		}
	}
	return accepted > 0 ? (int)accepted : result;
}

/*
 * Makes the event of a record the event of the program's request. Returns what it is traced as; *length is
 * what the request asked for, or 0 of one that is not known.
 */
static enum ps_trace_kind restore(struct ps_context *context, struct io_event *event,
				  uint64_t *length)
{
	const uint64_t first = (uint64_t)(uintptr_t)context->record;
	const uint64_t end = (uint64_t)(uintptr_t)(context->record + PS_RECORDS);
	struct ps_record *record;
	bool done;

	*length = 0;
	if (event->obj < first || event->obj >= end)
		return PS_TRACE_TOLD;
	record = (struct ps_record *)(uintptr_t)event->obj;
	event->res = record->done ? record->result : ps_bounce_end(&record->bounce, event->res);
	event->obj = record->object;
	event->data = record->data;
	*length = record->length;
	done = record->done;
	give_record(context, record);
	return done ? PS_TRACE_DONE : PS_TRACE_BOUNCE;
}

static void restore_all(struct ps_context *context, long count, struct io_event *events)
{
	struct ps_tally tally = { 0 };

	for (long i = 0; i < count; i++) {
		enum ps_trace_kind kind = PS_TRACE_TOLD;
		uint64_t length = 0;

		if (context->record != NULL)
			kind = restore(context, &events[i], &length);
		ps_trace_io_complete(events[i].obj, PS_TRACE_KERNEL, kind, events[i].res);
		ps_tally_add(&tally, events[i].res, length);
	}
	ps_tally_count(&tally);
}

int ps_by_kernel_getevents(struct ps_context *context, long least, long most,
			   struct io_event *events, struct timespec *timeout, const sigset_t *mask)
{
	const aio_context_t id = atomic_load(&context->id);
	long kept = 0;
	int count;

	if (least < 0 || least > most)
		return ps_kernel_getevents(id, least, most, events, timeout, mask);
	kept = ps_by_ring_take(context, most, events);
	if (kept > 0 && kept >= least)
		return (int)kept;
	count = ps_kernel_getevents_ours(id, least - kept, most - kept, events + kept, timeout,
					 mask);
	if (count > 0)
		restore_all(context, count, events + kept);
	if (kept > 0)
		return (int)kept + (count > 0 ? count : 0);
	return count;
}

void ps_by_kernel_drain(struct ps_context *context)
{
	const aio_context_t id = atomic_load(&context->id);
	struct io_event events[16];

	while (atomic_load(&context->records) > 0) {
		/* Another thread may have the last one in hand, so that no more is to come. */
		struct timespec a_moment = { .tv_nsec = PS_MILLISECOND };
		int count = ps_kernel_getevents(id, 1, sizeof(events) / sizeof(events[0]), events,
						&a_moment, NULL);

		if (count < 0 && count != -EINTR)
			break;
		if (count > 0)
			restore_all(context, count, events);
	}
}

void ps_by_kernel_end(struct ps_context *context)
{
	if (context->record != NULL)
		ps_os_munmap(context->record, PS_RECORDS * sizeof(*context->record));
	context->record = NULL;
	context->spare_record = NULL;
	atomic_store(&context->records, 0);
}
