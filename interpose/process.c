/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ends of a process: fork, exec, and every way to exit.
 *
 * Nothing is torn down at exit: destructors that run after ours still free, and threads still
 * allocate. The report is written once and the table's file removed; the heap goes on working.
 *
 * A child of vfork(), or of clone() with CLONE_VM, runs in our memory under another process id: its
 * _exit() or exec must not report, nor touch the table (ps_table_is_ours()). With CLONE_SETTLS it may
 * have no thread area (the sandbox of Chromium makes such a one), so before that is known nothing here
 * may use a variable of the thread, as errno is one.
 */
#include "process.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "address_limit.h"
#include "config.h"
#include "counters.h"
#include "exec.h"
#include "foreign.h"
#include "heap.h"
#include "nested_fork.h"
#include "next.h"
#include "os.h"
#include "own_stack.h"
#include "registration.h"
#include "report.h"
#include "syscall.h"
#include "table.h"
#include "tracked.h"
#include "window.h"

#define PUBLIC __attribute__((visibility("default")))

/* NOT_YET, DONE, or the id of the thread that reports. */
static atomic_int reported;
enum { NOT_YET = 0, DONE = -1 };

/* Has another thread the report in hand, then it must be whole before this one ends the process. */
static void wait_for_report(int reporter)
{
	while (reporter > 0 && reporter != ps_os_gettid()) {
		ps_syscall4(SYS_futex, &reported, FUTEX_WAIT_PRIVATE, reporter, NULL);
		reporter = atomic_load(&reported);
	}
}

static void write_report(void *unused)
{
	(void)unused;
	ps_report_write(ps_config.stats);
}

/* Writes the report and withdraws the table, once. Preserves errno. */
static void report(void)
{
	int reporter = NOT_YET, saved;

	if (ps_window.size == 0 || !ps_table_is_ours())
		return;
	saved = errno;
	if (atomic_compare_exchange_strong(&reported, &reporter, ps_os_gettid())) {
		/* The thread that exits may have a stack of 16 KiB, and paths alone are 4 KiB each. */
		ps_on_own_stack(write_report, NULL);
		ps_table_close();
		atomic_store(&reported, DONE);
		ps_syscall3(SYS_futex, &reported, FUTEX_WAKE_PRIVATE, INT_MAX);
	} else {
		wait_for_report(reporter);
	}
	errno = saved;
}

static __attribute__((destructor)) void report_at_exit(void)
{
	report();
}

/*
 * Two threads that exit at once share out the handlers between them (glibc before 2.41), and who is
 * done first ends the process: so the second reports before it joins in.
 */
PUBLIC void exit(int status)
{
	static atomic_flag begun = ATOMIC_FLAG_INIT;

	if (atomic_flag_test_and_set(&begun))
		report();
	ps_next.exit(status);
	__builtin_unreachable();
}

PUBLIC void _exit(int status)
{
	report();
	ps_next._exit(status);
	__builtin_unreachable();
}

PUBLIC void _Exit(int status)
{
	_exit(status);
}

PUBLIC void quick_exit(int status)
{
	report();
	ps_next.quick_exit(status);
	__builtin_unreachable();
}

/*
 * The program is about to be replaced, so it reports now. Programs try one directory after the other;
 * for what cannot be executed there is no report. true if there was one.
 */
bool ps_exec_before(bool possible)
{
	if (!possible || ps_window.size == 0 || !ps_table_is_ours())
		return false;
	report();
	return true;
}

/* It failed: the process lives on, publishes its table again, and will report when it ends. */
int ps_exec_after(bool reported_for_it, int result)
{
	int saved;

	if (!reported_for_it)
		return result;
	saved = errno;
	ps_table_reopen();
	atomic_store(&reported, NOT_YET);
	errno = saved;
	return result;
}

int ps_address_limit_next_setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	return ps_next.setrlimit(resource, limit);
}

int ps_address_limit_next_prlimit(pid_t pid, __rlimit_resource_t resource,
				  const struct rlimit *limit, struct rlimit *old)
{
	return ps_next.prlimit(pid, resource, limit, old);
}

int ps_exec_next_execve(const char *path, char *const argv[], char *const envp[])
{
	return ps_next.execve(path, argv, envp);
}

int ps_exec_next_execvpe(const char *file, char *const argv[], char *const envp[])
{
	return ps_next.execvpe(file, argv, envp);
}

int ps_exec_next_fexecve(int fd, char *const argv[], char *const envp[])
{
	return ps_next.fexecve(fd, argv, envp);
}

int ps_exec_next_execveat(int fd, const char *path, char *const argv[], char *const envp[],
			  int flags)
{
	return ps_next.execveat(fd, path, argv, envp, flags);
}

/* The locks are taken in the order of lock.h, jemalloc's by ps_heap_fork_prepare(). */
static void fork_prepare(void)
{
	if (!ps_fork_takes_locks(false))
		return;
	ps_registration_before_fork();
	ps_foreign_fork_prepare();
	ps_tracked_fork_prepare();
	ps_heap_fork_prepare();
	ps_table_fork_prepare();
}

static void fork_parent(void)
{
	if (!ps_fork_took_locks())
		return;
	if (ps_count_get(&ps_table()->locked_bytes) > 0)
		ps_count_add(&ps_table()->fork_children, 1);
	ps_table_fork_parent();
	ps_heap_fork_parent();
	ps_tracked_fork_parent();
	ps_foreign_fork_parent();
}

static void fork_child(void)
{
	atomic_store(&reported, NOT_YET);
	(void)ps_fork_child_took_locks();
	ps_fork_child();
}

void ps_process_start(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}
