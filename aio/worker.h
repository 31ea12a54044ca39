/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_WORKER_H
#define PS_WORKER_H
/*
 * A thread of a handle, with a context of its own (context.h) that nobody else submits to or reaps
 * from, and the requests that it keeps in flight.
 */
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stddef.h>

#include "operation.h"

struct pinshim_aio_handle;

struct ps_worker {
	/* Under the handle's lock: */
	struct pinshim_aio_handle *handle;
	struct ps_parts parts;    /* to cut requests from, the first first */
	pthread_cond_t work;      /* there are parts, or the handle is being closed */
	struct ps_request *spare; /* requests not in use */
	unsigned busy;            /* how many are in use */
	/* Its own: */
	pthread_t thread;
	aio_context_t context;       /* 0: none yet */
	unsigned in_kernel;          /* requests submitted and not reaped */
	const void *ahead;           /* memory that is read or written a queue's length from now */
	size_t ahead_bytes;          /* 0: none */
	struct ps_request *again;    /* requests to be submitted, again or still */
	struct ps_request *finished; /* requests to be accounted for */
	struct ps_request
		*request; /* all of them: options.queue_depth, and as many of the following */
	struct iocb **batch;
	struct io_event *event;
	size_t mapped; /* bytes from request on */
};

/*
 * Makes the threads of a handle that are not there yet. 0; -EAGAIN (pthread_create), -ENOMEM. Those
 * made so far stay, and the next call makes the rest. Under the lock.
 */
int ps_workers_start(struct pinshim_aio_handle *handle);

/* Hands a part to a worker. Under the lock. */
void ps_worker_give(struct ps_worker *worker, struct ps_part *part);

/* Waits for the threads, which end when they have nothing to do, for the handle is closing. */
void ps_workers_join(struct pinshim_aio_handle *handle);

#endif
