/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CACHED_H
#define PS_CACHED_H
/*
 * Transfers through the page cache on a file that the program has open for direct I/O: any bytes, and
 * the file ends where they do.
 *
 * What is written is written back before the call returns: as with direct I/O it is on the device then, an
 * error is told to the one who wrote, and the page is dirty for no longer than it must.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "file.h"

/*
 * As preadv2(2) or pwritev2(2) on the same file without O_DIRECT: a count or -errno. flags are RWF_*;
 * append: at the end of the file, wherever that is.
 *
 * If the file cannot be opened again, O_DIRECT is taken from the program's own descriptor for the
 * moment, under a lock, and what others do with it meanwhile goes through the page cache as well.
 */
int64_t ps_cached_read(const struct ps_file *file, const struct iovec *part, unsigned parts,
		       uint64_t offset, int flags);
int64_t ps_cached_write(const struct ps_file *file, const struct iovec *part, unsigned parts,
			uint64_t offset, int flags, bool append);

/*
 * The descriptor's flags, as fcntl(F_GETFL), as the program has set them: O_DIRECT is among them also in
 * such a moment. Takes that lock then.
 */
int ps_cached_flags(int fd);

void ps_cached_fork_prepare(void);
void ps_cached_fork_parent(void);
void ps_cached_fork_child(void);

#endif
