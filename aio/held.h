/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_HELD_H
#define PS_HELD_H
/*
 * Which locks of this library a thread holds. The program's calls begin with none: one that finds some is made by
 * a signal's handler, or a handler of fork, that has interrupted their holder, and must not wait for them.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "lock.h"

enum ps_held {
	PS_HELD_SUBMISSION, /* submission locks of contexts */
	PS_HELD_OTHER,
	PS_HELD_WAIT, /* no locks: contexts that it waits for, which must not go meanwhile */
	PS_HELD_KINDS,
};

/* How many of each. Not by pointers: linkers spoil the flags of sums with the address of a thread's variable. */
extern _Thread_local unsigned ps_held[PS_HELD_KINDS] __attribute__((tls_model("initial-exec")));

static inline bool ps_holds_any(void)
{
	return (ps_held[PS_HELD_SUBMISSION] | ps_held[PS_HELD_OTHER]) != 0;
}

/* Or waits for a context. */
static inline bool ps_is_inside(void)
{
	return ps_holds_any() || ps_held[PS_HELD_WAIT] > 0;
}

/* Before the lock is asked for, and after it was let go: a handler may come in between. */
static inline void ps_holding(enum ps_held kind)
{
	ps_held[kind]++;
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void ps_held_no_more(enum ps_held kind)
{
	atomic_signal_fence(memory_order_seq_cst);
	ps_held[kind]--;
}

/* A lock that is no submission lock. */
static inline void ps_hold(struct ps_lock *lock)
{
	ps_holding(PS_HELD_OTHER);
	ps_lock(lock);
}

static inline void ps_let_go(struct ps_lock *lock)
{
	ps_unlock(lock);
	ps_held_no_more(PS_HELD_OTHER);
}

#endif
