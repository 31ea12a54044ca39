/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs call: the functions of libaio. They return a negative errno value, and leave errno
 * alone, as libaio's do (io_setup(2), NOTES).
 *
 * struct iocb and struct io_event are the kernel's, which libaio's have the layout of, and a context
 * is a pointer there and a number here, of the same size. No header of libaio is needed.
 */
#include <errno.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <time.h>

#include "context.h"
#include "kernel.h"
#include "start.h"

#define PUBLIC __attribute__((visibility("default")))

typedef void (*completion)(aio_context_t context, struct iocb *iocb, long result, long result2);

int io_setup(int events, aio_context_t *context);
int io_destroy(aio_context_t context);
int io_submit(aio_context_t context, long count, struct iocb **iocbs);
int io_cancel(aio_context_t context, struct iocb *iocb, struct io_event *event);
int io_getevents(aio_context_t context, long least, long most, struct io_event *events,
		 struct timespec *timeout);
int io_pgetevents(aio_context_t context, long least, long most, struct io_event *events,
		  struct timespec *timeout, sigset_t *mask);
int io_queue_init(int events, aio_context_t *context);
int io_queue_release(aio_context_t context);
int io_queue_run(aio_context_t context);
int io_queue_wait(aio_context_t context, struct timespec *timeout);

static __attribute__((constructor)) void start(void)
{
	ps_aio_start();
}

PUBLIC int io_setup(int events, aio_context_t *context)
{
	if (!ps_aio_is_on())
		return ps_kernel_setup((unsigned)events, context);
	return ps_context_setup((unsigned)events, context);
}

PUBLIC int io_destroy(aio_context_t context)
{
	return ps_context_destroy(context);
}

PUBLIC int io_submit(aio_context_t context, long count, struct iocb **iocbs)
{
	return ps_context_submit(context, count, iocbs);
}

PUBLIC int io_cancel(aio_context_t context, struct iocb *iocb, struct io_event *event)
{
	return ps_context_cancel(context, iocb, event);
}

PUBLIC int io_getevents(aio_context_t context, long least, long most, struct io_event *events,
			struct timespec *timeout)
{
	return ps_context_getevents(context, least, most, events, timeout, NULL);
}

PUBLIC int io_pgetevents(aio_context_t context, long least, long most, struct io_event *events,
			 struct timespec *timeout, sigset_t *mask)
{
	return ps_context_getevents(context, least, most, events, timeout, mask);
}

PUBLIC int io_queue_init(int events, aio_context_t *context)
{
	if (events <= 0)
		return -EINVAL;
	*context = 0;
	return io_setup(events, context);
}

PUBLIC int io_queue_release(aio_context_t context)
{
	return io_destroy(context);
}

/* Hands what has completed to the functions that io_set_callback() stored with the requests. */
PUBLIC int io_queue_run(aio_context_t context)
{
	struct timespec at_once = { 0 };
	struct io_event event;
	int count;

	while ((count = io_getevents(context, 0, 1, &event, &at_once)) == 1) {
		const completion call = (completion)(uintptr_t)event.data;

		call(context, (struct iocb *)(uintptr_t)event.obj, (long)event.res,
		     (long)event.res2);
	}
	return count;
}

/* libaio's has been the same for ever: it waits until an event is there, and leaves it there. */
PUBLIC int io_queue_wait(aio_context_t context, struct timespec *timeout)
{
	return io_getevents(context, 0, 0, NULL, timeout);
}
