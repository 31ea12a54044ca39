/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_MEMORY_H
#define PS_MEMORY_H
/*
 * Locked memory for bounce buffers and for buffers of the handle API: from the heap of libpinshim.so
 * where that is in the process, else from the allocator in this library, which then publishes the
 * process's table. One or the other for the life of the process. The allocator in this library is
 * started at the first block, so that a process that needs none does not pay for it.
 *
 * Owns one lock, held while that allocator starts; it is outside the allocator's.
 */
#include <stdbool.h>
#include <stddef.h>

/* Decides where from. In the constructor, before there are threads, for looking symbols up allocates. */
void ps_memory_start(void);

/* Is libpinshim.so in this process? It may be switched off, and then nothing can be pinned. */
bool ps_memory_is_shared(void);

/* If so, has it publish the process's table, to count in: it does so itself at the first pin only. */
void ps_memory_publish(void);

/*
 * Was the allocator in this library started? Then ps_table() is this process's table, and the report
 * and the end of the table are this library's to see to.
 */
bool ps_memory_is_own(void);

/*
 * A pinned block of at least length bytes (0 counts as 1), aligned to align, a power of two from 1 to 2 MiB.
 * NULL where it cannot be pinned (a limit; said once on stderr by whoever owns the heap; or
 * PINSHIM_BACKEND=off).
 */
void *ps_memory_alloc(size_t length, size_t align);
void ps_memory_free(void *block);

/*
 * The same for what must be had whether it can be pinned or not: then it is ordinary memory, and
 * *pinned false. NULL only where the system has no memory. length and pinned are as they were.
 */
void *ps_memory_alloc_any(size_t length, size_t align, bool *pinned);
void ps_memory_free_any(void *block, size_t length, bool pinned);

/* Is every byte pinned, whoever pinned it? Also true of what the program pinned where it is. */
bool ps_memory_is_pinned(const void *address, size_t length);

/* Hold the allocator in this library still across fork, if it was started. */
void ps_memory_fork_prepare(void);
void ps_memory_fork_parent(void);
/* The child has its own empty table, and may free what it inherited. */
void ps_memory_fork_child(void);

#endif
