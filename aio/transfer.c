/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer.h"

#include "access.h"
#include "os.h"

static int add_up(struct ps_transfer *transfer)
{
	uint64_t length = 0;

	for (unsigned i = 0; i < transfer->parts; i++) {
		const size_t part = transfer->part[i].iov_len;

		if (part > SSIZE_MAX || length + part > SSIZE_MAX)
			return -EINVAL;
		length += part;
	}
	transfer->length = length;
	return 0;
}

static int read_vector(const struct iocb *iocb, struct iovec *single, struct ps_transfer *transfer)
{
	const struct iovec *vector = (const struct iovec *)(uintptr_t)iocb->aio_buf;

	if (iocb->aio_nbytes > UIO_MAXIOV)
		return -EINVAL;
	transfer->part = vector;
	transfer->parts = (unsigned)iocb->aio_nbytes;
	if (!ps_access_is_readable(vector, transfer->parts * sizeof(*vector)))
		return -EFAULT;
	if (transfer->parts == 1) {
		*single = *vector;
		transfer->part = single;
	}
	return 0;
}

int ps_transfer_of_vector(const struct iocb *iocb, struct iovec *single,
			  struct ps_transfer *transfer)
{
	const unsigned opcode = iocb->aio_lio_opcode;
	int error;

	if (opcode != IOCB_CMD_PREADV && opcode != IOCB_CMD_PWRITEV)
		return -EINVAL;
	if (iocb->aio_reserved2 != 0 || iocb->aio_offset < 0)
		return -EINVAL;
	transfer->write = opcode == IOCB_CMD_PWRITEV;
	transfer->fd = (int)iocb->aio_fildes;
	transfer->flags = (int)iocb->aio_rw_flags;
	transfer->offset = (uint64_t)iocb->aio_offset;
	error = read_vector(iocb, single, transfer);
	if (error == 0)
		error = add_up(transfer);
	if (error == 0 && transfer->offset + transfer->length > INT64_MAX)
		error = -EINVAL;
	return error;
}

int64_t ps_transfer_parts(int fd, const struct iovec *part, unsigned parts, uint64_t offset,
			  int flags, bool write)
{
	int64_t done;

	do
		done = write ? ps_os_pwritev(fd, part, parts, offset, flags)
			     : ps_os_preadv(fd, part, parts, offset, flags);
	while (done == -EINTR);
	return done;
}

/* The address and the bytes from there to the end of the part, at most length. */
static struct iovec here(const struct ps_cursor *cursor, size_t length)
{
	const struct iovec *part = cursor->part;
	const size_t left = part->iov_len > cursor->skip ? part->iov_len - cursor->skip : 0;

	return (struct iovec){ (char *)part->iov_base + cursor->skip,
			       left < length ? left : length };
}

static void next(struct ps_cursor *cursor)
{
	cursor->part++;
	cursor->parts--;
	cursor->skip = 0;
}

void ps_cursor_advance(struct ps_cursor *cursor, size_t length)
{
	while (cursor->parts > 0) {
		const size_t bytes = here(cursor, length).iov_len;

		cursor->skip += bytes;
		length -= bytes;
		if (length == 0)
			return;
		next(cursor);
	}
}

/* Copies between our memory and the program's. A vector that shrinks meanwhile is a fault, too. */
static int copy(struct ps_cursor *cursor, char *ours, size_t length, bool write)
{
	while (length > 0) {
		struct iovec part;
		int error;

		if (cursor->parts == 0)
			return -EFAULT;
		part = here(cursor, length);
		error = write ? ps_access_write(part.iov_base, ours, part.iov_len)
			      : ps_access_read(ours, part.iov_base, part.iov_len);
		if (error < 0)
			return error;
		ps_cursor_advance(cursor, part.iov_len);
		if (part.iov_len == 0)
			next(cursor);
		ours += part.iov_len;
		length -= part.iov_len;
	}
	return 0;
}

int ps_cursor_read(struct ps_cursor *cursor, char *to, size_t length)
{
	return copy(cursor, to, length, false);
}

int ps_cursor_write(struct ps_cursor *cursor, const char *from, size_t length)
{
	return copy(cursor, (char *)(uintptr_t)from, length, true);
}

size_t ps_cursor_slice(const struct ps_cursor *cursor, size_t length, size_t memory_align,
		       size_t length_align, struct iovec *slice, unsigned most, unsigned *count)
{
	struct ps_cursor at = *cursor;
	size_t total = 0;

	*count = 0;
	while (at.parts > 0 && *count < most && total < length) {
		struct iovec part = here(&at, length - total);
		const size_t whole = part.iov_len & ~(length_align - 1);

		if (part.iov_len > 0) {
			if (((uintptr_t)part.iov_base & (memory_align - 1)) != 0 || whole == 0)
				break;
			slice[(*count)++] = (struct iovec){ part.iov_base, whole };
			total += whole;
			if (whole != part.iov_len)
				break;
		}
		next(&at);
	}
	return total;
}
