/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_RING_H
#define PS_RING_H
/*
 * One io_uring, through liburing: every call of it that enters the kernel, so that a test can make
 * each fail (fault.h). Filling in entries and reading completions is done with liburing's inline
 * functions by whoever owns the ring.
 *
 * No lock here: preparing and submitting take turns under the owner's submission lock, reading
 * completions under its completion lock; ps_ring_wait() needs neither. Nothing allocates with malloc.
 * None touches errno.
 */
#include <liburing.h>
#include <signal.h>
#include <time.h>

/*
 * Who may enter the ring. A deferred ring (SINGLE_ISSUER, DEFER_TASKRUN) completes nothing unless the
 * thread that made it enters it, and refuses others (-EEXIST), but is the cheapest and interrupts
 * nobody; any thread may use a shared one, whose completions interrupt the thread that submitted.
 */
enum ps_ring_kind { PS_RING_DEFERRED, PS_RING_SHARED };

struct ps_ring {
	struct io_uring uring;
	enum ps_ring_kind kind;
	int fd; /* the same as uring's, kept as one of ours (descriptor.h); -1: not open */
};

/*
 * Opens a ring with room for at least this many submissions and completions, or for as many as the
 * kernel allows (32768 and 65536); completions beyond that wait for ps_ring_collect(). 0; -ENOSYS,
 * -EPERM (seccomp, the sysctl kernel.io_uring_disabled), -ENOMEM (RLIMIT_MEMLOCK on old kernels), -EINVAL
 * (a kernel without deferred rings), -EMFILE, other -errno of io_uring_setup(2) and mmap(2).
 */
int ps_ring_open(struct ps_ring *ring, unsigned submissions, unsigned completions,
		 enum ps_ring_kind kind);

/* May this process have a ring? 0; -ENOSYS; -EPERM. Makes none. */
int ps_ring_probe(void);

/*
 * Closes it. What is in flight is not waited for. In a forked child it lets go of the parent's, which that
 * does not notice: mappings and descriptor are the child's own.
 */
void ps_ring_close(struct ps_ring *ring);

/*
 * Hands what was prepared to the kernel; a deferred ring's completions are collected on the way, which
 * spares the call that asks for them. Returns how many were taken, which may be fewer than were
 * prepared; -errno when none was (-EAGAIN, -ENOMEM, -EBUSY, -EEXIST). Restarts on EINTR.
 * What is wrong in itself is taken, too, and completes with the error.
 */
int ps_ring_submit(struct ps_ring *ring);

/* Takes back the count entries that were prepared last, none of which was submitted. */
void ps_ring_unprepare(struct ps_ring *ring, unsigned count);

/*
 * Makes completions visible that the kernel holds back: of a deferred ring, or after an overflow. Costs
 * a load where there are none.
 */
void ps_ring_collect(struct ps_ring *ring);

/*
 * Sleeps until count completions are there to be read, for at most timeout (relative; NULL: for
 * ever), with mask (NULL: none) as the thread's signal mask meanwhile. 0, also where the time is over
 * or a signal came when some were there, but fewer; -ETIME; -EINTR; -EEXIST where another thread alone
 * may enter the ring.
 */
int ps_ring_wait(struct ps_ring *ring, unsigned count, const struct timespec *timeout,
		 const sigset_t *mask);

/* Makes a table of count empty places for buffers. 0 or -errno. Once a ring. */
int ps_ring_buffers(struct ps_ring *ring, unsigned count);

/*
 * Registers [base, base+length), at most 1 GiB, in this place, or with length 0 empties the place;
 * the kernel holds the pages that are there now until then, and until all I/O on them is done. 0;
 * -ENOMEM (RLIMIT_MEMLOCK), -EFAULT, -EOPNOTSUPP (memory of a file), other -errno.
 */
int ps_ring_buffer_set(struct ps_ring *ring, unsigned place, void *base, size_t length);

#endif
