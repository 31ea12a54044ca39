/* SPDX-License-Identifier: BSD-2-Clause */
#include "handle.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "os.h"
#include "start.h"
#include "worker.h"

#define PUBLIC __attribute__((visibility("default")))

#define BLOCK_SIZE_MAX ((uint64_t)1 << 30)
#define QUEUE_DEPTH_MAX 32768
#define THREADS_MAX 1024

static bool are_valid(const struct pinshim_aio_options *options)
{
	return options->block_size >= 512 && options->block_size % 512 == 0 &&
	       options->block_size <= BLOCK_SIZE_MAX && options->queue_depth >= 1 &&
	       options->queue_depth <= QUEUE_DEPTH_MAX && options->threads >= 1 &&
	       options->threads <= THREADS_MAX && options->single_submit <= 1 &&
	       options->overlap_events <= 1;
}

/* 0; -EINVAL without a handle; -ECHILD in a process that it does not belong to. */
static int check(const struct pinshim_aio_handle *handle)
{
	if (!handle)
		return -EINVAL;
	return handle->process == ps_os_getpid() ? 0 : -ECHILD;
}

PUBLIC int pinshim_aio_open(const struct pinshim_aio_options *options, size_t size,
			    struct pinshim_aio_handle **handle)
{
	struct pinshim_aio_options wanted = PINSHIM_AIO_DEFAULTS;
	struct pinshim_aio_handle *made;

	if (!handle)
		return -EINVAL;
	*handle = NULL;
	/* A program that is newer than this library may ask for what is not known here. */
	if (options ? size == 0 || size > sizeof(wanted) : size > 0)
		return -EINVAL;
	if (options)
		memcpy(&wanted, options, size);
	if (!are_valid(&wanted))
		return -EINVAL;
	ps_aio_start();
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->options = wanted;
	made->process = ps_os_getpid();
	TAILQ_INIT(&made->running);
	TAILQ_INIT(&made->complete);
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->completed, NULL);
	*handle = made;
	return 0;
}

PUBLIC int pinshim_aio_get_options(struct pinshim_aio_handle *handle,
				   struct pinshim_aio_options *options, size_t size)
{
	const int error = check(handle);

	if (error)
		return error;
	if (!options || size == 0 || size > sizeof(*options))
		return -EINVAL;
	memcpy(options, &handle->options, size);
	return 0;
}

/* An error that nobody asked about must not be lost. */
static void complain(const struct ps_operation *operation)
{
	struct pinshim_aio_result result;

	ps_operation_describe(operation, &result);
	ps_log(PS_LOG_ERROR,
	       "%s of %s, offset %llu, length %llu: failed at offset %llu: %s: the handle was closed "
	       "and nobody took the result",
	       result.write ? "write" : "read", result.file, (unsigned long long)result.offset,
	       (unsigned long long)result.length, (unsigned long long)result.failed_offset,
	       result.reason);
}

PUBLIC int pinshim_aio_close(struct pinshim_aio_handle *handle)
{
	struct ps_operation *operation;
	int error;

	if (!handle)
		return 0;
	error = check(handle);
	if (error)
		return error;
	pthread_mutex_lock(&handle->lock);
	handle->closing = true;
	for (unsigned i = 0; i < handle->workers; i++)
		pthread_cond_signal(&handle->worker[i].work);
	pthread_mutex_unlock(&handle->lock);
	ps_workers_join(handle);
	while ((operation = TAILQ_FIRST(&handle->complete))) {
		TAILQ_REMOVE(&handle->complete, operation, link);
		if (operation->error) {
			complain(operation);
			error = error ? error : -operation->error;
		}
		ps_operation_free(operation);
	}
	pthread_cond_destroy(&handle->completed);
	pthread_mutex_destroy(&handle->lock);
	free(handle);
	return error;
}

