/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_TRACKED_H
#define PS_TRACKED_H
/*
 * Memory that CUDA itself allocated or registered for the program: not the heap's, but pinned all the
 * same, so it is published and counted. Ranges of bytes, disjoint, found by their first address.
 *
 * Owns one lock, as outermost as foreign.c's; the table's is taken under it. The driver is not called
 * from here.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ps_tracked_kind {
	PS_TRACKED_ALLOCATED,  /* by the real cudaHostAlloc or cuMemHostAlloc */
	PS_TRACKED_REGISTERED, /* the program's own memory, by the real register call */
	PS_TRACKED_BLOCK,  /* the same, in a block of our malloc heap, which is locked already */
	PS_TRACKED_LOCKED, /* the program's own memory, by mlock, there being no driver */
	PS_TRACKED_NOTHING, /* needed nothing: a block of ours that is locked, there being no driver */
};

struct ps_tracked {
	uintptr_t base; /* as the program gave or got it */
	size_t length;  /* bytes */
	enum ps_tracked_kind kind;
	unsigned entry;    /* enum pinshim_entry_point */
	uintptr_t context; /* current when it was made; 0 if none was */
};

/*
 * Publishes a range. 0; -EEXIST when it overlaps one that is tracked; -ENOMEM. Nothing is counted.
 */
int ps_tracked_add(const struct ps_tracked *range);

/* The range that begins at base. false if there is none. */
bool ps_tracked_find(const void *base, struct ps_tracked *found);

/* Some range that has a byte in [address, address+length). false if there is none. */
bool ps_tracked_touching(const void *address, size_t length, struct ps_tracked *found);

/* Withdraws the range that begins at base. false if there is none. */
bool ps_tracked_remove(const void *base, struct ps_tracked *removed);

/* Is every byte in ranges that CUDA allocated or registered? length 0 asks about one byte. */
bool ps_tracked_is_pinned(const void *address, size_t length);

/*
 * Withdraws the first range from *from on that was made in a context, and moves *from behind it.
 * false if there is no more.
 */
bool ps_tracked_remove_of(uintptr_t context, uintptr_t *from, struct ps_tracked *removed);

void ps_tracked_fork_prepare(void);
void ps_tracked_fork_parent(void);
/* In a forked child none of it is pinned. ps_foreign_fork_child() is called, too: it counts anew. */
void ps_tracked_fork_child(void);

#endif
