/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One lock, "registering": registrations are made and undone one after the other, the driver being
 * called with it held. Under it the window's lock is taken for the moment of reading or writing a
 * chunk's record. A chunk is marked before the driver is called and until after it answered, so that
 * nobody cuts, joins or unpins it meanwhile. With the lock held, PS_REGISTERING is therefore either
 * what the holder is at, or a chunk of which a part could not be unregistered.
 *
 * Parked blocks are kept without a lock, since a program's fork handlers may free.
 */
#include "registration.h"

#include <errno.h>
#include <stdbool.h>

#include "budget.h"
#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "driver.h"
#include "heap.h"
#include "lock.h"
#include "log.h"
#include "trace.h"
#include "window.h"

/* So many bytes registered are worth a word before they are copied: that takes about a tenth of a second. */
#define DEAR_TO_FORK ((size_t)256 << 20)

#define PARKED_MAX 256
/* The device is waited for when more than this is parked, or more than may be kept for reuse. */
#define PARKED_BYTES ((size_t)64 << 20)

/* Of what is registered here. */
#define FLAGS (PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_HEAP_CUDA)

const struct ps_driver *ps_driver;
bool ps_driver_forbidden;

static struct {
	struct ps_lock registering;
	atomic_size_t copied; /* bytes that a fork() copies: of registered private chunks */
	atomic_uint count;    /* of parked blocks, give or take those on their way */
	atomic_size_t bytes;  /* in blocks parked since the last wait */
	_Atomic(void *) parked[PARKED_MAX]; /* freed, the device perhaps not done with them */
} registration;

/* Unregisters the pieces of [base, base+length). The first error, the others being tried all the same. */
static int unregister_pieces(char *base, size_t length)
{
	const uint64_t began = ps_os_now();
	int error = 0;

	for (size_t at = 0; at < length; at += ps_driver->piece) {
		int r = ps_driver->unregister_memory(base + at);

		if (error == 0)
			error = r;
	}
	ps_trace_unregister((uintptr_t)base, length, FLAGS, error, began);
	return error;
}

/* 0 or the driver's error. *left: a part is registered all the same, as undoing it failed. */
static int register_pieces(char *base, size_t length, bool *left)
{
	const uint64_t began = ps_os_now();
	size_t at, part;
	int r = 0;

	for (at = 0; at < length; at += part) {
		part = length - at < ps_driver->piece ? length - at : ps_driver->piece;
		r = ps_driver->register_memory(base + at, part);
		if (r != 0)
			break;
	}
	ps_trace_register((uintptr_t)base, length, FLAGS, r, began);
	if (r != 0 && at > 0)
		*left = unregister_pieces(base, at) != 0;
	return r;
}

/* The chunk of an address, if it is one of ours that can be registered; PS_NO_RUN if not. */
static uint32_t chunk_of(const void *block)
{
	const uint32_t granule = ps_granule_of(block);
	const uint8_t byte = ps_granule_byte(granule);

	if ((byte & (PS_GRANULE_LOCKED | PS_GRANULE_DRIVER)) !=
	    (PS_GRANULE_LOCKED | PS_GRANULE_DRIVER))
		return PS_NO_RUN;
	return __atomic_load_n(&ps_window.run[granule].first, __ATOMIC_ACQUIRE);
}

static enum ps_registered state_of(uint32_t first)
{
	return __atomic_load_n(&ps_window.run[first].registered, __ATOMIC_ACQUIRE);
}

/* Marks a chunk before the driver is called for it. Returns its bytes. Window's lock held. */
static size_t begin(uint32_t first)
{
	ps_chunk_set_registered(first, PS_REGISTERING);
	return (size_t)ps_window.run[first].count << PS_GRANULE_SHIFT;
}

/* Says what came of it: it was `was`, and is `is` from now on. */
static void end(uint32_t first, size_t length, enum ps_registered was, enum ps_registered is)
{
	const int64_t more = ((is == PS_REGISTERED) - (was == PS_REGISTERED)) * (int64_t)length;
	bool shared;

	ps_lock(&ps_window.lock);
	ps_chunk_set_registered(first, is);
	shared = ps_granule_byte(first) & PS_GRANULE_SHARED;
	ps_unlock(&ps_window.lock);
	if (!shared)
		atomic_fetch_add(&registration.copied, (size_t)more);
	ps_table_gauges(0, 0, 0, more, 0);
}

void ps_registration_before_fork(void)
{
	const size_t bytes = atomic_load(&registration.copied);

	if (bytes >= DEAR_TO_FORK && ps_driver != NULL)
		ps_log_once(
			PS_LOG_WARN,
			"fork(): %zu MiB of pinshim_alloc() are registered with the GPU's driver, so "
			"the kernel copies them to the child at once: start workers by spawn or "
			"forkserver, or use cudaHostAlloc(), whose memory children share",
			bytes >> 20);
}