/* It was ended: there is a result now. Under the lock. */
static void complete(struct pinshim_aio_handle *handle, struct ps_operation *operation)
{
	TAILQ_REMOVE(&handle->running, operation, link);
	operation->complete = true;
	if (!operation->claimed) {
		handle->awaited--;
		handle->ready++;
		TAILQ_INSERT_TAIL(&handle->complete, operation, link);
	}
	pthread_cond_broadcast(&handle->completed);
}

void ps_handle_end(struct pinshim_aio_handle *handle, struct ps_operation *over)
{
	while (over) {
		struct ps_operation *operation = over;

		over = operation->ending;
		pthread_mutex_unlock(&handle->lock);
		ps_operation_end(operation);
		pthread_mutex_lock(&handle->lock);
		complete(handle, operation);
	}
}

/* Lets the workers begin. Under the lock. */
static void run(struct pinshim_aio_handle *handle, struct ps_operation *operation)
{
	TAILQ_INSERT_TAIL(&handle->running, operation, link);
	handle->awaited += !operation->claimed;
	for (unsigned i = 0; i < operation->parts; i++) {
		ps_worker_give(&handle->worker[handle->turn], &operation->part[i]);
		handle->turn = (handle->turn + 1) % handle->workers;
	}
}

/*
 * Starts an operation. A synchronous one has no id and is claimed by its caller; of any other the id
 * is returned, and it may be gone already. 0 or -errno.
 */
static int64_t start(struct pinshim_aio_handle *handle, struct ps_operation *operation, bool wait)
{
	int64_t id = 0;
	int error;

	if (operation->error)
		return -operation->error;
	if (ps_operation_divide(operation, handle->options.block_size) == 0)
		ps_operation_end(operation);
	pthread_mutex_lock(&handle->lock);
	error = ps_workers_start(handle);
	if (error) {
		operation->step = "pthread_create";
		operation->error = -error;
		operation->failed_offset = operation->reached = operation->demand.offset;
		operation->failed_length = operation->demand.length;
	} else {
		if (!wait)
			id = ++handle->last_id;
		operation->id = id;
		operation->claimed = wait;
		run(handle, operation);
		if (operation->parts == 0)
			complete(handle, operation);
	}
	pthread_mutex_unlock(&handle->lock);
	return error ? error : id;
}

/* Waits for an operation that the caller claimed, and takes its result. Under the lock, then without. */
static int64_t take_claimed(struct pinshim_aio_handle *handle, struct ps_operation *operation,
			    struct pinshim_aio_result *result)
{
	int64_t bytes;

	while (!operation->complete)
		pthread_cond_wait(&handle->completed, &handle->lock);
	pthread_mutex_unlock(&handle->lock);
	bytes = ps_operation_describe(operation, result);
	ps_operation_free(operation);
	return bytes;
}

/* A failure before there was an operation. */
static int64_t refuse(const struct ps_demand *demand, int error, struct pinshim_aio_result *result)
{
	const struct ps_operation operation = {
		.demand = *demand,
		.reached = demand->offset,
		.step = "handle",
		.error = -error,
		.failed_offset = demand->offset,
		.failed_length = demand->length,
	};

	return ps_operation_describe(&operation, result);
}

static int64_t synchronous(struct pinshim_aio_handle *handle, const struct ps_demand *demand,
			   struct pinshim_aio_result *result)
{
	struct ps_operation *operation;
	int64_t bytes;
	int error = check(handle);

	if (error)
		return refuse(demand, error, result);
	operation = ps_operation_new(demand, handle->options.threads);
	if (!operation)
		return refuse(demand, -ENOMEM, result);
	if (start(handle, operation, true) == 0) {
		pthread_mutex_lock(&handle->lock);
		return take_claimed(handle, operation, result);
	}
	bytes = ps_operation_describe(operation, result);
	ps_operation_free(operation);
	return bytes;
}

