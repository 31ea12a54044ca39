/* SPDX-License-Identifier: BSD-2-Clause */
#include "worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "context.h"
#include "deadline.h"
#include "handle.h"
#include "log.h"
#include "os.h"
#include "syscall.h"
#include "transfer.h"

/* How often in a row a request may be refused for the moment, a millisecond between. */
#define TRIES 200

static void push(struct ps_request **list, struct ps_request *request)
{
	request->next = *list;
	*list = request;
}

static struct ps_request *pop(struct ps_request **list)
{
	struct ps_request *request = *list;

	*list = request->next;
	return request;
}

static void finish(struct ps_worker *worker, struct ps_request *request, int error)
{
	request->error = error;
	push(&worker->finished, request);
}

static bool is_at_end(const struct iocb *iocb)
{
	struct stat status;

	return ps_os_fstat((int)iocb->aio_fildes, &status) == 0 && S_ISREG(status.st_mode) &&
	       iocb->aio_offset >= status.st_size;
}

static void nap(void)
{
	ps_os_sleep(PS_MILLISECOND);
}

/* The kernel's answer to a request: it is finished, or the rest of it is submitted again. */
static void answer(struct ps_worker *worker, struct ps_request *request, int64_t result)
{
	struct iocb *iocb = &request->iocb;
	const bool write = iocb->aio_lio_opcode == IOCB_CMD_PWRITE;

	if (result < 0) {
		if ((result != -EAGAIN && result != -EINTR) || request->tries++ >= TRIES) {
			finish(worker, request, (int)-result);
			return;
		}
		nap();
		push(&worker->again, request);
		return;
	}
	if ((uint64_t)result > iocb->aio_nbytes)
		result = (int64_t)iocb->aio_nbytes;
	iocb->aio_nbytes -= (uint64_t)result;
	iocb->aio_buf += (uint64_t)result;
	iocb->aio_offset += result;
	atomic_fetch_add_explicit(&worker->handle->transferred, (uint64_t)result,
				  memory_order_relaxed);
	request->tries = 0;
	if (iocb->aio_nbytes == 0 || (!write && (result == 0 || is_at_end(iocb))))
		finish(worker, request, 0);
	else if (result == 0)
		finish(worker, request, EIO);
	else
		push(&worker->again, request);
}

/* Under the lock. */
static void look_ahead(struct ps_worker *worker)
{
	const struct pinshim_aio_options *options = &worker->handle->options;
	const struct ps_part *part = TAILQ_FIRST(&worker->parts);

	if (part != NULL)
		worker->ahead_bytes = ps_operation_ahead(
			part, options->queue_depth * (uint64_t)options->block_size,
			options->block_size, &worker->ahead);
}

/*
 * What to submit next: what is left over, then what is cut from the parts, first come first served.
 * Without overlap_events that waits until nothing is in flight. Under the lock.
 */
static unsigned gather(struct ps_worker *worker)
{
	const struct pinshim_aio_options *options = &worker->handle->options;
	struct ps_request *request;
	unsigned count = 0;

	worker->ahead_bytes = 0;
	while (worker->again)
		worker->batch[count++] = &pop(&worker->again)->iocb;
	if (!options->overlap_events && worker->in_kernel > 0)
		return count;
	while (worker->spare && !TAILQ_EMPTY(&worker->parts)) {
		request = pop(&worker->spare);
		worker->busy++;
		ps_operation_cut(TAILQ_FIRST(&worker->parts), options->block_size, request);
		worker->batch[count++] = &request->iocb;
	}
	look_ahead(worker);
	return count;
}

static struct ps_request *request_of(const struct iocb *iocb)
{
	return (struct ps_request *)(uintptr_t)iocb->aio_data;
}

