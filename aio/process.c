/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the preloaded library has to know of the process that only calls of the C library tell: it
 * takes their place.
 *
 * A second thread: rings that only one thread can enter end before there is one. Closed descriptors:
 * what is remembered of a file ends with its descriptor; our own descriptors are none of the
 * program's, which is told that they are not open. Ways to exit that run no destructors.
 *
 * Any of these may be called before the constructor ran, by another library's.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include "address_limit.h"
#include "context.h"
#include "descriptor.h"
#include "exec.h"
#include "file.h"
#include "life.h"
#include "os.h"

#define PUBLIC __attribute__((visibility("default")))

static struct {
	int (*pthread_create)(pthread_t *thread, const pthread_attr_t *attributes,
			      void *(*start)(void *argument), void *argument);
	int (*thrd_create)(thrd_t *thread, thrd_start_t start, void *argument);
	int (*timer_create)(clockid_t clock, struct sigevent *event, timer_t *timer);
	int (*mq_notify)(mqd_t queue, const struct sigevent *event);
	int (*execve)(const char *path, char *const argv[], char *const envp[]);
	int (*execvpe)(const char *file, char *const argv[], char *const envp[]);
	int (*fexecve)(int fd, char *const argv[], char *const envp[]);
	int (*execveat)(int fd, const char *path, char *const argv[], char *const envp[],
			int flags);
	int (*close)(int fd);
	int (*dup2)(int from, int to);
	int (*dup3)(int from, int to, int flags);
	int (*fcntl)(int fd, int command, ...);
	int (*setrlimit)(__rlimit_resource_t resource, const struct rlimit *limit);
	int (*prlimit)(pid_t pid, __rlimit_resource_t resource, const struct rlimit *limit,
		       struct rlimit *old);
	void (*_exit)(int status);
	void (*quick_exit)(int status);
} next;

static void resolve(void)
{
	const struct {
		const char *name;
		void *function;
	} wanted[] = {
		{ "pthread_create", &next.pthread_create },
		{ "thrd_create", &next.thrd_create },
		{ "timer_create", &next.timer_create },
		{ "mq_notify", &next.mq_notify },
		{ "execve", &next.execve },
		{ "execvpe", &next.execvpe },
		{ "fexecve", &next.fexecve },
		{ "execveat", &next.execveat },
		{ "close", &next.close },
		{ "dup2", &next.dup2 },
		{ "dup3", &next.dup3 },
		{ "fcntl", &next.fcntl },
		{ "setrlimit", &next.setrlimit },
		{ "prlimit", &next.prlimit },
		{ "_exit", &next._exit },
		{ "quick_exit", &next.quick_exit },
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		*(void **)wanted[i].function = dlsym(RTLD_NEXT, wanted[i].name);
}

/* Early, for dlsym() allocates. */
static __attribute__((constructor)) void resolve_early(void)
{
	resolve();
}

PUBLIC int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument)
{
	if (next.pthread_create == NULL)
		resolve();
	ps_context_before_thread();
	return next.pthread_create(thread, attributes, start, argument);
}

PUBLIC int thrd_create(thrd_t *thread, thrd_start_t start, void *argument)
{
	if (next.thrd_create == NULL)
		resolve();
	ps_context_before_thread();
	return next.thrd_create(thread, start, argument);
}

/* SIGEV_THREAD has the C library make threads. */
static void before_event(const struct sigevent *event)
{
	if (event != NULL && event->sigev_notify == SIGEV_THREAD)
		ps_context_before_thread();
}

PUBLIC int timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
	if (next.timer_create == NULL)
		resolve();
	before_event(event);
	return next.timer_create(clock, event, timer);
}

PUBLIC int mq_notify(mqd_t queue, const struct sigevent *event)
{
	if (next.mq_notify == NULL)
		resolve();
	before_event(event);
	return next.mq_notify(queue, event);
}

/*
 * An exec cancels what a ring has not begun, where the kernel's AIO would have it done already. Waiting for
 * that does no harm where the exec fails.
 */
bool ps_exec_before(bool possible)
{
	if (next.execve == NULL)
		resolve();
	ps_aio_before_exec();
	return possible;
}

