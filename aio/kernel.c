/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernel.h"

#include <dlfcn.h>
#include <string.h>

#include "fault.h"
#include "syscall.h"
#include "text.h"

/* The next library's, NULL where there is none. Written once, at start-up. */
static struct {
	int (*io_setup)(int events, aio_context_t *context);
	int (*io_destroy)(aio_context_t context);
	int (*io_submit)(aio_context_t context, long count, struct iocb **iocbs);
	int (*io_cancel)(aio_context_t context, struct iocb *iocb, struct io_event *event);
	int (*io_getevents)(aio_context_t context, long least, long most, struct io_event *events,
			    struct timespec *timeout);
	int (*io_pgetevents)(aio_context_t context, long least, long most, struct io_event *events,
			     struct timespec *timeout, const sigset_t *mask);
} next;

/* Do libaio's own functions come next, or none at all? They only make the system call. */
static bool only_libaio;

_Thread_local unsigned ps_kernel_asking __attribute__((tls_model("initial-exec")));

static int answer(int result)
{
	ps_kernel_asking--;
	return result;
}

/* What the next library's function returns. */
#define ASK_NEXT(call) (ps_kernel_asking++, answer(next.call))

/* Is it a function of libaio, by its file's name, or none? */
static bool is_libaios(void *function)
{
	static const char name[] = "libaio.so";
	Dl_info info;

	if (function == NULL)
		return true;
	if (dladdr(function, &info) == 0 || info.dli_fname == NULL)
		return false;
	return strncmp(ps_base_name(info.dli_fname), name, sizeof(name) - 1) == 0;
}

void ps_kernel_resolve(void)
{
	/* RTLD_NEXT is what comes after this library, so never one of its own functions. */
	*(void **)&next.io_setup = dlsym(RTLD_NEXT, "io_setup");
	*(void **)&next.io_destroy = dlsym(RTLD_NEXT, "io_destroy");
	*(void **)&next.io_submit = dlsym(RTLD_NEXT, "io_submit");
	*(void **)&next.io_cancel = dlsym(RTLD_NEXT, "io_cancel");
	*(void **)&next.io_getevents = dlsym(RTLD_NEXT, "io_getevents");
	*(void **)&next.io_pgetevents = dlsym(RTLD_NEXT, "io_pgetevents");
	only_libaio = is_libaios(*(void **)&next.io_submit) &&
		      is_libaios(*(void **)&next.io_getevents) &&
		      is_libaios(*(void **)&next.io_pgetevents);
}

int ps_kernel_setup(unsigned events, aio_context_t *context)
{
	const int fault = ps_fault(PS_OS_IO_SETUP);

	if (fault != 0)
		return -fault;
	if (next.io_setup != NULL)
		return ASK_NEXT(io_setup((int)events, context));
	return (int)ps_syscall2(SYS_io_setup, events, context);
}

int ps_kernel_destroy(aio_context_t context)
{
	if (next.io_destroy != NULL)
		return ASK_NEXT(io_destroy(context));
	return (int)ps_syscall1(SYS_io_destroy, context);
}

/* By system call, or of the next library if there is one and it is to be asked. */
static int submit(bool ask, aio_context_t context, long count, struct iocb **iocbs)
{
	const int fault = ps_fault(PS_OS_IO_SUBMIT);

	if (fault != 0)
		return -fault;
	if (ask && next.io_submit != NULL)
		return ASK_NEXT(io_submit(context, count, iocbs));
	return (int)ps_syscall3(SYS_io_submit, context, count, iocbs);
}

int ps_kernel_submit(aio_context_t context, long count, struct iocb **iocbs)
{
	return submit(true, context, count, iocbs);
}

int ps_kernel_submit_ours(aio_context_t context, long count, struct iocb **iocbs)
{
	return submit(!only_libaio, context, count, iocbs);
}

int ps_kernel_cancel(aio_context_t context, struct iocb *iocb, struct io_event *event)
{
	if (next.io_cancel != NULL)
		return ASK_NEXT(io_cancel(context, iocb, event));
	return (int)ps_syscall3(SYS_io_cancel, context, iocb, event);
}

static int pgetevents(bool ask, aio_context_t context, long least, long most,
		      struct io_event *events, struct timespec *timeout, const sigset_t *mask)
{
	const struct {
		const sigset_t *mask;
		size_t bytes;
	} set = { mask, PS_SIGNAL_SET_BYTES };

	if (ask && next.io_pgetevents != NULL)
		return ASK_NEXT(io_pgetevents(context, least, most, events, timeout, mask));
	return (int)ps_syscall6(SYS_io_pgetevents, (long)context, least, most, (long)events,
				(long)timeout, (long)&set);
}

static int getevents(bool ask, aio_context_t context, long least, long most,
		     struct io_event *events, struct timespec *timeout, const sigset_t *mask)
{
	const int fault = ps_fault(PS_OS_IO_GETEVENTS);

	if (fault != 0)
		return -fault;
	if (mask != NULL)
		return pgetevents(ask, context, least, most, events, timeout, mask);
	if (ask && next.io_getevents != NULL)
		return ASK_NEXT(io_getevents(context, least, most, events, timeout));
	return (int)ps_syscall5(SYS_io_getevents, context, least, most, events, timeout);
}

int ps_kernel_getevents(aio_context_t context, long least, long most, struct io_event *events,
			struct timespec *timeout, const sigset_t *mask)
{
	return getevents(true, context, least, most, events, timeout, mask);
}

int ps_kernel_getevents_ours(aio_context_t context, long least, long most, struct io_event *events,
			     struct timespec *timeout, const sigset_t *mask)
{
	const bool at_once = timeout != NULL && timeout->tv_sec == 0 && timeout->tv_nsec == 0;

	return getevents(at_once || !only_libaio, context, least, most, events, timeout, mask);
}