/* Where the limit of the system on requests in flight is near, a context is had for fewer. */
static int begin_context(struct ps_worker *worker)
{
	const unsigned depth = worker->handle->options.queue_depth;
	int error = -EAGAIN;

	for (unsigned events = depth; error == -EAGAIN && events > 0; events /= 2) {
		error = ps_context_setup(events, &worker->context);
		if (error == 0 && events < depth)
			ps_log_once(
				PS_LOG_WARN,
				"queue_depth %u of a handle: io_setup: fs.aio-max-nr is used up: "
				"going on with %u; raise it with sysctl",
				depth, events);
	}
	if (error)
		worker->context = 0;
	else
		ps_context_own(worker->context);
	return error;
}

/* Destroying a context waits for what is in flight; how it went is then not known. */
static void lose_context(struct ps_worker *worker, int error)
{
	ps_context_destroy(worker->context);
	worker->context = 0;
	worker->in_kernel = 0;
	for (unsigned i = 0; i < worker->handle->options.queue_depth; i++) {
		struct ps_request *request = &worker->request[i];

		if (!request->in_kernel)
			continue;
		request->in_kernel = false;
		request->step = "io_getevents";
		finish(worker, request, error);
	}
}

/* The rest of a batch waits until something in flight completes, or a millisecond passes. */
static void postpone(struct ps_worker *worker, struct iocb **batch, unsigned count)
{
	while (count-- > 0)
		push(&worker->again, request_of(batch[count]));
	if (worker->in_kernel == 0)
		nap();
}

/* Without asynchronous I/O. A count or -errno. */
static int64_t at_once(const struct iocb *iocb)
{
	struct iovec part = { (void *)(uintptr_t)iocb->aio_buf, iocb->aio_nbytes };

	return ps_transfer_parts((int)iocb->aio_fildes, &part, 1, (uint64_t)iocb->aio_offset, 0,
				 iocb->aio_lio_opcode == IOCB_CMD_PWRITE);
}

static void submit(struct ps_worker *worker, unsigned count)
{
	const unsigned most = worker->handle->options.single_submit ? 1 : count;
	struct iocb **batch = worker->batch;
	int taken;

	for (unsigned done = 0; done < count;) {
		struct ps_request *first = request_of(batch[done]);
		const unsigned left = count - done;

		taken = ps_context_submit(worker->context, most < left ? most : left, batch + done);
		if (taken == -EINTR)
			continue;
		if (taken == 0 || taken == -EAGAIN) {
			/* With others in flight it is only the queue that is full. */
			if (worker->in_kernel > 0 || first->tries++ < TRIES) {
				postpone(worker, batch + done, left);
				return;
			}
			taken = -EAGAIN;
		}
		if (taken < 0) {
			/* Some devices and file systems can only read(2) and write(2). */
			answer(worker, first, taken == -EINVAL ? at_once(&first->iocb) : taken);
			taken = 1;
		} else {
			worker->in_kernel += (unsigned)taken;
			for (int i = 0; i < taken; i++)
				request_of(batch[done + (unsigned)i])->in_kernel = true;
		}
		done += (unsigned)taken;
	}
}

/* As ps_context_getevents(), which a debugger or the kernel's want of memory may interrupt. */
static int get_events(struct ps_worker *worker, long least)
{
	int count;

	for (unsigned tries = 0; tries < TRIES; tries++) {
		count = ps_context_getevents(worker->context, least,
					     worker->handle->options.queue_depth, worker->event,
					     NULL, NULL);
		if (count == -EAGAIN)
			nap();
		else if (count != -EINTR)
			break;
	}
	return count;
}

/* Waits for something to complete, unless there is something to account for already. */
static void reap(struct ps_worker *worker)
{
	int count;

	if (worker->in_kernel == 0 || worker->finished)
		return;
	count = get_events(worker, worker->handle->options.overlap_events ? 1 : worker->in_kernel);
	if (count < 0) {
		lose_context(worker, -count);
		return;
	}
	worker->in_kernel -= (unsigned)count;
	for (int i = 0; i < count; i++) {
		struct ps_request *request = (struct ps_request *)(uintptr_t)worker->event[i].data;

		request->in_kernel = false;
		answer(worker, request, worker->event[i].res);
	}
}

