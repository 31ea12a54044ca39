/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_POPULATE_H
#define PS_POPULATE_H

#include <stdbool.h>
#include <stddef.h>

/* From this size on more than one thread populates a chunk. */
#define PS_POPULATE_PARALLEL ((size_t)32 << 20)

/*
 * Brings [address, address+length) into memory, writable, with up to PINSHIM_THREADS threads. The
 * range is a multiple of 2 MiB at a multiple of 2 MiB, and accessible.
 * 0; -errno of MADV_POPULATE_WRITE (-EINVAL before Linux 5.14: nothing is populated then).
 * May be called with any lock held: the threads run no code but system calls.
 *
 * collapse: huge pages are asked for by MADV_COLLAPSE (Linux 6.1), for shared memory, which is new and empty
 * here: what that gets at a fault is the administrator's choice (shmem_enabled of transparent_hugepage), small
 * pages nearly everywhere. MADV_COLLAPSE heeds only `deny` of it. Where no huge page can be had, pages are small.
 *
 * If arrived is not NULL, the budget is told of each part that is in memory, since other processes wait
 * to know (ps_budget_arrived()), and *arrived is how much that is in all.
 */
int ps_populate(void *address, size_t length, bool collapse, size_t *arrived);

#endif
