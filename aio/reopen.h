/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_REOPEN_H
#define PS_REOPEN_H
/*
 * A description of our own of a file that the program has open: its own is often only for writing, or
 * for direct I/O where the page cache is needed.
 *
 * None is kept open: it would keep the file's space after its last name is gone, and the program, or a
 * child, may close whatever is open. Closing one has a side effect: it drops the fcntl() locks that the
 * process holds on the file, whichever descriptor they were set with. So there is none while anybody
 * has such a lock on the file.
 */
#include <stdint.h>

#include "file.h"

/*
 * Opens the file behind file->fd with these flags and, of the descriptor's own, O_SYNC, O_DSYNC and
 * O_NOATIME. -EBUSY while there are locks on the file; else -errno of open(2): -EACCES, -ENOENT
 * (no /proc), -EMFILE.
 */
int ps_reopen(const struct ps_file *file, int flags);

/* Closes it; -errno of ps_reopen() is allowed. */
void ps_reopen_close(int fd);

/*
 * Keeps other processes with this library from changing the same stretch of the file: 64 KiB, around
 * offset. fd is ours, or else the program's, whose children then are not kept away. By a lock of
 * the open file description, on a byte that no file has, so that it disturbs no lock of a program; where
 * there are no such locks (some network file systems), or a program has locked that too, it does nothing.
 */
void ps_reopen_exclude(int fd, uint64_t offset);
void ps_reopen_include(int fd, uint64_t offset);

#define PS_REOPEN_STRETCH 16 /* binary logarithm of 64 KiB */

#endif
