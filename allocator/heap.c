/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap: which path a block takes, and what is known of each block.
 *
 * Beside the window lies a byte for each 512 bytes of it, the least alignment of a block: 0, or 1 +
 * the entry point of the live block that begins there. Allocating sets it, freeing exchanges it for
 * 0; whoever gets 0 back holds a pointer that is no live block's start. Blocks of 32 KiB and more
 * have their bytes in different cache lines, so threads do not meet there.
 *
 * A block's byte is cleared before the block goes back to jemalloc or to the list of kept blocks,
 * and set after it came from there, so the byte always belongs to whoever holds the block.
 */
#include "heap.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "arena.h"
#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "foreign.h"
#include "large.h"
#include "log.h"
#include "os.h"
#include "registration.h"
#include "table.h"
#include "trace.h"
#include "tracked.h"

/* From here on blocks come straight from the window. */
#define PS_LARGE ((size_t)16 << 20)

#define PAGE_ALIGN ((size_t)4096)
#define SMALL_ALIGN ((size_t)1 << PS_QUANTUM_SHIFT)

static bool in_child; /* forked, of a process that had a heap */

static uint8_t *origin_of(const void *pointer)
{
	return &ps_window.origin[((uintptr_t)pointer - ps_window.base) >> PS_QUANTUM_SHIFT];
}

static bool is_large(const void *pointer)
{
	return (ps_granule_byte(ps_granule_of(pointer)) & PS_GRANULE_STATE) == PS_GRANULE_LARGE;
}

static uint32_t granules(size_t size)
{
	return (uint32_t)((size + PS_GRANULE - 1) >> PS_GRANULE_SHIFT);
}

/* Are what this entry point served blocks of the heap, and not memory that lies elsewhere? */
static bool serves_blocks(enum pinshim_entry_point entry)
{
	switch (entry) {
	case PINSHIM_ENTRY_PINSHIM_PIN:
	case PINSHIM_ENTRY_CUDA_HOST_REGISTER:
	case PINSHIM_ENTRY_CU_MEM_HOST_REGISTER:
		return false;
	case PINSHIM_ENTRY_CUDA_HOST_ALLOC:
	case PINSHIM_ENTRY_CUDA_MALLOC_HOST:
	case PINSHIM_ENTRY_CU_MEM_HOST_ALLOC:
	case PINSHIM_ENTRY_CU_MEM_ALLOC_HOST:
		return ps_config.backend == PS_BACKEND_NATIVE;
	default:
		return true;
	}
}

/* Bytes locked and not in live blocks: more than this a trim cannot give. */
static uint64_t reclaimable(void)
{
	const uint64_t locked = ps_count_get(&ps_table()->locked_bytes);
	uint64_t live = 0;

	for (unsigned i = 0; i < PINSHIM_ENTRIES; i++) {
		struct pinshim_entry sum;

		if (!serves_blocks((enum pinshim_entry_point)i))
			continue;
		ps_count_sum(ps_table(), (enum pinshim_entry_point)i, &sum);
		live += sum.served_bytes - sum.freed_bytes;
	}
	return locked > live ? locked - live : 0;
}

bool ps_heap_make_room(const struct ps_refusal *why)
{
	const uint64_t free_bytes = reclaimable();
	uint64_t used = why->used, missing = 1;

	if (ps_chunk_retry() > 0)
		return true;
	/* Of the window, used is what a trim leaves: freed blocks, kept, have addresses too. */
	if (why->limit == PS_LIMIT_WINDOW)
		used = ps_count_get(&ps_table()->locked_bytes) - free_bytes;
	if (why->allowed > 0 && used + why->asked > why->allowed)
		missing = used + why->asked - why->allowed;
	if (why->limit == PS_LIMIT_WINDOW && missing > 1)
		return false;
	/* Else the trim would cost everything that is kept for reuse and help nobody. */
	return missing <= free_bytes && ps_heap_trim(0) > 0;
}

static void *large(enum ps_heap heap, size_t size, size_t align, bool zero, struct ps_refusal *why)
{
	const uint32_t in_granules = align > PS_GRANULE ? (uint32_t)(align >> PS_GRANULE_SHIFT) : 1;
	bool zeroed;
	void *block = ps_large_alloc(granules(size), in_granules, heap, &zeroed, why);

	if (block == NULL && ps_heap_make_room(why))
		block = ps_large_alloc(granules(size), in_granules, heap, &zeroed, why);
	if (block != NULL && zero && !zeroed)
		memset(block, 0, size);
	return block;
}

