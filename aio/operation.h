/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_OPERATION_H
#define PS_OPERATION_H
/*
 * A read or write of the handle API, from being asked for to its result.
 *
 * It is divided into parts, one for each thread that is to work on it, from which requests are cut. It
 * is over when no part has anything left and no request is in flight; then it is ended (compared,
 * its file closed) by whoever noticed, which nobody else may meanwhile touch, and is complete.
 *
 * What is said to be under the lock is under its handle's (handle.h).
 */
#include <linux/aio_abi.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "pinshim_aio.h"

struct ps_operation;
struct ps_worker;

/* A stretch of the file, for one worker. */
struct ps_part {
	TAILQ_ENTRY(ps_part) link; /* in its worker's list, while there is something left to cut */
	struct ps_operation *operation;
	struct ps_worker *worker;
	uint64_t cursor; /* where the next request is cut; at the end, the part is used up */
	uint64_t end;
};

TAILQ_HEAD(ps_parts, ps_part);
TAILQ_HEAD(ps_operations, ps_operation);

/* What is asked for. */
struct ps_demand {
	void *buffer;
	uint64_t length;
	uint64_t offset;
	const char *path; /* NULL: fd */
	int fd;
	uint32_t flags; /* PINSHIM_AIO_* */
	bool write;
};

struct ps_operation {
	TAILQ_ENTRY(ps_operation) link; /* in its handle's running or complete */
	struct ps_operation *ending;    /* the next that its finder is to end */
	struct ps_demand demand;        /* path is in the memory of this struct */
	int64_t id;
	bool opened;  /* fd is ours to close */
	bool claimed; /* somebody waits for this very one, and takes its result */
	bool complete;
	uint32_t memory_align; /* what direct I/O on the file demands; 1 if it is not direct */
	uint32_t offset_align;
	unsigned open_parts; /* with something left; under the lock */
	unsigned in_flight;  /* requests cut and not finished; under the lock */
	uint64_t
		reached; /* everything up to here is transferred, when it is over; under the lock */
	const char *step; /* what failed: "open", "read", ... */
	int error; /* an errno value, of the failure with the lowest offset; under the lock */
	uint64_t failed_offset;
	uint64_t failed_length;
	unsigned parts;
	struct ps_part part[];
};

/* A request, of which a worker has queue_depth. */
struct ps_request {
	struct iocb iocb; /* what is left to do of it; aio_data is this struct */
	struct ps_operation *operation;
	struct ps_request *next; /* of a worker's list */
	unsigned tries;          /* in a row that transferred nothing */
	bool in_kernel;
	const char *step; /* what failed, if error */
	int error;        /* an errno value */
};

/*
 * Makes one, with its file open, for at most this many parts. NULL: no memory. If it cannot be done
 * error and step say why: then it can only be described and freed.
 */
struct ps_operation *ps_operation_new(const struct ps_demand *demand, unsigned parts);

/* Divides it at multiples of block_size in the file. Returns how many parts it has now: 0 without length. */
unsigned ps_operation_divide(struct ps_operation *operation, uint64_t block_size);

/*
 * The memory of the request that is distance bytes behind the next one of a part, or of its last one.
 * Returns its length in bytes; 0 if it needs a bounce buffer. Under the lock.
 */
size_t ps_operation_ahead(const struct ps_part *part, uint64_t distance, uint64_t block_size,
			  const void **memory);

/*
 * Cuts the next request from a part that is not used up. It ends at a multiple of block_size in the
 * file; unaligned ends of an operation are requests by themselves where the rest can then do without a
 * bounce buffer. Under the lock.
 */
void ps_operation_cut(struct ps_part *part, uint64_t block_size, struct ps_request *request);

/* A request is finished: all is transferred, or it has an error, or the file ends. Under the lock. */
void ps_operation_account(const struct ps_request *request);

/*
 * Gives up what is not cut yet from this offset on. Returns whether there was something. Under the
 * lock. It may be over now.
 */
bool ps_operation_stop(struct ps_operation *operation, uint64_t from);

/* Under the lock. */
static inline bool ps_operation_is_over(const struct ps_operation *operation)
{
	return operation->open_parts == 0 && operation->in_flight == 0;
}

/* It is over: compares it if that was asked for, and closes the file. Takes time. */
void ps_operation_end(struct ps_operation *operation);

/* What it came to: bytes or -errno, and the details in *result if that is not NULL. */
int64_t ps_operation_describe(const struct ps_operation *operation,
			      struct pinshim_aio_result *result);

void ps_operation_free(struct ps_operation *operation);

#endif
