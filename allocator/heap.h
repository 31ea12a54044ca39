/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_HEAP_H
#define PS_HEAP_H
/*
 * The pinned heap: blocks from locked chunks of the window. Below PS_LARGE bytes they come from
 * jemalloc arenas over the chunks (arena.h), from there on straight from the window (large.h).
 *
 * Blocks of 4 KiB and more begin on a page, smaller ones on a multiple of 512 bytes. Each block's
 * entry point is remembered in a byte beside the heap, which also tells a live block's start from
 * any other address: freeing anything else is found and named.
 *
 * None of these functions touches errno or calls the program's allocator.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "pinshim_table.h"
#include "window.h"

/*
 * A block of at least size bytes (0 counts as 1), aligned to align (a power of two; 0 or small: as
 * above), zeroed if zero. NULL when it cannot be pinned, with *why filled; the refusal has not been
 * counted or said.
 */
void *ps_heap_alloc(enum ps_heap heap, enum pinshim_entry_point entry, size_t size, size_t align,
		    bool zero, struct ps_refusal *why);

/*
 * Frees a block. pointer lies in the window. call names the caller for the message when pointer is
 * no live block's start, upon which the process aborts.
 */
void ps_heap_free(void *pointer, const char *call);

/*
 * ps_heap_free() in two steps: after ps_heap_retire() the block is no block any more, but its memory
 * is not used for anything else before ps_heap_reclaim(). Returns the block's bytes.
 */
size_t ps_heap_retire(void *pointer, const char *call);
void ps_heap_reclaim(void *pointer);

/* Takes a live block back that nobody had yet; what was counted for it is the caller's to undo. */
void ps_heap_discard(void *pointer);

/* Two bits that a live block keeps for its owner, 0 at first: CUDA's Portable and Mapped. */
void ps_heap_set_flags(void *block, unsigned flags);
unsigned ps_heap_flags(const void *block);

/* The live block that an address lies in; NULL if none. Walks back, so it is for rare paths. */
void *ps_heap_enclosing(const void *pointer);

/* Bytes usable of a live block; aborts like ps_heap_free() if it is none. */
size_t ps_heap_usable(void *pointer, const char *call);

/*
 * Makes a live block at least size bytes without moving it. false when that cannot be done or would
 * keep more than twice what is needed, and in a forked child for what it shares with its parent.
 */
bool ps_heap_resize(void *pointer, size_t size, const char *call);

/* Whose block it is; PINSHIM_ENTRIES for an address that is no live block's start. */
enum pinshim_entry_point ps_heap_entry(const void *pointer);

/* Is every byte in pinned chunks of this process? Never faults. length 0 asks about one byte. */
bool ps_heap_is_pinned(const void *pointer, size_t length);

/*
 * Can an address be in a block of a forked child's parent, in shared memory, so that what lies
 * around it may be the parent's by now? Also true of a shared chunk that lost its lock.
 */
bool ps_heap_is_inherited(const void *pointer);

/* Is any byte in a chunk of CUDA host memory, of this process or its parent's? Never faults. */
bool ps_heap_is_shared(const void *pointer, size_t length);

/* Unpins what is free, down to keep bytes of it. Returns the bytes unpinned. */
size_t ps_heap_trim(size_t keep);

/*
 * After a refusal: trims everything that is free if that can make room for what was asked. true if
 * something was unpinned, so that asking again makes sense.
 */
bool ps_heap_make_room(const struct ps_refusal *why);

/* Locks every chunk again (after munlockall); what cannot be is published as not locked. */
void ps_heap_relock(void);

/*
 * The program is about to unmap or map over [address, address+length), which lies in the window: it
 * no longer counts as pinned. Call before the mapping changes.
 */
void ps_heap_replaced(const void *address, size_t length);

/*
 * The program is about to change the protection of what lies there, or to give advice on it that stays: blocks
 * that are freed there get theirs back. Call before it changes.
 */
void ps_heap_changed(const void *address, size_t length);

/*
 * For pthread_atfork; they call jemalloc's handlers too. In the child every chunk is unlocked and unpublished, and new blocks come from new chunks.
 */
void ps_heap_fork_prepare(void);
void ps_heap_fork_parent(void);
void ps_heap_fork_child(void);

/*
 * Everything of the allocator in a forked child, in order: locks, heap, foreign ranges, budget,
 * table. The handler of fork calls it, and ps_table_after_fork() for children of a raw clone().
 */
void ps_fork_child(void);

#endif
