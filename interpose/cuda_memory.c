/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Host memory for CUDA, whoever asks for it.
 *
 * Served from the CUDA heap: flags of Portable and Mapped only, and Mapped from 64 KiB up; smaller
 * mapped blocks are flags that a GPU polls (NCCL), and write-combined memory cannot be made by
 * registering. All else is the real call's, tracked and published.
 *
 * Owns no lock. Nothing here may be called with one of the allocator's held.
 */
#include "cuda.h"

#include <errno.h>

#include "budget.h"
#include "config.h"
#include "counters.h"
#include "driver.h"
#include "foreign.h"
#include "heap.h"
#include "log.h"
#include "malloc.h"
#include "registration.h"
#include "tracked.h"

#define MAPPED_LEAST ((size_t)64 << 10)

/* Calls that arrive from inside a hook, or with nothing to serve from, go straight on. */
static bool passes(void)
{
	return ps_thread.depth > 0 || ps_window.size == 0 || ps_driver_forbidden;
}

static int call_allocator(const struct ps_cuda_allocator *how, void **pointer, size_t size,
			  unsigned flags)
{
	int r = how->missing;

	ps_thread.depth++;
	if (how->with_flags != NULL)
		r = how->with_flags(pointer, size, flags);
	else if (how->plain != NULL)
		r = how->plain(pointer, size);
	else if (how->narrow != NULL)
		r = how->narrow(pointer, (unsigned)size);
	ps_thread.depth--;
	return r;
}

static void track(void *base, size_t length, enum ps_tracked_kind kind, unsigned entry)
{
	struct ps_tracked range = { (uintptr_t)base, length, kind, entry, 0 };

	/* Whoever only registers has not made us look for it. */
	if (kind <= PS_TRACKED_BLOCK && ps_cuda_find_driver())
		range.context = (uintptr_t)ps_cuda_context();
	/*
	 * Registered memory may be freed before it is unregistered, and the C library unmaps without telling us.
	 * What CUDA allocated never comes to free(), which watching makes dearer for good.
	 */
	if (kind != PS_TRACKED_ALLOCATED)
		ps_malloc_watch_foreign();
	if (ps_tracked_add(&range) < 0)
		ps_log_once(PS_LOG_WARN,
			    "%zu bytes that CUDA pinned at %p are not accounted for: no memory for "
			    "the record",
			    length, base);
}

/* What was tracked is gone. What CUDA allocated itself was counted as served under its backend only. */
static void count_ended(const struct ps_tracked *range)
{
	if (range->kind != PS_TRACKED_ALLOCATED || ps_config.backend == PS_BACKEND_CUDA)
		ps_count_freed(range->entry, range->length);
}

/* The real allocation, tracked. It counts as served where that is all we were asked to do. */
static int allocate_really(const struct ps_cuda_allocator *how, void **pointer, size_t size,
			   unsigned flags)
{
	int r = call_allocator(how, pointer, size, flags);

	if (passes())
		return r;
	if (r != PS_CUDA_SUCCESS) {
		ps_count_failed(how->entry);
		return r;
	}
	if (ps_config.backend == PS_BACKEND_CUDA)
		ps_count_served(how->entry, size, size);
	else
		ps_count_fallback(how->entry);
	if (*pointer != NULL && size > 0)
		track(*pointer, size, PS_TRACKED_ALLOCATED, how->entry);
	return r;
}

static bool is_served(void **pointer, size_t size, unsigned flags)
{
	if (ps_config.backend != PS_BACKEND_NATIVE || pointer == NULL || size == 0 ||
	    size > ps_window.size)
		return false;
	if (flags & ~(unsigned)(PS_HOST_ALLOC_PORTABLE | PS_HOST_ALLOC_MAPPED))
		return false;
	return !(flags & PS_HOST_ALLOC_MAPPED) || size >= MAPPED_LEAST;
}

/* A block of the CUDA heap that is registered if it can be. NULL: *error is the driver's, or 0. */
static void *take_block(enum pinshim_entry_point entry, size_t size, int *error)
{
	struct ps_refusal why;
	const char *instead = ps_config.on_fail == PS_ON_FAIL_ERROR ? "CUDA's out of memory error"
								    : "memory from CUDA itself";
	void *block;

	*error = 0;
	block = ps_registration_alloc(entry, size, 0, &why);
	if (block == NULL) {
		ps_budget_refuse(&why, instead);
	} else {
		*error = ps_registration_cover(block);
		if (*error != 0) {
			ps_count_unserved(entry, size, ps_heap_usable(block, "cudaHostAlloc()"));
			ps_thread.driver++;
			ps_heap_discard(block);
			ps_thread.driver--;
			block = NULL;
		}
	}
	return block;
}

