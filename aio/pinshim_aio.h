/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PINSHIM_AIO_H
#define PINSHIM_AIO_H
/*
 * Fast file I/O for programs that know what they read and write: a handle with threads of its own that
 * keeps many requests in flight, and memory that the I/O goes to without a copy. Link with
 * -lpinshim-aio. It has what DeepNVMe's aio_handle has, and says what went wrong.
 *
 *	struct pinshim_aio_handle *handle;
 *	void *buffer = pinshim_aio_new_buffer(length);
 *
 *	pinshim_aio_open(NULL, 0, &handle);
 *	pinshim_aio_async_pread(handle, buffer, length, "weights.bin", 0, 0);
 *	... compute ...
 *	if (pinshim_aio_wait(handle, 0, NULL, 0) < 0)
 *		while (pinshim_aio_wait(handle, 0, &result, 1) > 0)
 *			fprintf(stderr, "%s at %llu: %s\n", result.file, ..., result.reason);
 *
 * Any buffer, length and offset will do. Fastest are buffers of pinshim_aio_new_buffer(), and
 * buffers, lengths and offsets that are multiples of pinshim_aio_alignment().
 *
 * An operation is cut into requests of block_size, at multiples of block_size in the file, and each
 * thread gets a contiguous part of it. Operations in flight together run in no order: one that needs
 * what another writes has to wait for it.
 *
 * All functions may be called from any thread, several on one handle too, except that nothing may use
 * a handle that is being closed; none from a signal handler. Functions that return an integer return a
 * negative errno value on failure; errno itself is set only by pinshim_aio_new_buffer().
 *
 * A handle belongs to the process that made it: in a forked child all its functions return -ECHILD.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinshim_aio_handle;

/* The settings of a handle. Their names and meanings are DeepNVMe's. */
struct pinshim_aio_options {
	uint64_t block_size;     /* bytes of a request; a multiple of 512, at most 1 GiB */
	uint32_t queue_depth;    /* requests in flight, of each thread; at most 32768 */
	uint32_t single_submit;  /* 1: each request by a system call of its own; 0: all there are */
	uint32_t overlap_events; /* 1: a request that completes is replaced at once; 0: when all are
				    complete as many again are made */
	uint32_t threads; /* intra_op_parallelism; at most 1024. Made at the first operation */
};

/* What is used where nothing else is said: what DeepSpeed's ds_io measures with. */
#define PINSHIM_AIO_DEFAULTS                                                                       \
	{                                                                                          \
		1048576, 32, 0, 1, 1                                                               \
	}

/* What an operation came to. */
struct pinshim_aio_result {
	int64_t id;      /* as returned by the function that started it; 0: synchronous */
	uint64_t bytes;  /* transferred, without a gap, from the beginning */
	uint64_t offset; /* in the file, and length: what was asked for */
	uint64_t length;
	uint64_t failed_offset; /* of the request that failed; only if error */
	uint64_t failed_length;
	int32_t error;    /* 0, or the errno value of the failure nearest the beginning */
	uint32_t write;   /* 1, or 0: it was a read */
	char file[256];   /* path, or descriptor and path; the end of a longer one */
	char reason[256]; /* for people: "write: No space left on device"; "" if no error */
	uint64_t reserved[4];
};

/*
 * flags of an operation: afterwards read the file again, through the page cache, and compare it with the
 * buffer; an operation whose data differ fails with EBADMSG. For finding faults: it takes time.
 */
#define PINSHIM_AIO_VALIDATE 0x1u

/*
 * Makes a handle. size is sizeof(*options) as the caller was compiled; NULL and 0 ask for the
 * defaults. 0; -EINVAL (a setting outside what is accepted); -ENOMEM.
 */
int pinshim_aio_open(const struct pinshim_aio_options *options, size_t size,
		     struct pinshim_aio_handle **handle);

/*
 * Waits for all operations, ends the threads and frees the handle, whatever it returns, except
 * -ECHILD: then nothing is freed. NULL is allowed. 0; else the -errno of the first failed operation
 * whose result nobody took, which is also said on stderr.
 */
int pinshim_aio_close(struct pinshim_aio_handle *handle);

/* The settings of a handle; size as above. 0; -EINVAL. */
int pinshim_aio_get_options(struct pinshim_aio_handle *handle, struct pinshim_aio_options *options,
			    size_t size);

/*
 * Reads or writes and waits for it. The file is opened for the operation, for direct I/O where it can
 * be; to write it is created with mode 0600 if need be, and never made shorter. Returns the
 * bytes transferred: of a read fewer than length at the end of the file, of a write always length.
 * -errno, with the details in *result if that is not NULL. Success fills it in, too.
 */
int64_t pinshim_aio_sync_pread(struct pinshim_aio_handle *handle, void *buffer, uint64_t length,
			       const char *path, uint64_t offset, uint32_t flags,
			       struct pinshim_aio_result *result);
