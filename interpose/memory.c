/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program's own locks, advice and protection: mlock(2) and its kin, madvise(2), mprotect(2).
 *
 * A chunk's lock is ours: the program's calls neither make nor undo it, and pages of a chunk never
 * move, because a driver or an io_uring may hold them. The rest of a range, and every range that has
 * nothing of ours, goes to the next definition, so results are those of the manual pages.
 *
 * Owns no lock and allocates nothing. A call that does not concern us costs one compare, for some
 * one load more, and a jump.
 */
#include "memory.h"

#include <linux/mman.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "heap.h"
#include "log.h"
#include "maps.h"
#include "next.h"
#include "os.h"

/* Not in the headers of every C library that we are built with. */
/* What is done with one part of a range; 0 or -errno, which ends the walk. */
typedef int part(void *address, size_t length, int argument);

/* Does the part of [at, end) that begins at `at` lie in pinned chunks? Where it ends: *stop. */
static bool pinned_part(uintptr_t at, uintptr_t end, uintptr_t *stop)
{
	const uintptr_t window_end = ps_window.base + ps_window.size;
	bool pinned;

	*stop = end;
	if (at < ps_window.base || at >= window_end) {
		if (at < ps_window.base && ps_window.base < end)
			*stop = ps_window.base;
		return false;
	}
	if (end > window_end)
		end = window_end;
	pinned = ps_heap_is_pinned((void *)at, 1);
	do
		at = (at | (PS_GRANULE - 1)) + 1;
	while (at < end && ps_heap_is_pinned((void *)at, 1) == pinned);
	*stop = at < end ? at : end;
	return pinned;
}

/* Walks a range: pinned() for what lies in pinned chunks, NULL for nothing; rest() for the rest. */
static int each_part(uintptr_t at, uintptr_t end, part *pinned, part *rest, int argument)
{
	uintptr_t stop;
	int result = 0;

	for (; at < end && result == 0; at = stop) {
		part *what = pinned_part(at, end, &stop) ? pinned : rest;

		if (what)
			result = what((void *)at, stop - at, argument);
	}
	return result;
}

/*
 * mlock(2) outside pinned chunks. Of the window that is blocks inherited from the parent of a forked
 * child, and addresses that are no memory: there the kernel fails but goes on accounting them, in
 * other words terabytes, so that is undone.
 */
static int lock_rest(void *address, size_t length, int flags)
{
	int result = ps_outcome(flags < 0 ? ps_next.mlock(address, length)
					  : ps_next.mlock2(address, length, (unsigned)flags));

	if (result < 0 && ps_in_window(address))
		ps_next.munlock(address, length);
	return result;
}

/* flags: those of mlock2, or -1 for mlock. */
static NOINLINE int lock_concerned(const void *address, size_t length, int flags)
{
	uintptr_t base, end;

	if (ps_inside() || !ps_kernel_pages(address, length, &base, &end))
		return flags < 0 ? ps_next.mlock(address, length)
				 : ps_next.mlock2(address, length, (unsigned)flags);
	return ps_answer(each_part(base, end, NULL, lock_rest, flags));
}

PUBLIC int mlock(const void *address, size_t length)
{
	if (unlikely(ps_reaches_window(address, length)))
		return lock_concerned(address, length, -1);
	return ps_next.mlock(address, length);
}

/* An unknown flag is for the kernel to refuse. */
PUBLIC int mlock2(const void *address, size_t length, unsigned int flags)
{
	if (unlikely(ps_reaches_window(address, length)) && !(flags & ~MLOCK_ONFAULT))
		return lock_concerned(address, length, (int)flags);
	return ps_next.mlock2(address, length, flags);
}

static int unlock_gap(const void *address, size_t length, void *context)
{
	(void)context;
	return ps_outcome(ps_next.munlock(address, length));
}

/*
 * Pages of foreign ranges stay locked: they have a pin, and a program that undoes its own mlock() does
 * not mean that.
 */
static int unlock_rest(void *address, size_t length, int unused)
{
	(void)unused;
	return ps_foreign_gaps(address, length, unlock_gap, NULL);
}

