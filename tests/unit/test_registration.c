/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chunks registered with a driver, and freed blocks that wait for the device. The driver is one of
 * our own, which keeps a list of what is registered, and finds fault with whatever no driver would
 * stand: ranges that overlap, memory that went while it was registered, a call with our locks held.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arena.h"
#include "chunk.h"
#include "config.h"
#include "counters.h"
#include "driver.h"
#include "heap.h"
#include "large.h"
#include "pinned.h"
#include "registration.h"
#include "tracked.h"
#include "window.h"

#define LIVE_MAX 4096
#define ALREADY_REGISTERED 712
#define NOT_REGISTERED 713

struct registered {
	char *base;
	size_t length;
};

static struct {
	pthread_mutex_t lock;
	struct registered live[LIVE_MAX];
	unsigned count;
	unsigned asked, registers, unregisters, synchronizes; /* calls */
	unsigned faults;                                      /* what should not have been */
	bool quiet;                                           /* about faults that are meant */
	bool no_context;
	bool alone;                /* no other thread uses the heap */
	unsigned fail_register;    /* the call that fails, counted from 1 on from fake_reset() */
	int fail_unregister;       /* error of every call */
	int fail_synchronize;      /* the same */
	void (*registering)(void); /* called from inside these */
	void (*unregistering)(void);
	void (*synchronizing)(void);
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void fault(const char *what)
{
	if (!fake.quiet)
		fprintf(stderr, "fake driver: %s\n", what);
	__atomic_fetch_add(&fake.faults, 1, __ATOMIC_RELAXED);
}

static bool accessible(const char *address)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { (void *)address, 1 };

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

/* Is all of it memory still? */
static bool is_there(const struct registered *range)
{
	for (size_t at = 0; at < range->length; at += PS_GRANULE)
		if (!accessible(range->base + at))
			return false;
	return accessible(range->base + range->length - 1);
}

static void look_at_memory(void)
{
	pthread_mutex_lock(&fake.lock);
	for (unsigned i = 0; i < fake.count; i++)
		if (!is_there(&fake.live[i]))
			fault("memory went while it was registered");
	pthread_mutex_unlock(&fake.lock);
}

/* What a driver does: takes memory from everywhere, which must not find a lock held by its caller. */
static void enter(void)
{
	struct ps_refusal why;
	char *volatile memory = malloc(3000);
	char *block;

	if (ps_thread.depth == 0)
		fault("called with the program's allocator not passing through");
	if (fake.alone && atomic_load(&ps_window.lock.state) != 0)
		fault("called with the window's lock held");
	block = ps_heap_alloc(PS_HEAP_MALLOC, PINSHIM_ENTRY_MALLOC, 3000, 0, false, &why);
	if (block != NULL)
		ps_heap_free(block, "free()");
	ps_table_gauges(0, 0, 0, 0, 0);
	free(memory);
}

static bool fake_ready(void)
{
	__atomic_fetch_add(&fake.asked, 1, __ATOMIC_RELAXED);
	enter();
	return !fake.no_context;
}

static bool overlaps(const char *base, size_t length)
{
	for (unsigned i = 0; i < fake.count; i++)
		if (fake.live[i].base < base + length &&
		    base < fake.live[i].base + fake.live[i].length)
			return true;
	return false;
}

static int fake_register(void *address, size_t length)
{
	const struct registered range = { address, length };
	int error = 0;

	enter();
	if (fake.registering != NULL)
		fake.registering();
	pthread_mutex_lock(&fake.lock);
	if (++fake.registers == fake.fail_register)
		error = 2;
	else if (overlaps(address, length))
		error = ALREADY_REGISTERED;
	if (error == ALREADY_REGISTERED)
		fault("registered twice");
	if (!is_there(&range))
		fault("no memory there to register");
	if (error == 0 && fake.count < LIVE_MAX)
		fake.live[fake.count++] = range;
	pthread_mutex_unlock(&fake.lock);
	return error;
}

static int remove_live(const char *base)
{
	for (unsigned i = 0; i < fake.count; i++) {
		if (fake.live[i].base != base)
			continue;
		if (!is_there(&fake.live[i]))
			fault("unregistered when its memory had gone");
		fake.live[i] = fake.live[--fake.count];
		return 0;
	}
	fault("unregistered what is not registered");
	return NOT_REGISTERED;
}

static int fake_unregister(void *address)
{
	int error;

	enter();
	if (fake.unregistering != NULL)
		fake.unregistering();
	pthread_mutex_lock(&fake.lock);
	fake.unregisters++;
	error = fake.fail_unregister != 0 ? fake.fail_unregister : remove_live(address);
	pthread_mutex_unlock(&fake.lock);
	return error;
}

static int fake_synchronize(void)
{
	enter();
	__atomic_fetch_add(&fake.synchronizes, 1, __ATOMIC_RELAXED);
	if (fake.synchronizing != NULL)
		fake.synchronizing();
	return fake.fail_synchronize;
}

static const struct ps_driver fake_driver = {
	.piece = 64 * GIB,
	.ready = fake_ready,
	.register_memory = fake_register,
	.unregister_memory = fake_unregister,
	.synchronize = fake_synchronize,
};
static const struct ps_driver small_pieces = {
	.piece = 4 * MIB,
	.ready = fake_ready,
	.register_memory = fake_register,
	.unregister_memory = fake_unregister,
	.synchronize = fake_synchronize,
};

static void fake_reset(void)
{
	fake.asked = fake.registers = fake.unregisters = fake.synchronizes = 0;
	fake.quiet = fake.no_context = false;
	fake.alone = true;
	fake.fail_register = 0;
	fake.fail_unregister = fake.fail_synchronize = 0;
	fake.registering = fake.unregistering = fake.synchronizing = NULL;
}

/* The driver's list and ours must be the same, and everybody's account of the rest as well. */
static void check(void)
{
	size_t live = 0;

	pinned_check();
	look_at_memory();
	for (unsigned i = 0; i < fake.count; i++) {
		const uint32_t first = ps_window.run[ps_granule_of(fake.live[i].base)].first;
		const char *end = (char *)ps_granule_address(first) +
				  ((size_t)ps_window.run[first].count << PS_GRANULE_SHIFT);

		ck_assert(ps_window.run[first].registered);
		ck_assert(fake.live[i].base + fake.live[i].length <= end);
		live += fake.live[i].length;
	}
	ck_assert_uint_eq(live, ps_table()->registered_bytes);
	ck_assert_uint_eq(fake.faults, 0);
}

/* Bytes of the heaps that the driver is told of; the fake uses malloc's. */
static size_t held(void)
{
	size_t bytes = 0;

	ps_lock(&ps_window.lock);
	for (uint32_t i = 0; i < ps_window.frontier; i += ps_window.run[i].count)
		if ((ps_window.granule[i] & (PS_GRANULE_DRIVER | PS_GRANULE_LOCKED)) ==
		    (PS_GRANULE_DRIVER | PS_GRANULE_LOCKED))
			bytes += (size_t)ps_window.run[i].count << PS_GRANULE_SHIFT;
	ps_unlock(&ps_window.lock);
	return bytes;
}

/* Trims as where no driver may be called. Returns the bytes of these that went. */
static size_t trim_plain(size_t keep)
{
	const size_t before = held();

	ps_heap_trim(keep);
	return before - held();
}

/* As where it may. */
static size_t trim(size_t keep)
{
	size_t bytes;

	ps_thread.driver++;
	bytes = trim_plain(keep);
	ps_thread.driver--;
	return bytes;
}

/* Leaked chunks are large blocks that nobody has. */
static void free_leaked(void)
{
	for (uint32_t i = 0; i < ps_window.frontier; i += ps_window.run[i].count)
		if ((ps_window.granule[i] & PS_GRANULE_STATE) == PS_GRANULE_LARGE &&
		    !ps_window.run[i].kept)
			ps_large_free(i);
}

/* What a test that failed left behind. */
static void free_blocks(void)
{
	const uintptr_t end = (uintptr_t)ps_granule_address((uint32_t)ps_window.frontier);

	for (uintptr_t at = ps_window.base; at < end; at += 512)
		if (ps_heap_entry((void *)at) != PINSHIM_ENTRIES)
			ps_heap_free((void *)at, "test");
}

static void clean(void)
{
	ps_fault_clear();
	fake_reset();
	ps_config.retain = GIB;
	ps_config.limit = UINT64_MAX;
	ps_config.hugepages = PS_HUGEPAGES_THP;
	ps_driver = &fake_driver;
	ps_registration_unpark();
	ps_registration_drop_all();
	free_blocks();
	free_leaked();
	trim(0);
	fake_reset();
}

/* Of which heap get()'s are: of PINSHIM chunks stay whole only while they are registered, of CUDA always. */
static enum ps_heap heap = PS_HEAP_CUDA;

static void setup(void)
{
	heap = PS_HEAP_CUDA;
	clean();
	fake.faults = fake.count = 0;
	pinned_check_nothing();
}

static void teardown(void)
{
	clean();
	ck_assert_uint_eq(fake.faults, 0);
	ck_assert_uint_eq(fake.count, 0);
	check();
	pinned_check_nothing();
}

static char *get_from(enum ps_heap of, size_t size)
{
	struct ps_refusal why;
	char *block;

	ps_thread.driver++;
	block = ps_heap_alloc(of, PINSHIM_ENTRY_CUDA_HOST_ALLOC, size, 0, false, &why);
	ps_thread.driver--;
	ck_assert_ptr_nonnull(block);
	return block;
}

static char *get(size_t size)
{
	return get_from(heap, size);
}

static char *get_covered(size_t size)
{
	char *block = get(size);

	ck_assert_int_eq(ps_registration_cover(block), 0);
	check();
	return block;
}

static void drop(char *block)
{
	ps_thread.driver++;
	ps_heap_free(block, "cudaFreeHost()");
	ps_thread.driver--;
	check();
}

static uint32_t chunk_of(const char *block)
{
	return ps_window.run[ps_granule_of(block)].first;
}

static size_t chunk_bytes(const char *block)
{
	return (size_t)ps_window.run[chunk_of(block)].count << PS_GRANULE_SHIFT;
}

static bool is_registered(const char *block)
{
	return ps_window.run[chunk_of(block)].registered == PS_REGISTERED;
}

START_TEST(a_block_covers_its_whole_chunk_once)
{
	char *a = get_covered(100 * KIB), *b = get(100 * KIB);

	ck_assert_uint_eq(chunk_of(a), chunk_of(b));
	ck_assert_uint_eq(fake.count, 1);
	ck_assert_ptr_eq(fake.live[0].base, ps_granule_address(chunk_of(a)));
	ck_assert_uint_eq(fake.live[0].length, chunk_bytes(a));
	ck_assert_int_eq(ps_registration_cover(b), 0);
	ck_assert_int_eq(ps_registration_cover(a + 5000), 0);
	ck_assert_uint_eq(fake.registers, 1);
	/* A block in a registered chunk costs no call at all. */
	ck_assert_uint_eq(fake.asked, 1);
	drop(a);
	drop(b);
}
END_TEST

START_TEST(what_is_not_covered)
{
	char *ordinary = malloc(100), *locked = get_from(PS_HEAP_MALLOC, 100 * KIB);
	char *large = get_from(PS_HEAP_MALLOC, 20 * MIB);

	ck_assert_int_eq(ps_registration_cover(ordinary), 0);
	ck_assert_int_eq(ps_registration_cover(NULL), 0);
	ck_assert_int_eq(ps_registration_cover(locked), 0);
	ck_assert_int_eq(ps_registration_cover(large), 0);
	ck_assert_int_eq(ps_registration_cover((char *)ps_window.base + ps_window.size - 1), 0);
	ck_assert_uint_eq(fake.asked, 0);
	ck_assert_uint_eq(fake.registers, 0);
	free(ordinary);
	drop(locked);
	drop(large);
}
END_TEST

START_TEST(not_before_there_is_a_context)
{
	char *block = get(20 * MIB);

	ps_driver = NULL;
	ck_assert_int_eq(ps_registration_cover(block), 0);
	ps_driver = &fake_driver;
	fake.no_context = true;
	ck_assert_int_eq(ps_registration_cover(block), 0);
	ck_assert_uint_eq(fake.registers, 0);
	check();
	fake.no_context = false;
	ck_assert_int_eq(ps_registration_cover(block), 0);
	ck_assert_uint_eq(fake.registers, 1);
	check();
	drop(block);
}
END_TEST

START_TEST(a_large_block_is_a_chunk)
{
	char *a = get_covered(20 * MIB), *b = get_covered(50 * MIB);

	ck_assert_uint_eq(fake.count, 2);
	ck_assert_uint_eq(ps_table()->registered_bytes, 70 * MIB);
	drop(a);
	drop(b);
}
END_TEST

START_TEST(reuse_keeps_the_registration)
{
	char *small = get_covered(100 * KIB), *large = get_covered(20 * MIB);

	for (int i = 0; i < 10; i++) {
		drop(small);
		drop(large);
		small = get_covered(100 * KIB);
		large = get_covered(20 * MIB);
	}
	ck_assert_uint_eq(fake.registers, 2);
	ck_assert_uint_eq(fake.unregisters, 0);
	drop(small);
	drop(large);
}
END_TEST

/* What is kept beyond the limit goes, unregistered first: the fake looks whether it is still there. */
START_TEST(evicted_is_unregistered_first)
{
	char *block[5];

	ps_config.retain = 60 * MIB;
	for (int i = 0; i < 5; i++)
		block[i] = get_covered(20 * MIB);
	for (int i = 0; i < 5; i++)
		drop(block[i]);
	ck_assert_uint_eq(fake.unregisters, 2);
	ck_assert_uint_eq(ps_table()->registered_bytes, 60 * MIB);
	ck_assert_uint_eq(trim(20 * MIB), 40 * MIB);
	ck_assert_uint_eq(fake.unregisters, 4);
	check();
	ck_assert_uint_eq(trim(0), 20 * MIB);
	ck_assert_uint_eq(fake.count, 0);
	/* Too large to be kept at all. */
	drop(get_covered(80 * MIB));
	ck_assert_uint_eq(fake.count, 0);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

/* Where the driver may not be called what is registered stays, above the limit if need be. */
START_TEST(freed_where_no_driver_may_be_called)
{
	char *block[5], *plain = get(20 * MIB);

	ps_config.retain = 60 * MIB;
	for (int i = 0; i < 5; i++)
		block[i] = get_covered(20 * MIB);
	ps_heap_free(plain, "free()");
	for (int i = 0; i < 5; i++)
		ps_heap_free(block[i], "free()");
	check();
	ck_assert_uint_eq(fake.unregisters, 0);
	ck_assert_uint_eq(ps_table()->registered_bytes, 100 * MIB);
	ck_assert_uint_eq(held(), 100 * MIB);
	ck_assert_uint_eq(trim_plain(0), 0);
	ck_assert_uint_eq(fake.unregisters, 0);
	/* The next free where it may be called makes up for it. */
	drop(get(20 * MIB));
	ck_assert_uint_eq(held(), 60 * MIB);
}
END_TEST

/* Larger than may be kept: it cannot go at once either. */
START_TEST(huge_block_freed_where_no_driver_may_be_called)
{
	char *block = get_covered(80 * MIB);

	ps_config.retain = 60 * MIB;
	ps_heap_free(block, "free()");
	check();
	ck_assert_uint_eq(fake.unregisters, 0);
	trim(0);
	check();
	ck_assert_uint_eq(held(), 0);
}
END_TEST

START_TEST(registered_is_neither_split_nor_joined)
{
	char *a, *b, *c, *other;

	heap = PS_HEAP_PINSHIM;
	a = get_covered(64 * MIB);
	b = get_covered(20 * MIB);
	c = get_covered(20 * MIB);
	ck_assert_ptr_eq(b + 20 * MIB, c);
	drop(a);
	drop(b);
	drop(c);
	/* All of these would fit into a part of what is kept, or into two. */
	other = get_covered(40 * MIB);
	ck_assert(other >= c + 20 * MIB);
	drop(other);
	other = get_covered(16 * MIB);
	ck_assert(other >= c + 20 * MIB);
	ck_assert_uint_eq(fake.registers, 5);
	drop(other);
	/* One that wastes no more than a 32nd is taken whole. */
	other = get_covered(62 * MIB);
	ck_assert_ptr_eq(other, a);
	ck_assert_uint_eq(ps_heap_usable(other, "test"), 64 * MIB);
	ck_assert_uint_eq(fake.registers, 5);
	drop(other);
}
END_TEST

START_TEST(registered_is_not_resized)
{
	/* What the fake takes shall not lie right behind. */
	char *taken = get_from(PS_HEAP_MALLOC, 3000), *block;

	heap = PS_HEAP_PINSHIM;
	block = get_covered(40 * MIB);
	ck_assert(!ps_heap_resize(block, 80 * MIB, "realloc()"));
	check();
	ck_assert_uint_eq(ps_heap_usable(block, "test"), 40 * MIB);
	ps_heap_resize(block, 30 * MIB, "realloc()");
	check();
	ck_assert_uint_eq(ps_heap_usable(block, "test"), 40 * MIB);
	drop(block);
	drop(taken);
}
END_TEST

/* A slab chunk of seven granules with two blocks in it, so that their neighbours can be freed. */
static void two_in_a_chunk(char **a, char **b)
{
	char *whole = get(14 * MIB);

	ps_heap_free(whole, "test");
	*a = get(4 * MIB);
	*b = get(8 * MIB);
	ck_assert_uint_eq(chunk_of(*a), chunk_of(*b));
	ck_assert_uint_eq(chunk_bytes(*a), 14 * MIB);
}

START_TEST(slab_chunks_go_only_whole)
{
	char *a, *b;

	heap = PS_HEAP_PINSHIM;
	two_in_a_chunk(&a, &b);
	ck_assert_int_eq(ps_registration_cover(a), 0);
	check();
	drop(b);
	ck_assert_uint_eq(trim(0), 0);
	check();
	ck_assert_uint_eq(ps_table()->registered_bytes, 14 * MIB);
	drop(a);
	ck_assert_uint_eq(trim_plain(0), 0);
	ck_assert_uint_eq(fake.unregisters, 0);
	check();
	ck_assert_uint_eq(trim(0), 14 * MIB);
	ck_assert_uint_eq(fake.unregisters, 1);
	check();
}
END_TEST

/* What came back while its chunk was registered is not forgotten once that is over. */
START_TEST(granules_complete_before_the_registration_ended)
{
	char *a, *b;

	heap = PS_HEAP_PINSHIM;
	two_in_a_chunk(&a, &b);
	ck_assert_int_eq(ps_registration_cover(a), 0);
	drop(b);
	ck_assert_uint_eq(trim(0), 0);
	ps_registration_drop_all();
	check();
	ck_assert_uint_ge(trim_plain(0), 8 * MIB);
	check();
	drop(a);
}
END_TEST

START_TEST(chunk_unused_before_the_registration_ended)
{
	char *a, *b;

	two_in_a_chunk(&a, &b);
	ck_assert_int_eq(ps_registration_cover(a), 0);
	drop(b);
	drop(a);
	ck_assert_uint_eq(trim_plain(0), 0);
	ps_registration_drop_all();
	check();
	ck_assert_uint_eq(trim_plain(0), 14 * MIB);
	check();
}
END_TEST

START_TEST(malloc_heap_never_calls_the_driver)
{
	struct ps_refusal why;
	char *slab = get_covered(14 * MIB), *large = get_covered(20 * MIB), *block;

	drop(slab);
	drop(large);
	ps_config.limit = ps_budget_claimed();
	block = ps_heap_alloc(PS_HEAP_MALLOC, PINSHIM_ENTRY_MALLOC, 20 * MIB, 0, false, &why);
	ck_assert_ptr_null(block);
	block = ps_heap_alloc(PS_HEAP_MALLOC, PINSHIM_ENTRY_MALLOC, 14 * MIB, 0, false, &why);
	ck_assert_ptr_null(block);
	ck_assert_uint_eq(fake.unregisters, 0);
	check();
	/* A request where it may be called gets the room. */
	block = get(32 * MIB);
	ck_assert_uint_eq(fake.unregisters, 2);
	check();
	drop(block);
}
END_TEST

static void check_leaked(char *block, size_t bytes)
{
	char *again[3];

	check();
	ck_assert_uint_eq(fake.count, 1);
	ck_assert(is_registered(block));
	ck_assert_uint_ge(held(), bytes);
	ck_assert_uint_eq(ps_table()->registered_bytes, bytes);
	for (int i = 0; i < 3; i++) {
		again[i] = get(bytes > 16 * MIB ? bytes : 4 * MIB);
		ck_assert(again[i] + bytes <= block || again[i] >= block + bytes);
	}
	for (int i = 0; i < 3; i++)
		drop(again[i]);
	trim(0);
	check();
	ck_assert_uint_eq(fake.unregisters, 1);
	ck_assert_uint_ge(held(), bytes);
}

START_TEST(unregister_fails_for_a_large_block)
{
	char *block = get_covered(20 * MIB);

	fake.fail_unregister = 3;
	drop(block);
	ck_assert_uint_eq(trim(0), 0);
	check_leaked(block, 20 * MIB);
}
END_TEST

START_TEST(unregister_fails_for_a_slab)
{
	char *block = get_covered(14 * MIB);

	fake.fail_unregister = 3;
	drop(block);
	ck_assert_uint_eq(trim(0), 0);
	check_leaked(block, 14 * MIB);
}
END_TEST

START_TEST(pieces)
{
	char *block = get(21 * MIB);

	ps_driver = &small_pieces;
	fake.fail_register = 4;
	ck_assert_int_eq(ps_registration_cover(block), 2);
	ck_assert_uint_eq(fake.registers, 4);
	ck_assert_uint_eq(fake.unregisters, 3);
	ck_assert_uint_eq(fake.count, 0);
	ck_assert(!is_registered(block));
	check();
	ck_assert_int_eq(ps_registration_cover(block), 0);
	ck_assert_uint_eq(fake.count, 6);
	ck_assert_uint_eq(fake.live[5].length, 2 * MIB);
	check();
	ps_registration_drop_all();
	ck_assert_uint_eq(fake.count, 0);
	check();
	ck_assert_int_eq(ps_registration_cover(block), 0);
	drop(block);
	trim(0);
	ck_assert_uint_eq(fake.count, 0);
}
END_TEST

static void fail_unregistering(void)
{
	fake.fail_unregister = 1;
}

/* Registering fails in the middle, and undoing it fails as well: a part is registered for ever. */
START_TEST(undoing_fails)
{
	char *block = get(20 * MIB);

	ps_driver = &small_pieces;
	fake.fail_register = 3;
	fake.unregistering = fail_unregistering;
	ck_assert_int_eq(ps_registration_cover(block), 2);
	ck_assert_uint_eq(fake.count, 2);
	pinned_check();
	ps_thread.driver++;
	ps_heap_free(block, "cudaFreeHost()");
	ps_thread.driver--;
	trim(0);
	pinned_check();
	look_at_memory();
	ck_assert_uint_eq(fake.faults, 0);
	fake.unregistering = NULL;
	fake.fail_unregister = 0;
	/* The other pieces are not registered, as the fake finds. */
	fake.quiet = true;
	ps_registration_drop_all();
	fake.faults = 0;
	ck_assert_uint_eq(fake.count, 0);
	check();
}
END_TEST

START_TEST(all_dropped_and_covered_again)
{
	char *block[6];

	for (int i = 0; i < 6; i++)
		block[i] = get_covered((size_t)(8 + 4 * i) * MIB);
	ck_assert_uint_ge(fake.count, 5);
	ps_registration_drop_all();
	check();
	ck_assert_uint_eq(fake.count, 0);
	for (int i = 0; i < 6; i++)
		ck_assert(ps_heap_is_pinned(block[i], (size_t)(8 + 4 * i) * MIB));
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(ps_registration_cover(block[i]), 0);
	check();
	ck_assert_uint_ge(fake.count, 5);
	for (int i = 0; i < 6; i++)
		drop(block[i]);
}
END_TEST

START_TEST(all_covered)
{
	char *kept = get_covered(40 * MIB), *block[3], *locked = get_from(PS_HEAP_MALLOC, 20 * MIB);

	for (int i = 0; i < 3; i++)
		block[i] = get((size_t)(8 + 10 * i) * MIB);
	drop(kept);
	ps_registration_drop_all();
	fake.no_context = true;
	ps_registration_cover_all();
	ck_assert_uint_eq(fake.count, 0);
	fake.no_context = false;
	ps_registration_cover_all();
	check();
	for (int i = 0; i < 3; i++)
		ck_assert(is_registered(block[i]));
	ck_assert_uint_eq(ps_table()->registered_bytes, held());
	ps_registration_cover_all();
	check();
	for (int i = 0; i < 3; i++)
		drop(block[i]);
	drop(locked);
}
END_TEST

/* The second of three chunks is refused: the first is registered, the rest as without a context. */
START_TEST(not_all_covered)
{
	char *block[3];

	for (int i = 0; i < 3; i++)
		block[i] = get(20 * MIB);
	fake.fail_register = 2;
	ps_registration_cover_all();
	check();
	ck_assert_uint_eq(fake.count, 1);
	ck_assert_uint_eq(fake.registers, 2);
	ps_registration_cover_all();
	check();
	ck_assert_uint_eq(fake.count, 3);
	for (int i = 0; i < 3; i++)
		drop(block[i]);
}
END_TEST

/* The context takes its registrations along, whatever the driver said. */
START_TEST(all_dropped_though_unregistering_fails)
{
	char *block = get_covered(20 * MIB);

	fake.fail_unregister = 1;
	ps_registration_drop_all();
	fake.fail_unregister = 0;
	fake.count = 0;
	check();
	ck_assert_uint_eq(ps_table()->registered_bytes, 0);
	ck_assert_int_eq(ps_registration_cover(block), 0);
	check();
	drop(block);
}
END_TEST

START_TEST(lost_its_lock)
{
	char *block = get_covered(20 * MIB);

	ps_heap_replaced(block, 4096);
	look_at_memory();
	ck_assert_uint_eq(held(), 0);
	drop(block);
	ck_assert_uint_eq(fake.count, 0);
}
END_TEST

/* Parking */

START_TEST(parked_is_not_reused_before_the_device_is_done)
{
	char *large = get_covered(20 * MIB), *small = get_covered(100 * KIB), *other[2];

	pinned_fill(large, 20 * MIB, 1);
	pinned_fill(small, 100 * KIB, 2);
	ps_registration_park(large, "cudaFreeHost()");
	ps_registration_park(small, "cudaFreeHost()");
	ck_assert_int_eq(ps_heap_entry(large), PINSHIM_ENTRIES);
	other[0] = get(20 * MIB);
	other[1] = get(100 * KIB);
	memset(other[0], 0, 20 * MIB);
	memset(other[1], 0, 100 * KIB);
	trim(0);
	ck_assert(pinned_filled(large, 20 * MIB, 1));
	ck_assert(pinned_filled(small, 100 * KIB, 2));
	ck_assert_uint_eq(fake.synchronizes, 0);
	ps_registration_unpark();
	ck_assert_uint_eq(fake.synchronizes, 1);
	ck_assert_ptr_eq(get(20 * MIB), large);
	ck_assert_ptr_eq(get(100 * KIB), small);
	ps_registration_unpark();
	ck_assert_uint_eq(fake.synchronizes, 1);
	drop(large);
	drop(small);
	drop(other[0]);
	drop(other[1]);
}
END_TEST

/* What is parked is pinned: under a limit it makes room for the next block, once it was waited for. */
START_TEST(parked_makes_room_under_a_limit)
{
	char *block = get_covered(20 * MIB), *other;
	struct ps_refusal why;

	ps_config.limit = 24 * MIB;
	ps_registration_park(block, "cudaFreeHost()");
	other = ps_registration_alloc(PINSHIM_ENTRY_CUDA_HOST_ALLOC, 20 * MIB, 0, &why);
	ck_assert_ptr_nonnull(other);
	ck_assert_uint_eq(fake.synchronizes, 1);
	ck_assert_ptr_null(ps_registration_alloc(PINSHIM_ENTRY_CUDA_HOST_ALLOC, 20 * MIB, 0, &why));
	ck_assert_int_eq(why.limit, PS_LIMIT_PROCESS);
	ck_assert_uint_eq(fake.synchronizes, 1);
	drop(other);
	ps_config.limit = UINT64_MAX;
}
END_TEST

START_TEST(stays_parked_while_the_device_cannot_be_waited_for)
{
	char *block = get_covered(20 * MIB), *other;

	ps_registration_park(block, "cudaFreeHost()");
	fake.fail_synchronize = 900;
	for (int i = 0; i < 3; i++) {
		ps_registration_unpark();
		other = get(20 * MIB);
		ck_assert_ptr_ne(other, block);
		drop(other);
	}
	fake.fail_synchronize = 0;
	ps_registration_unpark();
	trim(0);
	ck_assert_uint_eq(fake.count, 0);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

/* What is freed is not held for longer than what is kept may be: else the device is waited for. */
START_TEST(parked_beyond_the_limit)
{
	char *block[5];

	ps_config.retain = 60 * MIB;
	for (int i = 0; i < 4; i++)
		block[i] = get_covered(20 * MIB);
	block[4] = get_covered(80 * MIB);
	ps_registration_park(block[4], "cudaFreeHost()");
	ck_assert_uint_eq(fake.synchronizes, 1);
	ck_assert_uint_eq(held(), 80 * MIB);
	for (int i = 0; i < 3; i++)
		ps_registration_park(block[i], "cudaFreeHost()");
	ck_assert_uint_eq(fake.synchronizes, 1);
	ps_registration_park(block[3], "cudaFreeHost()");
	ck_assert_uint_eq(fake.synchronizes, 2);
	ck_assert_uint_eq(held(), 60 * MIB);
	check();
}
END_TEST

#define MANY 600

static char *many[MANY];

static void take_many(void)
{
	for (int i = 0; i < MANY; i++)
		many[i] = get(4096);
}

static void park_many(int from, int to)
{
	for (int i = from; i < to; i++)
		ps_registration_park(many[i], "cudaFreeHost()");
}

static int compare_pointers(const void *a, const void *b)
{
	const uintptr_t x = (uintptr_t) * (char *const *)a, y = (uintptr_t) * (char *const *)b;

	return (x > y) - (x < y);
}

/* How many of the next `count` blocks are among many[from..to). Frees them again. */
static int reused(int from, int to, int count)
{
	static char *block[4 * MANY];
	int found = 0;

	qsort(&many[from], (size_t)(to - from), sizeof(many[0]), compare_pointers);
	for (int i = 0; i < count; i++) {
		block[i] = get(4096);
		found += bsearch(&block[i], &many[from], (size_t)(to - from), sizeof(many[0]),
				 compare_pointers) != NULL;
	}
	for (int i = 0; i < count; i++)
		ps_heap_free(block[i], "test");
	return found;
}

START_TEST(many_parked)
{
	take_many();
	park_many(0, MANY);
	ck_assert_uint_ge(fake.synchronizes, 2);
	ck_assert_uint_le(fake.synchronizes, 3);
	ps_registration_unpark();
	trim(0);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

/* In the end these are lost; they are not used while the device may be at it. Leaves them. */
static void too_many(void)
{
	take_many();
	fake.fail_synchronize = 900;
	park_many(0, MANY);
	if (reused(0, MANY, 2 * MANY) != 0)
		fault("reused without a wait for the device");
	fake.fail_synchronize = 0;
	ps_registration_unpark();
	if (reused(0, MANY, 2 * MANY) != 256)
		fault("those that were parked were not freed by the wait");
}

static void park_the_rest(void)
{
	fake.synchronizing = NULL;
	park_many(256, MANY);
}

/* Another thread fills the list while a wait fails. */
static void too_many_meanwhile(void)
{
	take_many();
	park_many(0, 256);
	fake.synchronizing = park_the_rest;
	fake.fail_synchronize = 900;
	ps_registration_unpark();
	if (reused(0, MANY, 2 * MANY) != 0)
		fault("reused without a wait for the device");
}

/* Runs in a child, which has no parent's blocks and a driver again, as what it does leaves things lost. */
static int in_child(void (*doing)(void))
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		(void)ps_table();
		ps_driver = &fake_driver;
		ps_driver_forbidden = false;
		fake.count = fake.faults = 0;
		signal(SIGALRM, SIG_DFL);
		alarm(UNDER_TSAN ? 60 : 20);
		doing();
		_exit(fake.faults > 0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

START_TEST(too_many_parked)
{
	ck_assert_int_eq(in_child(too_many), 0);
}
END_TEST

START_TEST(too_many_parked_while_a_wait_fails)
{
	ck_assert_int_eq(in_child(too_many_meanwhile), 0);
}
END_TEST

START_TEST(parked_twice)
{
	char *block = get_covered(20 * MIB), text[512] = "";
	int ends[2], status;
	pid_t child;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		dup2(ends[1], 2);
		signal(SIGABRT, SIG_DFL);
		ps_registration_park(block, "cudaFreeHost()");
		ps_registration_park(block, "cudaFreeHost()");
		_exit(0);
	}
	close(ends[1]);
	ck_assert_int_gt(read(ends[0], text, sizeof(text) - 1), 0);
	close(ends[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ck_assert_msg(strstr(text, "cudaFreeHost(): invalid pointer") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "double free") != NULL, "%s", text);
	drop(block);
}
END_TEST

START_TEST(freed_at_once_without_a_driver)
{
	char *block = get(20 * MIB);

	ps_driver = NULL;
	ps_registration_park(block, "cudaFreeHost()");
	ck_assert_ptr_eq(get(20 * MIB), block);
	ps_registration_park(block, "cudaFreeHost()");
	ck_assert_uint_eq(fake.synchronizes, 0);
}
END_TEST

/* A program's fork handler frees: the heap's locks are held, by this very thread. */
static void free_between_handlers(void)
{
	char *large = get(20 * MIB), *small = get(100 * KIB);

	ps_driver = &fake_driver;
	for (int i = 0; i < 2; i++) {
		ps_tracked_fork_prepare();
		ps_heap_fork_prepare();
		ps_table_fork_prepare();
		ps_registration_park(i == 0 ? large : small, "cudaFreeHost()");
		ps_table_fork_parent();
		ps_heap_fork_parent();
		ps_tracked_fork_parent();
		ps_driver = NULL;
	}
	ps_registration_unpark();
	trim(0);
	if (held() != 0)
		fault("what was freed in a fork handler was not taken back");
}

START_TEST(freed_in_a_fork_handler)
{
	ck_assert_int_eq(in_child(free_between_handlers), 0);
}
END_TEST

/* The forked child */

static char *inherited[3];
static unsigned calls(void)
{
	return fake.asked + fake.registers + fake.unregisters + fake.synchronizes;
}

static const char *child_story(void)
{
	const unsigned before = calls();
	struct ps_refusal why;
	char *block;

	/* Nothing told it yet that it is a child. */
	if (ps_registration_cover(inherited[2]) != 0 || calls() != before)
		return "the driver was called";
	if (!ps_driver_forbidden || ps_driver != NULL)
		return "the driver is not forbidden";
	for (uint32_t i = 0; i < ps_window.frontier; i += ps_window.run[i].count)
		if (ps_window.run[i].registered)
			return "something is registered";
	if (ps_table()->registered_bytes != 0 || held() != 0)
		return "gauges";
	ps_registration_drop_all();
	ps_registration_park(inherited[2], "cudaFreeHost()");
	ps_registration_unpark();
	for (int i = 0; i < 3; i++)
		if (ps_heap_entry(inherited[i]) != PINSHIM_ENTRIES)
			return "a freed block is still one";
	block = ps_heap_alloc(PS_HEAP_CUDA, PINSHIM_ENTRY_CUDA_HOST_ALLOC, 20 * MIB, 0, false,
			      &why);
	if (block == NULL || ps_registration_cover(block) != 0)
		return "a new block";
	ps_registration_park(block, "cudaFreeHost()");
	trim(0);
	if (held() != 0)
		return "locked bytes are left";
	if (accessible(inherited[0]))
		return "a parked block was not given back";
	return calls() == before ? NULL : "the driver was called later";
}

START_TEST(forked_child)
{
	int status;
	pid_t child;

	inherited[0] = get_covered(20 * MIB);
	inherited[1] = get_covered(100 * KIB);
	inherited[2] = get_covered(30 * MIB);
	ps_registration_park(inherited[0], "cudaFreeHost()");
	ps_registration_park(inherited[1], "cudaFreeHost()");
	child = fork();
	if (child == 0) {
		const char *wrong = child_story();

		if (wrong != NULL)
			fprintf(stderr, "forked_child: %s\n", wrong);
		_exit(wrong != NULL);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(fake.count, 3);
	check();
	drop(inherited[2]);
}
END_TEST

/* Threads */

static pthread_barrier_t barrier;

static void run_threads(int count, void *(*body)(void *))
{
	pthread_t thread[16];

	fake.alone = false;
	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, (unsigned)count), 0);
	for (int i = 0; i < count; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, body, (void *)(intptr_t)i), 0);
	for (int i = 0; i < count; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&barrier);
	fake.alone = true;
}

static char *shared_block;

static void *cover_shared(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&barrier);
	if (ps_registration_cover(shared_block) != 0)
		fault("cover failed");
	return NULL;
}

START_TEST(many_threads_cover_one_chunk)
{
	for (int i = 0; i < 20; i++) {
		shared_block = get(20 * MIB);
		run_threads(8, cover_shared);
		check();
		ck_assert_uint_eq(fake.registers, (unsigned)i + 1);
		drop(shared_block);
		trim(0);
	}
}
END_TEST

static void *trim_without_driver(void *unused)
{
	(void)unused;
	ps_heap_trim(0);
	return NULL;
}

/* As a malloc() inside the driver does that is refused: by another thread, whom the driver waits for. */
static void trim_meanwhile(void)
{
	pthread_t thread;

	fake.registering = fake.unregistering = NULL;
	pthread_create(&thread, NULL, trim_without_driver, NULL);
	pthread_join(thread, NULL);
}

START_TEST(trim_while_a_chunk_is_being_registered)
{
	char *a, *b;

	two_in_a_chunk(&a, &b);
	drop(b);
	fake.alone = false;
	fake.registering = trim_meanwhile;
	ck_assert_int_eq(ps_registration_cover(a), 0);
	check();
	drop(a);
}
END_TEST

START_TEST(trim_while_all_is_dropped)
{
	char *block = get_covered(20 * MIB), *slab = get_covered(14 * MIB);

	drop(block);
	drop(slab);
	fake.alone = false;
	fake.unregistering = trim_meanwhile;
	ps_registration_drop_all();
	check();
}
END_TEST

static void *trim_with_driver(void *unused)
{
	(void)unused;
	trim(0);
	return NULL;
}

static pthread_t trimming;

static void begin_trim(void)
{
	fake.unregistering = NULL;
	pthread_create(&trimming, NULL, trim_with_driver, NULL);
	usleep(50000);
}

/* Both want to unregister the same chunk: once is enough. */
START_TEST(release_while_all_is_dropped)
{
	char *block = get_covered(20 * MIB);

	drop(block);
	fake.alone = false;
	fake.unregistering = begin_trim;
	ps_registration_drop_all();
	pthread_join(trimming, NULL);
	check();
	ck_assert_uint_eq(fake.unregisters, 1);
	trim(0);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

static void *resize_shared(void *unused)
{
	(void)unused;
	ps_heap_resize(shared_block, 60 * MIB, "realloc()");
	return NULL;
}

static void resize_meanwhile(void)
{
	pthread_t thread;

	fake.registering = NULL;
	pthread_create(&thread, NULL, resize_shared, NULL);
	pthread_join(thread, NULL);
}

START_TEST(resize_while_a_chunk_is_being_registered)
{
	char *taken = get_from(PS_HEAP_MALLOC, 3000);

	shared_block = get(20 * MIB);
	fake.alone = false;
	fake.registering = resize_meanwhile;
	ck_assert_int_eq(ps_registration_cover(shared_block), 0);
	check();
	drop(shared_block);
	drop(taken);
}
END_TEST

#define TURNS (SANITIZED ? 300 : 1500)

/* Everything at once, one thread in eight ending contexts; the fake finds the faults. */
static void *anything(void *argument)
{
	unsigned seed = 1 + (unsigned)(intptr_t)argument;
	char *block[8] = { NULL };

	pthread_barrier_wait(&barrier);
	for (int turn = 0; turn < TURNS; turn++) {
		const unsigned i = (unsigned)rand_r(&seed) % 8;
		const size_t size = rand_r(&seed) % 3 == 0
					    ? (size_t)(16 + rand_r(&seed) % 16) * MIB
					    : (size_t)(1 + rand_r(&seed) % 3000) * KIB;

		if (block[i] != NULL) {
			(void)ps_registration_cover(block[i]);
			block[i][0] = 1;
			ps_registration_park(block[i], "cudaFreeHost()");
			/* Programs ask about pointers that they have freed. */
			if (turn % 4 == 0)
				(void)ps_registration_cover(block[i]);
			block[i] = NULL;
		} else {
			ps_registration_unpark();
			block[i] = get(size);
			(void)ps_registration_cover(block[i]);
		}
		if (rand_r(&seed) % 16 == 0)
			ps_heap_trim(0);
		else if (rand_r(&seed) % 16 == 0)
			trim(20 * MIB);
		if (argument == NULL && turn % 8 == 0)
			ps_registration_drop_all();
		if (argument == NULL && turn % 16 == 0)
			ps_registration_cover_all();
		if (turn % 32 == 0)
			look_at_memory();
	}
	for (int i = 0; i < 8; i++)
		if (block[i] != NULL)
			ps_registration_park(block[i], "cudaFreeHost()");
	return NULL;
}

START_TEST(threads_do_anything)
{
	ps_config.retain = 100 * MIB;
	run_threads(4, anything);
	ps_registration_unpark();
	check();
}
END_TEST

static void *on_small_stack(void *unused)
{
	char *block[8];

	(void)unused;
	for (int i = 0; i < 8; i++)
		block[i] = get(i < 4 ? 20 * MIB : 100 * KIB);
	for (int i = 0; i < 8; i++)
		ps_registration_cover(block[i]);
	ps_registration_drop_all();
	for (int i = 0; i < 8; i++)
		ps_registration_cover(block[i]);
	fake.fail_synchronize = 900;
	for (int i = 0; i < 8; i++)
		ps_registration_park(block[i], "cudaFreeHost()");
	ps_registration_unpark();
	fake.fail_synchronize = 0;
	fake.fail_unregister = 3;
	ps_registration_unpark();
	trim(0);
	fake.fail_unregister = 0;
	return NULL;
}

/* PTHREAD_STACK_MIN, of which programs' threads have used some: a quarter is left alone. */
START_TEST(stack_of_16_KiB)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (SANITIZED) {
		pinned_skip("stack_of_16_KiB", "sanitizers need more");
		return;
	}
	pthread_attr_init(&attributes);
	ck_assert_int_eq(pthread_attr_setstacksize(&attributes, 16384), 0);
	ck_assert_int_eq(pthread_create(&thread, &attributes, on_small_stack, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(fake.faults, 0);
	look_at_memory();
}
END_TEST

static void add(TCase *tcase)
{
	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_block_covers_its_whole_chunk_once);
	tcase_add_test(tcase, what_is_not_covered);
	tcase_add_test(tcase, not_before_there_is_a_context);
	tcase_add_test(tcase, a_large_block_is_a_chunk);
	tcase_add_test(tcase, reuse_keeps_the_registration);
	tcase_add_test(tcase, evicted_is_unregistered_first);
	tcase_add_test(tcase, freed_where_no_driver_may_be_called);
	tcase_add_test(tcase, huge_block_freed_where_no_driver_may_be_called);
	tcase_add_test(tcase, registered_is_neither_split_nor_joined);
	tcase_add_test(tcase, registered_is_not_resized);
	tcase_add_test(tcase, slab_chunks_go_only_whole);
	tcase_add_test(tcase, granules_complete_before_the_registration_ended);
	tcase_add_test(tcase, chunk_unused_before_the_registration_ended);
	tcase_add_test(tcase, malloc_heap_never_calls_the_driver);
	tcase_add_test(tcase, unregister_fails_for_a_large_block);
	tcase_add_test(tcase, unregister_fails_for_a_slab);
	tcase_add_test(tcase, pieces);
	tcase_add_test(tcase, undoing_fails);
	tcase_add_test(tcase, all_dropped_and_covered_again);
	tcase_add_test(tcase, all_covered);
	tcase_add_test(tcase, not_all_covered);
	tcase_add_test(tcase, all_dropped_though_unregistering_fails);
	tcase_add_test(tcase, lost_its_lock);
	tcase_add_test(tcase, parked_is_not_reused_before_the_device_is_done);
	tcase_add_test(tcase, stays_parked_while_the_device_cannot_be_waited_for);
	tcase_add_test(tcase, parked_makes_room_under_a_limit);
	tcase_add_test(tcase, parked_beyond_the_limit);
	tcase_add_test(tcase, many_parked);
	tcase_add_test(tcase, too_many_parked);
	tcase_add_test(tcase, too_many_parked_while_a_wait_fails);
	tcase_add_test(tcase, parked_twice);
	tcase_add_test(tcase, freed_at_once_without_a_driver);
	tcase_add_test(tcase, freed_in_a_fork_handler);
	tcase_add_test(tcase, forked_child);
	tcase_add_test(tcase, many_threads_cover_one_chunk);
	tcase_add_test(tcase, trim_while_a_chunk_is_being_registered);
	tcase_add_test(tcase, trim_while_all_is_dropped);
	tcase_add_test(tcase, release_while_all_is_dropped);
	tcase_add_test(tcase, resize_while_a_chunk_is_being_registered);
	tcase_add_test(tcase, threads_do_anything);
	tcase_add_test(tcase, stack_of_16_KiB);
}

int main(void)
{
	return pinned_main("registration", add);
}
