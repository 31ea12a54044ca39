/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CHUNK_H
#define PS_CHUNK_H
/*
 * Chunks: the unit of pinning. A chunk is a run of granules of the window that was made accessible,
 * backed with huge pages, populated and locked as one, and is one range of the table.
 *
 * A chunk's granule bytes say what it is for (PS_GRANULE_SLAB or _LARGE), of which heap it is
 * (PS_GRANULE_HEAP) and whether it is locked. The window's lock guards them; pinning and unpinning,
 * which take long, are done without it while the granules are marked busy.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "budget.h"
#include "window.h"

/* The flags for mmap(2) of the memory of a chunk, private or shared with forked children. */
static inline int ps_chunk_mapping(bool shared)
{
	return (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_FIXED;
}

/*
 * Pins a new chunk of count granules that begins on a multiple of align granules. what is the byte
 * for its granules without PS_GRANULE_LOCKED, which is added. Its memory is zero. 0 and *first; or
 * -ENOMEM with *why filled, and then nothing is left behind. Window's lock not held.
 */
int ps_chunk_new(uint32_t count, uint32_t align, uint8_t what, uint32_t *first,
		 struct ps_refusal *why);

/*
 * Makes a locked chunk count granules longer where it is, its new part being zero. 0; -ENOMEM when
 * it stays whole, the addresses after it are in use or the new part cannot be pinned, nothing changed
 * then and nothing explained. The chunk's block is the caller's. Window's lock not held.
 */
int ps_chunk_extend(uint32_t first, uint32_t count);

/*
 * Unpins a whole chunk and gives its addresses back: withdrawn from the table first, then unlocked.
 * The caller has marked it busy (ps_chunk_busy()). Returns the bytes unpinned: 0 for one that was
 * not locked, and where the kernel refuses, in which case it stays busy until ps_chunk_retry(), or
 * where the driver does not let go of it, in which case it stays pinned for ever, a large block that
 * nobody has. What could not be unpinned before is tried again then, and counts if it goes. One that is
 * registered must only be released where the driver may be called (ps_thread.driver).
 * Window's lock not held.
 */
size_t ps_chunk_release(uint32_t first, uint8_t was);

/* Tries to unpin again what the kernel refused to. Returns the bytes. Window's lock not held. */
size_t ps_chunk_retry(void);

/* What the driver knows of a chunk (ps_run.registered). Any but the first keeps it in one piece. */
enum ps_registered {
	PS_UNREGISTERED,
	PS_REGISTERING, /* on the way in or out, or a part of it could not be unregistered */
	PS_REGISTERED,
};

/* Notes what the driver knows of a chunk, and publishes whether it is registered. Window's lock held. */
void ps_chunk_set_registered(uint32_t first, enum ps_registered state);

/* Must a chunk stay as it is, neither cut nor joined: is it registered, or shared? Window's lock held. */
bool ps_chunk_stays_whole(uint32_t first);

/* Marks a chunk busy and returns the byte that its granules had. Window's lock held. */
uint8_t ps_chunk_busy(uint32_t first);

/*
 * Cuts a chunk in two before granule `at`, each then a range of the table. 0; -ENOMEM when the table
 * has no room or the chunk stays whole, nothing changed. Window's lock held.
 */
int ps_chunk_split(uint32_t first, uint32_t at);

/*
 * Makes one granule of a chunk a chunk of its own. 0; -ENOMEM as above, and then the granule stays
 * where it is. Window's lock held.
 */
int ps_chunk_isolate(uint32_t granule);

/*
 * Joins a chunk with the one right after it, both of one heap. If only one of them is locked, neither
 * counts as locked any more. Window's lock held.
 */
void ps_chunk_merge(uint32_t first, uint32_t second);

/*
 * The program is about to put something else at [address, address+length) of the window: the chunks
 * there are withdrawn from the table and count as not pinned from now on. Window's lock not held.
 */
void ps_chunk_replaced(const void *address, size_t length);

/*
 * The program is about to change how [address, address+length) of the window may be used, by its protection or
 * by advice that stays: the chunks there stay as they are, but for PS_GRANULE_CHANGED. Window's lock not held;
 * not taken where all of them have it.
 */
void ps_chunk_changed(const void *address, size_t length);

/*
 * Locks every chunk again; those that cannot be are withdrawn, and counted in the result. Window's
 * lock not held.
 */
unsigned ps_chunk_relock(void);

/*
 * Where the kernel does not say which chunks are in huge pages (before Linux 6.7), counts for the table how
 * much of the window is. Takes milliseconds then, else nothing. Any lock may be held.
 */
void ps_chunk_count_huge(void);

/* In a forked child: every granule in use becomes inherited. Single-threaded. */
void ps_chunk_fork_child(void);

#endif