static NOINLINE int unlock_concerned(const void *address, size_t length)
{
	uintptr_t base, end;

	if (ps_inside() || !ps_kernel_pages(address, length, &base, &end))
		return ps_next.munlock(address, length);
	return ps_answer(each_part(base, end, NULL, unlock_rest, 0));
}

PUBLIC int munlock(const void *address, size_t length)
{
	if (ps_concerned(address, length))
		return unlock_concerned(address, length);
	return ps_next.munlock(address, length);
}

/* mlockall(MCL_FUTURE) is in force; the kernel does not tell. */
static atomic_bool future;

/*
 * The kernel knows no munlockall() that spares a range, so ours are locked again after it. What the
 * table says is untrue for that long; whoever reads it finds the same pages all the same, as pages
 * that hold no lock for a moment do not move unless memory is short.
 */
static int unlock_all(void)
{
	int result = ps_outcome(ps_next.munlockall());
	size_t lost;

	if (result < 0)
		return result;
	atomic_store(&future, false);
	ps_foreign_all_locked(false);
	ps_heap_relock();
	lost = ps_foreign_relock();
	if (lost)
		ps_log(PS_LOG_WARN,
		       "%zu bytes of the program's own memory are no longer pinned: locking them "
		       "again after munlockall() failed: raise the limit with 'ulimit -l'",
		       lost);
	return result;
}

PUBLIC int munlockall(void)
{
	if (ps_inside() || (!ps_window.size && !ps_foreign_count()))
		return ps_next.munlockall();
	return ps_answer(unlock_all());
}

/* A walk through the mappings for mlockall(MCL_CURRENT). */
struct walk {
	uintptr_t ours_end; /* where the last mapping that is ours ended */
	uint64_t bytes;     /* of the others, but for pinned chunks */
	bool lock;          /* lock them, not only add them up */
	bool onfault;       /* MCL_ONFAULT */
};

/*
 * Is it addresses that we reserved: free ones of the window, its notes above it (window.h), the table?
 * Their unused ends have no access, and may have become one mapping with what lies beside them.
 */
static bool is_reservation(const struct ps_mapping *mapping, struct walk *walk)
{
	const uintptr_t window_end = ps_window.base + ps_window.size;
	const uintptr_t notes_end = (uintptr_t)ps_window.granule +
				    (ps_window.size >> PS_GRANULE_SHIFT);
	const uintptr_t table = (uintptr_t)ps_table();
	bool no_access = mapping->protection == PROT_NONE;
	bool ours = (mapping->base < notes_end && mapping->end > ps_window.base &&
		     (no_access || mapping->base >= window_end)) ||
		    (mapping->base <= table && mapping->end > table) ||
		    (no_access &&
		     (mapping->base == walk->ours_end || mapping->end == ps_window.base));

	if (ours)
		walk->ours_end = mapping->end;
	return ours;
}

/*
 * What cannot be locked is passed over, as the kernel does: it only marks what has no access or lies
 * behind the end of a file. Above the program's addresses ([vsyscall]) nothing can be. Of the window
 * it is what a forked child inherited, and what the program mapped there.
 */
static int visit_mapping(const struct ps_mapping *mapping, void *context)
{
	struct walk *walk = context;
	uintptr_t stop;

	if (is_reservation(mapping, walk))
		return 0;
	for (uintptr_t at = mapping->base; at < mapping->end; at = stop) {
		if (pinned_part(at, mapping->end, &stop))
			continue;
		walk->bytes += stop - at;
		if (walk->lock && walk->onfault)
			(void)ps_os_mlock_onfault((void *)at, stop - at);
		else if (walk->lock)
			(void)ps_os_mlock((void *)at, stop - at);
	}
	return 0;
}

/*
 * May this process lock that much? mlockall(2): EPERM without privilege and with a limit of 0, ENOMEM
 * where all of the address space is more than the limit. Whether there is a privilege is tried out,
 * because neither user nor capability sets tell inside a user namespace; what is tried has no pages.
 */
