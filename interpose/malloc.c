/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The malloc family.
 *
 * A request below the classes of PINSHIM_MALLOC costs one compare and two jumps; a free of memory outside
 * the window a subtraction more. No counter, no lock, no thread-local storage: programs make millions of
 * small allocations a second.
 *
 * Owns no lock. A call that arrives from inside pinshim (ps_thread.depth), for example because a
 * fork handler of the program allocates while the heap is held still, passes through to the next
 * allocator; a block of ours freed there waits on a list.
 */
#include "malloc.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "counters.h"
#include "cuda.h"
#include "foreign.h"
#include "heap.h"
#include "log.h"
#include "next.h"
#include "registration.h"

#define PUBLIC __attribute__((visibility("default")))
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Where the first class begins. With no class only SIZE_MAX gets past it, and no further. */
static size_t lowest_served = SIZE_MAX;

/* Blocks of ours freed while the heap could not be entered: a list through their first words. */
static _Atomic(void *) deferred;

void ps_malloc_start(const struct ps_config *config)
{
	if (config->malloc_ranges > 0)
		lowest_served = config->malloc_range[0].low;
}

static inline bool maybe_served(size_t size)
{
	return unlikely(size >= lowest_served);
}

static bool in_class(size_t size)
{
	for (unsigned i = 0; i < ps_config.malloc_ranges; i++)
		if (size >= ps_config.malloc_range[i].low && size <= ps_config.malloc_range[i].high)
			return true;
	return false;
}

static void free_deferred(void)
{
	void *block = atomic_exchange(&deferred, NULL);

	while (block != NULL) {
		void *next = *(void **)block;

		ps_heap_free(block, "free()");
		block = next;
	}
}

static void defer(void *block)
{
	void *head = atomic_load(&deferred);

	do {
		*(void **)block = head;
	} while (!atomic_compare_exchange_weak(&deferred, &head, block));
}

/*
 * ps_malloc_is_ours() asks for this much, an odd size so that no other thread's request is taken for
 * it, and looks whether it arrived.
 */
#define PROBE_BYTES 20563
static bool probed;

/* Serves a request if it is in a class. NULL: the next allocator is to be asked. */
static __attribute__((noinline)) void *serve(enum pinshim_entry_point entry, size_t size,
					     size_t align, bool zero)
{
	const int saved = errno;
	struct ps_refusal why;
	void *block;

	if (unlikely(lowest_served == PROBE_BYTES && size == PROBE_BYTES))
		probed = true;
	if (ps_thread.depth > 0 || !in_class(size))
		return NULL;
	/* No memory is that large, or that aligned: the next allocator says so, and there is nothing to explain. */
	if (unlikely(size > ps_window.size || align > ps_window.size)) {
		ps_count_fallback(entry);
		return NULL;
	}
	if (unlikely(atomic_load_explicit(&deferred, memory_order_relaxed) != NULL))
		free_deferred();
	block = ps_heap_alloc(PS_HEAP_MALLOC, entry, size, align, zero, &why);
	if (block == NULL) {
		ps_count_fallback(entry);
		ps_budget_refuse(&why, "ordinary memory");
	} else {
		ps_count_reached(PINSHIM_REACHED_MALLOC);
	}
	errno = saved;
	return block;
}

/* Frees a block of ours. Leaves errno alone, as free() has to (POSIX.1-2024). */
static __attribute__((noinline)) void release(void *block, const char *call)
{
	const int saved = errno;

	if (unlikely(ps_thread.depth > 0)) {
		/* A list through shared memory would run through what parent and children have in common. */
		if (ps_heap_is_shared(block, 1))
			ps_registration_park(block, call);
		else
			defer(block);
		return;
	}
	if (unlikely(atomic_load_explicit(&deferred, memory_order_relaxed) != NULL))
		free_deferred();
	/* Registered with CUDA, part of it at least, and freed without unregistering. */
	if (unlikely(ps_foreign_count() > 0) && ps_heap_entry(block) != PINSHIM_ENTRIES)
		ps_cuda_forget(block, ps_heap_usable(block, call));
	ps_heap_free(block, call);
	errno = saved;
}

/* malloc() of what may be ours, apart so that the common case saves and loads no register. */
static __attribute__((noinline)) void *malloc_served(size_t size)
{
	void *block = serve(PINSHIM_ENTRY_MALLOC, size, 0, false);

	return block != NULL ? block : ps_next.malloc(size);
}

PUBLIC void *malloc(size_t size)
{
	if (maybe_served(size))
		return malloc_served(size);
	return ps_next.malloc(size);
}

PUBLIC void free(void *pointer)
{
	if (unlikely(ps_in_window(pointer)))
		release(pointer, "free()");
	else
		ps_next.free(pointer);
}

/* SVID's name, gone from glibc 2.26; old binaries still have it. */
PUBLIC void cfree(void *pointer);
PUBLIC void cfree(void *pointer)
{
	free(pointer);
}

PUBLIC void *calloc(size_t count, size_t size)
{
	size_t bytes;

	/* An overflow is the next allocator's to answer: it fails with ENOMEM. */
	if (unlikely(__builtin_mul_overflow(count, size, &bytes)))
		return ps_next.calloc(count, size);
	if (maybe_served(bytes)) {
		void *block = serve(PINSHIM_ENTRY_CALLOC, bytes, 0, true);

		if (block != NULL)
			return block;
	}
	return ps_next.calloc(count, size);
}

/* An aligned request; NULL when the next allocator is to be asked, also to refuse the alignment. */
static inline void *serve_aligned(size_t align, size_t size)
{
	if (!maybe_served(size) || align == 0 || (align & (align - 1)) != 0)
		return NULL;
	return serve(PINSHIM_ENTRY_ALIGNED, size, align, false);
}

