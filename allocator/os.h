/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_OS_H
#define PS_OS_H
/*
 * Every call to the operating system that can fail, in one place.
 *
 * All return 0 or a positive count, or -errno; none touches errno, allocates, or takes a lock, so
 * all may be called with any lock held. In a build with PS_FAULT_INJECTION each first asks
 * ps_fault() whether it is to fail, which is how tests make any of them fail (fault.h).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>

struct iovec;
struct rlimit;
struct stat;

/* Of Linux 5.18 and 6.1, which older headers of the C library do not have. */
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* What a test can make fail; the names in PINSHIM_FAULT are the lower-case tails. */
enum ps_os_call {
	PS_OS_MMAP,
	PS_OS_MUNMAP,
	PS_OS_MPROTECT,
	PS_OS_MADVISE,
	PS_OS_POPULATE,
	PS_OS_MLOCK,
	PS_OS_MUNLOCK,
	PS_OS_CLONE,
	PS_OS_OPEN,
	PS_OS_READ,
	PS_OS_WRITE,
	PS_OS_FALLOCATE,
	PS_OS_FSTAT,
	PS_OS_UNLINK,
	PS_OS_GETDENTS,
	PS_OS_GETRLIMIT,
	PS_OS_PAGEMAP_SCAN,
	PS_OS_READLINK,
	PS_OS_IO_SETUP,
	PS_OS_IO_SUBMIT,
	PS_OS_IO_GETEVENTS,
	PS_OS_IO_URING_SETUP,
	PS_OS_IO_URING_ENTER,
	PS_OS_IO_URING_REGISTER,
	PS_OS_STATX,
	PS_OS_PREADV,
	PS_OS_PWRITEV,
	PS_OS_FSYNC,
	PS_OS_CALLS /* how many there are */
};

/*
 * mmap(2). Stores the address in *result.
 */
int ps_os_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset, void **result);
int ps_os_munmap(void *addr, size_t length);
int ps_os_mprotect(void *addr, size_t length, int prot);

/* madvise(2), except MADV_POPULATE_WRITE, which has a fault point of its own. */
int ps_os_madvise(void *addr, size_t length, int advice);

/*
 * MADV_POPULATE_WRITE (Linux 5.14). -EINVAL where the kernel lacks it; -EFAULT where a page could
 * not be had, for example because a hugetlb pool or its cgroup is empty; -ENOMEM.
 */
int ps_os_populate(void *addr, size_t length);

/*
 * mlock(2). A failed mlock may leave the range locked and accounted (mlock of PROT_NONE does): the
 * caller undoes it with ps_os_munlock().
 */
int ps_os_mlock(const void *addr, size_t length);

/*
 * mlock2(2) with MLOCK_ONFAULT: charges the range against RLIMIT_MEMLOCK and locks each page as it
 * appears, without populating. -ENOSYS before Linux 4.4.
 */
int ps_os_mlock_onfault(const void *addr, size_t length);
int ps_os_munlock(const void *addr, size_t length);

/* open(2) with O_CLOEXEC added; returns the descriptor. mode as in open(2). */
int ps_os_open(const char *path, int flags, mode_t mode);

/* One read(2)/write(2), restarted on EINTR; returns the count, which may be short. */
ssize_t ps_os_read(int fd, void *buffer, size_t length);
ssize_t ps_os_write(int fd, const void *buffer, size_t length);

/*
 * Writes all of it. 0 or -errno. Swallows the SIGPIPE of a reader that went away and the SIGXFSZ of
 * a file that would grow over RLIMIT_FSIZE: `program 2>&1 | head` must end as it does without us.
 */
int ps_os_write_all(int fd, const char *bytes, size_t length);
void ps_os_close(int fd);

/*
 * Reserves length bytes of the file from offset, so that a later store into a mapping of it cannot
 * raise SIGBUS. -ENOSPC where the file system is full, -EFBIG over RLIMIT_FSIZE (without SIGXFSZ),
 * -EOPNOTSUPP where it cannot.
 */
int ps_os_fallocate(int fd, off_t offset, off_t length);
int ps_os_fstat(int fd, struct stat *status);
int ps_os_stat(const char *path, struct stat *status);

/* The descriptor's O_ flags, as fcntl(F_GETFL). */
int ps_os_file_flags(int fd);
bool ps_os_is_terminal(int fd);
int ps_os_unlink(const char *path);

/* preadv2(2) and pwritev2(2); flags are RWF_*. Return the count, which may be short. EINTR is returned. */
ssize_t ps_os_preadv(int fd, const struct iovec *part, unsigned parts, uint64_t offset, int flags);
ssize_t ps_os_pwritev(int fd, const struct iovec *part, unsigned parts, uint64_t offset, int flags);

/* fdatasync(2), or fsync(2) if metadata. */
int ps_os_fsync(int fd, bool metadata);

/* readlink(2), ended with NUL; returns the length, cut to size - 1. */
ssize_t ps_os_readlink(const char *path, char *buffer, size_t size);

/* getdents64(2): fills buffer with struct linux_dirent64, returns bytes, 0 at the end. */
ssize_t ps_os_getdents(int fd, void *buffer, size_t length);

/* The soft limit of RLIMIT_MEMLOCK in bytes; UINT64_MAX when unlimited. */
int ps_os_memlock_limit(uint64_t *bytes);

/* The same of RLIMIT_AS. */
int ps_os_address_limit(uint64_t *bytes);

/*
 * Bytes of [addr, addr+length) that are in huge pages now. -ENOTTY or -ENOENT where the kernel has
 * no PAGEMAP_SCAN (before Linux 6.7) or /proc is not mounted.
 */
int64_t ps_os_huge_bytes(const void *addr, size_t length);

pid_t ps_os_getpid(void);
pid_t ps_os_gettid(void);

/* Monotonic time in nanoseconds; coarse has the resolution of the tick and costs a few ns. */
uint64_t ps_os_now(void);
uint64_t ps_os_now_coarse(void);

/* CLOCK_REALTIME in nanoseconds. */
uint64_t ps_os_wall_clock(void);

/* Sleeps so many nanoseconds. 0; -EINTR where a signal came before. */
int ps_os_sleep(uint64_t nanoseconds);

/*
 * Reads a whole small file (/proc, /sys) into buffer and ends it with NUL; returns the length. Of a
 * larger file the first size - 1 bytes.
 */
ssize_t ps_os_read_file(const char *path, char *buffer, size_t size);

/* Field 22 of /proc/PID/stat, clock ticks since boot; 0 where the process does not exist. */
uint64_t ps_os_start_time(pid_t pid);

#endif