static int may_lock(uint64_t bytes)
{
	uint64_t limit;
	void *probe;
	int error;

	if (ps_os_memlock_limit(&limit) < 0 || bytes <= limit)
		return 0;
	error = ps_os_mmap(NULL, ((size_t)limit & ~(size_t)65535) + 65536, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_LOCKED, -1, 0, &probe);
	if (error)
		return error == -EPERM ? -EPERM : -ENOMEM;
	ps_os_munmap(probe, ((size_t)limit & ~(size_t)65535) + 65536);
	return 0;
}

/*
 * mlockall(MCL_CURRENT). The kernel's would charge and walk the window, terabytes of addresses
 * without memory, so each mapping outside it is locked for itself. Mappings made meanwhile are locked
 * if MCL_FUTURE asks for it, which therefore comes first.
 */
static int lock_current(int flags)
{
	struct walk measure = { .bytes = ps_count_get(&ps_table()->locked_bytes) };
	struct walk lock = { .lock = true, .onfault = flags & MCL_ONFAULT };
	int result;

	if (ps_maps_each(visit_mapping, &measure) < 0)
		return -EAGAIN;
	result = may_lock(measure.bytes);
	if (result < 0)
		return result;
	if (flags & MCL_FUTURE)
		result = ps_outcome(ps_next.mlockall(flags & ~MCL_CURRENT));
	else if (atomic_load(&future)) /* the kernel's call would end it */
		result = unlock_all();
	if (result < 0)
		return result;
	return ps_maps_each(visit_mapping, &lock) < 0 ? -EAGAIN : 0;
}

PUBLIC int mlockall(int flags)
{
	int result;

	if (ps_inside() || !ps_window.size || !(flags & (MCL_CURRENT | MCL_FUTURE)) ||
	    flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT))
		return ps_next.mlockall(flags);
	if (flags & MCL_CURRENT)
		result = lock_current(flags);
	else
		result = ps_outcome(ps_next.mlockall(flags));
	if (result == 0) {
		atomic_store(&future, flags & MCL_FUTURE);
		ps_foreign_all_locked(flags & MCL_FUTURE);
	}
	return ps_answer(result);
}

/* What an advice comes to on pinned memory, whose pages must stay where they are. */
enum meaning {
	PASSED,  /* harmless, or unknown: the kernel's own */
	ZEROED,  /* reads as zeros afterwards */
	IGNORED, /* a hint, with which nothing needs to happen: madvise(2) promises nothing */
};

static enum meaning meaning_of(int advice)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
		return ZEROED;
	case MADV_NORMAL: /* these four concern files, and would cut a chunk's mapping in pieces */
	case MADV_RANDOM:
	case MADV_SEQUENTIAL:
	case MADV_WILLNEED:
	case MADV_FREE: /* these three the kernel refuses on locked memory */
	case MADV_COLD:
	case MADV_PAGEOUT:
	case MADV_HUGEPAGE: /* a chunk has the pages that it could get */
	case MADV_NOHUGEPAGE:
	case MADV_COLLAPSE:
	case MADV_MERGEABLE: /* merging moves pages */
	case MADV_UNMERGEABLE:
		return IGNORED;
	default:
		return PASSED;
	}
}

/*
 * MADV_DONTNEED on pinned memory. A program may have made it read-only: the kernel's answer is then
 * that the memory is locked (EINVAL, madvise(2)), rather than a crash of ours.
 */
static int zero(void *address, size_t length, int advice)
{
	if (ps_os_populate(address, length) < 0 && !ps_maps_allow(address, length, PROT_WRITE))
		return ps_outcome(ps_next.madvise(address, length, advice));
	memset(address, 0, length);
	return 0;
}

struct advice {
	int advice;
	int hole; /* -ENOMEM once a part was not mapped: the kernel goes on and says so at the end */
};

static int advise_gap(const void *address, size_t length, void *context)
{
	struct advice *advice = context;
	int result = ps_outcome(ps_next.madvise((void *)address, length, advice->advice));

	if (result != -ENOMEM)
		return result;
	advice->hole = result;
	return 0;
}

struct range {
	uintptr_t base;
	uintptr_t end;
};