static int64_t asynchronous(struct pinshim_aio_handle *handle, const struct ps_demand *demand)
{
	struct ps_operation *operation;
	int64_t id = check(handle);

	if (id < 0)
		return id;
	operation = ps_operation_new(demand, handle->options.threads);
	if (!operation)
		return -ENOMEM;
	id = start(handle, operation, false);
	if (id < 0)
		ps_operation_free(operation);
	return id;
}

/* The eight functions that start an operation. */
#define DEMAND(is_write, by_path, by_fd)                                                           \
	{                                                                                          \
		.buffer = (void *)(uintptr_t)buffer, .length = length, .offset = offset,           \
		.path = (by_path), .fd = (by_fd), .flags = flags, .write = (is_write)              \
	}
#define TRANSFER(name, is_write, pointer)                                                          \
	PUBLIC int64_t pinshim_aio_sync_##name(struct pinshim_aio_handle *handle, pointer buffer,  \
					       uint64_t length, const char *path, uint64_t offset, \
					       uint32_t flags, struct pinshim_aio_result *result)  \
	{                                                                                          \
		const struct ps_demand demand = DEMAND(is_write, path, -1);                        \
                                                                                                   \
		return synchronous(handle, &demand, result);                                       \
	}                                                                                          \
	PUBLIC int64_t pinshim_aio_async_##name(struct pinshim_aio_handle *handle, pointer buffer, \
						uint64_t length, const char *path,                 \
						uint64_t offset, uint32_t flags)                   \
	{                                                                                          \
		const struct ps_demand demand = DEMAND(is_write, path, -1);                        \
                                                                                                   \
		return asynchronous(handle, &demand);                                              \
	}                                                                                          \
	PUBLIC int64_t pinshim_aio_sync_##name##_fd(                                               \
		struct pinshim_aio_handle *handle, pointer buffer, uint64_t length, int fd,        \
		uint64_t offset, uint32_t flags, struct pinshim_aio_result *result)                \
	{                                                                                          \
		const struct ps_demand demand = DEMAND(is_write, NULL, fd);                        \
                                                                                                   \
		return synchronous(handle, &demand, result);                                       \
	}                                                                                          \
	PUBLIC int64_t pinshim_aio_async_##name##_fd(struct pinshim_aio_handle *handle,            \
						     pointer buffer, uint64_t length, int fd,      \
						     uint64_t offset, uint32_t flags)              \
	{                                                                                          \
		const struct ps_demand demand = DEMAND(is_write, NULL, fd);                        \
                                                                                                   \
		return asynchronous(handle, &demand);                                              \
	}

TRANSFER(pread, false, void *)
TRANSFER(pwrite, true, const void *)

/* Moves what is complete, at most so many, to taken; failures only if asked to. Under the lock. */
static unsigned move_complete(struct pinshim_aio_handle *handle, struct ps_operations *taken,
			      unsigned most, bool failures)
{
	struct ps_operation *operation = TAILQ_FIRST(&handle->complete), *next;
	unsigned count = 0;

	for (; operation && count < most; operation = next) {
		next = TAILQ_NEXT(operation, link);
		if (operation->error && !failures)
			continue;
		TAILQ_REMOVE(&handle->complete, operation, link);
		TAILQ_INSERT_TAIL(taken, operation, link);
		handle->ready--;
		count++;
	}
	return count;
}

/* Waits until so many operations are ready, or all that there are. */
static int take(struct pinshim_aio_handle *handle, unsigned count,
		struct pinshim_aio_result *results, unsigned room)
{
	struct ps_operations taken = TAILQ_HEAD_INITIALIZER(taken);
	struct ps_operation *operation;
	unsigned moved, at = 0;
	int error = check(handle);