/* Registers the chunk of a block unless it is. Lock held. 0 or as ps_registration_cover(). */
static int register_chunk_of(const void *block)
{
	bool left = false;
	size_t length = 0;
	uint32_t first;
	int r;

	ps_lock(&ps_window.lock);
	first = chunk_of(block);
	if (first != PS_NO_RUN && state_of(first) != PS_REGISTERED)
		length = begin(first);
	ps_unlock(&ps_window.lock);
	if (length == 0)
		return 0;
	r = register_pieces(ps_granule_address(first), length, &left);
	end(first, length, PS_REGISTERING,
	    r == 0 ? PS_REGISTERED
	    : left ? PS_REGISTERING
		   : PS_UNREGISTERED);
	return r;
}

int ps_registration_cover(const void *block)
{
	uint32_t first;
	int r = 0;

	if (!ps_in_window(block))
		return 0;
	/* That is where a child of a raw clone() notices what it is. */
	(void)ps_table();
	first = chunk_of(block);
	if (first == PS_NO_RUN || ps_driver == NULL || state_of(first) == PS_REGISTERED)
		return 0;
	ps_thread.depth++;
	if (ps_driver->ready()) {
		ps_lock(&registration.registering);
		r = register_chunk_of(block);
		ps_unlock(&registration.registering);
	}
	ps_thread.depth--;
	return r;
}

/* Unregisters a chunk if there is anything to, which another may have done. Lock held. */
static int unregister_chunk(uint32_t first)
{
	enum ps_registered was;
	size_t length = 0;
	int r;

	ps_lock(&ps_window.lock);
	was = state_of(first);
	if (was != PS_UNREGISTERED)
		length = begin(first);
	ps_unlock(&ps_window.lock);
	if (length == 0)
		return 0;
	r = unregister_pieces(ps_granule_address(first), length);
	end(first, length, was, r == 0 ? PS_UNREGISTERED : was);
	if (r != 0)
		ps_log_once(
			PS_LOG_WARN,
			"unregistering memory with the CUDA driver failed with error %d: %zu bytes "
			"stay pinned, so that the driver does not hold memory that is used for "
			"something else",
			r, length);
	return r;
}

int ps_registration_drop(uint32_t first)
{
	int r;

	if (ps_driver == NULL)
		return 0;
	ps_thread.depth++;
	ps_lock(&registration.registering);
	r = unregister_chunk(first);
	ps_unlock(&registration.registering);
	ps_thread.depth--;
	return r;
}

/* Is it the first granule of a chunk that drop_all (registered) or cover_all is about? */
static bool concerns(uint32_t first, bool registered)
{
	if (state_of(first) != PS_UNREGISTERED)
		return registered;
	return !registered && chunk_of(ps_granule_address(first)) == first;
}

/*
 * Marks the next chunk after this one (PS_NO_RUN: the first of all) that is registered, or a part of it;
 * or, of those that can be, is not. PS_NO_RUN: there is no more.
 */
static uint32_t begin_next(uint32_t after, bool registered, size_t *length, enum ps_registered *was)
{
	uint32_t i = 0, found = PS_NO_RUN;

	ps_lock(&ps_window.lock);
	/* Since its lock was last held it may have become part of a larger run of free addresses. */
	if (after != PS_NO_RUN)
		i = ps_window.run[after].first;
	for (; i < atomic_load(&ps_window.frontier); i += ps_window.run[i].count)
		if (concerns(i, registered)) {
			found = i;
			*was = state_of(i);
			*length = begin(i);
			break;
		}
	ps_unlock(&ps_window.lock);
	return found;
}

void ps_registration_drop_all(void)
{
	uint32_t first = PS_NO_RUN;
	enum ps_registered was;
	size_t length;

	(void)ps_table();
	if (ps_driver == NULL)
		return;
	ps_thread.depth++;
	ps_lock(&registration.registering);
	while ((first = begin_next(first, true, &length, &was)) != PS_NO_RUN) {
		(void)unregister_pieces(ps_granule_address(first), length);
		end(first, length, was, PS_UNREGISTERED);
	}
	ps_unlock(&registration.registering);
	ps_thread.depth--;
}

void ps_registration_cover_all(void)
{
	uint32_t first = PS_NO_RUN;
	enum ps_registered was;
	bool left = false;
	size_t length;
	int r = 0;

	(void)ps_table();
	if (ps_driver == NULL)
		return;
	ps_thread.depth++;
	if (ps_driver->ready()) {
		ps_lock(&registration.registering);
		while (r == 0 && (first = begin_next(first, false, &length, &was)) != PS_NO_RUN) {
			r = register_pieces(ps_granule_address(first), length, &left);
			end(first, length, was,
			    r == 0 ? PS_REGISTERED
			    : left ? PS_REGISTERING
				   : PS_UNREGISTERED);
		}
		ps_unlock(&registration.registering);
	}
	ps_thread.depth--;
}