PUBLIC void *memalign(size_t align, size_t size)
{
	void *block = serve_aligned(align, size);

	return block != NULL ? block : ps_next.memalign(align, size);
}

PUBLIC void *aligned_alloc(size_t align, size_t size)
{
	void *block = serve_aligned(align, size);

	return block != NULL ? block : ps_next.aligned_alloc(align, size);
}

PUBLIC int posix_memalign(void **pointer, size_t align, size_t size)
{
	void *block = align % sizeof(void *) == 0 ? serve_aligned(align, size) : NULL;

	if (block == NULL)
		return ps_next.posix_memalign(pointer, align, size);
	*pointer = block;
	return 0;
}

PUBLIC void *valloc(size_t size)
{
	void *block = serve_aligned(4096, size);

	return block != NULL ? block : ps_next.valloc(size);
}

PUBLIC void *pvalloc(size_t size)
{
	const size_t whole = size <= PTRDIFF_MAX ? (size + 4095) & ~(size_t)4095 : 0;
	void *block = whole > 0 ? serve_aligned(4096, whole) : NULL;

	return block != NULL ? block : ps_next.pvalloc(size);
}

PUBLIC size_t malloc_usable_size(void *pointer)
{
	if (unlikely(ps_in_window(pointer)))
		return ps_heap_usable(pointer, "malloc_usable_size()");
	return ps_next.malloc_usable_size(pointer);
}

/*
 * realloc of a block of ours: in place, else to wherever a new request of that size goes. When no
 * memory is to be had the block stays as it is.
 */
static void *move_ours(void *pointer, size_t size)
{
	const size_t old = ps_heap_usable(pointer, "realloc()");
	const bool stays = maybe_served(size) && in_class(size);
	void *block;

	if (stays && ps_thread.depth == 0 && ps_heap_resize(pointer, size, "realloc()"))
		return pointer;
	block = stays ? serve(PINSHIM_ENTRY_REALLOC, size, 0, false) : NULL;
	if (block == NULL)
		block = ps_next.malloc(size);
	if (block == NULL)
		return NULL;
	memcpy(block, pointer, old < size ? old : size);
	release(pointer, "realloc()");
	return block;
}

/* realloc of the next allocator's block into a class of ours; NULL when it is to stay there. */
static void *move_here(void *pointer, size_t size)
{
	const size_t old = ps_next.malloc_usable_size(pointer);
	void *block = serve(PINSHIM_ENTRY_REALLOC, size, 0, false);

	if (block == NULL)
		return NULL;
	memcpy(block, pointer, old < size ? old : size);
	ps_next.free(pointer);
	return block;
}

PUBLIC void *realloc(void *pointer, size_t size)
{
	if (unlikely(ps_in_window(pointer))) {
		if (size > 0)
			return move_ours(pointer, size);
		/* As glibc: the block is freed. */
		release(pointer, "realloc()");
		return NULL;
	}
	/* Of a block, a size of 0 frees it, also where a class has that size. */
	if (maybe_served(size) && (size > 0 || pointer == NULL)) {
		void *block = pointer != NULL ? move_here(pointer, size)
					      : serve(PINSHIM_ENTRY_REALLOC, size, 0, false);

		if (block != NULL)
			return block;
	}
	return ps_next.realloc(pointer, size);
}

PUBLIC void *reallocarray(void *pointer, size_t count, size_t size)
{
	size_t bytes;

	if (unlikely(__builtin_mul_overflow(count, size, &bytes))) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(pointer, bytes);
}

/* What the watching versions below go on to. */
static struct {
	void (*free)(void *pointer);
	void *(*realloc)(void *pointer, size_t size);
} unwatched;

/* Drops foreign ranges in a block that the next allocator is about to take back. */
static void drop_foreign(void *pointer)
{
	size_t length;

	if (pointer == NULL || ps_foreign_count() == 0 || ps_thread.depth > 0)
		return;
	length = ps_next.malloc_usable_size(pointer);
	ps_cuda_forget(pointer, length);
	if (!ps_foreign_touches(pointer, length))
		return;
	ps_foreign_drop(pointer, length, true);
	ps_log_once(PS_LOG_WARN,
		    "a block at %p was freed while it was pinned: the pin was dropped: call "
		    "pinshim_unpin() before free()",
		    pointer);
}

static void free_watching(void *pointer)
{
	const int saved = errno;

	drop_foreign(pointer);
	errno = saved;
	unwatched.free(pointer);
}

static void *realloc_watching(void *pointer, size_t size)
{
	drop_foreign(pointer);
	return unwatched.realloc(pointer, size);
}

void ps_malloc_watch_foreign(void)
{
	static atomic_flag done = ATOMIC_FLAG_INIT;

	if (atomic_flag_test_and_set(&done))
		return;
	unwatched.free = ps_next.free;
	unwatched.realloc = ps_next.realloc;
	__atomic_store_n(&ps_next.free, free_watching, __ATOMIC_RELEASE);
	__atomic_store_n(&ps_next.realloc, realloc_watching, __ATOMIC_RELEASE);
}

bool ps_malloc_is_ours(void)
{
	/* Through the global offset table, where the first definition won; an address alone would
	 * not tell, since a program may have its own stub for ours. */
	void *(*volatile call)(size_t) = malloc;
	void (*volatile release_it)(void *) = free;

	lowest_served = PROBE_BYTES;
	release_it(call(PROBE_BYTES));
	lowest_served = SIZE_MAX;
	return probed;
}
