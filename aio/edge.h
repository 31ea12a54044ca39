/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_EDGE_H
#define PS_EDGE_H
/*
 * The block at either end of a misaligned write, of which only a part is written.
 *
 * A block that lies in the file is read, changed and written back by direct I/O: the page cache knows
 * only whole pages, and would write back what direct I/O of others has meanwhile replaced in the rest
 * of the page. While that is going on nobody else does it in the same stretch of the file: other threads
 * by a lock here, other processes with this library by one of reopen.h. Where the file ends in the
 * block, the bytes go through the page cache, because direct I/O would make the file longer.
 *
 * What is left: a direct write of other bytes of the same page (so one that is no multiple of a page),
 * within the file and not waited for, that is in flight in the moment in which the block at the end of
 * the file is written. It may be undone when the page is written back, as the kernel warns of all mixing of
 * the two. No order of calls excludes it: what extends the file, and what is waited for, ext4
 * and XFS keep apart by the file's own lock.
 */
#include <stdint.h>

#include "file.h"

/*
 * Writes length bytes, all in one block of file->offset_align. blocks has room for two, aligned for
 * direct I/O, the second of which begins with the bytes. flags are RWF_DSYNC and RWF_SYNC. A count, or
 * -errno. Holds a lock across pread(2) and pwrite(2).
 */
int64_t ps_edge_write(const struct ps_file *file, char *blocks, uint64_t length, uint64_t offset,
		      int flags);

void ps_edge_fork_prepare(void);
void ps_edge_fork_parent(void);
void ps_edge_fork_child(void);

#endif