int64_t pinshim_aio_sync_pwrite(struct pinshim_aio_handle *handle, const void *buffer,
				uint64_t length, const char *path, uint64_t offset, uint32_t flags,
				struct pinshim_aio_result *result);

/*
 * Starts it and returns its id, 1 or more. The buffer must stay until the operation is complete.
 * -errno if it was not started: the file cannot be opened, a descriptor that is not open for this
 * (-EBADF), for appending (-EINVAL) or has no offsets (-ESPIPE), -EINVAL (NULL buffer, unknown
 * flags, offset and length beyond 2^63), -ENOMEM, -EAGAIN (no thread could be made).
 */
int64_t pinshim_aio_async_pread(struct pinshim_aio_handle *handle, void *buffer, uint64_t length,
				const char *path, uint64_t offset, uint32_t flags);
int64_t pinshim_aio_async_pwrite(struct pinshim_aio_handle *handle, const void *buffer,
				 uint64_t length, const char *path, uint64_t offset,
				 uint32_t flags);

/*
 * The same four on a file that the caller has opened, with O_DIRECT or without. It must stay open
 * until the operation is complete. Its own offset is neither used nor changed.
 */
int64_t pinshim_aio_sync_pread_fd(struct pinshim_aio_handle *handle, void *buffer, uint64_t length,
				  int fd, uint64_t offset, uint32_t flags,
				  struct pinshim_aio_result *result);
int64_t pinshim_aio_sync_pwrite_fd(struct pinshim_aio_handle *handle, const void *buffer,
				   uint64_t length, int fd, uint64_t offset, uint32_t flags,
				   struct pinshim_aio_result *result);
int64_t pinshim_aio_async_pread_fd(struct pinshim_aio_handle *handle, void *buffer, uint64_t length,
				   int fd, uint64_t offset, uint32_t flags);
int64_t pinshim_aio_async_pwrite_fd(struct pinshim_aio_handle *handle, const void *buffer,
				    uint64_t length, int fd, uint64_t offset, uint32_t flags);

/*
 * Waits until count asynchronous operations are complete whose results nobody has taken, or all that
 * are left if there are fewer, or if count is 0; then takes the results of all that are complete.
 *
 * With results, stores at most room of them there, in the order of completion, and waits for no more
 * than that. Returns how many. Without (NULL), returns how many were complete, all successful; or,
 * if one was not, its -errno: then the results of those that failed can still be taken with results.
 */
int pinshim_aio_wait(struct pinshim_aio_handle *handle, unsigned count,
		     struct pinshim_aio_result *results, unsigned room);

/* The same without waiting. */
int pinshim_aio_poll(struct pinshim_aio_handle *handle, struct pinshim_aio_result *results,
		     unsigned room);

/*
 * Waits for this operation and takes its result, which pinshim_aio_wait() and pinshim_aio_poll() then
 * do not see. Returns its bytes or its -errno; -ENOENT if there is none by that id, or its
 * result was taken. result may be NULL.
 */
int64_t pinshim_aio_wait_for(struct pinshim_aio_handle *handle, int64_t id,
			     struct pinshim_aio_result *result);

/*
 * Gives up what has not been handed to the kernel of this operation, or of all asynchronous ones if id
 * is 0, and waits for what has: that cannot be taken back. Afterwards the buffer is not used any
 * more; the result is there to be taken, and error is ECANCELED if something was given up.
 * Returns the number of operations of which something was; -ENOENT as above.
 */
int pinshim_aio_cancel(struct pinshim_aio_handle *handle, int64_t id);

/* Bytes transferred by the handle so far, those of operations in flight included; for showing progress. */
uint64_t pinshim_aio_transferred(struct pinshim_aio_handle *handle);

/*
 * A buffer of length bytes (0 counts as 1) that is locked in memory, at a multiple of 4096, not
 * zeroed. NULL with errno ENOMEM: a limit refused, said once on stderr. Every handle knows it.
 */
void *pinshim_aio_new_buffer(size_t length);

/*
 * Frees it; NULL is allowed. No operation may be using it. 0; -EINVAL for any other address than one
 * that pinshim_aio_new_buffer() returned and that was not freed since.
 */
int pinshim_aio_free_buffer(void *buffer);

/*
 * Is every byte of [address, address+length) locked in memory: part of such a buffer, or other memory
 * that pinshim pinned? 1 or 0. length 0 asks about one byte. Any address may be asked about.
 */
int pinshim_aio_is_pinned(const void *address, size_t length);

/*
 * What buffers, offsets and lengths must be multiples of for I/O on this file to need no copy: a power of
 * two, 1 where it is not open for direct I/O. -errno if it cannot be opened for reading.
 */
int64_t pinshim_aio_alignment(const char *path);

#ifdef __cplusplus
}
#endif

#endif
