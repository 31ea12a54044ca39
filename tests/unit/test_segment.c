/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tree of segments: against a model that is an array, through every height on the way up and down,
 * and asked by threads that hold no lock while others change it.
 */
#include "segment.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "os.h"
#include "pinned.h"

#define BASE ((uintptr_t)0x7000000000)

static struct ps_segments tree = PS_SEGMENTS_INIT;
static struct ps_lock lock;

static void setup(void)
{
	ps_fault_clear();
	ck_assert_ptr_null(tree.root);
}

/* The tree is empty again, and has all its memory back. */
static size_t spare, spare_nodes;

static void teardown(void)
{
	ps_fault_clear();
	ck_assert_ptr_null(tree.root);
	ck_assert_uint_eq(tree.levels, 0);
	ck_assert_uint_eq(tree.sequence % 2, 0);
	ck_assert_uint_ge(tree.spare, spare);
	ck_assert_uint_ge(tree.spare_node, spare_nodes);
	spare = tree.spare;
	spare_nodes = tree.spare_node;
}

static struct ps_segment *add(uintptr_t base, uintptr_t end)
{
	ck_assert_int_eq(ps_segments_reserve(&tree, 1), 0);
	return ps_segment_add(&tree, base, end);
}

static struct ps_segment *at(uintptr_t address)
{
	return ps_segment_at_or_above(&tree, address);
}

static bool cover(uintptr_t base, uintptr_t end)
{
	return ps_segments_cover(&tree, &lock, base, end);
}

static bool touch(uintptr_t base, uintptr_t end)
{
	return ps_segments_touch(&tree, &lock, base, end);
}

static void remove_all(void)
{
	while (tree.root)
		ps_segment_remove(&tree, at(0));
}

START_TEST(nothing)
{
	ck_assert_ptr_null(at(0));
	ck_assert_ptr_null(at(UINTPTR_MAX));
	ck_assert(!cover(0, 1));
	ck_assert(!cover(0, UINTPTR_MAX));
	ck_assert(!touch(0, UINTPTR_MAX));
}
END_TEST

START_TEST(ends_of_the_addresses)
{
	struct ps_segment *first = add(0, 1), *last = add(UINTPTR_MAX - 1, UINTPTR_MAX);

	ck_assert_ptr_eq(at(0), first);
	ck_assert_ptr_eq(at(1), last);
	ck_assert_ptr_eq(at(UINTPTR_MAX - 1), last);
	ck_assert_ptr_null(at(UINTPTR_MAX));
	ck_assert(cover(0, 1));
	ck_assert(!cover(0, 2));
	ck_assert(cover(UINTPTR_MAX - 1, UINTPTR_MAX));
	ck_assert(!touch(1, UINTPTR_MAX - 1));
	ck_assert(touch(1, UINTPTR_MAX));
	remove_all();
}
END_TEST

START_TEST(what_is_not_pinned_is_found_and_not_covered)
{
	struct ps_segment *segment;

	add(BASE, BASE + 10);
	ck_assert_int_eq(ps_segments_reserve(&tree, 1), 0);
	segment = ps_segment_add_as(&tree, BASE + 10, BASE + 20, false);
	ck_assert_ptr_eq(at(BASE + 10), segment);
	ck_assert(cover(BASE, BASE + 10));
	ck_assert(!cover(BASE, BASE + 11));
	ck_assert(!cover(BASE + 10, BASE + 11));
	ck_assert(touch(BASE + 10, BASE + 11));
	ps_segment_resize(&tree, segment, BASE + 12, BASE + 18);
	ck_assert(!cover(BASE + 12, BASE + 13));
	ck_assert(!touch(BASE + 10, BASE + 12));
	ck_assert(touch(BASE + 10, BASE + 13));
	remove_all();
}
END_TEST

