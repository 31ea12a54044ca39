/* SPDX-License-Identifier: BSD-2-Clause */
#include "life.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "config.h"
#include "context.h"
#include "count.h"
#include "held.h"
#include "locked_buffer.h"
#include "memory.h"
#include "nested_fork.h"
#include "os.h"
#include "pinned.h"
#include "repair.h"
#include "report.h"
#include "table.h"

static pid_t owner;

/*
 * A child of vfork() ends in our memory under another process id: nothing of ours ends with it. One of clone() may
 * have no thread area, where errno would be.
 */
void ps_aio_at_exit(void)
{
	static atomic_flag done = ATOMIC_FLAG_INIT;
	int saved;

	if (owner == 0 || owner != ps_os_getpid() || atomic_flag_test_and_set(&done))
		return;
	saved = errno;
	ps_context_at_exit();
	ps_aio_count_publish();
	if (!ps_memory_is_shared())
		ps_report_write(ps_config.stats);
	if (ps_memory_is_own())
		ps_table_close();
	errno = saved;
}

/* Nor does a child of vfork() wait for its parent's. */
void ps_aio_before_exec(void)
{
	int saved;

	if (owner == 0 || owner != ps_os_getpid())
		return;
	saved = errno;
	ps_context_at_exit();
	errno = saved;
}

static __attribute__((destructor)) void at_normal_exit(void)
{
	ps_aio_at_exit();
}

static void fork_prepare(void)
{
	if (!ps_fork_takes_locks(ps_holds_any()))
		return;
	ps_context_fork_prepare();
	ps_repair_fork_prepare();
	ps_locked_buffers_fork_prepare();
	ps_memory_fork_prepare();
}

static void fork_parent(void)
{
	if (!ps_fork_took_locks())
		return;
	ps_memory_fork_parent();
	ps_locked_buffers_fork_parent();
	ps_repair_fork_parent();
	ps_context_fork_parent();
}

static void fork_child(void)
{
	owner = ps_os_getpid();
	/* What a handler has interrupted goes on in the child, too, and lets go what it holds. */
	if (ps_fork_child_took_locks())
		ps_held[PS_HELD_SUBMISSION] = ps_held[PS_HELD_OTHER] = 0;
	ps_memory_fork_child();
	ps_locked_buffers_fork_child();
	ps_repair_fork_child();
	ps_context_fork_child();
	ps_pinned_fork_child();
	ps_aio_count_fork_child();
}

void ps_aio_life_start(void)
{
	owner = ps_os_getpid();
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}
