/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * os.h: results and errors of each call, errno left alone; fault.h: which calls fail and when; lock.h
 * with threads and across fork.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "lock.h"
#include "os.h"

#define MIB ((size_t)1 << 20)

static char directory[] = "/tmp/test_os.XXXXXX";

static void setup(void)
{
	strcpy(directory, "/tmp/test_os.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	ps_fault_clear();
	errno = 4711;
}

static void teardown(void)
{
	char command[64];

	ck_assert_int_eq(errno, 4711);
	ps_fault_clear();
	snprintf(command, sizeof(command), "rm -r %s", directory);
	ck_assert_int_eq(system(command), 0);
}

static const char *path_of(const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void *map(size_t length)
{
	void *memory = NULL;

	ck_assert_int_eq(ps_os_mmap(NULL, length, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory),
			 0);
	return memory;
}

/* Kilobytes of a field of /proc/self/status. */
static long status_kb(const char *label)
{
	char text[4096], *found;

	ck_assert_int_gt(ps_os_read_file("/proc/self/status", text, sizeof(text)), 0);
	found = strstr(text, label);
	return found != NULL ? atol(found + strlen(label)) : -1;
}

static bool resident(const void *address)
{
	unsigned char there;
	int saved = errno;

	ck_assert_int_eq(mincore((void *)address, 4096, &there), 0);
	errno = saved;
	return (there & 1) != 0;
}

START_TEST(mapping)
{
	void *untouched = (void *)1;
	char *memory = map(2 * MIB);

	memory[0] = 'x';
	ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), 0);
	ck_assert_int_eq(ps_os_mprotect(memory + 1, 4096, PROT_READ), -EINVAL);
	ck_assert_int_eq(ps_os_madvise(memory + MIB, MIB, MADV_DONTNEED), 0);
	ck_assert_int_eq(ps_os_madvise(memory, 4096, 12345), -EINVAL);
	ck_assert_int_eq(ps_os_munmap(memory, 2 * MIB), 0);
	ck_assert_int_eq(ps_os_munmap(memory + 1, 4096), -EINVAL);
	ck_assert_int_eq(
		ps_os_mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &untouched),
		-EINVAL);
	ck_assert_int_eq(ps_os_mmap(NULL, (size_t)1 << 60, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
				    -1, 0, &untouched),
			 -ENOMEM);
	ck_assert_ptr_eq(untouched, (void *)1);
}
END_TEST

START_TEST(populate)
{
	char *memory = map(MIB);

	ck_assert(!resident(memory + MIB - 4096));
	ck_assert_int_eq(ps_os_populate(memory, MIB), 0);
	ck_assert(resident(memory + MIB - 4096));
	ck_assert_int_eq(ps_os_munmap(memory, MIB), 0);
	ck_assert_int_eq(ps_os_populate(memory, MIB), -ENOMEM);
}
END_TEST

START_TEST(locking)
{
	char *memory = map(MIB);
	long before = status_kb("VmLck:");

	ck_assert_int_eq(ps_os_mlock(memory, MIB / 2), 0);
	ck_assert_int_eq(status_kb("VmLck:") - before, 512);
	ck_assert(resident(memory));
	ck_assert_int_eq(ps_os_mlock_onfault(memory + MIB / 2, MIB / 2), 0);
	ck_assert_int_eq(status_kb("VmLck:") - before, 1024);
	ck_assert(!resident(memory + MIB - 4096));
	ck_assert_int_eq(ps_os_munlock(memory, MIB), 0);
	ck_assert_int_eq(status_kb("VmLck:") - before, 0);
	ck_assert_int_eq(ps_os_munmap(memory, MIB), 0);
	ck_assert_int_eq(ps_os_mlock(memory, MIB), -ENOMEM);
	ck_assert_int_eq(ps_os_munlock(memory, MIB), -ENOMEM);
}
END_TEST

START_TEST(memlock_limit)
{
	struct rlimit limit;
	uint64_t bytes = 0;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	ck_assert_int_eq(ps_os_memlock_limit(&bytes), 0);
	ck_assert_uint_eq(bytes, limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur);
	limit.rlim_cur = 12345;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	ck_assert_int_eq(ps_os_memlock_limit(&bytes), 0);
	ck_assert_uint_eq(bytes, 12345);
}
END_TEST

