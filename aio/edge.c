/* SPDX-License-Identifier: BSD-2-Clause */
#include "edge.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>

#include "cached.h"
#include "held.h"
#include "reopen.h"
#include "transfer.h"

#define LOCKS 64

/*
 * EIO is also what the kernel says of a page, once, when direct I/O of others on it came between. An
 * error of the disk stays.
 */
#define TRIES 3

/* Each for many stretches of many files. */
static struct ps_lock locks[LOCKS];

static struct ps_lock *lock_of(const struct ps_file *file, uint64_t offset)
{
	const uint64_t mix = (file->device * 31 + file->inode) * 31 + (offset >> PS_REOPEN_STRETCH);

	return &locks[mix * UINT64_C(0x9e3779b97f4a7c15) >> 58];
}

static int64_t transfer(int fd, char *block, uint64_t length, uint64_t offset, bool write,
			int flags)
{
	const struct iovec part = { block, length };

	return ps_transfer_parts(fd, &part, 1, offset, flags, write);
}

/* Changes a block that is in the file as a whole. -EINVAL where it is not, or cannot be read. */
static int64_t change(int fd, const struct ps_file *file, char *blocks, uint64_t length,
		      uint64_t offset, int flags)
{
	const uint64_t size = file->offset_align, skip = offset & (size - 1);
	int64_t done = transfer(fd, blocks, size, offset - skip, false, 0);

	if (done != (int64_t)size)
		return -EINVAL;
	memcpy(blocks + skip, blocks + size, length);
	done = transfer(fd, blocks, size, offset - skip, true, flags);
	if (done < 0)
		return done;
	done -= (int64_t)skip;
	return done < 0 ? 0 : done < (int64_t)length ? done : (int64_t)length;
}

/* Writes the bytes through the page cache. */
static int64_t put(const struct ps_file *file, char *bytes, uint64_t length, uint64_t offset,
		   int flags)
{
	const struct iovec part = { bytes, length };
	int64_t done;
	unsigned tries = 0;

	do
		done = ps_cached_write(file, &part, 1, offset, flags, false);
	while (done == -EIO && ++tries < TRIES);
	return done;
}

int64_t ps_edge_write(const struct ps_file *file, char *blocks, uint64_t length, uint64_t offset,
		      int flags)
{
	const uint64_t block = offset & ~(uint64_t)(file->offset_align - 1);
	int64_t done = -EINVAL;
	struct ps_lock *lock = lock_of(file, block);
	int own, fd;

	ps_hold(lock);
	own = ps_reopen(file, O_RDWR | O_DIRECT);
	fd = own >= 0 ? own : file->fd;
	ps_reopen_exclude(fd, block);
	if (own >= 0 || (file->is & PS_FILE_READABLE))
		done = change(fd, file, blocks, length, offset, flags);
	if (done == -EINVAL)
		done = put(file, blocks + file->offset_align, length, offset, flags);
	ps_reopen_include(fd, block);
	ps_reopen_close(own);
	ps_let_go(lock);
	return done;
}

void ps_edge_fork_prepare(void)
{
	for (unsigned i = 0; i < LOCKS; i++)
		ps_hold(&locks[i]);
}

void ps_edge_fork_parent(void)
{
	for (unsigned i = 0; i < LOCKS; i++)
		ps_let_go(&locks[i]);
}

void ps_edge_fork_child(void)
{
	for (unsigned i = 0; i < LOCKS; i++)
		ps_lock_reset(&locks[i]);
}
