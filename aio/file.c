/* SPDX-License-Identifier: BSD-2-Clause */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "cached.h"
#include "fault.h"
#include "os.h"
#include "reopen.h"
#include "syscall.h"
#include "text.h"

#define DEFAULT_ALIGN 512
#define ALIGN_MAX ((uint32_t)1 << 20)

atomic_uint ps_file_closings[PS_FILE_DESCRIPTORS];

void ps_files_begin(struct ps_files *files)
{
	for (unsigned i = 0; i < PS_FILES; i++)
		files->file[i].fd = -1;
}

static uint32_t flags_to_is(int flags)
{
	const int mode = flags & O_ACCMODE;
	uint32_t is = 0;

	if (flags & O_PATH)
		return 0;
	is |= mode == O_RDONLY || mode == O_RDWR ? PS_FILE_READABLE : 0;
	is |= mode == O_WRONLY || mode == O_RDWR ? PS_FILE_WRITABLE : 0;
	is |= flags & O_DIRECT ? PS_FILE_DIRECT : 0;
	is |= flags & O_APPEND ? PS_FILE_APPEND : 0;
	is |= flags & (O_SYNC | O_DSYNC) ? PS_FILE_SYNC : 0;
	return is;
}

/*
 * What the kernel says (Linux 6.1). 0 where it does. Zeros mean that direct I/O on this file is none: the
 * file system goes through the page cache and takes everything.
 */
static int ask_alignment(struct ps_file *file)
{
	struct statx status;
	long error = -ps_fault(PS_OS_STATX);

	if (error == 0)
		error = ps_syscall5(SYS_statx, file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN,
				    &status);
	if (error < 0)
		return (int)error;
	if ((status.stx_mask & STATX_DIOALIGN) == 0)
		return -EOPNOTSUPP;
	if (status.stx_dio_mem_align == 0 || status.stx_dio_offset_align == 0)
		return 0;
	file->memory_align = status.stx_dio_mem_align;
	file->offset_align = status.stx_dio_offset_align;
	file->is |= PS_FILE_ASYNC;
	return 0;
}

/* File systems in memory, and NFS, take everything. */
static bool takes_everything(int fd)
{
	struct statfs status;

	if (ps_syscall2(SYS_fstatfs, fd, &status) < 0)
		return false;
	return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC ||
	       status.f_type == HUGETLBFS_MAGIC || status.f_type == NFS_SUPER_MAGIC;
}

/* The logical block size of the disk that a device is, or is a part of; 0 where it is not known. */
static uint32_t device_block(dev_t device)
{
	static const char *const places[] = {
		"/sys/dev/block/%u:%u/queue/logical_block_size",
		"/sys/dev/block/%u:%u/../queue/logical_block_size",
	};
	char path[80], content[32];

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct ps_text text = PS_TEXT_INIT(path);
		const char *end;
		uint64_t bytes;

		ps_text_add(&text, places[i], major(device), minor(device));
		if (ps_os_read_file(path, content, sizeof(content)) > 0 &&
		    ps_text_parse_size(content, &end, &bytes) == 0 && bytes <= ALIGN_MAX)
			return (uint32_t)bytes;
	}
	return 0;
}

static void guess_alignment(struct ps_file *file, const struct stat *status)
{
	uint32_t block;

	if (S_ISREG(status->st_mode) && takes_everything(file->fd))
		return;
	block = device_block(S_ISBLK(status->st_mode) ? status->st_rdev : status->st_dev);
	file->memory_align = file->offset_align = block != 0 ? block : DEFAULT_ALIGN;
}

static bool is_usable(uint32_t align)
{
	return align > 0 && align <= ALIGN_MAX && (align & (align - 1)) == 0;
}

/*
 * Does the file take RWF_NOWAIT? Where it does not (zram, some network file systems), io_uring hands each
 * request to a worker thread, which costs more than the kernel's AIO. Asked by reading one byte, which
 * direct I/O refuses without reading, and by way of a descriptor for reading if need be.
 */