int ps_cuda_allocate(struct ps_cuda_allocator *how, void **pointer, size_t size, unsigned flags)
{
	void *block;
	int r;

	if (passes() || !is_served(pointer, size, flags))
		return allocate_really(how, pointer, size, flags);
	r = how->prepare(how->self);
	if (r != PS_CUDA_NO_DRIVER && (r != 0 || !ps_cuda_takes_registered()))
		return allocate_really(how, pointer, size, flags);
	/* It would be registered in pieces, and the driver refuses copies that lie in two. */
	if (ps_driver != NULL && size > ps_driver->piece)
		return allocate_really(how, pointer, size, flags);
	block = take_block(how->entry, size, &r);
	if (block != NULL) {
		ps_heap_set_flags(block, flags);
		*pointer = block;
		return PS_CUDA_SUCCESS;
	}
	if (r != 0)
		ps_log_once(
			PS_LOG_WARN,
			"registering memory with the CUDA driver failed with error %d: CUDA "
			"allocates it itself: nothing needs to be done, but it is neither in huge "
			"pages nor cheap to allocate",
			r);
	if (r != 0 || ps_config.on_fail == PS_ON_FAIL_FALLBACK)
		return allocate_really(how, pointer, size, flags);
	ps_count_failed(how->entry);
	*pointer = NULL;
	how->owned = true;
	return PS_CUDA_MEMORY_ALLOCATION;
}

static bool allocated_by_us(const void *pointer)
{
	switch (ps_heap_entry(pointer)) {
	case PINSHIM_ENTRY_CUDA_HOST_ALLOC:
	case PINSHIM_ENTRY_CUDA_MALLOC_HOST:
	case PINSHIM_ENTRY_CU_MEM_HOST_ALLOC:
	case PINSHIM_ENTRY_CU_MEM_ALLOC_HOST:
		return true;
	default:
		return false;
	}
}

static int call_with_pointer(int (*real)(void *pointer), int missing, void *pointer)
{
	int r = missing;

	if (real == NULL)
		return missing;
	ps_thread.depth++;
	r = real(pointer);
	ps_thread.depth--;
	return r;
}

/*
 * Undoes something of the program's own: withdrawn first, so that nothing is claimed that is gone, and
 * published again if the call fails.
 */
static int end_tracked(int (*real)(void *pointer), int missing, void *pointer)
{
	struct ps_tracked range;
	int r;

	/* Another thread may have been faster: the real function says what comes of that. */
	if (!ps_tracked_remove(pointer, &range))
		return call_with_pointer(real, missing, pointer);
	r = call_with_pointer(real, missing, pointer);
	if (r != PS_CUDA_SUCCESS)
		(void)ps_tracked_add(&range);
	else
		count_ended(&range);
	return r;
}

int ps_cuda_free(int (*real)(void *pointer), int missing, void *pointer)
{
	struct ps_tracked range;

	if (ps_in_window(pointer) && allocated_by_us(pointer)) {
		ps_registration_park(pointer, "cudaFreeHost()");
		return PS_CUDA_SUCCESS;
	}
	if (!passes() && pointer != NULL && ps_tracked_find(pointer, &range) &&
	    range.kind == PS_TRACKED_ALLOCATED)
		return end_tracked(real, missing, pointer);
	return call_with_pointer(real, missing, pointer);
}

/* Locks the program's memory where there is no driver to register it with. */
static int lock_instead(enum pinshim_entry_point entry, void *pointer, size_t size, unsigned flags,
			int as_without_us, bool *owned)
{
	struct ps_tracked other;
	struct ps_refusal why;
	int r;

	if (ps_config.backend != PS_BACKEND_NATIVE || pointer == NULL || size == 0 ||
	    flags & ~(unsigned)(PS_HOST_REGISTER_PORTABLE | PS_HOST_REGISTER_MAPPED)) {
		ps_count_failed(entry);
		return as_without_us;
	}
	*owned = true;
	if (ps_tracked_touching(pointer, size, &other))
		return PS_CUDA_ALREADY_REGISTERED;
	if (ps_heap_is_pinned(pointer, size)) {
		track(pointer, size, PS_TRACKED_NOTHING, entry);
		ps_count_served(entry, size, size);
		return PS_CUDA_SUCCESS;
	}
	ps_thread.depth++;
	r = ps_foreign_pin(pointer, size, &why);
	ps_thread.depth--;
	if (r == 0) {
		track(pointer, size, PS_TRACKED_LOCKED, entry);
		ps_count_served(entry, size, size);
		return PS_CUDA_SUCCESS;
	}
	ps_count_failed(entry);
	if (r == -ENOMEM)
		ps_budget_refuse(&why, "CUDA's out of memory error");
	return r == -ENOMEM ? PS_CUDA_MEMORY_ALLOCATION : PS_CUDA_INVALID_VALUE;
}

/* Memory from pinshim_alloc() is registered with its chunk: nothing to do but remember. */
static bool is_ours_to_answer(const void *pointer, size_t size)
{
	void *block;

	if (!ps_in_window(pointer) || !ps_heap_is_pinned(pointer, size))
		return false;
	block = ps_heap_enclosing(pointer);
	return block != NULL && ps_heap_entry(block) == PINSHIM_ENTRY_PINSHIM_ALLOC &&
	       (const char *)pointer + size <=
		       (char *)block + ps_heap_usable(block, "cudaHostRegister()");
}

