/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_FILE_H
#define PS_FILE_H
/*
 * What a request's descriptor is: open how, and what its file demands of direct I/O.
 *
 * Asking the kernel takes three system calls, so a context keeps answers, by descriptor. Whether one
 * is still true is told by counting the closings of each descriptor (close, dup2, dup3, close_range,
 * closefrom and fcntl, which changes flags, are interposed in process.c). A closing that nobody sees (by
 * system call, or inside the C library) leaves an old answer behind: the request is then served as the old
 * file demanded, which reads and writes the right data. Where nobody sees that O_APPEND is set (by system
 * call, or by another process that shares the open file) requests of one batch may be appended in another
 * order.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ps_file.is */
#define PS_FILE_DIRECT 0x1u /* opened with O_DIRECT */
#define PS_FILE_PLAIN 0x2u  /* a regular file */
#define PS_FILE_DEVICE 0x4u /* a block device */
#define PS_FILE_APPEND 0x8u /* opened with O_APPEND */
#define PS_FILE_READABLE 0x10u
#define PS_FILE_WRITABLE 0x20u
#define PS_FILE_ASYNC 0x40u   /* direct, and it is known what is demanded: it really is done */
#define PS_FILE_SYNC 0x80u    /* opened with O_SYNC or O_DSYNC */
#define PS_FILE_NOWAIT 0x100u /* io_uring does it without other threads; from ps_file_get() */

struct ps_file {
	int fd;            /* -1: empty */
	uint32_t is;       /* PS_FILE_* */
	uint32_t closings; /* of the descriptor, when it was looked at */
	/* Powers of two: what buffers, and offsets and lengths, must be multiples of. */
	uint32_t memory_align;
	uint32_t offset_align;
	uint64_t size;   /* bytes when last looked; of a device, UINT64_MAX */
	uint64_t device; /* st_dev and st_ino: which file it is */
	uint64_t inode;
};

/* Is it open for writing, or for reading? */
static inline bool ps_file_allows(const struct ps_file *file, bool write)
{
	return (file->is & (write ? PS_FILE_WRITABLE : PS_FILE_READABLE)) != 0;
}

#define PS_FILES 16              /* that a context remembers */
#define PS_FILE_DESCRIPTORS 1024 /* counted apart; others share a counter with one of these */

/* Closings of each descriptor. */
extern atomic_uint ps_file_closings[PS_FILE_DESCRIPTORS];

struct ps_files {
	struct ps_file file[PS_FILES]; /* by descriptor, modulo */
};

void ps_files_begin(struct ps_files *files);

/*
 * Asks the kernel: fcntl(F_GETFL), fstat, statx(STATX_DIOALIGN). Where that does not say (Linux before 6.1;
 * some file systems) buffers, offsets and lengths are taken to be multiples of the logical block size of the
 * disk, or of 512 where that is not known, unless the file system is one that takes everything
 * (tmpfs, NFS). 0; -EBADF; other -errno of fstat.
 */
int ps_file_look(int fd, struct ps_file *file);

static inline uint32_t ps_file_closings_of(int fd)
{
	return atomic_load_explicit(&ps_file_closings[(unsigned)fd % PS_FILE_DESCRIPTORS],
				    memory_order_acquire);
}

/* As ps_file_get(), for what is not remembered. */
const struct ps_file *ps_file_get_anew(struct ps_files *files, int fd);

/*
 * As ps_file_look(), from what is remembered if it is, and PS_FILE_NOWAIT besides. NULL where the
 * descriptor is none.
 */
static inline const struct ps_file *ps_file_get(struct ps_files *files, int fd)
{
	const struct ps_file *file = &files->file[(unsigned)fd % PS_FILES];

	if (__builtin_expect(file->fd == fd && fd >= 0 && file->closings == ps_file_closings_of(fd),
			     1))
		return file;
	return ps_file_get_anew(files, fd);
}

/* The file's size now, remembered too. */
uint64_t ps_file_size(struct ps_files *files, const struct ps_file *file);

/*
 * The descriptor was closed or made another: said afterwards, so that nobody looks in between and remembers
 * what it was. Any thread, any time, in signal handlers too; no lock.
 */
void ps_file_closed(int fd);
/* The same for all from first to last. */
void ps_file_closed_range(unsigned first, unsigned last);

/* Closes one and says so. 0 or -errno of close(2), after which it is closed, too. */
int ps_file_close(int fd);

#endif