START_TEST(huge_bytes)
{
	char *memory = map(8 * MIB);
	char *aligned = (char *)(((uintptr_t)memory + 2 * MIB - 1) & ~(2 * MIB - 1));
	int64_t huge = ps_os_huge_bytes(memory, 8 * MIB);

	if (huge == -ENOTTY || huge == -ENOENT) {
		puts("skip - huge_bytes: this kernel has no PAGEMAP_SCAN");
		return;
	}
	ck_assert_int_eq(huge, 0);
	/* Ordinary pages are not counted. */
	ck_assert_int_eq(ps_os_madvise(memory, 8 * MIB, MADV_NOHUGEPAGE), 0);
	memset(memory, 1, 8 * MIB);
	ck_assert_int_eq(ps_os_huge_bytes(memory, 8 * MIB), 0);
	ck_assert_int_eq(ps_os_madvise(memory, 8 * MIB, MADV_DONTNEED), 0);
	ck_assert_int_eq(ps_os_madvise(aligned, 6 * MIB, MADV_HUGEPAGE), 0);
	ck_assert_int_eq(ps_os_populate(aligned, 6 * MIB), 0);
	if (ps_os_huge_bytes(aligned, 6 * MIB) != 6 * (int64_t)MIB) {
		puts("skip - huge_bytes: no huge page to be had");
		return;
	}
	/* A part of them, and a hole: small pages in the second of the three. */
	ck_assert_int_eq(ps_os_huge_bytes(aligned + MIB, 2 * MIB), 2 * (int64_t)MIB);
	ck_assert_int_eq(ps_os_huge_bytes(aligned + 5000, 100), 100);
	ck_assert_int_eq(ps_os_madvise(aligned + 2 * MIB, 2 * MIB, MADV_DONTNEED), 0);
	ck_assert_int_eq(ps_os_huge_bytes(aligned, 6 * MIB), 4 * (int64_t)MIB);
	ck_assert_int_eq(ps_os_huge_bytes(aligned, 0), 0);
	ps_fault_set(PS_OS_OPEN, 1, 1, ENOENT);
	ck_assert_int_eq(ps_os_huge_bytes(aligned, MIB), -ENOENT);
}
END_TEST

START_TEST(huge_bytes_of_many_parts)
{
	enum { PARTS = 40 };
	char *memory = map((2 * PARTS + 1) * 2 * MIB);
	char *aligned = (char *)(((uintptr_t)memory + 2 * MIB - 1) & ~(2 * MIB - 1));

	ck_assert_int_eq(ps_os_madvise(aligned, 2 * PARTS * 2 * MIB, MADV_HUGEPAGE), 0);
	for (int i = 0; i < PARTS; i++)
		aligned[(size_t)i * 4 * MIB] = 1;
	if (ps_os_huge_bytes(aligned, 2 * MIB) != 2 * (int64_t)MIB) {
		puts("skip - huge_bytes_of_many_parts: no huge page to be had");
		return;
	}
	ck_assert_int_eq(ps_os_huge_bytes(aligned, 2 * PARTS * 2 * MIB), PARTS * 2 * (int64_t)MIB);
	ck_assert_int_eq(ps_os_munmap(memory, (2 * PARTS + 1) * 2 * MIB), 0);
}
END_TEST

