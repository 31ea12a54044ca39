/* SPDX-License-Identifier: BSD-2-Clause */
#include "ring.h"

#include <errno.h>
#include <stdint.h>

#include "descriptor.h"
#include "fault.h"
#include "kernel.h"
#include "syscall.h"

/* Flags that a deferred ring has beside those of every ring. */
#define DEFERRED                                                                                   \
	(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG)

static int setup(struct ps_ring *ring, unsigned submissions, unsigned completions, unsigned flags)
{
	const int fault = ps_fault(PS_OS_IO_URING_SETUP);
	struct io_uring_params params = { .flags = flags, .cq_entries = completions };

	if (fault != 0)
		return -fault;
	return io_uring_queue_init_params(submissions, &ring->uring, &params);
}

int ps_ring_open(struct ps_ring *ring, unsigned submissions, unsigned completions,
		 enum ps_ring_kind kind)
{
	const unsigned flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP |
			       (kind == PS_RING_DEFERRED ? DEFERRED : 0);
	int error;

	ring->kind = kind;
	ring->fd = -1;
	submissions += submissions == 0;
	if (completions < submissions)
		completions = submissions;
	/* A request that is wrong in itself must not hold up those after it (Linux 5.18). */
	error = setup(ring, submissions, completions, flags | IORING_SETUP_SUBMIT_ALL);
	if (error == -EINVAL && kind == PS_RING_SHARED)
		error = setup(ring, submissions, completions, flags);
	if (error < 0)
		return error;
	ring->fd = ps_descriptor_keep(ring->uring.ring_fd);
	ring->uring.ring_fd = ring->fd;
	ring->uring.enter_ring_fd = ring->fd;
	return 0;
}

int ps_ring_probe(void)
{
	const int fault = ps_fault(PS_OS_IO_URING_SETUP);
	long error;

	if (fault != 0)
		return -fault;
	error = ps_syscall2(SYS_io_uring_setup, 1, NULL);
	return error == -EFAULT ? 0 : (int)error;
}

void ps_ring_close(struct ps_ring *ring)
{
	if (ring->fd < 0)
		return;
	/* The descriptor is not liburing's to close. */
	ring->uring.ring_fd = -1;
	io_uring_queue_exit(&ring->uring);
	ps_descriptor_close(ring->fd);
	ring->fd = -1;
}

int ps_ring_submit(struct ps_ring *ring)
{
	int error;

	do {
		const int fault = ps_fault(PS_OS_IO_URING_ENTER);

		if (fault != 0)
			error = -fault;
		else if (ring->kind == PS_RING_DEFERRED)
			error = io_uring_submit_and_get_events(&ring->uring);
		else
			error = io_uring_submit(&ring->uring);
	} while (error == -EINTR);
	return error;
}

/* The kernel takes no more than it is told to, so what it sees of the queue's end may lie ahead. */
void ps_ring_unprepare(struct ps_ring *ring, unsigned count)
{
	ring->uring.sq.sqe_tail -= count;
}

void ps_ring_collect(struct ps_ring *ring)
{
	const unsigned flags = IO_URING_READ_ONCE(*ring->uring.sq.kflags);

	if ((flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) == 0 ||
	    ps_fault(PS_OS_IO_URING_ENTER) != 0)
		return;
	(void)io_uring_enter2((unsigned)ring->fd, 0, 0, IORING_ENTER_GETEVENTS, NULL,
			      PS_SIGNAL_SET_BYTES);
}

int ps_ring_wait(struct ps_ring *ring, unsigned count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	const int fault = ps_fault(PS_OS_IO_URING_ENTER);
	struct __kernel_timespec time = { 0 };
	struct io_uring_getevents_arg wait = { .sigmask = (uintptr_t)mask,
					       .sigmask_sz = PS_SIGNAL_SET_BYTES };
	int error;

	if (fault != 0)
		return -fault;
	if (timeout != NULL) {
		time.tv_sec = timeout->tv_sec;
		time.tv_nsec = timeout->tv_nsec;
		wait.ts = (uintptr_t)&time;
	}
	error = io_uring_enter2((unsigned)ring->fd, 0, count,
				IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, (sigset_t *)&wait,
				sizeof(wait));
	return error < 0 ? error : 0;
}

int ps_ring_buffers(struct ps_ring *ring, unsigned count)
{
	const int fault = ps_fault(PS_OS_IO_URING_REGISTER);

	return fault != 0 ? -fault : io_uring_register_buffers_sparse(&ring->uring, count);
}

int ps_ring_buffer_set(struct ps_ring *ring, unsigned place, void *base, size_t length)
{
	const int fault = ps_fault(PS_OS_IO_URING_REGISTER);
	const struct iovec memory = { .iov_base = length > 0 ? base : NULL, .iov_len = length };
	const __u64 tag = 0;
	int done;

	if (fault != 0)
		return -fault;
	done = io_uring_register_buffers_update_tag(&ring->uring, place, &memory, &tag, 1);
	if (done == 1)
		return 0;
	return done < 0 ? done : -EAGAIN;
}
