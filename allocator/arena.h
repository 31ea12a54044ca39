/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_ARENA_H
#define PS_ARENA_H
/*
 * jemalloc arenas over locked chunks, for blocks below PS_LARGE.
 *
 * Extents are carved from chunks one after the other, by exact pages (opt.retain is off, so jemalloc
 * asks for what it needs and not for an exponential series), and keep their place in a chunk for
 * ever: freed extents stay in jemalloc's dirty list (decay is off) for reuse. A trim purges that
 * list; the pages that come back are noted per granule, and a granule of which all came back is
 * unpinned. From the others, and from what carving left over, new extents are made first.
 *
 * There is no thread cache: what it hoards would be locked memory (20 slots a class and thread), and
 * against touching a block of 64 KiB the 150 ns it saves are nothing.
 */
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "heap.h"

/*
 * A block of at least size bytes, aligned. NULL with *why when neither this thread's arena, nor the
 * other arenas, nor a new chunk has it.
 */
void *ps_arena_alloc(enum ps_heap which, size_t size, size_t align, bool zero,
		     struct ps_refusal *why);
void ps_arena_free(void *block);
size_t ps_arena_size(const void *block);

/* Makes a block size bytes in place if that is possible; returns the size it then has. */
size_t ps_arena_resize(void *block, size_t size);

/* Has jemalloc give back what is free; whole granules are unpinned. Returns the bytes unpinned. */
size_t ps_arena_trim(void);

/* Something was freed or unpinned: the next request asks the system, whatever was refused before. */
void ps_arena_ask_again(void);

void ps_arena_fork_prepare(void);
void ps_arena_fork_parent(void);
/* In a forked child: new blocks come from new arenas and new chunks. */
void ps_arena_fork_child(void);

#endif