START_TEST(files)
{
	char buffer[16];
	struct stat status;
	int fd = ps_os_open(path_of("file"), O_RDWR | O_CREAT | O_EXCL, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(ps_os_open(path_of("file"), O_RDWR | O_CREAT | O_EXCL, 0600), -EEXIST);
	ck_assert_int_eq(ps_os_open(path_of("none"), O_RDONLY, 0), -ENOENT);
	ck_assert_int_eq(ps_os_write(fd, "content", 7), 7);
	ck_assert_int_eq(ps_os_fstat(fd, &status), 0);
	ck_assert_int_eq(status.st_size, 7);
	ck_assert_int_eq(status.st_mode & 07777, 0600);
	ck_assert_int_eq(ps_os_fallocate(fd, 0, 8192), 0);
	ck_assert_int_eq(ps_os_stat(path_of("file"), &status), 0);
	ck_assert_int_eq(status.st_size, 8192);
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	ck_assert_int_eq(ps_os_read(fd, buffer, 7), 7);
	ck_assert_mem_eq(buffer, "content", 7);
	ck_assert_int_eq(ps_os_file_flags(fd) & (O_ACCMODE | O_APPEND), O_RDWR);
	ck_assert(!ps_os_is_terminal(fd));
	ps_os_close(fd);
	ck_assert_int_eq(ps_os_read(fd, buffer, 1), -EBADF);
	ck_assert_int_eq(ps_os_write(fd, buffer, 1), -EBADF);
	ck_assert_int_eq(ps_os_fstat(fd, &status), -EBADF);
	ck_assert_int_eq(ps_os_file_flags(fd), -EBADF);
	ck_assert_int_eq(ps_os_fallocate(fd, 0, 1), -EBADF);
	ck_assert_int_eq(ps_os_unlink(path_of("file")), 0);
	ck_assert_int_eq(ps_os_unlink(path_of("file")), -ENOENT);
	ck_assert_int_eq(ps_os_stat(path_of("file"), &status), -ENOENT);
}
END_TEST

START_TEST(reading_a_file_whole)
{
	char buffer[16];
	int fd = ps_os_open(path_of("file"), O_RDWR | O_CREAT, 0600);

	ck_assert_int_eq(ps_os_write(fd, "0123456789", 10), 10);
	ps_os_close(fd);
	memset(buffer, '#', sizeof(buffer));
	ck_assert_int_eq(ps_os_read_file(path_of("file"), buffer, sizeof(buffer)), 10);
	ck_assert_str_eq(buffer, "0123456789");
	ck_assert_int_eq(ps_os_read_file(path_of("file"), buffer, 11), 10);
	ck_assert_int_eq(ps_os_read_file(path_of("file"), buffer, 5), 4);
	ck_assert_str_eq(buffer, "0123");
	ck_assert_int_eq(ps_os_read_file(path_of("none"), buffer, 5), -ENOENT);
	ck_assert_int_eq(ps_os_read_file(directory, buffer, 5), -EISDIR);
	/* Descriptors are closed on every way out: the next one has the same number. */
	fd = ps_os_open(path_of("file"), O_RDONLY, 0);
	ps_os_close(fd);
	ps_fault_set(PS_OS_READ, 1, 1, EIO);
	ck_assert_int_eq(ps_os_read_file(path_of("file"), buffer, 5), -EIO);
	ck_assert_int_eq(ps_os_open(path_of("file"), O_RDONLY, 0), fd);
	ps_os_close(fd);
}
END_TEST

START_TEST(links)
{
	char buffer[8];

	ck_assert_int_eq(symlink("target", path_of("link")), 0);
	ck_assert_int_eq(ps_os_readlink(path_of("link"), buffer, sizeof(buffer)), 6);
	ck_assert_str_eq(buffer, "target");
	ck_assert_int_eq(ps_os_readlink(path_of("link"), buffer, 4), 3);
	ck_assert_str_eq(buffer, "tar");
	ck_assert_int_eq(ps_os_readlink(directory, buffer, sizeof(buffer)), -EINVAL);
}
END_TEST

START_TEST(directories)
{
	char buffer[1024] __attribute__((aligned(8)));
	int fd, entries = 0;
	ssize_t length;

	for (int i = 0; i < 3; i++) {
		char name[2] = { (char)('a' + i), '\0' };

		ps_os_close(ps_os_open(path_of(name), O_WRONLY | O_CREAT, 0600));
	}
	fd = ps_os_open(directory, O_RDONLY | O_DIRECTORY, 0);
	while ((length = ps_os_getdents(fd, buffer, sizeof(buffer))) > 0) {
		for (char *next = buffer; next < buffer + length; entries++)
			next += ((struct dirent64 *)next)->d_reclen;
	}
	ck_assert_int_eq(length, 0);
	ck_assert_int_eq(entries, 5);
	ps_os_close(fd);
	ck_assert_int_eq(ps_os_getdents(fd, buffer, sizeof(buffer)), -EBADF);
}
END_TEST

static void nothing(int signal)
{
	(void)signal;
}

START_TEST(read_goes_on_after_a_signal)
{
	struct sigaction action = { .sa_handler = nothing };
	pid_t parent = getpid(), child;
	char byte = 0;
	int ends[2], status;

	ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		usleep(20000);
		kill(parent, SIGUSR1);
		usleep(20000);
		_exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
	}
	ck_assert_int_eq(ps_os_read(ends[0], &byte, 1), 1);
	ck_assert_int_eq(byte, 'x');
	ck_assert_int_eq(waitpid(child, &status, 0), child);
}
END_TEST

