/* SPDX-License-Identifier: BSD-2-Clause */
#include "os.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "fault.h"
#include "syscall.h"
#include "text.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

/* Returns from the calling function when a test wants this call to fail. */
#define FAULT_POINT(call)                                                                          \
	do {                                                                                       \
		int fault = ps_fault(call);                                                        \
		if (fault != 0)                                                                    \
			return -fault;                                                             \
	} while (0)

int ps_os_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset, void **result)
{
	long got;

	FAULT_POINT(PS_OS_MMAP);
	got = ps_syscall6(SYS_mmap, (long)addr, (long)length, prot, flags, fd, offset);
	if (got < 0 && got > -4096)
		return (int)got;
	*result = (void *)got;
	return 0;
}

int ps_os_munmap(void *addr, size_t length)
{
	FAULT_POINT(PS_OS_MUNMAP);
	return (int)ps_syscall2(SYS_munmap, addr, length);
}

int ps_os_mprotect(void *addr, size_t length, int prot)
{
	FAULT_POINT(PS_OS_MPROTECT);
	return (int)ps_syscall3(SYS_mprotect, addr, length, prot);
}

int ps_os_madvise(void *addr, size_t length, int advice)
{
	FAULT_POINT(PS_OS_MADVISE);
	return (int)ps_syscall3(SYS_madvise, addr, length, advice);
}

int ps_os_populate(void *addr, size_t length)
{
	FAULT_POINT(PS_OS_POPULATE);
	return (int)ps_syscall3(SYS_madvise, addr, length, MADV_POPULATE_WRITE);
}

int ps_os_mlock(const void *addr, size_t length)
{
	FAULT_POINT(PS_OS_MLOCK);
	return (int)ps_syscall2(SYS_mlock, addr, length);
}

int ps_os_mlock_onfault(const void *addr, size_t length)
{
	FAULT_POINT(PS_OS_MLOCK);
	return (int)ps_syscall3(SYS_mlock2, addr, length, MLOCK_ONFAULT);
}

int ps_os_munlock(const void *addr, size_t length)
{
	FAULT_POINT(PS_OS_MUNLOCK);
	return (int)ps_syscall2(SYS_munlock, addr, length);
}