/* One that grows over the next, which then goes: at no moment is anything of the two not covered. */
START_TEST(join)
{
	struct ps_segment *lower = add(BASE, BASE + 10), *upper = add(BASE + 10, BASE + 20);

	ps_segment_resize(&tree, lower, BASE, BASE + 20);
	ck_assert(cover(BASE, BASE + 20));
	ps_segment_remove(&tree, upper);
	ck_assert(cover(BASE, BASE + 20));
	ck_assert(!cover(BASE, BASE + 21));
	upper = add(BASE + 5, BASE + 20);
	ck_assert(cover(BASE, BASE + 20));
	ps_segment_resize(&tree, lower, BASE, BASE + 5);
	ck_assert(cover(BASE, BASE + 20));
	ck_assert_ptr_eq(at(BASE + 5), upper);
	remove_all();
}
END_TEST

/* The model: which segment each of a few addresses is in. */
#define STRETCH 40000
#define STEPS (SANITIZED ? 100000 : 600000)
#define WAVE 25000 /* steps until the tide turns */

static struct ps_segment *owner[STRETCH];

static uint32_t next_random(uint32_t below)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20) % below;
}

static void own(uintptr_t base, uintptr_t end, struct ps_segment *segment)
{
	for (uintptr_t i = base - BASE; i < end - BASE; i++)
		owner[i] = segment;
}

static bool is_free(uintptr_t base, uintptr_t end)
{
	for (uintptr_t i = base - BASE; i < end - BASE; i++)
		if (owner[i])
			return false;
	return end <= BASE + STRETCH;
}

static void step_add(uintptr_t base, uintptr_t end)
{
	if (is_free(base, end))
		own(base, end, add(base, end));
}

static void step_remove(uintptr_t address)
{
	struct ps_segment *segment = owner[address - BASE];

	if (!segment)
		return;
	own(segment->base, segment->end, NULL);
	ps_segment_remove(&tree, segment);
}

/* Moves either border to address. */
static void step_resize(uintptr_t address)
{
	struct ps_segment *segment = at(address);
	uintptr_t base, end;

	if (!segment || segment->base == address)
		return;
	base = segment->base;
	end = segment->end;
	if (base > address ? is_free(address, base) : address % 2 != 0)
		base = address;
	else if (base < address)
		end = address;
	own(segment->base, segment->end, NULL);
	ps_segment_resize(&tree, segment, base, end);
	own(base, end, segment);
}

static void step_ask(uintptr_t base, uintptr_t end)
{
	uintptr_t first = base - BASE, whole = base - BASE;

	if (end > BASE + STRETCH)
		return;
	while (first < STRETCH && !owner[first])
		first++;
	while (whole < end - BASE && owner[whole])
		whole++;
	ck_assert_ptr_eq(at(base), first < STRETCH ? owner[first] : NULL);
	ck_assert_int_eq(touch(base, end), first < end - BASE);
	ck_assert_int_eq(cover(base, end), whole == end - BASE);
}

START_TEST(random_against_a_model)
{
	unsigned most = 0;

	memset(owner, 0, sizeof(owner));
	for (unsigned i = 0; i < STEPS; i++) {
		const uintptr_t base = BASE + next_random(STRETCH);
		const unsigned what = next_random(8), rising = i / WAVE % 2 == 0;

		if (what < (rising ? 4 : 1))
			step_add(base, base + 1 + next_random(6));
		else if (what < 5)
			step_remove(base);
		else if (what < 6)
			step_resize(base);
		else
			step_ask(base, base + 1 + next_random(20));
		most = tree.levels > most ? tree.levels : most;
	}
	ck_assert_uint_ge(most, 3);
	remove_all();
}
END_TEST

#define MANY 10000

/* Nodes that are in use. Removes all segments, every third first. */
static size_t count_nodes(void)
{
	const size_t unused = tree.spare_node;
	uintptr_t address = 0;

	for (struct ps_segment *segment; (segment = at(address)) != NULL;) {
		address = segment->end;
		ps_segment_remove(&tree, segment);
		for (int i = 0; i < 2 && (segment = at(address)) != NULL; i++)
			address = segment->end;
	}
	remove_all();
	return tree.spare_node - unused;
}

