/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_FOREIGN_H
#define PS_FOREIGN_H
/*
 * Foreign ranges: the program's own memory, locked where it is, with a count for each page.
 *
 * Pins may overlap and nest; a page is unlocked when its last pin goes. Memory that the program
 * unmaps is dropped whatever its count. Ranges are kept by whole pages in a tree (segment.h) of
 * disjoint segments of equal count, each published as one range of the table.
 *
 * Owns the outermost lock (lock.h), and its tree's. Memory for nodes comes from mmap, never from malloc.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_refusal;

/*
 * Pins [address, address+length): the pages that contain it. 0; -EINVAL for length 0, NULL or a
 * wrap-around; -ENOMEM with *why filled when a limit or the kernel refuses, nothing pinned then;
 * -EFAULT when part of it is not mapped.
 */
int ps_foreign_pin(const void *address, size_t length, struct ps_refusal *why);

/*
 * Undoes one pin of these pages. 0; -EINVAL when a page of it is not pinned, -ENOMEM when there is no
 * memory to note that a part of a range went; nothing changed then.
 */
int ps_foreign_unpin(const void *address, size_t length);

/*
 * The program is about to unmap or replace these pages (munmap, mremap, mmap with MAP_FIXED, shmdt,
 * brk, free): forget them, unlock them if unlock. Call before the mapping changes, so that the table
 * never claims a range that is gone. Returns the bytes dropped.
 */
size_t ps_foreign_drop(const void *address, size_t length, bool unlock);

/*
 * madvise(2) with an advice that the kernel refuses on locked pages (MADV_DONTNEED, MADV_REMOVE), for
 * the pinned pages of the range: withdraws them, unlocks, advises, and pins the new pages as often.
 * Who holds on to the old pages learns of it from the table's generation. 0 or -errno of madvise.
 */
int ps_foreign_discard(const void *address, size_t length, int advice);

/* Is every byte pinned here? Never faults. length 0 asks about one byte. */
bool ps_foreign_is_pinned(const void *address, size_t length);

/* Does any page of it belong to a foreign range? */
bool ps_foreign_touches(const void *address, size_t length);

/* How many segments there are, tracked ranges (tracked.h) among them; read it through ps_foreign_count(). */
extern atomic_size_t ps_foreign_segments;

/* 0 means that nothing needs watching: the one load that a call costs that does not concern us. */
static inline size_t ps_foreign_count(void)
{
	return atomic_load_explicit(&ps_foreign_segments, memory_order_relaxed);
}

/*
 * Calls gap(address, length, context) for each part of [address, address+length) that is not in a
 * foreign range, in order, without the lock held; stops at and returns the first non-zero.
 */
int ps_foreign_gaps(const void *address, size_t length,
		    int (*gap)(const void *address, size_t length, void *context), void *context);

/* mlockall(MCL_FUTURE) is in force or no longer: while it is, unpinning unlocks nothing. */
void ps_foreign_all_locked(bool all);

/*
 * Locks every foreign range again (after munlockall). Returns the bytes that could not be locked;
 * those ranges are dropped from the table.
 */
size_t ps_foreign_relock(void);

void ps_foreign_fork_prepare(void);
void ps_foreign_fork_parent(void);
/* In a forked child nothing is locked: forgets every range. */
void ps_foreign_fork_child(void);

#endif
