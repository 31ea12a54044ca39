/* SPDX-License-Identifier: BSD-2-Clause */
#include "cached.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>

#include "fault.h"
#include "held.h"
#include "os.h"
#include "reopen.h"
#include "syscall.h"
#include "transfer.h"

/* Held while a descriptor of the program is without its O_DIRECT. */
static struct ps_lock without_direct;
static atomic_bool was_taken; /* ever */

struct request {
	const struct iovec *part;
	unsigned parts;
	uint64_t offset;
	int flags;
	bool write;
	bool append;
};

static int64_t transfer(int fd, const struct request *request)
{
	return ps_transfer_parts(fd, request->part, request->parts, request->offset, request->flags,
				 request->write);
}

static int set_flags(int fd, int flags)
{
	const int fault = ps_fault(PS_OS_FSTAT);

	return fault != 0 ? -fault : (int)ps_syscall3(SYS_fcntl, fd, F_SETFL, flags);
}

static int64_t by_their_own(const struct ps_file *file, const struct request *request)
{
	struct request by_flag = *request;
	int64_t done;
	int flags;

	if (request->append)
		by_flag.flags |= RWF_APPEND;
	atomic_store(&was_taken, true);
	ps_hold(&without_direct);
	flags = ps_os_file_flags(file->fd);
	done = flags < 0 ? flags : set_flags(file->fd, flags & ~O_DIRECT);
	if (done == 0) {
		done = transfer(file->fd, &by_flag);
		ps_syscall3(SYS_fcntl, file->fd, F_SETFL, flags | O_DIRECT);
	}
	ps_let_go(&without_direct);
	return done;
}

int ps_cached_flags(int fd)
{
	int flags = ps_os_file_flags(fd);

	if (flags < 0 || flags & O_DIRECT || !atomic_load(&was_taken))
		return flags;
	ps_hold(&without_direct);
	flags = ps_os_file_flags(fd);
	ps_let_go(&without_direct);
	return flags;
}

static int64_t on_reopened(const struct ps_file *file, const struct request *request, int flags)
{
	const int own = ps_reopen(file, flags);
	int64_t done;

	if (own < 0)
		return by_their_own(file, request);
	done = transfer(own, request);
	ps_reopen_close(own);
	return done;
}

/* 0; -EIO, -ENOSPC, -EDQUOT: it could not be written. */
static int write_back(int fd, uint64_t offset, uint64_t length)
{
	const unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			       SYNC_FILE_RANGE_WAIT_AFTER;
	long error = -ps_fault(PS_OS_FSYNC);

	if (error == 0)
		error = ps_syscall4(SYS_sync_file_range, fd, offset, length, flags);
	if (error == -EIO || error == -ENOSPC || error == -EDQUOT)
		return (int)error;
	return error < 0 ? ps_os_fsync(fd, false) : 0;
}

int64_t ps_cached_read(const struct ps_file *file, const struct iovec *part, unsigned parts,
		       uint64_t offset, int flags)
{
	const struct request request = { part, parts, offset, flags, false, false };

	return on_reopened(file, &request, O_RDONLY);
}

int64_t ps_cached_write(const struct ps_file *file, const struct iovec *part, unsigned parts,
			uint64_t offset, int flags, bool append)
{
	const struct request request = { part, parts, offset, flags, true, append };
	const int64_t done = on_reopened(file, &request, O_WRONLY | (append ? O_APPEND : 0));
	int error;

	if (done <= 0)
		return done;
	/* Length 0 is all that follows. */
	error = write_back(file->fd, append ? 0 : offset, append ? 0 : (uint64_t)done);
	return error < 0 ? error : done;
}

void ps_cached_fork_prepare(void)
{
	ps_hold(&without_direct);
}

void ps_cached_fork_parent(void)
{
	ps_let_go(&without_direct);
}

void ps_cached_fork_child(void)
{
	ps_lock_reset(&without_direct);
}
