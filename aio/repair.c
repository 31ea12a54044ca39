/* SPDX-License-Identifier: BSD-2-Clause */
#include "repair.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "cached.h"
#include "edge.h"
#include "os.h"
#include "syscall.h"

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

#define FLAGS_HONOURED (RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND)
#define FLAGS_KEPT (RWF_DSYNC | RWF_SYNC | RWF_NOAPPEND)

/*
 * Bytes that are copied and transferred at a time: a huge page, which is one piece of physical memory.
 */
#define PIECE ((uint64_t)2 << 20)
#define PIECE_BEYOND ((uint64_t)256 << 10) /* where the buffers are used up */

/* Fewer bytes than these are not worth a request of their own between pieces that must be copied. */
#define DIRECT_LEAST ((uint64_t)64 << 10)
#define SLICE 64 /* parts of one request */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool is_append(const struct ps_file *file, const struct ps_transfer *transfer)
{
	return transfer->write && !(transfer->flags & RWF_NOAPPEND) &&
	       (file->is & PS_FILE_APPEND || transfer->flags & RWF_APPEND);
}

static bool is_misaligned(const struct ps_file *file, const struct ps_transfer *transfer,
			  uint64_t offset)
{
	uint64_t memory = 0, file_side = offset;

	for (unsigned i = 0; i < transfer->parts; i++) {
		const struct iovec *part = &transfer->part[i];

		memory |= part->iov_len > 0 ? (uintptr_t)part->iov_base : 0;
		file_side |= part->iov_len;
	}
	return (memory & (file->memory_align - 1)) != 0 ||
	       (file_side & (file->offset_align - 1)) != 0;
}

bool ps_repair_needed_of_any(const struct ps_file *file, const struct ps_transfer *transfer)
{
	uint64_t offset = transfer->offset;
	struct stat status;

	if (!(file->is & PS_FILE_DIRECT) || (file->memory_align | file->offset_align) == 1)
		return false;
	if (transfer->length == 0 || transfer->flags & ~FLAGS_HONOURED)
		return false;
	/* Where it will go, and, for XFS looks at that first, where it is said to. */
	if (is_append(file, transfer) && ps_os_fstat(file->fd, &status) == 0)
		offset |= (uint64_t)status.st_size;
	return is_misaligned(file, transfer, offset);
}

bool ps_repair_is_bounce(const struct ps_file *file, const struct ps_transfer *transfer)
{
	if (!(file->is & PS_FILE_ASYNC) || transfer->length > PS_BOUNCE_LONGEST)
		return false;
	return !transfer->write ||
	       (!is_append(file, transfer) &&
		((transfer->offset | transfer->length) & (file->offset_align - 1)) == 0);
}

/* A transfer that is being done in pieces. */
struct job {
	const struct ps_file *file;
	bool write;
	int flags;
	struct ps_cursor cursor;
	uint64_t offset; /* of what is next */
	uint64_t left;   /* bytes */
	bool has_buffer;
	struct ps_buffer buffer;
};

static int64_t transfer_parts(const struct job *job, const struct iovec *part, unsigned parts,
			      uint64_t offset)
{
	const int64_t done = ps_transfer_parts(job->file->fd, part, parts, offset, job->flags,
					       job->write);

	if (done != -EINVAL)
		return done;
	/* Not what the file system had said; or RLIMIT_FSIZE cut it in the middle of a block. */
	return job->write ? ps_cached_write(job->file, part, parts, offset, job->flags, false)
			  : ps_cached_read(job->file, part, parts, offset, job->flags);
}

/* The bytes that can go between the program's memory and the file as they are; 0: none. */
static size_t direct_slice(const struct job *job, struct iovec *slice, unsigned *parts)
{
	const uint64_t block = job->file->offset_align;
	const uint64_t whole = job->left & ~(block - 1);
	size_t bytes;

	if ((job->offset & (block - 1)) != 0 || whole == 0)
		return 0;
	bytes = ps_cursor_slice(&job->cursor, whole, job->file->memory_align, block, slice, SLICE,
				parts);
	return bytes >= least(whole, DIRECT_LEAST) ? bytes : 0;
}

static int64_t edge_piece(struct job *job, uint64_t *asked)
{
	const uint64_t block = job->file->offset_align;
	const uint64_t skip = job->offset & (block - 1);
	int error;

	*asked = least(block - skip, job->left);
	error = ps_cursor_read(&job->cursor, job->buffer.memory + block, *asked);
	if (error < 0)
		return error;
	return ps_edge_write(job->file, job->buffer.memory, *asked, job->offset, job->flags);
}

/* Writes whole blocks from the buffer. */
static int64_t write_piece(struct job *job, uint64_t *asked)
{
	const uint64_t block = job->file->offset_align;
	struct iovec part = { job->buffer.memory,
			      least(job->left, job->buffer.length) & ~(block - 1) };
	int error;

	*asked = part.iov_len;
	error = ps_cursor_read(&job->cursor, part.iov_base, part.iov_len);
	return error < 0 ? error : transfer_parts(job, &part, 1, job->offset);
}