/* Takes the parked blocks. Returns how many. */
static unsigned take_parked(void **blocks)
{
	unsigned count = 0;

	for (unsigned i = 0; i < PARKED_MAX; i++) {
		if (atomic_load_explicit(&registration.parked[i], memory_order_relaxed) == NULL)
			continue;
		blocks[count] = atomic_exchange(&registration.parked[i], NULL);
		count += blocks[count] != NULL;
	}
	atomic_fetch_sub(&registration.count, count);
	return count;
}

/* Parks a retired block. false where there are too many. */
static bool put_parked(void *block)
{
	const unsigned start = atomic_load(&registration.count);

	for (unsigned i = 0; i < PARKED_MAX; i++) {
		_Atomic(void *) *place = &registration.parked[(start + i) % PARKED_MAX];
		void *nothing = NULL;

		if (atomic_load_explicit(place, memory_order_relaxed) != NULL ||
		    !atomic_compare_exchange_strong(place, &nothing, block))
			continue;
		atomic_fetch_add(&registration.count, 1);
		return true;
	}
	return false;
}

static void park_or_lose(void *block)
{
	if (!put_parked(block))
		ps_log_once(PS_LOG_WARN,
			    "%d freed blocks wait for the device, which cannot be waited for, for "
			    "example while a stream is being captured: further ones are not used "
			    "again: free fewer while capturing",
			    PARKED_MAX);
}

/*
 * The wait begins after the blocks were taken: one freed meanwhile waits for the next. Where the
 * device cannot be waited for (a stream is being captured) they are put back.
 */
bool ps_registration_unpark(void)
{
	void *blocks[PARKED_MAX];
	unsigned count;
	int r = 0;

	/* From inside pinshim the heap cannot always be entered (a fork handler of the program). */
	if (atomic_load_explicit(&registration.count, memory_order_relaxed) == 0 ||
	    ps_thread.depth > 0)
		return false;
	(void)ps_table();
	atomic_store(&registration.bytes, 0);
	count = take_parked(blocks);
	ps_thread.depth++;
	ps_thread.driver++;
	if (ps_driver != NULL)
		r = ps_driver->synchronize();
	for (unsigned i = 0; i < count; i++) {
		if (r == 0)
			ps_heap_reclaim(blocks[i]);
		else
			park_or_lose(blocks[i]);
	}
	ps_thread.driver--;
	ps_thread.depth--;
	return r == 0 && count > 0;
}

/*
 * Shared memory must not be handed out where a child of a raw clone() does not notice what it is: that would
 * use its parent's.
 */
static enum ps_heap heap_of(enum pinshim_entry_point entry)
{
	return entry == PINSHIM_ENTRY_PINSHIM_ALLOC || !ps_table_notices_clones() ? PS_HEAP_PINSHIM
										  : PS_HEAP_CUDA;
}

/*
 * As ps_heap_alloc(). If a handler of a signal forked meanwhile and this is the child, the block may be one
 * that the parent got as well: then another.
 */
static void *alloc_own(enum pinshim_entry_point entry, size_t size, size_t align,
		       struct ps_refusal *why)
{
	void *block = ps_heap_alloc(heap_of(entry), entry, size, align, false, why);

	(void)ps_table();
	if (block == NULL || !ps_heap_is_inherited(block))
		return block;
	ps_heap_discard(block);
	return ps_heap_alloc(heap_of(entry), entry, size, align, false, why);
}

void *ps_registration_alloc(enum pinshim_entry_point entry, size_t size, size_t align,
			    struct ps_refusal *why)
{
	void *block;

	/* That is where a child of a raw clone() notices what it is: its parent's heap is not its own. */
	(void)ps_table();
	ps_thread.driver++;
	block = alloc_own(entry, size, align, why);
	if (block == NULL && ps_registration_unpark())
		block = alloc_own(entry, size, align, why);
	ps_thread.driver--;
	return block;
}

void ps_registration_park(void *block, const char *call)
{
	size_t bytes;

	(void)ps_table();
	bytes = ps_heap_retire(block, call);
	if (ps_driver == NULL && ps_thread.depth == 0) {
		ps_heap_reclaim(block);
		return;
	}
	if (!put_parked(block)) {
		ps_registration_unpark();
		park_or_lose(block);
	}
	bytes += atomic_fetch_add(&registration.bytes, bytes);
	if (bytes > PARKED_BYTES || bytes > ps_budget_retain())
		ps_registration_unpark();
}

void ps_registration_fork_child(void)
{
	ps_driver_forbidden |= ps_driver != NULL;
	ps_driver = NULL;
	ps_lock_reset(&registration.registering);
}
