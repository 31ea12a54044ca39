/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A copy first has the kernel bring in the pages (MADV_POPULATE_READ and _WRITE, Linux 5.14), which it
 * does or refuses as it would for direct I/O on them, and then is a memcpy(). That costs 17 % more than
 * memcpy() alone for 1 MiB in 4 KiB pages; process_vm_readv(2) on ourselves, which has no race,
 * costs 70 % more, and 300 ns for anything, twice as much as this. It is what is used where the pages
 * could not be brought in, and decides. Both measured on Linux 6.18.
 */
#include "access.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fault.h"
#include "os.h"
#include "syscall.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define STEP ((size_t)1 << 20) /* bytes that are brought in and copied at a time */

static uintptr_t page_floor(uintptr_t address)
{
	return address & ~((uintptr_t)getpagesize() - 1);
}

static bool populate(const void *address, size_t length, bool write)
{
	const uintptr_t start = page_floor((uintptr_t)address);
	const uintptr_t end = (uintptr_t)address + length;

	if (end < (uintptr_t)address || ps_fault(PS_OS_POPULATE) != 0)
		return false;
	return ps_syscall3(SYS_madvise, start, end - start,
			   write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0;
}

/* Does the kernel know how to bring in pages? Asked about memory that is there. */
static bool can_populate(void)
{
	const char here = 0;

	return populate(&here, sizeof(here), false);
}

/* By process_vm_readv(2) or process_vm_writev(2). 0; -EFAULT; -EPERM, -ENOSYS: not allowed here. */
static int copy_by_kernel(void *ours, void *program, size_t length, bool write)
{
	const long call = write ? SYS_process_vm_writev : SYS_process_vm_readv;
	struct iovec local = { ours, length };
	struct iovec remote = { program, length };
	long done = -ps_fault(write ? PS_OS_WRITE : PS_OS_READ);

	if (done == 0)
		done = ps_syscall6(call, ps_os_getpid(), (long)&local, 1, (long)&remote, 1, 0);
	if (done == -EPERM || done == -ENOSYS)
		return (int)done;
	return done == (long)length ? 0 : -EFAULT;
}

static int copy(char *ours, char *program, size_t length, bool write)
{
	for (size_t part; length > 0; ours += part, program += part, length -= part) {
		int error = 0;

		part = length < STEP ? length : STEP;
		if (!populate(program, part, write)) {
			error = copy_by_kernel(ours, program, part, write);
			if (error == 0)
				continue;
			/* Where nobody can tell, it is as if the program had touched it itself. */
			if (error == -EFAULT || can_populate())
				return -EFAULT;
		}
		if (write)
			memcpy(program, ours, part);
		else
			memcpy(ours, program, part);
	}
	return 0;
}

int ps_access_read(void *to, const void *program, size_t length)
{
	return copy(to, (char *)(uintptr_t)program, length, false);
}

int ps_access_write(void *program, const void *from, size_t length)
{
	return copy((char *)(uintptr_t)from, program, length, true);
}

/*
 * rt_sigprocmask(2) reads 8 bytes of a signal set before it finds that there is no such operation, and
 * changes nothing then. NULL is no set to it.
 */
static bool readable_word(uintptr_t address)
{
	return address != 0 &&
	       ps_syscall4(SYS_rt_sigprocmask, -1, address, NULL, sizeof(uint64_t)) != -EFAULT;
}

bool ps_access_is_readable(const void *program, size_t length)
{
	const uintptr_t start = (uintptr_t)program, end = start + length;

	if (end < start)
		return false;
	if (length < sizeof(uint64_t)) {
		uint64_t word;

		return ps_access_read(&word, program, length) == 0;
	}
	/* A word in each page, the last of which may reach back into the one before. */
	for (uintptr_t page = page_floor(start); page < end; page += (uintptr_t)getpagesize()) {
		uintptr_t word = page > start ? page : start;

		if (word > end - sizeof(uint64_t))
			word = end - sizeof(uint64_t);
		if (!readable_word(word))
			return false;
	}
	return true;
}
