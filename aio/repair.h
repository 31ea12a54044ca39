/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_REPAIR_H
#define PS_REPAIR_H
/*
 * Direct I/O that the file system would refuse, because the buffer, the length or the offset is no
 * multiple of what it demands, is made to work through bounce buffers: locked memory of the heap.
 *
 * Reads are read whole blocks at a time, and the wanted bytes are copied. Writes whose offset and
 * length are aligned are copied and written. Of other writes the aligned middle goes direct; a block at
 * either end of which only a part is written is read, changed and written back, under a lock, because
 * another misaligned write may be changing the other part; where the file ends in that
 * block, or cannot be read, the bytes are written through the page cache, which changes nothing
 * but them and lets the file end where it should (edge.h).
 *
 * Where a file system does not say what it demands (PS_FILE_ASYNC is not set), it is asked first: what it
 * takes as it is needs no repair.
 *
 * Locks, below a context's submission lock, and never together with its completion lock: those of edge.h,
 * held across pread(2) and pwrite(2); below these the one of cached.h; innermost the one of buffer.h.
 */
#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "file.h"
#include "transfer.h"

/* As ps_repair_needed(), whatever it is. */
bool ps_repair_needed_of_any(const struct ps_file *file, const struct ps_transfer *transfer);

/*
 * Would direct I/O on this file refuse it? false for a file that is not open for direct I/O, for no bytes,
 * and for flags that a repair could not honour, which the kernel is to answer. Costs nothing but on
 * O_APPEND files, whose size is asked for.
 */
static inline bool ps_repair_needed(const struct ps_file *file, const struct ps_transfer *transfer)
{
	const uint64_t place = (transfer->offset | transfer->length) & (file->offset_align - 1);

	if (__builtin_expect(place == 0 && transfer->parts == 1 && transfer->flags == 0, 1) &&
	    ((uintptr_t)transfer->part->iov_base & (file->memory_align - 1)) == 0 &&
	    !(file->is & PS_FILE_APPEND))
		return false;
	return ps_repair_needed_of_any(file, transfer);
}

/* Can it be done by one aligned request on a bounce buffer, so that it need not be waited for? */
bool ps_repair_is_bounce(const struct ps_file *file, const struct ps_transfer *transfer);

/* What one request through a bounce buffer takes at most; longer ones are done in pieces. */
#define PS_BOUNCE_LONGEST ((uint64_t)16 << 20)

struct ps_bounce {
	/* The aligned request to make in its place, with the same RWF_* flags: */
	struct ps_buffer buffer;
	uint64_t length; /* bytes, which may be fewer than the buffer has */
	uint64_t offset; /* bytes */
	/* What was asked for: */
	struct ps_transfer wanted;
	struct iovec single; /* its part; a vector is copied to the end of the buffer */
};

/*
 * Gets a bounce buffer for such a request and, for a write, fills it. 0; -ENOMEM where none can be had
 * (they take at most PS_BOUNCE_MAX together): ps_repair_now() works without; -EFAULT where the
 * program's memory cannot be read.
 */
int ps_bounce_begin(struct ps_bounce *bounce, const struct ps_file *file,
		    const struct ps_transfer *transfer);

/*
 * The aligned request completed with result, a count or -errno: copies what was read to the program
 * and lets the buffer go. Returns what the program's request comes to: -EFAULT where its memory is not
 * there to be written to.
 */
int64_t ps_bounce_end(struct ps_bounce *bounce, int64_t result);

/*
 * Does any transfer, however it is aligned, before it returns. A count, short at the end of the file
 * or of space; -errno of pread(2) and pwrite(2) when nothing was transferred. Looks at the descriptor
 * anew. Raises SIGXFSZ where pwrite(2) would. RWF_NOWAIT is not honoured.
 */
int64_t ps_repair_now(const struct ps_file *file, const struct ps_transfer *transfer);

void ps_repair_fork_prepare(void);
void ps_repair_fork_parent(void);
/* The locks are free; bounce buffers in use are the parent's, and are not given out again. */
void ps_repair_fork_child(void);

#endif
