// SPDX-License-Identifier: BSD-2-Clause
/*
 * What our private jemalloc sees of the system; scripts/private-jemalloc redirects its imports here.
 *
 * Settings: the user's MALLOC_CONF and /etc/malloc.conf are meant for the program's jemalloc. Ours
 * would take its number of arenas from them, and abort_conf:true with an unknown key ends every
 * preloaded program. So there is no environment and no link to read.
 *
 * Memory and files: raw system calls, because other preloaded libraries interpose mmap, madvise and
 * open, and re-enter the allocator while jemalloc holds its locks (jemalloc#329, #443, #500, #916).
 * None of these sets errno, which heap.h promises; jemalloc only prints it.
 *
 * Profiling, which is never switched on here, is all that uses the unwinder, libm and creat; without
 * them the library needs libc alone.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "syscall.h"

/* No header declares these: jemalloc calls them under the names of libc. */
char *psje_os_secure_getenv(const char *name);
char *psje_os_getenv(const char *name);
ssize_t psje_os_readlink(const char *path, char *buffer, size_t size);
void *psje_os_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int psje_os_munmap(void *address, size_t length);
int psje_os_madvise(void *address, size_t length, int advice);
int psje_os_mprotect(void *address, size_t length, int protection);
void *psje_os_sbrk(intptr_t increment);
long psje_os_syscall(long number, ...);
int psje_os_open(const char *path, int flags, ...);
int psje_os_openat(int directory, const char *path, int flags, ...);
int psje_os_creat(const char *path, mode_t mode);
ssize_t psje_os_read(int fd, void *buffer, size_t size);
int psje_os_close(int fd);
int psje_os_Unwind_Backtrace(void *callback, void *context);
uintptr_t psje_os_Unwind_GetIP(void *context);
double psje_os_exp(double x);
double psje_os_log(double x);
double psje_os_round(double x);

/* libc's way of reporting failure, without errno. */
static long failed_or(long result)
{
	return result < 0 ? -1 : result;
}

char *psje_os_secure_getenv(const char *name)
{
	(void)name;
	return NULL;
}

char *psje_os_getenv(const char *name)
{
	(void)name;
	return NULL;
}

ssize_t psje_os_readlink(const char *path, char *buffer, size_t size)
{
	(void)path;
	(void)buffer;
	(void)size;
	return -1;
}

void *psje_os_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	long result = ps_syscall6(SYS_mmap, (long)address, (long)length, protection, flags, fd,
				  offset);

	/* The last page of the address space is never mapped: its addresses are error numbers. */
	return (unsigned long)result > -4096UL ? MAP_FAILED : (void *)result;
}

int psje_os_munmap(void *address, size_t length)
{
	return (int)failed_or(ps_syscall2(SYS_munmap, address, length));
}

int psje_os_madvise(void *address, size_t length, int advice)
{
	return (int)failed_or(ps_syscall3(SYS_madvise, address, length, advice));
}

int psje_os_mprotect(void *address, size_t length, int protection)
{
	return (int)failed_or(ps_syscall3(SYS_mprotect, address, length, protection));
}

/* The break belongs to the program's allocator. */
void *psje_os_sbrk(intptr_t increment)
{
	(void)increment;
	return (void *)-1;
}

/* jemalloc reads /proc/sys/vm/overcommit_memory and the THP setting this way, and writes messages. */
long psje_os_syscall(long number, ...)
{
	long argument[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		argument[i] = va_arg(list, long);
	va_end(list);
	return failed_or(ps_syscall6(number, argument[0], argument[1], argument[2], argument[3],
				     argument[4], argument[5]));
}

/*
 * Files of profiling. A jemalloc configured without syscall() also looks for the overcommit setting
 * this way; not finding it, it maps without MAP_NORESERVE, which is all the same to us.
 */
int psje_os_open(const char *path, int flags, ...)
{
	(void)path;
	(void)flags;
	return -1;
}

int psje_os_openat(int directory, const char *path, int flags, ...)
{
	(void)directory;
	(void)path;
	(void)flags;
	return -1;
}

int psje_os_creat(const char *path, mode_t mode)
{
	(void)path;
	(void)mode;
	return -1;
}

ssize_t psje_os_read(int fd, void *buffer, size_t size)
{
	(void)fd;
	(void)buffer;
	(void)size;
	return -1;
}

/* Nothing was opened through the above. */
int psje_os_close(int fd)
{
	(void)fd;
	return -1;
}

/* 5, _URC_END_OF_STACK: there is no frame to see. */
int psje_os_Unwind_Backtrace(void *callback, void *context)
{
	(void)callback;
	(void)context;
	return 5;
}

uintptr_t psje_os_Unwind_GetIP(void *context)
{
	(void)context;
	return 0;
}

double psje_os_exp(double x)
{
	return x;
}

double psje_os_log(double x)
{
	return x;
}

double psje_os_round(double x)
{
	return x;
}
