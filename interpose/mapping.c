/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program changes its mappings: munmap(2), mremap(2), mmap(2) with MAP_FIXED, shmat(2) with
 * SHM_REMAP, shmdt(2), brk(2).
 *
 * Before memory goes, pinshim forgets that it is pinned, so that the table never claims what is gone.
 * Foreign ranges are unlocked as well. Should the call then fail they stay forgotten: which of its
 * mappings a failed call has left is not known, and not to claim a pinned page does no harm.
 *
 * Of the window no address may ever become somebody else's: free() would take a block there for
 * ours. What a program unmaps of it is therefore reserved again: no access, and the next mmap() goes
 * elsewhere. Calls that ask whether something is mapped can tell: MAP_FIXED_NOREPLACE finds something
 * there, and mprotect(2) makes it accessible.
 *
 * Owns no lock and allocates nothing from malloc.
 */
#include "memory.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "cuda.h"
#include "heap.h"
#include "maps.h"
#include "next.h"
#include "os.h"
#include "syscall.h"

/* Something else is about to be at these pages. */
static void forget(uintptr_t base, uintptr_t end)
{
	uintptr_t from, to;

	ps_cuda_forget((void *)base, end - base);
	ps_foreign_drop((void *)base, end - base, true);
	if (ps_part_in_window(base, end, &from, &to))
		ps_heap_replaced((void *)from, to - from);
}

/* Reserves addresses of the window, which replaces what is there if flags say so. 0 or -errno. */
static int reserve(uintptr_t base, uintptr_t end, int flags)
{
	void *memory;

	return ps_window_vacate((void *)base, end - base, flags, &memory);
}

/* munmap(2) of pages that reach into the window, and have been forgotten. */
static int unmap(uintptr_t base, uintptr_t end)
{
	uintptr_t from, to;

	if (!ps_part_in_window(base, end, &from, &to))
		return ps_outcome(ps_next.munmap((void *)base, end - base));
	if (reserve(from, to, MAP_FIXED) < 0)
		return -ENOMEM;
	if (base < from && ps_next.munmap((void *)base, from - base) < 0)
		return -errno;
	return to < end ? ps_outcome(ps_next.munmap((void *)to, end - to)) : 0;
}

static NOINLINE int unmap_concerned(void *address, size_t length)
{
	uintptr_t base, end;

	if (ps_inside() || !ps_whole_pages(address, length, &base, &end))
		return ps_next.munmap(address, length);
	forget(base, end);
	return ps_answer(unmap(base, end));
}

PUBLIC int munmap(void *address, size_t length)
{
	if (ps_concerned(address, length))
		return unmap_concerned(address, length);
	return ps_next.munmap(address, length);
}

/* mmap(2): only MAP_FIXED replaces mappings; MAP_FIXED_NOREPLACE, which wins over it, does not. */
static inline bool replaces(void *address, size_t length, int flags)
{
	return unlikely((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == MAP_FIXED) &&
	       ps_concerned(address, length);
}

static NOINLINE void forget_range(const void *address, size_t length)
{
	uintptr_t base, end;

	if (!ps_inside() && ps_whole_pages(address, length, &base, &end))
		forget(base, end);
}

PUBLIC void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (replaces(address, length, flags))
		forget_range(address, length);
	return ps_next.mmap(address, length, protection, flags, fd, offset);
}

PUBLIC void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
	if (replaces(address, length, flags))
		forget_range(address, length);
	return ps_next.mmap64(address, length, protection, flags, fd, offset);
}

/* One mremap(2) call; sizes in whole pages. */
struct remap {
	uintptr_t old;
	size_t from; /* 0: shared memory gets a second mapping, and keeps the first */
	size_t to;
	int flags;
	void *address; /* with MREMAP_FIXED */
};

/* Does mremap() leave these pages where they are, at most cutting off their end? */
static bool stays(const struct remap *remap)
{
	return !(remap->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) && remap->to <= remap->from;
}