static void add_page(size_t page)
{
	add(BASE + page * 2, BASE + page * 2 + 1);
}

/* Nodes that are full, below and above what comes next. */
static void add_others(void)
{
	for (size_t i = 0; i < 320; i++)
		add_page(i);
	for (size_t i = 0; i < 320; i++)
		add_page(2 * MANY + i);
}

/* However segments come, they fill their nodes; in order from either end, quite. */
START_TEST(nodes_are_filled)
{
	for (size_t i = 0; i < MANY; i++)
		add_page(i);
	ck_assert_uint_le(count_nodes(), MANY / 30);
	for (size_t i = MANY; i-- > 0;)
		add_page(i);
	ck_assert_uint_le(count_nodes(), MANY / 28);
	for (size_t i = 0; i < MANY; i++)
		add_page(i * 7919 % MANY);
	ck_assert_uint_le(count_nodes(), MANY / 16);
	add_others();
	for (size_t i = 0; i < MANY; i++)
		add_page(320 + i);
	ck_assert_uint_le(count_nodes(), MANY / 14);
	add_others();
	for (size_t i = MANY; i-- > 0;)
		add_page(320 + i);
	ck_assert_uint_le(count_nodes(), MANY / 14);
}
END_TEST

START_TEST(height_comes_down)
{
	static const size_t stays[] = { 0, 1, MANY / 2, MANY - 1 };

	for (size_t i = 0; i < sizeof(stays) / sizeof(stays[0]); i++) {
		for (size_t page = 0; page < MANY; page++)
			add_page(page);
		ck_assert_uint_eq(tree.levels, 3);
		for (size_t page = 0; page < MANY; page++)
			if (page != stays[i])
				ps_segment_remove(&tree, at(BASE + page * 2));
		ck_assert_uint_eq(tree.levels, 1);
		ck_assert(cover(BASE + stays[i] * 2, BASE + stays[i] * 2 + 1));
		remove_all();
	}
}
END_TEST

START_TEST(no_memory)
{
	size_t count = 0;
	int error;

	ps_fault_set(PS_OS_MMAP, 1, UINT32_MAX, ENOMEM);
	while ((error = ps_segments_reserve(&tree, 1)) == 0)
		add_page(count++ * 7919 % (1 << 20));
	ck_assert_int_eq(error, -ENOMEM);
	ps_fault_clear();
	add_page(1 << 20);
	for (size_t i = 0; i < count; i++)
		ck_assert(cover(BASE + i * 7919 % (1 << 20) * 2,
				BASE + i * 7919 % (1 << 20) * 2 + 1));
	remove_all();
}
END_TEST

START_TEST(memory_for_many_at_once)
{
	const size_t first[] = { 1, MANY };

	for (size_t i = 0; i < 2; i++) {
		for (size_t page = 0; page < first[i]; page++)
			add_page(page * 7919 % MANY);
		ck_assert_int_eq(ps_segments_reserve(&tree, MANY), 0);
		ps_fault_set(PS_OS_MMAP, 1, UINT32_MAX, ENOMEM);
		for (size_t page = 0; page < MANY; page++)
			ps_segment_add(&tree, BASE + page * 2 + 1, BASE + page * 2 + 2);
		ps_fault_clear();
		ck_assert_int_eq(cover(BASE, BASE + 2 * MANY), first[i] == MANY);
		remove_all();
	}
}
END_TEST

START_TEST(forgotten)
{
	for (size_t i = 0; i < MANY; i++)
		add_page(i);
	tree.sequence++; /* somebody was changing it */
	ps_segments_forget(&tree);
	ck_assert_ptr_null(at(0));
	ck_assert(!touch(BASE, BASE + 1));
	add_page(1);
	ck_assert(cover(BASE + 2, BASE + 3));
	ck_assert(!touch(BASE, BASE + 2));
	remove_all();
	spare = spare_nodes = 0;
}
END_TEST