/* Can the window hold it at all? Then sums of size and alignment do not overflow either. */
static bool too_big(size_t size, size_t align, struct ps_refusal *why)
{
	if (size <= ps_window.size && align <= ps_window.size)
		return false;
	*why = (struct ps_refusal){
		.limit = PS_LIMIT_WINDOW, .asked = size, .allowed = ps_window.size, .error = ENOMEM
	};
	return true;
}

void *ps_heap_alloc(enum ps_heap heap, enum pinshim_entry_point entry, size_t size, size_t align,
		    bool zero, struct ps_refusal *why)
{
	const size_t least = size >= PAGE_ALIGN ? PAGE_ALIGN : SMALL_ALIGN;
	const size_t wanted = size > 0 ? size : 1;
	void *block;

	if (align < least)
		align = least;
	if (too_big(wanted, align, why))
		return NULL;
	ps_thread.depth++;
	if (wanted >= PS_LARGE || align > PS_GRANULE)
		block = large(heap, wanted, align, zero, why);
	else
		block = ps_arena_alloc(heap, wanted, align, zero, why);
	if (block != NULL) {
		const size_t bytes = is_large(block) ? ps_large_size(ps_granule_of(block))
						     : ps_arena_size(block);

		__atomic_store_n(origin_of(block), (uint8_t)(1 + entry), __ATOMIC_RELEASE);
		ps_trace_alloc(block, size, bytes, entry);
		ps_count_served(entry, size, bytes);
	}
	ps_thread.depth--;
	return block;
}

/* Is it where a live block could begin, and are its notes accessible? */
static bool could_begin(const void *pointer)
{
	const uint8_t state = ps_granule_byte(ps_granule_of(pointer)) & PS_GRANULE_STATE;

	return ((uintptr_t)pointer & (SMALL_ALIGN - 1)) == 0 &&
	       (state == PS_GRANULE_SLAB || state == PS_GRANULE_LARGE);
}

/* The low bits of a block's byte are 1 + its entry point, the rest what CUDA was told of it. */
#define ENTRY_BITS 5

static enum pinshim_entry_point entry_of(uint8_t byte)
{
	return (enum pinshim_entry_point)((byte & ((1u << ENTRY_BITS) - 1)) - 1);
}

void ps_heap_set_flags(void *block, unsigned flags)
{
	__atomic_fetch_or(origin_of(block), (uint8_t)(flags << ENTRY_BITS), __ATOMIC_RELAXED);
}

unsigned ps_heap_flags(const void *block)
{
	return __atomic_load_n(origin_of(block), __ATOMIC_RELAXED) >> ENTRY_BITS;
}

enum pinshim_entry_point ps_heap_entry(const void *pointer)
{
	uint8_t byte;

	if (!ps_in_window(pointer) || !could_begin(pointer))
		return PINSHIM_ENTRIES;
	byte = __atomic_load_n(origin_of(pointer), __ATOMIC_ACQUIRE);
	return byte == 0 ? PINSHIM_ENTRIES : entry_of(byte);
}

static size_t block_size(void *pointer)
{
	return is_large(pointer) ? ps_large_size(ps_granule_of(pointer)) : ps_arena_size(pointer);
}

void *ps_heap_enclosing(const void *pointer)
{
	uintptr_t at = (uintptr_t)pointer & ~(SMALL_ALIGN - 1);
	const uint32_t granule = ps_granule_of(pointer);
	uintptr_t begin;

	if (ps_granule_byte(granule) == PS_GRANULE_FREE)
		return NULL;
	begin = (uintptr_t)ps_granule_address(ps_window.run[granule].first);
	for (; at >= begin; at -= SMALL_ALIGN)
		if (ps_heap_entry((void *)at) != PINSHIM_ENTRIES)
			return at + block_size((void *)at) > (uintptr_t)pointer ? (void *)at : NULL;
	return NULL;
}

_Noreturn static void not_a_block(const void *pointer, const char *call)
{
	const void *block = ps_heap_enclosing(pointer);

	if (block != NULL)
		ps_log_abort(
			"%s: invalid pointer %p: it points %zu bytes into the block at %p: pass "
			"the address that the allocation returned",
			call, pointer, (size_t)((const char *)pointer - (const char *)block),
			block);
	ps_log_abort("%s: invalid pointer %p: no block begins there: it was freed before (double "
		     "free), or never allocated",
		     call, pointer);
}

/*
 * The program may have left in a block what it mapped over it, a file or nothing at all, or memory that it may
 * not write to or that forked children do not get: whoever gets these bytes of it next must find memory. What
 * is locked keeps its pages, which a driver may hold and children share. Pages that are not all of these bytes
 * are left alone. byte is that of the block's granules. Should it fail nothing can be done.
 */
