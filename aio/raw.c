/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that use libaio, but make some of its calls by syscall(2), as MariaDB fetches what has
 * completed: to the kernel what a ring has done is unknown, and a repaired request's event is ours.
 *
 * Contexts that were not set up through us are left alone: a program that makes all of its calls itself
 * is not served. Nor is what the next library asks on our behalf, for Debian's libaio uses syscall(2).
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "context.h"
#include "kernel.h"

typedef long raw_call(long number, long a, long b, long c, long d, long e, long f);

/* What io_pgetevents(2) takes as its last argument. */
struct signal_set {
	const sigset_t *mask;
	size_t bytes;
};

static raw_call first_call;
extern raw_call *ps_raw_next;
raw_call *ps_raw_next = first_call;

raw_call ps_raw_call;

static void resolve(void)
{
	*(void **)&ps_raw_next = dlsym(RTLD_NEXT, "syscall");
}

/* Not at the first call: that may be one which returns on another stack, or be made by a handler. */
static __attribute__((constructor)) void start(void)
{
	resolve();
}

/* For other libraries' constructors, which may run before ours. */
static long first_call(long number, long a, long b, long c, long d, long e, long f)
{
	resolve();
	return ps_raw_next(number, a, b, c, d, e, f);
}

/* -errno, or what the call gives. What is no memory is not told from what is. */
static int serve(long number, aio_context_t id, long b, long c, long d, long e, long f)
{
	const struct signal_set *set = (const struct signal_set *)f;

	switch (number) {
	case SYS_io_destroy:
		return ps_context_destroy(id);
	case SYS_io_submit:
		return ps_context_submit(id, b, (struct iocb **)c);
	case SYS_io_cancel:
		return ps_context_cancel(id, (struct iocb *)b, (struct io_event *)c);
	case SYS_io_getevents:
		set = NULL;
		break;
	}
	if (set != NULL && set->mask != NULL && set->bytes != PS_SIGNAL_SET_BYTES)
		return -EINVAL;
	return ps_context_getevents(id, b, c, (struct io_event *)d, (struct timespec *)e,
				    set != NULL ? set->mask : NULL);
}

/* What the program itself calls. Apart, so that the way of what it does not costs little. */
static __attribute__((noinline)) long program_call(long number, long a, long b, long c, long d,
						   long e, long f)
{
	const aio_context_t id = (aio_context_t)a;
	int result;

	if (!ps_context_is_ours(id))
		return ps_raw_next(number, a, b, c, d, e, f);
	result = serve(number, id, b, c, d, e, f);
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

/* As syscall(2), for the calls that syscall.S leads here. */
long ps_raw_call(long number, long a, long b, long c, long d, long e, long f)
{
	if (ps_kernel_asks_next())
		return ps_raw_next(number, a, b, c, d, e, f);
	return program_call(number, a, b, c, d, e, f);
}