/*
 * Threads. Each place is in one of four states: neither, one, or both halves of it are pinned. Its
 * writer says so before and after each change; who finds it in the same state before and after a
 * question knows the answer. Every fourth place is pinned for good.
 */
#define PLACES 6000
#define CHANGES (UNDER_TSAN ? 60000 : 400000)
#define HALF 4
#define CHANGING 1u
#define STATE(version) ((version) >> 1 & 3)

static atomic_uint version[PLACES]; /* a count, the state, and CHANGING */
static struct ps_segment *segment_of[PLACES];
static atomic_uint writing;

static uintptr_t base_of(unsigned place)
{
	return BASE + (uintptr_t)place * 2 * HALF;
}

static void change(unsigned place, unsigned state)
{
	const unsigned was = atomic_load(&version[place]);
	const uintptr_t base = base_of(place) + (state == 2 ? HALF : 0);
	const uintptr_t end = base_of(place) + (state == 1 ? HALF : 2 * HALF);
	struct ps_segment *segment = segment_of[place];

	atomic_store(&version[place], was | CHANGING);
	ps_lock(&lock);
	if (state == 0 && segment) {
		ps_segment_remove(&tree, segment);
		segment = NULL;
	} else if (state != 0 && segment) {
		ps_segment_resize(&tree, segment, base, end);
	} else if (state != 0 && ps_segments_reserve(&tree, 1) == 0) {
		segment = ps_segment_add(&tree, base, end);
	}
	ps_unlock(&lock);
	segment_of[place] = segment;
	atomic_store(&version[place], ((was >> 3) + 1) << 3 | state << 1);
}

static void *write_in_thread(void *argument)
{
	const unsigned odd = (unsigned)(uintptr_t)argument;
	uint32_t x = 12345 + odd;

	for (unsigned i = 0; i < CHANGES; i++) {
		/* Flood and ebb, so that nodes come and go and the height changes. */
		const bool rising = i / (4 * PLACES) % 2 == 0;
		unsigned place;

		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		place = x % (PLACES / 2) * 2 + odd;
		if (place % 4 == 0)
			continue;
		change(place, rising ? x >> 16 & 3 : x >> 16 & x >> 18 & x >> 20 & 3);
	}
	atomic_fetch_sub(&writing, 1);
	return NULL;
}

/* Is the answer about one place right? false if it is wrong. */
static bool right(unsigned place, unsigned *known)
{
	const uintptr_t base = base_of(place);
	const unsigned before = atomic_load(&version[place]);
	const bool lower = cover(base, base + HALF), upper = cover(base + HALF, base + 2 * HALF);
	const bool both = cover(base, base + 2 * HALF), any = touch(base, base + 2 * HALF);

	if (before & CHANGING || atomic_load(&version[place]) != before)
		return true;
	++*known;
	return lower == (STATE(before) & 1) && upper == STATE(before) >> 1 &&
	       both == (lower && upper) && any == (lower || upper);
}

static void *read_in_thread(void *argument)
{
	static const char wrong[] = "wrong";
	uint32_t x = 54321 + (uint32_t)(uintptr_t)argument;
	unsigned known = 0;

	while (atomic_load(&writing) > 0 || known < 1000) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		if (!right(x % PLACES, &known) ||
		    !cover(base_of(x % (PLACES / 4) * 4), base_of(x % (PLACES / 4) * 4 + 1)) ||
		    touch(0, BASE) || touch(base_of(PLACES), UINTPTR_MAX))
			return (void *)wrong;
	}
	return NULL;
}