static bool takes_nowait(const struct ps_file *file)
{
	char byte;
	const struct iovec part = { &byte, 1 };
	int64_t got;
	int fd;

	if (file->is & PS_FILE_READABLE) {
		got = ps_os_preadv(file->fd, &part, 1, 0, RWF_NOWAIT);
		return got != -EOPNOTSUPP;
	}
	fd = ps_reopen(file, O_RDONLY | O_DIRECT);
	if (fd < 0)
		return false;
	got = ps_os_preadv(fd, &part, 1, 0, RWF_NOWAIT);
	ps_reopen_close(fd);
	return got != -EOPNOTSUPP;
}

static void find_alignment(struct ps_file *file, const struct stat *status)
{
	if (ask_alignment(file) < 0)
		guess_alignment(file, status);
	/* What is computed with here are powers of two; other files are left to the kernel. */
	if (!is_usable(file->memory_align) || !is_usable(file->offset_align)) {
		file->memory_align = file->offset_align = 1;
		file->is &= ~PS_FILE_ASYNC;
	}
}

int ps_file_look(int fd, struct ps_file *file)
{
	struct stat status;
	int flags, error;

	if (fd < 0)
		return -EBADF;
	*file = (struct ps_file){ .fd = fd, .closings = ps_file_closings_of(fd) };
	file->memory_align = file->offset_align = 1;
	flags = ps_cached_flags(fd);
	if (flags < 0)
		return flags;
	error = ps_os_fstat(fd, &status);
	if (error < 0)
		return error;
	file->is = flags_to_is(flags);
	file->device = status.st_dev;
	file->inode = status.st_ino;
	file->size = (uint64_t)status.st_size;
	if (S_ISREG(status.st_mode)) {
		file->is |= PS_FILE_PLAIN;
	} else if (S_ISBLK(status.st_mode)) {
		file->is |= PS_FILE_DEVICE;
		file->size = UINT64_MAX;
	} else {
		return 0;
	}
	if (file->is & PS_FILE_DIRECT)
		find_alignment(file, &status);
	return 0;
}

const struct ps_file *ps_file_get_anew(struct ps_files *files, int fd)
{
	struct ps_file *file;

	if (fd < 0)
		return NULL;
	file = &files->file[(unsigned)fd % PS_FILES];
	if (ps_file_look(fd, file) < 0) {
		file->fd = -1;
		return NULL;
	}
	if (file->is & PS_FILE_ASYNC && takes_nowait(file))
		file->is |= PS_FILE_NOWAIT;
	return file;
}

uint64_t ps_file_size(struct ps_files *files, const struct ps_file *file)
{
	struct ps_file *kept = &files->file[(unsigned)file->fd % PS_FILES];
	struct stat status;

	if (!(file->is & PS_FILE_PLAIN) || ps_os_fstat(file->fd, &status) < 0)
		return file->size;
	if (kept->fd == file->fd)
		kept->size = (uint64_t)status.st_size;
	return (uint64_t)status.st_size;
}

void ps_file_closed(int fd)
{
	if (fd >= 0)
		atomic_fetch_add_explicit(&ps_file_closings[(unsigned)fd % PS_FILE_DESCRIPTORS], 1,
					  memory_order_release);
}

void ps_file_closed_range(unsigned first, unsigned last)
{
	const unsigned count = last - first < PS_FILE_DESCRIPTORS ? last - first + 1
								  : PS_FILE_DESCRIPTORS;

	for (unsigned i = 0; first <= last && i < count; i++)
		atomic_fetch_add_explicit(&ps_file_closings[(first + i) % PS_FILE_DESCRIPTORS], 1,
					  memory_order_release);
}

int ps_file_close(int fd)
{
	const long error = ps_syscall1(SYS_close, fd);

	ps_file_closed(fd);
	return (int)error;
}
