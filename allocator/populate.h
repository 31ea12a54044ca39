/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_POPULATE_H
#define PS_POPULATE_H

#include <stddef.h>

/* From this size on more than one thread populates a chunk. */
#define PS_POPULATE_PARALLEL ((size_t)32 << 20)

/*
 * Brings [address, address+length) into memory, writable, with up to PINSHIM_THREADS threads. The
 * range is a multiple of 2 MiB at a multiple of 2 MiB, and accessible.
 * 0; -errno of MADV_POPULATE_WRITE (-EINVAL before Linux 5.14: nothing is populated then).
 * May be called with any lock held: the threads run no code but the system call.
 *
 * If arrived is not NULL, the budget is told of each part that is in memory, since other processes wait
 * to know (ps_budget_arrived()), and *arrived is how much that is in all.
 */
int ps_populate(void *address, size_t length, size_t *arrived);

#endif