int ps_exec_after(bool before, int result)
{
	(void)before;
	return result;
}

int ps_exec_next_execve(const char *path, char *const argv[], char *const envp[])
{
	return next.execve(path, argv, envp);
}

int ps_exec_next_execvpe(const char *file, char *const argv[], char *const envp[])
{
	return next.execvpe(file, argv, envp);
}

int ps_exec_next_fexecve(int fd, char *const argv[], char *const envp[])
{
	return next.fexecve(fd, argv, envp);
}

int ps_exec_next_execveat(int fd, const char *path, char *const argv[], char *const envp[],
			  int flags)
{
	return next.execveat(fd, path, argv, envp, flags);
}

static int fail(int error)
{
	errno = -error;
	return -1;
}

PUBLIC int close(int fd)
{
	int result;

	if (ps_descriptor_is_ours(fd))
		return fail(-EBADF);
	if (next.close == NULL)
		resolve();
	result = next.close(fd);
	ps_file_closed(fd);
	return result;
}

PUBLIC int dup2(int from, int to)
{
	int result;

	if (ps_descriptor_is_ours(from) || ps_descriptor_is_ours(to))
		return fail(-EBADF);
	if (next.dup2 == NULL)
		resolve();
	result = next.dup2(from, to);
	ps_file_closed(to);
	return result;
}

PUBLIC int dup3(int from, int to, int flags)
{
	int result;

	if (ps_descriptor_is_ours(from) || ps_descriptor_is_ours(to))
		return fail(-EBADF);
	if (next.dup3 == NULL)
		resolve();
	result = next.dup3(from, to, flags);
	ps_file_closed(to);
	return result;
}

/*
 * O_APPEND and O_DIRECT decide who serves a request. Any other descriptor may share the flags, so all are looked
 * at again.
 */
static int control(int fd, int command, void *argument)
{
	const int before = command == F_SETFL ? ps_os_file_flags(fd) : 0;
	int result;

	if (next.fcntl == NULL)
		resolve();
	result = next.fcntl(fd, command, argument);
	if (command == F_SETFL && result == 0 &&
	    (before ^ (int)(intptr_t)argument) & (O_APPEND | O_DIRECT))
		ps_file_closed_range(0, ~0u);
	return result;
}

/* As the C library's own, which takes whatever comes for a pointer. */
#define CONTROL(fd, command)                                                                       \
	({                                                                                         \
		va_list arguments;                                                                 \
		void *argument;                                                                    \
		va_start(arguments, command);                                                      \
		argument = va_arg(arguments, void *);                                              \
		va_end(arguments);                                                                 \
		control(fd, command, argument);                                                    \
	})

PUBLIC int fcntl(int fd, int command, ...)
{
	return CONTROL(fd, command);
}

PUBLIC int fcntl64(int fd, int command, ...)
{
	return CONTROL(fd, command);
}

int ps_address_limit_next_setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	if (next.setrlimit == NULL)
		resolve();
	return next.setrlimit(resource, limit);
}

int ps_address_limit_next_prlimit(pid_t pid, __rlimit_resource_t resource,
				  const struct rlimit *limit, struct rlimit *old)
{
	if (next.prlimit == NULL)
		resolve();
	return next.prlimit(pid, resource, limit, old);
}

PUBLIC int close_range(unsigned first, unsigned last, int flags)
{
	const int error = ps_descriptor_close_range(first, last, (unsigned)flags);

	ps_file_closed_range(first, last);
	return error < 0 ? fail(error) : error;
}

PUBLIC void closefrom(int lowest)
{
	close_range(lowest > 0 ? (unsigned)lowest : 0, ~0u, 0);
}

PUBLIC void _exit(int status)
{
	ps_aio_at_exit();
	if (next._exit == NULL)
		resolve();
	next._exit(status);
	__builtin_unreachable();
}

PUBLIC void _Exit(int status)
{
	_exit(status);
}

PUBLIC void quick_exit(int status)
{
	ps_aio_at_exit();
	if (next.quick_exit == NULL)
		resolve();
	next.quick_exit(status);
	__builtin_unreachable();
}