/* Reads the blocks that contain what is next. */
static int64_t read_piece(struct job *job, uint64_t *asked)
{
	const uint64_t block = job->file->offset_align;
	const uint64_t skip = job->offset & (block - 1);
	const uint64_t room = job->buffer.length & ~(block - 1);
	struct iovec part = { job->buffer.memory,
			      least((skip + job->left + block - 1) & ~(block - 1), room) };
	int64_t done = transfer_parts(job, &part, 1, job->offset - skip);
	int error;

	*asked = least(part.iov_len - skip, job->left);
	if (done < 0)
		return done;
	done = done > (int64_t)skip ? done - (int64_t)skip : 0;
	done = (int64_t)least((uint64_t)done, *asked);
	error = ps_cursor_write(&job->cursor, job->buffer.memory + skip, (size_t)done);
	return error < 0 ? error : done;
}

static int get_buffer(struct job *job)
{
	const uint64_t block = job->file->offset_align;
	const uint64_t fewest = most(2 * block, job->file->memory_align);
	const uint64_t wanted = job->left + 2 * block;
	int error = ps_buffer_get(&job->buffer, most(least(wanted, PIECE), fewest));

	if (error < 0)
		error = ps_buffer_get_extra(&job->buffer,
					    most(least(wanted, PIECE_BEYOND), fewest));
	job->has_buffer = error == 0;
	return error;
}

/* One request, or two. Stores how many bytes there should be done. */
static int64_t piece(struct job *job, uint64_t *asked)
{
	const uint64_t block = job->file->offset_align;
	struct iovec slice[SLICE];
	unsigned parts;
	int64_t done;

	*asked = direct_slice(job, slice, &parts);
	if (*asked > 0) {
		done = transfer_parts(job, slice, parts, job->offset);
		ps_cursor_advance(&job->cursor, *asked);
		return done;
	}
	if (!job->has_buffer && (done = get_buffer(job)) < 0)
		return done;
	if (!job->write)
		return read_piece(job, asked);
	if ((job->offset & (block - 1)) != 0 || job->left < block)
		return edge_piece(job, asked);
	return write_piece(job, asked);
}

static int64_t in_pieces(struct job *job)
{
	int64_t total = 0, done = 0;
	uint64_t asked = 0;

	while (job->left > 0 && done == (int64_t)asked) {
		done = piece(job, &asked);
		if (done <= 0)
			break;
		total += done;
		job->offset += (uint64_t)done;
		job->left -= (uint64_t)done;
	}
	if (job->has_buffer)
		ps_buffer_put(&job->buffer);
	return total > 0 ? total : done;
}

/*
 * How much of a write RLIMIT_FSIZE allows: what pwrite(2) would write of it, so that no piece begins
 * at the limit, which raises SIGXFSZ. A write that begins there is left to the kernel.
 */
static uint64_t within_limit(const struct ps_file *file, uint64_t offset, uint64_t length)
{
	struct rlimit64 limit;

	if (!(file->is & PS_FILE_PLAIN) ||
	    ps_syscall4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) < 0)
		return length;
	return offset < limit.rlim_cur ? least(length, limit.rlim_cur - offset) : length;
}

static int64_t as_it_is(const struct ps_transfer *transfer)
{
	return ps_transfer_parts(transfer->fd, transfer->part, transfer->parts, transfer->offset,
				 transfer->flags, transfer->write);
}

/* Directly where the file ends at a border of blocks, for wherever it was said to go it does not. */
static int64_t append(const struct ps_file *file, const struct ps_transfer *transfer)
{
	struct ps_transfer at_end = *transfer;
	int64_t done;

	at_end.offset = 0;
	done = as_it_is(&at_end);
	if (done != -EINVAL)
		return done;
	return ps_cached_write(file, transfer->part, transfer->parts, 0,
			       transfer->flags & FLAGS_KEPT, true);
}

int64_t ps_repair_now(const struct ps_file *file, const struct ps_transfer *transfer)
{
	struct ps_file now;
	struct job job;
	int64_t done = ps_file_look(file->fd, &now);
	bool needed, allowed;

	if (done < 0)
		return done;
	needed = ps_repair_needed(&now, transfer);
	/* What is opened again below could do more than the program's own descriptor. */
	allowed = ps_file_allows(&now, transfer->write);
	if (!needed || !allowed || !(now.is & PS_FILE_ASYNC)) {
		done = as_it_is(transfer);
		if (!needed || !allowed || done != -EINVAL)
			return done;
	}
	if (is_append(&now, transfer))
		return append(&now, transfer);
	job = (struct job){
		.file = &now,
		.write = transfer->write,
		.flags = transfer->write ? transfer->flags & FLAGS_KEPT : 0,
		.cursor = ps_cursor_of(transfer),
		.offset = transfer->offset,
		.left = least(transfer->length, PS_TRANSFER_MAX),
	};
	if (transfer->write)
		job.left = within_limit(&now, job.offset, job.left);
	return in_pieces(&job);
}

void ps_repair_fork_prepare(void)
{
	ps_edge_fork_prepare();
	ps_cached_fork_prepare();
	ps_buffer_fork_prepare();
}

void ps_repair_fork_parent(void)
{
	ps_buffer_fork_parent();
	ps_cached_fork_parent();
	ps_edge_fork_parent();
}

void ps_repair_fork_child(void)
{
	ps_buffer_fork_child();
	ps_cached_fork_child();
	ps_edge_fork_child();
}
