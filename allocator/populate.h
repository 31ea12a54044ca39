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
 */
int ps_populate(void *address, size_t length);

#endif
