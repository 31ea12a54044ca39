/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_LOCK_H
#define PS_LOCK_H
/*
 * A mutex of one word on futex(2): no allocation, no initialisation, usable before the C library is,
 * and reset in a forked child by one store.
 *
 * Lock order of the whole library, outermost first:
 *
 *     foreign ranges (foreign.c) -> jemalloc's start (arena.c) -> jemalloc's own -> carve (arena.c)
 *         -> window (window.c) -> budget (budget.c) -> table (table.c) -> trace (trace_file.c)
 *         -> log (log.c)
 *
 * As far out as foreign ranges, and never held together with them: tracked ranges (tracked.c), under
 * which the table's is taken, and registering (registration.c), under which the window's is.
 *
 * Under none of them may anything allocate from the program's malloc, or call into the program; but
 * the driver is called with registering held, and does what it likes.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ps_lock {
	atomic_uint state; /* 0 free, 1 held, 2 held and somebody waits */
};

#define PS_LOCK_INIT                                                                               \
	{                                                                                          \
		0                                                                                  \
	}

/* Between two looks at what another thread is about to change. */
static inline void ps_pause(void)
{
#if defined(__x86_64__)
	__asm__ volatile("pause");
#else
	__asm__ volatile("yield");
#endif
}

void ps_lock(struct ps_lock *lock);
void ps_unlock(struct ps_lock *lock);

/*
 * The same with all signals blocked meanwhile, for a lock that a signal handler may ask for: the holder
 * keeps its signal mask of before in *mask, which ps_unlock_quietly() puts back.
 */
void ps_lock_quietly(struct ps_lock *lock, uint64_t *mask);
void ps_unlock_quietly(struct ps_lock *lock, uint64_t mask);

/* Takes it if it is free; true if so. */
static inline bool ps_try_lock(struct ps_lock *lock)
{
	unsigned free = 0;

	return atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire,
						       memory_order_relaxed);
}

/* In a forked child: the holder does not exist here, so the lock is free. */
static inline void ps_lock_reset(struct ps_lock *lock)
{
	atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
}

#endif
