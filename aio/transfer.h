/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_TRANSFER_H
#define PS_TRANSFER_H
/*
 * A transfer, as one of the four opcodes of libaio asks for it, and where in it somebody is.
 */
#include <errno.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define PS_TRANSFER_MAX ((uint64_t)0x7ffff000) /* the kernel transfers no more at once */

struct ps_transfer {
	const struct iovec *part; /* one for PREAD and PWRITE */
	unsigned parts;
	bool write;
	int fd;
	int flags;       /* RWF_* */
	uint64_t offset; /* bytes */
	uint64_t length; /* bytes, all parts */
};

/* As ps_transfer_of(), for what is not PREAD or PWRITE. */
int ps_transfer_of_vector(const struct iocb *iocb, struct iovec *single,
			  struct ps_transfer *transfer);

/*
 * What an iocb asks for; *single is where the part of PREAD and PWRITE, and of a vector of one, is kept.
 * A longer vector is read where it is. 0; -EINVAL for what is no transfer or is malformed; -EFAULT
 * where the vector cannot be read.
 */
static inline int ps_transfer_of(const struct iocb *iocb, struct iovec *single,
				 struct ps_transfer *transfer)
{
	const unsigned opcode = iocb->aio_lio_opcode;

	if (__builtin_expect(opcode != IOCB_CMD_PREAD && opcode != IOCB_CMD_PWRITE, 0))
		return ps_transfer_of_vector(iocb, single, transfer);
	if (iocb->aio_reserved2 != 0 || iocb->aio_nbytes > SSIZE_MAX || iocb->aio_offset < 0 ||
	    (uint64_t)iocb->aio_offset + iocb->aio_nbytes > INT64_MAX)
		return -EINVAL;
	*single = (struct iovec){ (void *)(uintptr_t)iocb->aio_buf, iocb->aio_nbytes };
	*transfer = (struct ps_transfer){ .part = single,
					  .parts = 1,
					  .write = opcode == IOCB_CMD_PWRITE,
					  .fd = (int)iocb->aio_fildes,
					  .flags = (int)iocb->aio_rw_flags,
					  .offset = (uint64_t)iocb->aio_offset,
					  .length = iocb->aio_nbytes };
	return 0;
}

/* preadv2(2) or pwritev2(2), begun again after a signal: a count or -errno. */
int64_t ps_transfer_parts(int fd, const struct iovec *part, unsigned parts, uint64_t offset,
			  int flags, bool write);

/* How far into the parts of a transfer somebody is. */
struct ps_cursor {
	const struct iovec *part;
	unsigned parts;
	size_t skip; /* bytes of the first part */
};

static inline struct ps_cursor ps_cursor_of(const struct ps_transfer *transfer)
{
	return (struct ps_cursor){ transfer->part, transfer->parts, 0 };
}

/* Copies the next length bytes from, or to, the program's memory. 0; -EFAULT. */
int ps_cursor_read(struct ps_cursor *cursor, char *to, size_t length);
int ps_cursor_write(struct ps_cursor *cursor, const char *from, size_t length);

/* Goes on by this many bytes, or to the end. */
void ps_cursor_advance(struct ps_cursor *cursor, size_t length);

/*
 * The longest run of at most length bytes from here that is in parts (at most `most` of them) whose
 * addresses and lengths are multiples of these, powers of two; only the last part may be cut to one.
 * Returns its bytes, and stores how many parts in *count.
 */
size_t ps_cursor_slice(const struct ps_cursor *cursor, size_t length, size_t memory_align,
		       size_t length_align, struct iovec *slice, unsigned most, unsigned *count);

#endif