static void restore(void *pointer, size_t bytes, uint8_t byte)
{
	const uintptr_t base = ((uintptr_t)pointer + 4095) & ~(uintptr_t)4095;
	const uintptr_t end = ((uintptr_t)pointer + bytes) & ~(uintptr_t)4095;
	void *memory = (void *)base;

	if (base >= end)
		return;
	if (!(byte & PS_GRANULE_LOCKED)) {
		(void)ps_os_mmap(memory, end - base, PROT_READ | PROT_WRITE,
				 ps_chunk_mapping(byte & PS_GRANULE_SHARED), -1, 0, &memory);
		return;
	}
	(void)ps_os_mprotect(memory, end - base, PROT_READ | PROT_WRITE);
	(void)ps_os_madvise(memory, end - base, MADV_DOFORK);
	(void)ps_os_madvise(memory, end - base, MADV_KEEPONFORK);
	(void)ps_os_madvise(memory, end - base, MADV_DODUMP);
}

/* Is this a forked child, which has not counted it as served? Memory that lost its lock looks the same. */
static bool was_served_by_parent(const void *pointer)
{
	return __builtin_expect(ps_granule_byte(ps_granule_of(pointer)) & PS_GRANULE_INHERITED,
				0) &&
	       in_child;
}

size_t ps_heap_retire(void *pointer, const char *call)
{
	uint8_t byte = 0;
	size_t bytes;

	if (could_begin(pointer))
		byte = __atomic_exchange_n(origin_of(pointer), 0, __ATOMIC_ACQ_REL);
	if (byte == 0)
		not_a_block(pointer, call);
	bytes = block_size(pointer);
	ps_trace_free(pointer, bytes, entry_of(byte));
	if (!was_served_by_parent(pointer))
		ps_count_freed(entry_of(byte), bytes);
	return bytes;
}

/*
 * Keeps what is free in the arenas to PINSHIM_RETAIN, roughly: looked at after a stripe's threads have
 * freed an eighth of that. After a trim that gave little, for what is free lies between what is not,
 * there is no other for a tenth of a second.
 */
#define SETTLE_LEAST ((uint64_t)2 << 20)
#define SETTLE_NS (UINT64_C(100) * 1000000)

static void settle(size_t freed)
{
	static struct {
		uint64_t bytes;
	} __attribute__((aligned(64))) since[PINSHIM_STRIPES];
	static uint64_t last;
	const uint64_t least = ps_budget_retain() / 8 > SETTLE_LEAST ? ps_budget_retain() / 8
								     : SETTLE_LEAST;
	uint64_t *bytes = &since[ps_stripe_index()].bytes;
	uint64_t now, before;

	ps_count_here(bytes, freed);
	if (ps_count_get(bytes) < least)
		return;
	__atomic_store_n(bytes, 0, __ATOMIC_RELAXED);
	now = ps_os_now_coarse();
	before = ps_count_get(&last);
	if (now - before < SETTLE_NS ||
	    reclaimable() <= ps_budget_retain() + ps_count_retained(ps_table()))
		return;
	/* One thread at a time is enough. */
	if (__atomic_compare_exchange_n(&last, &before, now, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED) &&
	    ps_arena_trim() >= least)
		__atomic_store_n(&last, before, __ATOMIC_RELAXED);
}

/* Of a block of so many bytes. */
static void reclaim(void *pointer, size_t bytes)
{
	const uint8_t byte = ps_granule_byte(ps_granule_of(pointer));

	ps_thread.depth++;
	if (byte & PS_GRANULE_CHANGED)
		restore(pointer, bytes, byte);
	if ((byte & PS_GRANULE_STATE) == PS_GRANULE_LARGE) {
		ps_large_free(ps_granule_of(pointer));
		ps_arena_ask_again();
	} else {
		ps_arena_free(pointer);
		settle(bytes);
	}
	ps_thread.depth--;
}

void ps_heap_reclaim(void *pointer)
{
	reclaim(pointer, block_size(pointer));
}

void ps_heap_discard(void *pointer)
{
	ps_trace_free(pointer, block_size(pointer), ps_heap_entry(pointer));
	__atomic_store_n(origin_of(pointer), 0, __ATOMIC_RELEASE);
	ps_heap_reclaim(pointer);
}

void ps_heap_free(void *pointer, const char *call)
{
	reclaim(pointer, ps_heap_retire(pointer, call));
}

size_t ps_heap_usable(void *pointer, const char *call)
{
	if (ps_heap_entry(pointer) == PINSHIM_ENTRIES)
		not_a_block(pointer, call);
	return block_size(pointer);
}

