/* SPDX-License-Identifier: BSD-2-Clause */
#include "lock.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "syscall.h"

enum { FREE, HELD, WAITED };

/*
 * A thread looks at the word this often before it sleeps, each time after twice as many pauses as
 * before. The growing distance is what counts: every look takes the cache line from the holder, so
 * a waiter that looks seldom lets the holder run through many turns undisturbed.
 */
#define SPIN_LOOKS 7

static bool spin(struct ps_lock *lock)
{
	for (unsigned look = 0; look < SPIN_LOOKS; look++) {
		for (unsigned i = 0; i < 1u << look; i++)
			ps_pause();
		if (atomic_load_explicit(&lock->state, memory_order_relaxed) == FREE &&
		    ps_try_lock(lock))
			return true;
	}
	return false;
}

void ps_lock(struct ps_lock *lock)
{
	if (ps_try_lock(lock) || spin(lock))
		return;
	/* From here on the word says WAITED, even once it is ours: others may sleep beside us. */
	while (atomic_exchange_explicit(&lock->state, WAITED, memory_order_acquire) != FREE)
		ps_syscall4(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, WAITED, NULL);
}

void ps_unlock(struct ps_lock *lock)
{
	if (atomic_exchange_explicit(&lock->state, FREE, memory_order_release) == WAITED)
		ps_syscall3(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1);
}

uint64_t ps_signals_block(void)
{
	const uint64_t all = ~UINT64_C(0);
	uint64_t before = 0;

	ps_syscall4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof(before));
	return before;
}

void ps_signals_restore(uint64_t mask)
{
	ps_syscall4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

void ps_lock_quietly(struct ps_lock *lock, uint64_t *mask)
{
	const uint64_t before = ps_signals_block();

	ps_lock(lock);
	/* Not before: it belongs to whoever holds the lock. */
	*mask = before;
}

void ps_unlock_quietly(struct ps_lock *lock, uint64_t mask)
{
	ps_unlock(lock);
	ps_signals_restore(mask);
}
