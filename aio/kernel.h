/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_KERNEL_H
#define PS_KERNEL_H
/*
 * The kernel's own asynchronous I/O, as the next library after us gives it (another interposer, or
 * libaio), or else by system call: programs that dlopen() libaio keep it out of our reach.
 *
 * All return what libaio's functions do: 0 or a count, or -errno. They take no lock of ours. A test can
 * make setting up, submitting and getting events fail (fault.h).
 */
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/*
 * What a context's id points to: the ring in which the kernel leaves completions, mapped writable.
 * Programs read it themselves (QEMU; fio with userspace_reap; libaio), if magic is right.
 */
struct ps_kernel_ring {
	uint32_t id;
	uint32_t nr; /* completions it has room for, one of them always free */
	uint32_t head;
	uint32_t tail;
	uint32_t
		magic; /* PS_KERNEL_RING_MAGIC; the kernel writes it once and does not look at it */
	uint32_t compatible;
	uint32_t incompatible;
	uint32_t header_bytes;
};

#define PS_KERNEL_RING_MAGIC 0xa10a10a1u

/* What the kernel's set of signals has, in bytes: a bit a signal. */
#define PS_SIGNAL_SET_BYTES 8

/* Looks for the next library's functions. At start-up, for dlsym() allocates. */
void ps_kernel_resolve(void);

/* How many calls of the next library's functions this thread is in: a signal's handler may make another. */
extern _Thread_local unsigned ps_kernel_asking __attribute__((tls_model("initial-exec")));

/* Does this thread run the next library's function now? What that asks of the kernel is not the program's. */
static inline bool ps_kernel_asks_next(void)
{
	return ps_kernel_asking > 0;
}

int ps_kernel_setup(unsigned events, aio_context_t *context);
int ps_kernel_destroy(aio_context_t context);
int ps_kernel_submit(aio_context_t context, long count, struct iocb **iocbs);
int ps_kernel_cancel(aio_context_t context, struct iocb *iocb, struct io_event *event);

/* mask NULL: io_getevents(2), else io_pgetevents(2). */
int ps_kernel_getevents(aio_context_t context, long least, long most, struct io_event *events,
			struct timespec *timeout, const sigset_t *mask);

/*
 * The same two of a context whose magic was right when it was set up. Where libaio itself comes next the kernel is
 * entered from here, which spares what libaio adds; but libaio is asked at once for events, for it looks whether
 * there are any without entering the kernel.
 */
int ps_kernel_submit_ours(aio_context_t context, long count, struct iocb **iocbs);
int ps_kernel_getevents_ours(aio_context_t context, long least, long most, struct io_event *events,
			     struct timespec *timeout, const sigset_t *mask);

#endif
