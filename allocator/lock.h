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

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#else
#define __libc_single_threaded 0
#endif

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

/*
 * Blocks all signals of this thread, for what its handlers must not see half done. Returns the mask of before, which
 * the other puts back.
 */
uint64_t ps_signals_block(void);
void ps_signals_restore(uint64_t mask);

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

/* Does the C library know of no other thread? A load. It may have forgotten that others have ended. */
static inline bool ps_lock_alone(void)
{
	return __libc_single_threaded != 0;
}

/*
 * The same without a locked instruction while the C library knows of no other thread, as its own locks do: for
 * locks that are taken once or twice a request. Whoever finds one held then has interrupted its holder.
 */
static inline void ps_lock_lightly(struct ps_lock *lock)
{
	if (ps_lock_alone() && atomic_load_explicit(&lock->state, memory_order_relaxed) == 0) {
		atomic_store_explicit(&lock->state, 1, memory_order_relaxed);
		/* A handler that asks for it comes before the store or after it. */
		atomic_signal_fence(memory_order_acquire);
	} else {
		ps_lock(lock);
	}
}

static inline void ps_unlock_lightly(struct ps_lock *lock)
{
	if (ps_lock_alone())
		atomic_store_explicit(&lock->state, 0, memory_order_release);
	else
		ps_unlock(lock);
}

/* In a forked child: the holder does not exist here, so the lock is free. */
static inline void ps_lock_reset(struct ps_lock *lock)
{
	atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
}

#endif
