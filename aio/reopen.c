/* SPDX-License-Identifier: BSD-2-Clause */
#include "reopen.h"

#include <errno.h>
#include <fcntl.h>

#include "descriptor.h"
#include "fault.h"
#include "os.h"
#include "syscall.h"
#include "text.h"

/* Where the bytes are that stand for stretches of a file: no file system has files this large. */
#define FAR ((off_t)1 << 62)

#define WHILE_A_DISK_WORKS 100000 /* nanoseconds */

static int lock_call(int fd, int operation, struct flock *lock)
{
	const int fault = ps_fault(PS_OS_FSTAT);

	return fault != 0 ? -fault : (int)ps_syscall3(SYS_fcntl, fd, operation, lock);
}

/* Has anybody a lock that is not one of ours on the file? */
static bool is_locked(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = FAR };

	return lock_call(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int ps_reopen(const struct ps_file *file, int flags)
{
	char path[48];
	struct ps_text text = PS_TEXT_INIT(path);
	const int own = ps_os_file_flags(file->fd);

	if (own < 0)
		return own;
	if (is_locked(file->fd))
		return -EBUSY;
	/* The thread's: threads can have descriptors of their own, and the first thread be gone. */
	ps_text_add(&text, "/proc/thread-self/fd/%d", file->fd);
	flags |= own & (O_SYNC | O_DSYNC | O_NOATIME);
	/* O_NONBLOCK: rather not at all than wait for somebody's lease on the file to be broken. */
	return ps_descriptor_keep(ps_os_open(path, flags | O_NONBLOCK, 0));
}

void ps_reopen_close(int fd)
{
	ps_descriptor_close(fd);
}

static struct flock stretch(uint64_t offset, short type)
{
	return (struct flock){ .l_type = type,
			       .l_whence = SEEK_SET,
			       .l_start = FAR + (off_t)(offset >> PS_REOPEN_STRETCH),
			       .l_len = 1 };
}

/* Is it another process like us that has this stretch? */
static bool is_peer(int fd, uint64_t offset)
{
	const struct flock wanted = stretch(offset, F_WRLCK);
	struct flock lock = wanted;

	return lock_call(fd, F_OFD_GETLK, &lock) == 0 &&
	       (lock.l_type == F_UNLCK ||
		(lock.l_pid == -1 && lock.l_start == wanted.l_start && lock.l_len == wanted.l_len));
}

/*
 * A peer has it for as long as two small requests take. It is asked again rather than waited for with
 * F_OFD_SETLKW, because a program's lock that came between would be waited for, too.
 */
void ps_reopen_exclude(int fd, uint64_t offset)
{
	struct flock lock = stretch(offset, F_WRLCK);

	while (lock_call(fd, F_OFD_SETLK, &lock) == -EAGAIN && is_peer(fd, offset))
		ps_os_sleep(WHILE_A_DISK_WORKS);
}

void ps_reopen_include(int fd, uint64_t offset)
{
	struct flock lock = stretch(offset, F_UNLCK);

	lock_call(fd, F_OFD_SETLK, &lock);
}
