/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_NESTED_FORK_H
#define PS_NESTED_FORK_H
/*
 * Which forks take locks. One does not that comes from a signal handler which has interrupted the holder of a lock of
 * ours, or from a handler of fork that runs between ours: the locks may be this thread's own. The child begins
 * with free locks in any case.
 *
 * For the handlers of pthread_atfork of a library. No lock.
 */
#include <stdbool.h>

/* A fork begins: is it to take the locks? holds: the thread may hold some that ps_thread.depth does not tell of. */
bool ps_fork_takes_locks(bool holds);

/* In the parent, afterwards: did it take them? */
bool ps_fork_took_locks(void);

/* The same in the child, which then is in no fork. */
bool ps_fork_child_took_locks(void);

#endif
