/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_LARGE_H
#define PS_LARGE_H
/*
 * Large blocks: each a chunk of its own, of exactly as many 2 MiB granules as it needs, where
 * jemalloc's size classes would lock up to a quarter more. A freed one is kept, pinned, for the next
 * request of about its size, up to PINSHIM_RETAIN bytes in all; the longest kept go first.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "window.h"

/*
 * A block of count granules at a multiple of align granules, from those of the heap that are kept, or newly
 * pinned. *zeroed tells whether its memory is known to be zero. NULL with *why filled.
 */
void *ps_large_alloc(uint32_t count, uint32_t align, enum ps_heap heap, bool *zeroed,
		     struct ps_refusal *why);

/* Frees the block that begins at granule first. */
void ps_large_free(uint32_t first);

/* Bytes of the block that begins at granule first. */
size_t ps_large_size(uint32_t first);

/* Makes a block count granules, more than it has, in place. false: that cannot be. */
bool ps_large_grow(uint32_t first, uint32_t count);

/* Makes a block count granules, fewer than it has. What is cut off is freed. false: no room for it. */
bool ps_large_shrink(uint32_t first, uint32_t count);

/* Unpins kept blocks, the longest kept first, until at most keep bytes remain. Returns bytes. */
size_t ps_large_trim(size_t keep);

/* In a forked child: the kept blocks' addresses are given back. Single-threaded. */
void ps_large_fork_child(void);

#endif