START_TEST(processes_and_time)
{
	uint64_t begin = ps_os_now(), coarse = ps_os_now_coarse();
	struct timespec time;

	ck_assert_int_eq(ps_os_getpid(), getpid());
	ck_assert_int_eq(ps_os_gettid(), gettid());
	clock_gettime(CLOCK_MONOTONIC, &time);
	ck_assert_uint_ge((uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec, begin);
	usleep(20000);
	ck_assert_uint_ge(ps_os_now() - begin, 20000000);
	ck_assert_uint_ge(ps_os_now_coarse() - coarse, 10000000);
}
END_TEST

/* Field 22, counted by somebody else: in seconds since boot it is about now. */
static void check_start_time(pid_t pid)
{
	struct timespec boot;
	double started = (double)ps_os_start_time(pid) / (double)sysconf(_SC_CLK_TCK);

	clock_gettime(CLOCK_BOOTTIME, &boot);
	ck_assert_double_le(started, (double)boot.tv_sec + 1);
	ck_assert_double_ge(started, (double)boot.tv_sec - 60);
}

START_TEST(start_time)
{
	static const char *const names[] = { "plain", "a b c", ") 1 2 (", "))))", "(((" };
	uint64_t first = ps_os_start_time(getpid());

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		prctl(PR_SET_NAME, names[i]);
		ck_assert_uint_eq(ps_os_start_time(getpid()), first);
		check_start_time(getpid());
	}
	ck_assert_uint_eq(ps_os_start_time(0), 0);
	ck_assert_uint_eq(ps_os_start_time(INT_MAX), 0);
	ck_assert_uint_gt(ps_os_start_time(1), 0);
}
END_TEST

START_TEST(fault_turns)
{
	char *memory = map(4096);

	ps_fault_clear();
	ps_fault_set(PS_OS_MPROTECT, 2, 3, EACCES);
	ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), 0);
	ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), -EACCES);
	ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), -EACCES);
	ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), 0);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_MPROTECT), 4);
	/* The turns count from when they are set, what was reached from when it was cleared. */
	ps_fault_set(PS_OS_MPROTECT, 1, UINT_MAX, EPERM);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), -EPERM);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_MPROTECT), 7);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_MLOCK), 0);
	ps_fault_clear();
	ck_assert_uint_eq(ps_fault_reached(PS_OS_MPROTECT), 0);
	ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), 0);
	ps_fault_set(PS_OS_MPROTECT, 1, 1, EPERM);
	ps_fault_set(PS_OS_MPROTECT, 0, 0, 0);
	ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), 0);
	ck_assert_int_eq(ps_os_munmap(memory, 4096), 0);
}
END_TEST

/* Makes call number _i fail: exactly the functions that belong to it do, and have no effect. */
START_TEST(fault_of_each_call)
{
	char *memory = map(MIB);
	struct stat status;
	uint64_t limit;
	void *other;
	int fd = ps_os_open(path_of("file"), O_RDWR | O_CREAT, 0600);
	enum ps_os_call call = (enum ps_os_call)_i;

	ps_fault_set(call, 1, UINT_MAX, ENFILE);
#define FAILS(which, expression)                                                                   \
	do {                                                                                       \
		long result = (expression);                                                        \
		ck_assert_msg((result == -ENFILE) == (call == (which)), "%s: %ld", #expression,    \
			      result);                                                             \
	} while (0)
	FAILS(PS_OS_MMAP,
	      ps_os_mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &other));
	FAILS(PS_OS_MPROTECT, ps_os_mprotect(memory, MIB, PROT_READ | PROT_WRITE));
	FAILS(PS_OS_MADVISE, ps_os_madvise(memory, MIB, MADV_NORMAL));
	FAILS(PS_OS_POPULATE, ps_os_populate(memory, 4096));
	FAILS(PS_OS_MLOCK, ps_os_mlock(memory, 4096));
	FAILS(PS_OS_MLOCK, ps_os_mlock_onfault(memory, 4096));
	FAILS(PS_OS_MUNLOCK, ps_os_munlock(memory, 4096));
	FAILS(PS_OS_MUNMAP, ps_os_munmap(memory, MIB));
	FAILS(PS_OS_OPEN, ps_os_open("/dev/null", O_RDONLY, 0));
	FAILS(PS_OS_WRITE, ps_os_write(fd, "x", 1));
	FAILS(PS_OS_READ, ps_os_read(fd, &status, 1));
	FAILS(PS_OS_FALLOCATE, ps_os_fallocate(fd, 0, 1));
	FAILS(PS_OS_FSTAT, ps_os_fstat(fd, &status));
	FAILS(PS_OS_FSTAT, ps_os_stat(directory, &status));
	FAILS(PS_OS_FSTAT, ps_os_file_flags(fd));
	FAILS(PS_OS_GETDENTS, ps_os_getdents(fd, &status, sizeof(status)));
	FAILS(PS_OS_READLINK, ps_os_readlink("/proc/self/exe", (char *)&status, sizeof(status)));
	FAILS(PS_OS_GETRLIMIT, ps_os_memlock_limit(&limit));
	if (call != PS_OS_OPEN)
		FAILS(PS_OS_PAGEMAP_SCAN, ps_os_huge_bytes(memory, 4096));
	FAILS(PS_OS_UNLINK, ps_os_unlink(path_of("file")));
	ps_os_close(fd);
	/* A munmap or unlink that "failed" did nothing. */
	ps_fault_clear();
	ck_assert_int_eq(ps_os_munmap(memory, MIB), 0);
	ck_assert_int_eq(ps_os_unlink(path_of("file")), call == PS_OS_UNLINK ? 0 : -ENOENT);
}
END_TEST