static size_t resize_large(void *pointer, size_t size)
{
	const uint32_t first = ps_granule_of(pointer);
	const size_t has = ps_large_size(first);

	if (size > has)
		ps_large_grow(first, granules(size));
	else if (size >= PS_LARGE && granules(size) < has >> PS_GRANULE_SHIFT)
		ps_large_shrink(first, granules(size));
	return ps_large_size(first);
}

bool ps_heap_resize(void *pointer, size_t size, const char *call)
{
	const size_t from = ps_heap_usable(pointer, call);
	const enum pinshim_entry_point entry = ps_heap_entry(pointer);
	uint8_t byte;
	size_t to;

	/* That is where a child of a raw clone() notices what it is. */
	(void)ps_table();
	if (size == 0 || size > ps_window.size || ps_heap_is_inherited(pointer))
		return false;
	ps_thread.depth++;
	byte = ps_granule_byte(ps_granule_of(pointer));
	/* What is cut off goes back as it is, and to another thread at once. */
	if (size < from && byte & PS_GRANULE_CHANGED)
		restore((char *)pointer + size, from - size, byte);
	if (is_large(pointer))
		to = resize_large(pointer, size);
	else
		to = size < PS_LARGE ? ps_arena_resize(pointer, size) : from;
	if (to != from) {
		ps_count_resized(entry, size, from, to);
		ps_trace_resize(pointer, from, to, entry);
	}
	ps_thread.depth--;
	return to >= size && to / 2 <= (size > SMALL_ALIGN ? size : SMALL_ALIGN);
}

bool ps_heap_is_pinned(const void *pointer, size_t length)
{
	const uintptr_t offset = (uintptr_t)pointer - ps_window.base;

	if (length == 0)
		length = 1;
	if (offset >= ps_window.size || length > ps_window.size - offset)
		return false;
	for (uint32_t i = (uint32_t)(offset >> PS_GRANULE_SHIFT);
	     i <= (offset + length - 1) >> PS_GRANULE_SHIFT; i++)
		if (!(ps_granule_byte(i) & PS_GRANULE_LOCKED))
			return false;
	return true;
}

bool ps_heap_is_inherited(const void *pointer)
{
	const uint8_t both = PS_GRANULE_SHARED | PS_GRANULE_INHERITED;

	return ps_in_window(pointer) && (ps_granule_byte(ps_granule_of(pointer)) & both) == both;
}

bool ps_heap_is_shared(const void *pointer, size_t length)
{
	const uintptr_t begin = (uintptr_t)pointer;
	uintptr_t from, to;

	if (!ps_part_in_window(begin, begin + length, &from, &to))
		return false;
	for (uint32_t i = ps_granule_of((void *)from); i <= ps_granule_of((void *)(to - 1)); i++)
		if (ps_granule_byte(i) & PS_GRANULE_SHARED)
			return true;
	return false;
}

size_t ps_heap_trim(size_t keep)
{
	size_t unpinned;

	ps_thread.depth++;
	unpinned = ps_large_trim(keep) + ps_arena_trim() + ps_chunk_retry();
	if (unpinned > 0)
		ps_arena_ask_again();
	ps_thread.depth--;
	return unpinned;
}

void ps_heap_relock(void)
{
	/* What is free in chunks that lost their lock must not be handed out as pinned. */
	if (ps_chunk_relock() > 0)
		ps_heap_trim(0);
}

void ps_heap_replaced(const void *address, size_t length)
{
	ps_chunk_replaced(address, length);
}

void ps_heap_changed(const void *address, size_t length)
{
	ps_chunk_changed(address, length);
}

void ps_heap_fork_prepare(void)
{
	ps_arena_fork_prepare();
	ps_lock(&ps_window.lock);
}

void ps_heap_fork_parent(void)
{
	ps_unlock(&ps_window.lock);
	ps_arena_fork_parent();
}

void ps_heap_fork_child(void)
{
	ps_lock_reset(&ps_window.lock);
	ps_arena_fork_child();
	ps_chunk_fork_child();
	ps_large_fork_child();
}

void ps_fork_child(void)
{
	/* A child that noticed by itself, before this handler of fork ran, is done. */
	if (ps_process->table != NULL && ps_process->pid == ps_os_getpid())
		return;
	ps_thread.depth++;
	ps_table_fork_child();
	ps_counters_fork_child();
	ps_budget_fork_child();
	ps_trace_file_fork_child();
	ps_tracked_fork_child();
	ps_foreign_fork_child();
	ps_registration_fork_child();
	ps_heap_fork_child();
	in_child = true;
	ps_thread.depth--;
}
