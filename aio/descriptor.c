/* SPDX-License-Identifier: BSD-2-Clause */
#include "descriptor.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>

#include "os.h"
#include "syscall.h"

#define LOWEST 1000
#define KEPT_MAX 4096

/* One more than the number of each; 0: no entry. */
static atomic_int kept[KEPT_MAX];
/* Entries up to the last that was ever used, so that nobody looks at all of them. */
static atomic_int kept_used;

static bool note(int fd)
{
	for (int i = 0; i < KEPT_MAX; i++) {
		int none = 0;

		if (!atomic_compare_exchange_strong(&kept[i], &none, fd + 1))
			continue;
		for (int used = atomic_load(&kept_used);
		     used <= i && !atomic_compare_exchange_weak(&kept_used, &used, i + 1);)
			;
		return true;
	}
	return false;
}

int ps_descriptor_keep(int fd)
{
	int moved;

	if (fd < 0)
		return fd;
	moved = (int)ps_syscall3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, LOWEST);
	if (moved >= 0) {
		ps_os_close(fd);
		fd = moved;
	}
	note(fd);
	return fd;
}

void ps_descriptor_close(int fd)
{
	if (fd < 0)
		return;
	for (int i = 0; i < atomic_load_explicit(&kept_used, memory_order_relaxed); i++) {
		int entry = fd + 1;

		if (atomic_compare_exchange_strong(&kept[i], &entry, 0))
			break;
	}
	ps_os_close(fd);
}

bool ps_descriptor_is_ours(int fd)
{
	const int used = atomic_load_explicit(&kept_used, memory_order_relaxed);

	for (int i = 0; i < used; i++)
		if (atomic_load_explicit(&kept[i], memory_order_relaxed) == fd + 1)
			return true;
	return false;
}

/* The lowest of ours from first to last, or -1. */
static int next_of_ours(unsigned first, unsigned last)
{
	const int used = atomic_load_explicit(&kept_used, memory_order_relaxed);
	unsigned lowest = UINT_MAX;

	for (int i = 0; i < used; i++) {
		const int fd = atomic_load_explicit(&kept[i], memory_order_relaxed) - 1;

		if (fd >= 0 && (unsigned)fd >= first && (unsigned)fd <= last &&
		    (unsigned)fd < lowest)
			lowest = (unsigned)fd;
	}
	return lowest == UINT_MAX ? -1 : (int)lowest;
}

int ps_descriptor_close_range(unsigned first, unsigned last, unsigned flags)
{
	int ours;
	long error;

	if (first > last)
		return (int)ps_syscall3(SYS_close_range, first, last, flags);
	while ((ours = next_of_ours(first, last)) >= 0) {
		if ((unsigned)ours > first) {
			error = ps_syscall3(SYS_close_range, first, ours - 1, flags);
			if (error < 0)
				return (int)error;
		}
		if ((unsigned)ours == last)
			return 0;
		first = (unsigned)ours + 1;
	}
	return (int)ps_syscall3(SYS_close_range, first, last, flags);
}
