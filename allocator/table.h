/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_TABLE_H
#define PS_TABLE_H
/*
 * Writing the table (pinshim_table.h) of this process.
 *
 * ps_table() is always valid: until the first pin, and for ever where /dev/shm cannot be used, it is
 * private memory with the same layout. The file is made when memory is claimed for a pin, for others
 * have to see that, or at the first ps_table_add(); so a process that pins nothing leaves no trace.
 *
 * Owns one lock, see lock.h for its place; all functions take and release it themselves.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pinshim_table.h"

/*
 * What a forked child must not share with its parent, on a page of its own that the kernel wipes in
 * a child (MADV_WIPEONFORK) whichever way it was forked. vfork and CLONE_VM children share it.
 */
struct ps_process {
	/*
	 * The table's stripes that one thread has to itself, by ps_thread.stripe; NULL for the others,
	 * for a thread that has none yet, and in a forked child that has not noticed: one look tells
	 * whether a thread may just count.
	 */
	struct pinshim_stripe *own[1 + PINSHIM_STRIPES];
	struct pinshim_table *table; /* NULL: a forked child that has not noticed yet */
	int pid;                     /* whose table it is; a vfork child's getpid() differs */
};

extern struct ps_process *ps_process __attribute__((visibility("hidden")));

/* The stripes from 0 on that have one thread each; the others are shared (counters.h). */
#define PS_STRIPES_OWN 8

/* What a table's name ends in until it is whole. */
#define PS_TABLE_TEMPORARY ".tmp"

/* Where the file is made: PINSHIM_TABLE_DIRECTORY but for tests. */
extern const char *ps_table_directory;

/*
 * Makes ps_process and the private table. Called once by the constructor, and by unit tests.
 * 0; -ENOMEM, after which ps_table() is a static table and fork is noticed by process id only.
 */
int ps_table_start(void);

/* In a forked child that has not noticed: ps_fork_child() of heap.h, then the child's own table. */
struct pinshim_table *ps_table_after_fork(void);

static inline struct pinshim_table *ps_table(void)
{
	struct pinshim_table *table = __atomic_load_n(&ps_process->table, __ATOMIC_ACQUIRE);

	return __builtin_expect(table != NULL, 1) ? table : ps_table_after_fork();
}

/* Does a child that runs no handler of fork find that out at its first ps_table()? */
bool ps_table_notices_clones(void);

/* Is the caller the process that owns the table, and not its vfork child? */
bool ps_table_is_ours(void);

/*
 * Publishes a range, making the file first if need be, and returns its slot (0 or more). Never
 * fails for want of /dev/shm (that is said once and the private table used); -ENOMEM when no room
 * for the record can be had at all, in which case the caller undoes the pin.
 */
int ps_table_add(uintptr_t base, size_t length, uint32_t flags);

/* Changes a published range in place. */
void ps_table_set(int slot, uintptr_t base, size_t length, uint32_t flags);

/* Withdraws a range; before its memory is unlocked or unmapped. */
void ps_table_remove(int slot);

/*
 * Makes the file now if it is not there, trying again where that failed before. 0; -errno where the
 * directory cannot be used (said once); -ESHUTDOWN after ps_table_close().
 */
int ps_table_publish(void);

/*
 * Fills in what takes reading /proc, for a report: program and start time; and whose it is, where
 * ps_table_start() was never called. Takes no lock.
 */
void ps_table_identify(void);

/*
 * Changes the gauges by these differences, in bytes and chunks: locked, huge and chunks of the heap,
 * foreign memory, registered of both. Keeps pinned_bytes, its peak and pin_bytes in step.
 */
void ps_table_gauges(int64_t locked, int64_t huge, int64_t foreign, int64_t registered,
		     int64_t chunks);

/* Removes the file from /dev/shm and goes on with private memory; at exit, after the report. */
void ps_table_close(void);

/* Undoes a close: an exec failed, and the process lives on. Makes the file if there was one. */
void ps_table_reopen(void);

/*
 * In a forked child: forgets the parent's mapping without touching the parent's file, and starts an
 * empty private table. Called from ps_fork_child() only.
 */
void ps_table_fork_child(void);

/* For pthread_atfork: holds the table still across fork. */
void ps_table_fork_prepare(void);
void ps_table_fork_parent(void);

/* The path of the file, or NULL while there is none. */
const char *ps_table_path(void);

/*
 * Removes tables of the caller's user whose process is gone and which were not written for
 * older_than seconds, and all of dead processes where these are more than 64. Returns how many.
 * directory is PINSHIM_TABLE_DIRECTORY but for tests.
 */
int ps_table_reap(const char *directory, unsigned older_than);

#endif