/*
 * Pinned memory that moves is copied: neither its pages nor its addresses may leave the window. It is readable
 * and writable.
 */
static int copy_out(const struct remap *remap, void **result)
{
	const int fixed = (remap->flags & MREMAP_FIXED) ? MAP_FIXED : 0;
	const uintptr_t end = remap->old + remap->from;
	void *old = (void *)remap->old;

	if (!(remap->flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	/* The parent's must not read as zeros. */
	if (remap->flags & MREMAP_DONTUNMAP && ps_heap_is_inherited(old))
		return -EINVAL;
	*result = ps_next.mmap(remap->address, remap->to, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
	if (*result == MAP_FAILED)
		return -errno;
	memcpy(*result, old, remap->from < remap->to ? remap->from : remap->to);
	if (remap->flags & MREMAP_DONTUNMAP) {
		memset(old, 0, remap->from);
		return 0;
	}
	forget(remap->old, end);
	return unmap(remap->old, end);
}

/* mremap(2) by the kernel. Addresses that it leaves there stay ours. */
static void *move_rest(const struct remap *remap)
{
	uintptr_t gone = stays(remap) ? remap->old + remap->to : remap->old, from, to;
	uintptr_t end = remap->old + remap->from;
	void *new;

	if (gone < end)
		forget(gone, end);
	new = ps_next.mremap((void *)remap->old, remap->from, remap->to, remap->flags,
			     remap->address);
	if (new != MAP_FAILED && ps_part_in_window(gone, end, &from, &to))
		(void)reserve(from, to, MAP_FIXED_NOREPLACE);
	return new;
}

/*
 * mremap(2) of pinned memory. Private memory that the program has protected goes as it is: only the kernel
 * can copy what is not readable, and give it the same protection. Shared memory it would split (chunk.c).
 */
static void *move_pinned(const struct remap *remap)
{
	const uintptr_t end = remap->old + remap->from;
	void *result = (void *)remap->old;
	int error = 0;

	if (!ps_maps_allow(result, remap->from, PROT_READ | PROT_WRITE)) {
		if (!ps_heap_is_shared(result, remap->from))
			return move_rest(remap);
		error = -EFAULT;
	} else if (!stays(remap)) {
		error = copy_out(remap, &result);
	} else if (remap->to < remap->from) {
		forget(remap->old + remap->to, end);
		error = unmap(remap->old + remap->to, end);
	}
	if (error == 0)
		return result;
	errno = -error;
	return MAP_FAILED;
}

static void *remap_concerned(const struct remap *remap)
{
	uintptr_t target = (uintptr_t)remap->address;

	/* The kernel refuses a target that overlaps (EINVAL), which then must not be forgotten. */
	if (remap->flags & MREMAP_FIXED) {
		if (target < remap->old + remap->from && remap->old < target + remap->to) {
			errno = EINVAL;
			return MAP_FAILED;
		}
		forget(target, target + remap->to);
	}
	/* The kernel would let shared memory grow into its neighbours in the chunk. */
	return remap->from && (ps_heap_is_pinned((void *)remap->old, remap->from) ||
			       ps_heap_is_shared((void *)remap->old, remap->from))
		       ? move_pinned(remap)
		       : move_rest(remap);
}

/* Whatever the kernel refuses without a look at the mappings is its own to refuse. */
static bool remap_is_valid(void *old, size_t from, size_t to, struct remap *remap)
{
	const uintptr_t page = (uintptr_t)getpagesize();
	const int known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
	uintptr_t end;

	if (remap->flags & ~known ||
	    (remap->flags & ~MREMAP_MAYMOVE && !(remap->flags & MREMAP_MAYMOVE)) ||
	    (remap->flags & MREMAP_DONTUNMAP && from != to) ||
	    !ps_whole_pages(old, from ? from : 1, &remap->old, &end) ||
	    (uintptr_t)remap->address % page)
		return false;
	remap->from = from ? end - remap->old : 0;
	remap->to = (to + page - 1) & -page;
	return remap->to >= to && remap->to;
}

PUBLIC void *mremap(void *old, size_t from, size_t to, int flags, ...)
{
	struct remap remap = { .flags = flags };
	va_list rest;

	if (flags & MREMAP_FIXED) {
		va_start(rest, flags);
		remap.address = va_arg(rest, void *);
		va_end(rest);
	}
	/* Of private memory the kernel makes no second mapping (mremap(2), BUGS). */
	if (from == 0 && ps_heap_is_shared(old, 1)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if ((ps_concerned(old, from) ||
	     (flags & MREMAP_FIXED && ps_concerned(remap.address, to))) &&
	    !ps_inside() && remap_is_valid(old, from, to, &remap))
		return remap_concerned(&remap);
	return ps_next.mremap(old, from, to, flags, remap.address);
}

PUBLIC void *shmat(int id, const void *address, int flags)
{
	struct shmid_ds status = { .shm_segsz = 0 };

	/* Without SHM_REMAP it replaces nothing (shmat(2)). SHMLBA is the page on our processors. */
	if (unlikely(address && flags & SHM_REMAP) && (ps_window.size || ps_foreign_count()) &&
	    !ps_syscall3(SYS_shmctl, id, IPC_STAT, &status)) {
		uintptr_t base = (uintptr_t)address;

		if (flags & SHM_RND)
			base &= -(uintptr_t)getpagesize();
		forget_range((const void *)base, status.shm_segsz);
	}
	return ps_next.shmat(id, address, flags);
}

/* The mappings of one attachment of System V shared memory, as shmdt(2) finds them. */
struct attachment {
	uintptr_t base;
	uintptr_t end; /* 0 until the first mapping was seen */
	uint64_t id;
};

static int find_attachment(const struct ps_mapping *mapping, void *context)
{
	struct attachment *at = context;

	if (mapping->base < at->base || !mapping->shm)
		return 0;
	if (mapping->base - at->base != mapping->offset || (at->end && mapping->inode != at->id))
		return at->end != 0;
	at->id = mapping->inode;
	at->end = mapping->end;
	return 0;
}

PUBLIC int shmdt(const void *address)
{
	struct attachment at = { .base = (uintptr_t)address };
	uintptr_t from, to;
	int result;

	if (!ps_concerned(address, 1) || ps_inside())
		return ps_next.shmdt(address);
	if (ps_maps_each(find_attachment, &at) >= 0 && at.end)
		forget(at.base, at.end);
	result = ps_next.shmdt(address);
	if (!result && ps_part_in_window(at.base, at.end, &from, &to))
		(void)reserve(from, to, MAP_FIXED_NOREPLACE);
	return result;
}

/* The break is about to become this: drops what is pinned above. */
static void drop_above(uintptr_t end)
{
	uintptr_t page = (uintptr_t)getpagesize(), now = (uintptr_t)ps_next.sbrk(0);

	end = (end + page - 1) & -page;
	now = (now + page - 1) & -page;
	if (end < now) {
		ps_cuda_forget((void *)end, now - end);
		ps_foreign_drop((void *)end, now - end, true);
	}
}

/*
 * brk(2). The window is no part of the data segment. glibc's malloc does not come by here when it
 * trims; free() drops what it gives back (malloc.c).
 */
PUBLIC int brk(void *address)
{
	if (unlikely(ps_foreign_count()) && !ps_inside())
		drop_above((uintptr_t)address);
	return ps_next.brk(address);
}

PUBLIC void *sbrk(intptr_t increment)
{
	if (unlikely(ps_foreign_count()) && increment < 0 && !ps_inside())
		drop_above((uintptr_t)ps_next.sbrk(0) + (uintptr_t)increment);
	return ps_next.sbrk(increment);
}