START_TEST(asked_while_it_changes)
{
	pthread_t writer[2], reader[2];
	void *wrong;

	for (unsigned place = 0; place < PLACES; place += 4)
		change(place, 3);
	atomic_store(&writing, 2);
	for (uintptr_t i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_create(&reader[i], NULL, read_in_thread, (void *)i), 0);
		ck_assert_int_eq(pthread_create(&writer[i], NULL, write_in_thread, (void *)i), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(writer[i], NULL);
		pthread_join(reader[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	for (unsigned place = 0; place < PLACES; place++)
		change(place, 0);
}
END_TEST

#define FLOODS (UNDER_TSAN ? 100 : 1000)
#define FLOOD 1200 /* segments; three levels, however they come */

/* From one segment to three levels and back, so that what was a root is a leaf the next moment. */
static void *flood_in_thread(void *unused)
{
	struct ps_segment *segment[FLOOD];

	(void)unused;
	for (unsigned i = 0; i < FLOODS * 2 * FLOOD; i++) {
		const unsigned place = i % FLOOD;
		const uintptr_t base = base_of(1 + place);

		ps_lock(&lock);
		if (i / FLOOD % 2)
			ps_segment_remove(&tree, segment[place]);
		else if (ps_segments_reserve(&tree, 1) == 0)
			segment[place] = ps_segment_add(&tree, base, base + HALF);
		ps_unlock(&lock);
	}
	atomic_fetch_sub(&writing, 1);
	return NULL;
}

static void *wade_in_thread(void *unused)
{
	uint32_t x = 1;

	(void)unused;
	while (atomic_load(&writing) > 0) {
		const uintptr_t base = base_of(x++ % (FLOOD + 1));

		(void)cover(base, base + 1);
		if (!cover(BASE, BASE + HALF) || cover(base + HALF, base + HALF + 1))
			return &tree;
	}
	return NULL;
}

/* More threads than processors: one that is put aside in the middle of a look finds all changed. */
START_TEST(asked_while_the_height_changes)
{
	pthread_t writer, reader[4];
	void *wrong;

	add(BASE, BASE + HALF);
	atomic_store(&writing, 1);
	ck_assert_int_eq(pthread_create(&writer, NULL, flood_in_thread, NULL), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&reader[i], NULL, wade_in_thread, NULL), 0);
	pthread_join(writer, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(reader[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	remove_all();
}
END_TEST

static atomic_bool answered;

static void *ask_in_thread(void *answer)
{
	*(bool *)answer = cover(BASE, BASE + 1) && !cover(BASE + 1, BASE + 2);
	atomic_store(&answered, true);
	return NULL;
}

/* A writer that is held up in the middle is waited for, asleep. */
START_TEST(asked_while_a_change_takes_long)
{
	const struct timespec moment = { 0, 50000000 };
	struct timespec time;
	bool answer = false;
	pthread_t thread;
	clockid_t clock;

	add(BASE, BASE + 1);
	atomic_store(&answered, false);
	ps_lock(&lock);
	__atomic_fetch_add(&tree.sequence, 1, __ATOMIC_RELAXED);
	ck_assert_int_eq(pthread_create(&thread, NULL, ask_in_thread, &answer), 0);
	nanosleep(&moment, NULL);
	ck_assert(!atomic_load(&answered));
	ck_assert_int_eq(pthread_getcpuclockid(thread, &clock), 0);
	ck_assert_int_eq(clock_gettime(clock, &time), 0);
	ck_assert(SANITIZED || time.tv_nsec < moment.tv_nsec / 2);
	__atomic_fetch_add(&tree.sequence, 1, __ATOMIC_RELEASE);
	ps_unlock(&lock);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(answer);
	remove_all();
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, nothing);
	tcase_add_test(tcase, ends_of_the_addresses);
	tcase_add_test(tcase, what_is_not_pinned_is_found_and_not_covered);
	tcase_add_test(tcase, join);
	tcase_add_test(tcase, random_against_a_model);
	tcase_add_test(tcase, nodes_are_filled);
	tcase_add_test(tcase, height_comes_down);
	tcase_add_test(tcase, no_memory);
	tcase_add_test(tcase, memory_for_many_at_once);
	tcase_add_test(tcase, asked_while_it_changes);
	tcase_add_test(tcase, asked_while_the_height_changes);
	tcase_add_test(tcase, asked_while_a_change_takes_long);
	tcase_add_test(tcase, forgotten);
}

int main(void)
{
	return pinned_main("segment", add_tests);
}
