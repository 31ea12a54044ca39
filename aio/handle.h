/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_HANDLE_H
#define PS_HANDLE_H
/*
 * A handle of pinshim_aio.h: its operations and its workers.
 *
 * One lock for all of it. Nothing that takes time is done under it, and no other lock of ours is taken
 * but those of pthread_create(). Memory is the program's: its threads alone allocate and free, workers do not.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "operation.h"
#include "pinshim_aio.h"

struct pinshim_aio_handle {
	struct pinshim_aio_options options;
	pid_t process;
	pthread_mutex_t lock;
	pthread_cond_t completed; /* some operation is */
	bool closing;             /* workers end when they have nothing to do */
	int64_t last_id;
	struct ps_operations running;
	struct ps_operations
		complete; /* whose results nobody has taken, in the order of completion */
	unsigned awaited; /* how many of running are not claimed */
	unsigned ready;   /* how many are in complete: none of them is claimed */
	_Atomic uint64_t transferred; /* bytes */
	unsigned workers; /* that have a thread; options.threads, or 0 before the first operation */
	unsigned turn;    /* the worker that gets the next part */
	struct ps_worker *worker; /* NULL before the first operation */
};

/*
 * Ends operations that are over, chained by their ending, and makes their results known. The lock is
 * held, but not all the time.
 */
void ps_handle_end(struct pinshim_aio_handle *handle, struct ps_operation *over);

#endif