	if (error)
		return error;
	if (!results || room > INT_MAX)
		room = INT_MAX;
	if (count > room)
		count = room;
	pthread_mutex_lock(&handle->lock);
	while (handle->ready < count && handle->awaited > 0)
		pthread_cond_wait(&handle->completed, &handle->lock);
	moved = move_complete(handle, &taken, room, results != NULL);
	operation = results ? NULL : TAILQ_FIRST(&handle->complete);
	error = operation ? -operation->error : 0;
	pthread_mutex_unlock(&handle->lock);
	while ((operation = TAILQ_FIRST(&taken))) {
		TAILQ_REMOVE(&taken, operation, link);
		if (results)
			ps_operation_describe(operation, &results[at++]);
		ps_operation_free(operation);
	}
	return error ? error : (int)moved;
}

PUBLIC int pinshim_aio_wait(struct pinshim_aio_handle *handle, unsigned count,
			    struct pinshim_aio_result *results, unsigned room)
{
	return take(handle, count ? count : UINT_MAX, results, room);
}

PUBLIC int pinshim_aio_poll(struct pinshim_aio_handle *handle, struct pinshim_aio_result *results,
			    unsigned room)
{
	return take(handle, 0, results, room);
}

/* Synchronous operations have no id. */
static struct ps_operation *find(const struct ps_operations *operations, int64_t id)
{
	struct ps_operation *operation;

	for (operation = TAILQ_FIRST(operations); operation;
	     operation = TAILQ_NEXT(operation, link))
		if (id > 0 && operation->id == id)
			return operation;
	return NULL;
}

PUBLIC int64_t pinshim_aio_wait_for(struct pinshim_aio_handle *handle, int64_t id,
				    struct pinshim_aio_result *result)
{
	struct ps_operation *operation;
	const int error = check(handle);

	if (error)
		return error;
	pthread_mutex_lock(&handle->lock);
	operation = find(&handle->complete, id);
	if (operation) {
		TAILQ_REMOVE(&handle->complete, operation, link);
		handle->ready--;
	} else if ((operation = find(&handle->running, id)) && !operation->claimed) {
		operation->claimed = true;
		handle->awaited--;
		pthread_cond_broadcast(&handle->completed); /* others have one less to wait for */
	} else {
		pthread_mutex_unlock(&handle->lock);
		return -ENOENT;
	}
	return take_claimed(handle, operation, result);
}

/* Is this, or if id is 0 any up to last, still running? Under the lock. */
static bool is_running(const struct pinshim_aio_handle *handle, int64_t id, int64_t last)
{
	const struct ps_operation *operation;

	for (operation = TAILQ_FIRST(&handle->running); operation;
	     operation = TAILQ_NEXT(operation, link))
		if (operation->id > 0 && (id ? operation->id == id : operation->id <= last))
			return true;
	return false;
}

PUBLIC int pinshim_aio_cancel(struct pinshim_aio_handle *handle, int64_t id)
{
	struct ps_operation *operation, *over = NULL;
	int64_t last;
	int count = check(handle);

	if (count < 0)
		return count;
	pthread_mutex_lock(&handle->lock);
	last = handle->last_id;
	if (id && !find(&handle->running, id) && !find(&handle->complete, id))
		count = -ENOENT;
	for (operation = TAILQ_FIRST(&handle->running); operation;
	     operation = TAILQ_NEXT(operation, link)) {
		if (operation->id == 0 || (id && operation->id != id) ||
		    !ps_operation_stop(operation, 0))
			continue;
		count++;
		if (!operation->error)
			operation->error = ECANCELED;
		if (ps_operation_is_over(operation)) {
			operation->ending = over;
			over = operation;
		}
	}
	ps_handle_end(handle, over);
	while (is_running(handle, id, last))
		pthread_cond_wait(&handle->completed, &handle->lock);
	pthread_mutex_unlock(&handle->lock);
	return count;
}

PUBLIC uint64_t pinshim_aio_transferred(struct pinshim_aio_handle *handle)
{
	return handle ? atomic_load_explicit(&handle->transferred, memory_order_relaxed) : 0;
}