static int answer_registered(enum pinshim_entry_point entry, void *pointer, size_t size,
			     bool *owned)
{
	struct ps_tracked other;

	if (ps_tracked_touching(pointer, size, &other)) {
		*owned = true;
		return PS_CUDA_ALREADY_REGISTERED;
	}
	(void)ps_registration_cover(pointer);
	track(pointer, size, PS_TRACKED_NOTHING, entry);
	ps_count_served(entry, size, size);
	return PS_CUDA_SUCCESS;
}

int ps_cuda_register(enum pinshim_entry_point entry,
		     int (*real)(void *pointer, size_t size, unsigned flags), int missing,
		     void *pointer, size_t size, unsigned flags, bool *owned)
{
	const bool pass = passes();
	int r = missing;

	if (!pass && pointer != NULL && size > 0 && is_ours_to_answer(pointer, size))
		return answer_registered(entry, pointer, size, owned);
	if (real != NULL) {
		ps_thread.depth++;
		r = real(pointer, size, flags);
		ps_thread.depth--;
	}
	if (pass)
		return r;
	if (r == PS_CUDA_SUCCESS) {
		track(pointer, size,
		      ps_in_window(pointer) ? PS_TRACKED_BLOCK : PS_TRACKED_REGISTERED, entry);
		ps_count_served(entry, size, size);
		return r;
	}
	if (ps_cuda_is_missing(r))
		return lock_instead(entry, pointer, size, flags, r, owned);
	ps_count_failed(entry);
	return r;
}

/*
 * What to ask the real function to unregister for a pointer that the program has not registered. It
 * must not get one into a heap that the driver is told of, which may be where a registration of ours
 * begins: in its place NULL, which gives the error of an allocated block, or an address that is
 * registered nowhere.
 */
static void *stand_in(void *pointer)
{
	static char nowhere;

	if (!ps_in_window(pointer) ||
	    !(ps_granule_byte(ps_granule_of(pointer)) & PS_GRANULE_DRIVER))
		return pointer;
	return ps_heap_enclosing(pointer) != NULL ? NULL : &nowhere;
}

int ps_cuda_unregister(int (*real)(void *pointer), int missing, void *pointer, bool *owned)
{
	struct ps_tracked range;

	if (passes() || pointer == NULL)
		return call_with_pointer(real, missing, pointer);
	if (!ps_tracked_touching(pointer, 1, &range))
		return call_with_pointer(real, missing, stand_in(pointer));
	if (range.kind == PS_TRACKED_ALLOCATED)
		return call_with_pointer(real, missing, pointer);
	if (range.kind == PS_TRACKED_REGISTERED || range.kind == PS_TRACKED_BLOCK)
		return range.base == (uintptr_t)pointer ? end_tracked(real, missing, pointer)
							: call_with_pointer(real, missing, pointer);
	if (range.base != (uintptr_t)pointer) {
		*owned = true;
		return PS_CUDA_INVALID_VALUE;
	}
	ps_tracked_remove(pointer, &range);
	if (range.kind == PS_TRACKED_LOCKED) {
		ps_thread.depth++;
		ps_foreign_unpin(pointer, range.length);
		ps_thread.depth--;
	}
	count_ended(&range);
	return PS_CUDA_SUCCESS;
}

void ps_cuda_cover(const void *pointer)
{
	if (ps_in_window(pointer) && ps_thread.depth == 0 && ps_cuda_find_driver())
		(void)ps_registration_cover(pointer);
}

bool ps_cuda_block_flags(const void *pointer, unsigned *flags)
{
	void *block = ps_in_window(pointer) ? ps_heap_enclosing(pointer) : NULL;

	if (block == NULL || !allocated_by_us(block) || ps_driver_forbidden)
		return false;
	/* Under unified addressing all of it is mapped, asked for or not. */
	*flags = ps_heap_flags(block) | PS_HOST_ALLOC_MAPPED;
	return true;
}

void ps_cuda_before_context_ends(ps_cu_context context)
{
	if (!passes() && ps_cuda_holds(context))
		ps_registration_drop_all();
}

void ps_cuda_after_context_ended(ps_cu_context context)
{
	struct ps_tracked range;
	uintptr_t from = 0;

	ps_cuda_forget_context(context);
	if (passes())
		return;
	while (context != NULL && ps_tracked_remove_of((uintptr_t)context, &from, &range))
		count_ended(&range);
	ps_registration_cover_all();
}

void ps_cuda_forget(const void *address, size_t length)
{
	struct ps_tracked range;

	while (ps_tracked_touching(address, length, &range)) {
		void *base = (void *)range.base;

		/* Whoever takes it out has it: another thread may be unregistering it just now. */
		if (!ps_tracked_remove(base, &range))
			continue;
		count_ended(&range);
		if (range.kind != PS_TRACKED_REGISTERED && range.kind != PS_TRACKED_BLOCK)
			continue;
		ps_thread.depth++;
		if (ps_driver != NULL)
			(void)ps_driver->unregister_memory(base);
		ps_thread.depth--;
		ps_log_once(PS_LOG_WARN,
			    "memory at %p was freed or unmapped while it was registered with CUDA: "
			    "the registration was dropped: call cudaHostUnregister() first",
			    base);
	}
}
