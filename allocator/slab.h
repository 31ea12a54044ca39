/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_SLAB_H
#define PS_SLAB_H
/*
 * Pages of slabs (PS_GRANULE_SLAB) that are in no extent of jemalloc's: given back in a trim, or never
 * handed out. A granule all of whose pages are unused is unpinned, a chunk that stays whole once that is so of
 * all its granules; other unused pages serve new extents.
 *
 * Takes the window's lock. May be called from jemalloc's hooks, but for ps_slab_give_unused().
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "window.h"

/*
 * The least size that did not fit when it was last tried; SIZE_MAX: none. Spares looking again for what
 * cannot be found, until something came free.
 */
static inline void ps_fits_again(atomic_size_t *least)
{
	if (atomic_load_explicit(least, memory_order_relaxed) != SIZE_MAX)
		atomic_store(least, SIZE_MAX);
}

static inline void ps_fits_not(atomic_size_t *least, size_t size)
{
	if (size < atomic_load_explicit(least, memory_order_relaxed))
		atomic_store(least, size);
}

/* Pages [start, start+length) of one chunk are unused from now on; complete granules are unpinned. */
void ps_slab_give(const char *start, size_t length);

/* A place for an extent among unused pages of a heap, which are in use then; NULL if there is none. */
char *ps_slab_reuse(enum ps_heap heap, size_t size, size_t align);

/* Tries again to unpin complete granules that could not be cut out of their chunks before. */
void ps_slab_give_left_behind(void);

/*
 * Unpins chunks that stay whole and are unused altogether; registered ones only where the driver may be
 * called (ps_thread.driver). No lock of jemalloc's may be held.
 */
void ps_slab_give_unused(void);

/* Bytes that were unpinned here, ever. */
size_t ps_slab_unpinned(void);

/* In a forked child: other pages may be unused than in the parent. */
void ps_slab_fork_child(void);

#endif