START_TEST(fault_from_environment)
{
	char *memory = map(4096);

	setenv("PINSHIM_FAULT", "mlock:2-:ENOMEM,mprotect:1:EACCES,madvise:2-3:EAGAIN", 1);
	ps_fault_from_environment();
	ck_assert_int_eq(ps_os_mlock(memory, 4096), 0);
	ck_assert_int_eq(ps_os_munlock(memory, 4096), 0);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(ps_os_mlock(memory, 4096), -ENOMEM);
	ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), -EACCES);
	ck_assert_int_eq(ps_os_mprotect(memory, 4096, PROT_READ), 0);
	ck_assert_int_eq(ps_os_madvise(memory, 4096, MADV_NORMAL), 0);
	ck_assert_int_eq(ps_os_madvise(memory, 4096, MADV_NORMAL), -EAGAIN);
	ck_assert_int_eq(ps_os_madvise(memory, 4096, MADV_NORMAL), -EAGAIN);
	ck_assert_int_eq(ps_os_madvise(memory, 4096, MADV_NORMAL), 0);
	ck_assert_int_eq(ps_os_munmap(memory, 4096), 0);
}
END_TEST

START_TEST(no_fault_from_environment)
{
	unsetenv("PINSHIM_FAULT");
	ps_fault_from_environment();
	setenv("PINSHIM_FAULT", "", 1);
	ps_fault_from_environment();
	ck_assert_int_eq(ps_os_open("/nonexistent", O_RDONLY, 0), -ENOENT);
}
END_TEST

static const char *const bad_faults[] = {
	"mlock",          "mlock:1",       "mlock:1:",        "mlok:1:ENOMEM",
	"mlock:0:ENOMEM", "mlock:3-2:EIO", "mlock:x:ENOMEM",  "mlock:1:ENOSUCH",
	"mlock:-2:EIO",   "mlock:1:EIO,",  "mlock:1:EIO;x",   ",mlock:1:EIO",
	":1:ENOMEM",      "mlock:1-x:EIO", "mlock:1:EIO:EIO", "mlock:5000000000:EIO",
};

START_TEST(bad_fault_aborts)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		close(2);
		setenv("PINSHIM_FAULT", bad_faults[_i], 1);
		ps_fault_from_environment();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGABRT);
}
END_TEST

static struct ps_lock lock = PS_LOCK_INIT;
static long guarded;  /* by lock, and deliberately not atomic */
static int inside;    /* threads that hold it */
static bool together; /* two did */
static long turns;
static void (*take)(struct ps_lock *lock) = ps_lock;
static void (*let_go)(struct ps_lock *lock) = ps_unlock;

static void *take_turns(void *yield)
{
	for (long i = 0; i < turns; i++) {
		take(&lock);
		together |= ++inside != 1;
		guarded++;
		if (yield != NULL && i % 64 == 0)
			sched_yield();
		inside--;
		let_go(&lock);
	}
	return NULL;
}

static void run_threads(int count, void *yield)
{
	pthread_t thread[8];

	guarded = 0;
	for (int i = 0; i < count; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, take_turns, yield), 0);
	for (int i = 0; i < count; i++)
		ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
	ck_assert(!together);
	ck_assert_int_eq(guarded, count * turns);
	ck_assert_uint_eq(atomic_load(&lock.state), 0);
}