/* Submits what was gathered and waits for something to complete. Without the lock. */
static void transfer(struct ps_worker *worker, unsigned count)
{
	int error = worker->context ? 0 : begin_context(worker);

	if (error) {
		for (unsigned i = 0; i < count; i++) {
			request_of(worker->batch[i])->step = "io_setup";
			finish(worker, request_of(worker->batch[i]), -error);
		}
		return;
	}
	submit(worker, count);
	if (worker->in_kernel > 0 && worker->ahead_bytes > 0)
		ps_context_expect(worker->context, worker->ahead, worker->ahead_bytes);
	reap(worker);
}

/* Passes on what is finished; operations that are over are ended. Under the lock, not all the time. */
static void account(struct ps_worker *worker)
{
	struct ps_operation *over = NULL;

	while (worker->finished) {
		struct ps_request *request = pop(&worker->finished);
		struct ps_operation *operation = request->operation;

		ps_operation_account(request);
		worker->busy--;
		push(&worker->spare, request);
		if (ps_operation_is_over(operation)) {
			operation->ending = over;
			over = operation;
		}
	}
	ps_handle_end(worker->handle, over);
}

static void *work(void *argument)
{
	struct ps_worker *worker = argument;
	struct pinshim_aio_handle *handle = worker->handle;
	unsigned count;

	ps_syscall2(SYS_prctl, PR_SET_NAME, "pinshim-aio");
	pthread_mutex_lock(&handle->lock);
	for (;;) {
		account(worker);
		count = gather(worker);
		if (count > 0 || worker->busy > 0) {
			pthread_mutex_unlock(&handle->lock);
			transfer(worker, count);
			pthread_mutex_lock(&handle->lock);
		} else if (handle->closing) {
			break;
		} else {
			pthread_cond_wait(&worker->work, &handle->lock);
		}
	}
	pthread_mutex_unlock(&handle->lock);
	if (worker->context)
		ps_context_destroy(worker->context);
	return NULL;
}

static int begin(struct ps_worker *worker, struct pinshim_aio_handle *handle)
{
	const size_t depth = handle->options.queue_depth;
	void *memory;
	int error;

	worker->mapped = depth *
			 (sizeof(struct ps_request) + sizeof(struct io_event) + sizeof(void *));
	error = ps_os_mmap(NULL, worker->mapped, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory);
	if (error)
		return -ENOMEM;
	worker->handle = handle;
	TAILQ_INIT(&worker->parts);
	worker->request = memory;
	worker->event = (struct io_event *)(worker->request + depth);
	worker->batch = (struct iocb **)(worker->event + depth);
	worker->spare = NULL;
	for (size_t i = depth; i-- > 0;)
		push(&worker->spare, &worker->request[i]);
	pthread_cond_init(&worker->work, NULL);
	error = pthread_create(&worker->thread, NULL, work, worker);
	if (!error)
		return 0;
	pthread_cond_destroy(&worker->work);
	ps_os_munmap(memory, worker->mapped);
	return error == ENOMEM ? -ENOMEM : -EAGAIN;
}

int ps_workers_start(struct pinshim_aio_handle *handle)
{
	sigset_t all, before;
	int error = 0;

	if (handle->workers == handle->options.threads)
		return 0;
	if (!handle->worker)
		handle->worker = calloc(handle->options.threads, sizeof(*handle->worker));
	if (!handle->worker)
		return -ENOMEM;
	/* The program's handlers are not to run in a thread that it does not know. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!error && handle->workers < handle->options.threads) {
		error = begin(&handle->worker[handle->workers], handle);
		if (!error)
			handle->workers++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

void ps_worker_give(struct ps_worker *worker, struct ps_part *part)
{
	part->worker = worker;
	TAILQ_INSERT_TAIL(&worker->parts, part, link);
	pthread_cond_signal(&worker->work);
}

void ps_workers_join(struct pinshim_aio_handle *handle)
{
	for (unsigned i = 0; i < handle->workers; i++) {
		struct ps_worker *worker = &handle->worker[i];

		pthread_join(worker->thread, NULL);
		pthread_cond_destroy(&worker->work);
		ps_os_munmap(worker->request, worker->mapped);
	}
	free(handle->worker);
}