static int find_object(const struct ps_mapping *mapping, void *context)
{
	const struct range *range = context;

	if (mapping->end <= range->base)
		return 0;
	return mapping->base >= range->end ? -ENOENT : mapping->inode != 0;
}

/* Does it reach into pinned memory of a file, or shared memory? These cannot be freed so (madvise(2)). */
static bool refuses_free(const void *address, size_t length)
{
	struct range range = { (uintptr_t)address, (uintptr_t)address + length };

	return ps_foreign_touches(address, length) && ps_maps_each(find_object, &range) > 0;
}

/*
 * Outside pinned chunks. On a foreign range, which is locked only because of us, an advice that the
 * kernel refuses on locked memory does what it would do without us.
 */
static int advise_rest(void *address, size_t length, int advice)
{
	struct advice gap = { advice, 0 };
	int result;

	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_REMOVE:
		result = ps_foreign_gaps(address, length, advise_gap, &gap);
		if (result == 0)
			result = ps_foreign_discard(address, length, advice);
		break;
	case MADV_FREE:
		if (refuses_free(address, length))
			return -EINVAL;
		/* fall through */
	case MADV_COLD:
	case MADV_PAGEOUT:
		result = ps_foreign_gaps(address, length, advise_gap, &gap);
		break;
	default:
		result = advise_gap(address, length, &gap);
	}
	return result < 0 ? result : gap.hole;
}

/* Does it say how memory is to be used from now on, so that the next block there would be used so too? */
static bool outlives_block(int advice)
{
	return advice == MADV_DONTFORK || advice == MADV_WIPEONFORK || advice == MADV_DONTDUMP;
}

/* What the program is about to set on these pages must go with the blocks that it sets it on. */
static void note_change(uintptr_t base, uintptr_t end)
{
	uintptr_t from, to;

	if (ps_part_in_window(base, end, &from, &to))
		ps_heap_changed((void *)from, to - from);
}

static NOINLINE int advise_concerned(void *address, size_t length, int advice)
{
	enum meaning meaning = meaning_of(advice);
	part *pinned = meaning == ZEROED ? zero : meaning == IGNORED ? NULL : advise_rest;
	uintptr_t base, end;

	if (ps_inside() || !ps_whole_pages(address, length, &base, &end))
		return ps_next.madvise(address, length, advice);
	/* A forked child has not locked it, but its parent has (EINVAL, madvise(2)). */
	if (advice == MADV_REMOVE && ps_heap_is_shared(address, length))
		return ps_answer(-EINVAL);
	if (outlives_block(advice))
		note_change(base, end);
	return ps_answer(each_part(base, end, pinned, advise_rest, advice));
}

PUBLIC int madvise(void *address, size_t length, int advice)
{
	if (ps_concerned(address, length))
		return advise_concerned(address, length, advice);
	return ps_next.madvise(address, length, advice);
}

/* What is readable and writable is as it was at first, unless it had been changed before. */
static NOINLINE void note_protection(const void *address, size_t length, int protection)
{
	uintptr_t base, end;

	if (protection != (PROT_READ | PROT_WRITE) && !ps_inside() &&
	    ps_whole_pages(address, length, &base, &end))
		note_change(base, end);
}

PUBLIC int mprotect(void *address, size_t length, int protection)
{
	if (unlikely(ps_reaches_window(address, length)))
		note_protection(address, length, protection);
	return ps_next.mprotect(address, length, protection);
}

/* A key, but for that which all memory has at first, is undone by mapping the memory anew. */
static NOINLINE void note_key(const void *address, size_t length, int protection, int key)
{
	uintptr_t base, end, from, to;

	if (key <= 0)
		note_protection(address, length, protection);
	else if (!ps_inside() && ps_whole_pages(address, length, &base, &end) &&
		 ps_part_in_window(base, end, &from, &to))
		ps_heap_replaced((void *)from, to - from);
}

PUBLIC int pkey_mprotect(void *address, size_t length, int protection, int key)
{
	if (unlikely(ps_reaches_window(address, length)))
		note_key(address, length, protection, key);
	return ps_next.pkey_mprotect(address, length, protection, key);
}