START_TEST(lock_excludes)
{
	turns = 50000;
	run_threads(2, NULL);
	run_threads(8, NULL);
}
END_TEST

/* A holder that loses the processor makes the others sleep and be woken. */
START_TEST(lock_sleeps_and_wakes)
{
	char yield;

	turns = 5000;
	run_threads(4, &yield);
	run_threads(8, &yield);
}
END_TEST

static void *lock_once(void *done)
{
	take(&lock);
	let_go(&lock);
	*(atomic_int *)done = 1;
	return NULL;
}

START_TEST(lock_wait_costs_no_processor)
{
	struct timespec time;
	pthread_t thread;
	clockid_t clock;
	atomic_int done = 0;

	ps_lock(&lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, lock_once, &done), 0);
	ck_assert_int_eq(pthread_getcpuclockid(thread, &clock), 0);
	usleep(200000);
	ck_assert_int_eq(atomic_load(&done), 0);
	ck_assert_uint_eq(atomic_load(&lock.state), 2);
	ck_assert_int_eq(clock_gettime(clock, &time), 0);
	ck_assert_int_eq(time.tv_sec, 0);
	ck_assert_int_lt(time.tv_nsec, 50000000);
	ps_unlock(&lock);
	pthread_join(thread, NULL);
	ck_assert_int_eq(atomic_load(&done), 1);
}
END_TEST

static void be_light(void)
{
	take = ps_lock_lightly;
	let_go = ps_unlock_lightly;
}

START_TEST(light_lock_alone)
{
	ps_lock_lightly(&lock);
	ck_assert(!ps_try_lock(&lock));
	ps_unlock_lightly(&lock);
	ck_assert(ps_try_lock(&lock));
	ps_unlock(&lock);
}
END_TEST

START_TEST(light_lock_excludes)
{
	be_light();
	turns = 50000;
	run_threads(2, NULL);
	run_threads(8, NULL);
}
END_TEST

/* Taken by the only thread, which then makes another: that sleeps on it, and is woken. */
START_TEST(light_lock_taken_before_the_second_thread)
{
	atomic_int done = 0;
	pthread_t thread;

	be_light();
	ps_lock_lightly(&lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, lock_once, &done), 0);
	while (atomic_load(&lock.state) != 2)
		sched_yield();
	ck_assert_int_eq(atomic_load(&done), 0);
	ps_unlock_lightly(&lock);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(atomic_load(&done), 1);
}
END_TEST

START_TEST(lock_reset_in_child)
{
	int status;
	pid_t child;

	ps_lock(&lock);
	child = fork();
	if (child == 0) {
		alarm(5);
		ps_lock_reset(&lock);
		ps_lock(&lock);
		ps_unlock(&lock);
		_exit(0);
	}
	ps_unlock(&lock);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("os");
	TCase *tcase = tcase_create("os");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, mapping);
	tcase_add_test(tcase, populate);
	tcase_add_test(tcase, locking);
	tcase_add_test(tcase, memlock_limit);
	tcase_add_test(tcase, huge_bytes);
	tcase_add_test(tcase, huge_bytes_of_many_parts);
	tcase_add_test(tcase, files);
	tcase_add_test(tcase, reading_a_file_whole);
	tcase_add_test(tcase, links);
	tcase_add_test(tcase, directories);
	tcase_add_test(tcase, read_goes_on_after_a_signal);
	tcase_add_test(tcase, processes_and_time);
	tcase_add_test(tcase, start_time);
	tcase_add_test(tcase, fault_turns);
	tcase_add_loop_test(tcase, fault_of_each_call, 0, PS_OS_CALLS);
	tcase_add_test(tcase, fault_from_environment);
	tcase_add_test(tcase, no_fault_from_environment);
	tcase_add_loop_test(tcase, bad_fault_aborts, 0, sizeof(bad_faults) / sizeof(bad_faults[0]));
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("lock");
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, lock_excludes);
	tcase_add_test(tcase, lock_sleeps_and_wakes);
	tcase_add_test(tcase, lock_wait_costs_no_processor);
	tcase_add_test(tcase, light_lock_alone);
	tcase_add_test(tcase, light_lock_excludes);
	tcase_add_test(tcase, light_lock_taken_before_the_second_thread);
	tcase_add_test(tcase, lock_reset_in_child);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