int ps_os_open(const char *path, int flags, mode_t mode)
{
	FAULT_POINT(PS_OS_OPEN);
	return (int)ps_syscall4(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
}

ssize_t ps_os_read(int fd, void *buffer, size_t length)
{
	long got;

	FAULT_POINT(PS_OS_READ);
	do
		got = ps_syscall3(SYS_read, fd, buffer, length);
	while (got == -EINTR);
	return got;
}

ssize_t ps_os_write(int fd, const void *buffer, size_t length)
{
	long put;

	FAULT_POINT(PS_OS_WRITE);
	do
		put = ps_syscall3(SYS_write, fd, buffer, length);
	while (put == -EINTR);
	return put;
}

void ps_os_close(int fd)
{
	ps_syscall1(SYS_close, fd);
}

/* The kernel's signal set: one bit a signal, from signal 1. */
#define SIGNAL_BIT(signal) (UINT64_C(1) << ((signal)-1))

/* Signals that a call of ours may raise, held back. */
struct quiet {
	uint64_t signals;
	uint64_t mask;    /* of the thread before */
	uint64_t pending; /* the program's own, which stay */
};

static void quiet_begin(struct quiet *quiet, uint64_t signals)
{
	*quiet = (struct quiet){ .signals = signals };
	ps_syscall4(SYS_rt_sigprocmask, SIG_BLOCK, &signals, &quiet->mask, sizeof(quiet->mask));
	ps_syscall2(SYS_rt_sigpending, &quiet->pending, sizeof(quiet->pending));
}

/* Takes the signal that came with this error, and lets the others through again. */
static void quiet_end(struct quiet *quiet, long error)
{
	static const struct timespec at_once;
	uint64_t raised = error == -EPIPE   ? SIGNAL_BIT(SIGPIPE)
			  : error == -EFBIG ? SIGNAL_BIT(SIGXFSZ)
					    : 0;

	raised &= quiet->signals & ~quiet->pending;
	if (raised != 0)
		ps_syscall4(SYS_rt_sigtimedwait, &raised, NULL, &at_once, sizeof(raised));
	ps_syscall4(SYS_rt_sigprocmask, SIG_SETMASK, &quiet->mask, NULL, sizeof(quiet->mask));
}

int ps_os_write_all(int fd, const char *bytes, size_t length)
{
	struct quiet quiet;
	ssize_t put = 0;

	quiet_begin(&quiet, SIGNAL_BIT(SIGPIPE) | SIGNAL_BIT(SIGXFSZ));
	while (length > 0 && (put = ps_os_write(fd, bytes, length)) > 0) {
		bytes += put;
		length -= (size_t)put;
	}
	quiet_end(&quiet, put);
	return put < 0 ? (int)put : 0;
}

int ps_os_fallocate(int fd, off_t offset, off_t length)
{
	struct quiet quiet;
	long done;

	FAULT_POINT(PS_OS_FALLOCATE);
	quiet_begin(&quiet, SIGNAL_BIT(SIGXFSZ));
	do
		done = ps_syscall4(SYS_fallocate, fd, 0, offset, length);
	while (done == -EINTR);
	quiet_end(&quiet, done);
	return (int)done;
}

int ps_os_fstat(int fd, struct stat *status)
{
	FAULT_POINT(PS_OS_FSTAT);
	return (int)ps_syscall2(SYS_fstat, fd, status);
}

int ps_os_stat(const char *path, struct stat *status)
{
	FAULT_POINT(PS_OS_FSTAT);
	return (int)ps_syscall4(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

int ps_os_file_flags(int fd)
{
	FAULT_POINT(PS_OS_FSTAT);
	return (int)ps_syscall2(SYS_fcntl, fd, F_GETFL);
}

/* The kernel takes the offset in two words, of which a 64-bit one uses the first. */
ssize_t ps_os_preadv(int fd, const struct iovec *part, unsigned parts, uint64_t offset, int flags)
{
	FAULT_POINT(PS_OS_PREADV);
	return ps_syscall6(SYS_preadv2, fd, (long)part, (long)parts, (long)offset, 0, flags);
}

ssize_t ps_os_pwritev(int fd, const struct iovec *part, unsigned parts, uint64_t offset, int flags)
{
	FAULT_POINT(PS_OS_PWRITEV);
	return ps_syscall6(SYS_pwritev2, fd, (long)part, (long)parts, (long)offset, 0, flags);
}

int ps_os_fsync(int fd, bool metadata)
{
	FAULT_POINT(PS_OS_FSYNC);
	return (int)ps_syscall1(metadata ? SYS_fsync : SYS_fdatasync, fd);
}

bool ps_os_is_terminal(int fd)
{
	char settings[64]; /* the kernel's struct termios, 36 bytes */

	return ps_syscall3(SYS_ioctl, fd, TCGETS, settings) == 0;
}

int ps_os_unlink(const char *path)
{
	FAULT_POINT(PS_OS_UNLINK);
	return (int)ps_syscall3(SYS_unlinkat, AT_FDCWD, path, 0);
}

ssize_t ps_os_readlink(const char *path, char *buffer, size_t size)
{
	long length;

	FAULT_POINT(PS_OS_READLINK);
	length = ps_syscall4(SYS_readlinkat, AT_FDCWD, path, buffer, size - 1);
	if (length >= 0)
		buffer[length] = '\0';
	return length;
}

ssize_t ps_os_getdents(int fd, void *buffer, size_t length)
{
	FAULT_POINT(PS_OS_GETDENTS);
	return ps_syscall3(SYS_getdents64, fd, buffer, length);
}

static int soft_limit(int resource, uint64_t *bytes)
{
	struct rlimit64 limit; /* as the kernel's: RLIM64_INFINITY is UINT64_MAX */
	long error;

	FAULT_POINT(PS_OS_GETRLIMIT);
	error = ps_syscall4(SYS_prlimit64, 0, resource, NULL, &limit);
	if (error < 0)
		return (int)error;
	*bytes = limit.rlim_cur;
	return 0;
}

int ps_os_memlock_limit(uint64_t *bytes)
{
	return soft_limit(RLIMIT_MEMLOCK, bytes);
}

int ps_os_address_limit(uint64_t *bytes)
{
	return soft_limit(RLIMIT_AS, bytes);
}

/* PAGEMAP_SCAN of linux/fs.h, which Debian 12's headers do not have yet. */
#define SCAN_PAGE_PRESENT (1u << 3)
#define SCAN_PAGE_HUGE (1u << 6)

struct scan_region {
	uint64_t start;
	uint64_t end;
	uint64_t categories;
};

struct scan_request {
	uint64_t size; /* of this struct */
	uint64_t flags;
	uint64_t start;
	uint64_t end;
	uint64_t walk_end; /* how far it got */
	uint64_t regions;
	uint64_t region_count;
	uint64_t max_pages;
	uint64_t category_inverted;
	uint64_t category_mask; /* pages that have all of these */
	uint64_t category_anyof_mask;
	uint64_t return_mask;
};

#define SCAN_REQUEST _IOWR('f', 16, struct scan_request)

static int64_t scan_huge(int fd, uint64_t start, uint64_t end)
{
	struct scan_region regions[16];
	uint64_t low = start & ~UINT64_C(4095);
	int64_t huge = 0;

	while (low < end) {
		struct scan_request request = {
			.size = sizeof(request),
			.start = low,
			.end = (end + 4095) & ~UINT64_C(4095),
			.regions = (uintptr_t)regions,
			.region_count = sizeof(regions) / sizeof(regions[0]),
			.category_mask = SCAN_PAGE_PRESENT | SCAN_PAGE_HUGE,
			.return_mask = SCAN_PAGE_PRESENT | SCAN_PAGE_HUGE,
		};
		long count = ps_syscall3(SYS_ioctl, fd, SCAN_REQUEST, &request);

		if (count < 0)
			return count;
		for (long i = 0; i < count; i++) {
			uint64_t from = regions[i].start > start ? regions[i].start : start;
			uint64_t to = regions[i].end < end ? regions[i].end : end;

			huge += (int64_t)(to - from);
		}
		if (request.walk_end <= low)
			break;
		low = request.walk_end;
	}
	return huge;
}

int64_t ps_os_huge_bytes(const void *addr, size_t length)
{
	int64_t huge;
	int fd;

	FAULT_POINT(PS_OS_PAGEMAP_SCAN);
	fd = ps_os_open("/proc/self/pagemap", O_RDONLY, 0);
	if (fd < 0)
		return fd;
	huge = scan_huge(fd, (uintptr_t)addr, (uintptr_t)addr + length);
	ps_os_close(fd);
	return huge;
}

pid_t ps_os_getpid(void)
{
	return (pid_t)ps_syscall0(SYS_getpid);
}

pid_t ps_os_gettid(void)
{
	return (pid_t)ps_syscall0(SYS_gettid);
}

static uint64_t now(clockid_t clock)
{
	struct timespec time;

	/* libc's, because it reads the vDSO; it cannot fail with a valid clock, so leaves errno. */
	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t ps_os_now(void)
{
	return now(CLOCK_MONOTONIC);
}

uint64_t ps_os_now_coarse(void)
{
	return now(CLOCK_MONOTONIC_COARSE);
}

uint64_t ps_os_wall_clock(void)
{
	return now(CLOCK_REALTIME);
}

int ps_os_sleep(uint64_t nanoseconds)
{
	const struct timespec duration = { .tv_sec = (time_t)(nanoseconds / 1000000000u),
					   .tv_nsec = (long)(nanoseconds % 1000000000u) };

	return (int)ps_syscall2(SYS_nanosleep, &duration, NULL);
}

ssize_t ps_os_read_file(const char *path, char *buffer, size_t size)
{
	size_t length = 0;
	ssize_t got = 0;
	int fd;

	fd = ps_os_open(path, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	while (length < size - 1) {
		got = ps_os_read(fd, buffer + length, size - 1 - length);
		if (got <= 0)
			break;
		length += (size_t)got;
	}
	ps_os_close(fd);
	if (got < 0)
		return got;
	buffer[length] = '\0';
	return (ssize_t)length;
}

uint64_t ps_os_start_time(pid_t pid)
{
	char buffer[1024];
	char path[32];
	struct ps_text text = PS_TEXT_INIT(path);
	const char *field;
	uint64_t ticks;

	ps_text_add(&text, "/proc/%d/stat", (int)pid);
	if (ps_os_read_file(path, buffer, sizeof(buffer)) < 0)
		return 0;
	/* Field 2, the program's name in parentheses, may itself have spaces and parentheses. */
	field = strrchr(buffer, ')');
	for (int number = 2; field != NULL && number < 22; number++) {
		field = strchr(field, ' ');
		if (field != NULL)
			field++;
	}
	if (field == NULL || ps_text_parse_size(field, &field, &ticks) < 0)
		return 0;
	return ticks;
}
