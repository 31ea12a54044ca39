/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory registered with a ring: found, grown, refused, and above all dropped in time. Chunks of the
 * heap are unpinned and pinned again at the same address with other contents, while other requests are
 * in flight, and a file is read into and written from them.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../aio/pinned.h"
#include "chunk.h"
#include "config.h"
#include "count.h"
#include "counters.h"
#include "fixed.h"
#include "heap.h"
#include "log.h"
#include "os.h"
#include "pinned.h"
#include "scratch.h"
#include "table.h"

#define HEAP (PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_HEAP_MALLOC)
#define BLOCK ((size_t)64 << 10)

static char file_path[] = "/var/tmp/test_fixed.XXXXXX";
static int file; /* open for direct I/O */
static struct ps_ring ring;
static struct ps_fixed fixed;
static int ends[2]; /* of a pipe */

static void open_rings(void)
{
	ck_assert_int_eq(ps_ring_open(&ring, 8, 32, PS_RING_DEFERRED), 0);
	fixed = (struct ps_fixed){ .generation = 0 };
}

static void teardown(void)
{
	ps_fault_clear();
	ps_fixed_end(&fixed);
	ps_ring_close(&ring);
	close(ends[0]);
	close(ends[1]);
	pinned_check_nothing();
}

static bool in_child;

/* As ck_assert(), in a forked child too, which must not go on with the other cases. */
static void must(bool holds, int line)
{
	if (!holds && in_child)
		_exit(1 + line % 250);
	ck_assert_msg(holds, "line %d", line);
}
#define MUST(condition) must((condition), __LINE__)

static char *pin(uint32_t granules, uint32_t *first)
{
	struct ps_refusal why;

	MUST(ps_chunk_new(granules, 1, PS_GRANULE_LARGE, first, &why) == 0);
	return ps_granule_address(*first);
}

static void unpin(uint32_t first)
{
	uint8_t was;

	ps_lock(&ps_window.lock);
	was = ps_chunk_busy(first);
	ps_unlock(&ps_window.lock);
	MUST(ps_chunk_release(first, was) > 0);
}

/* Begins with nothing pinned, whatever a failed case before left behind. */
static void setup(void)
{
	ps_fault_clear();
	for (uint32_t i = 0; i < ps_window.frontier; i += ps_window.run[i].count)
		if ((ps_window.granule[i] & PS_GRANULE_STATE) > PS_GRANULE_BUSY)
			unpin(i);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	open_rings();
}

/* As a context does for each batch. */
static int find(const void *address, size_t length)
{
	ps_fixed_refresh(&fixed, &ring);
	return ps_fixed_find(&fixed, &ring, (uintptr_t)address, length);
}

/* The place of what must be found, once the table is. */
static int place_of(const void *address, size_t length)
{
	int place;

	while (ps_pinned_generation() == 0)
		sched_yield();
	place = find(address, length);
	MUST(place >= 0);
	return place;
}

static unsigned registered(void)
{
	return ps_fault_reached(PS_OS_IO_URING_REGISTER);
}

static uint64_t dropped(void)
{
	struct pinshim_aio sum;

	ps_count_aio_sum(ps_table(), &sum);
	return sum.dropped;
}

static int wait_for_one(void)
{
	struct io_uring_cqe *cqe;
	unsigned head, seen = 0;
	int result = 0;

	MUST(ps_ring_wait(&ring, 1, NULL, NULL) == 0);
	io_uring_for_each_cqe(&ring.uring, head, cqe)
	{
		result = cqe->res;
		seen++;
	}
	MUST(seen == 1);
	io_uring_cq_advance(&ring.uring, 1);
	return result;
}

static void submit(int opcode, int fd, void *block, size_t length, int place)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring.uring);

	MUST(sqe != NULL);
	io_uring_prep_rw(opcode, sqe, fd, block, (unsigned)length, 0);
	sqe->buf_index = (uint16_t)place;
	MUST(ps_ring_submit(&ring) == 1);
}

static void read_into(void *block, size_t length)
{
	const int place = place_of(block, length);

	submit(IORING_OP_READ_FIXED, file, block, length, place);
	MUST(wait_for_one() == (int)length);
}

static void write_from(void *block, size_t length)
{
	const int place = place_of(block, length);

	submit(IORING_OP_WRITE_FIXED, file, block, length, place);
	MUST(wait_for_one() == (int)length);
}

/* What the file has in it, by way of ordinary memory. */
static void fill_file(uint64_t seed)
{
	static char plain[BLOCK] __attribute__((aligned(4096)));

	pinned_fill(plain, BLOCK, seed);
	MUST(pwrite(file, plain, BLOCK, 0) == BLOCK);
}

static bool file_filled(uint64_t seed)
{
	static char plain[BLOCK] __attribute__((aligned(4096)));

	MUST(pread(file, plain, BLOCK, 0) == BLOCK);
	return pinned_filled(plain, BLOCK, seed);
}

START_TEST(registers_once)
{
	uint32_t first;
	char *chunk = pin(2, &first);
	int place = place_of(chunk + 4096, BLOCK);
	unsigned calls = registered();

	ck_assert_int_eq(find(chunk, 2 * PS_GRANULE), place);
	ck_assert_int_eq(find(chunk + 2 * PS_GRANULE - 1, 1), place);
	ck_assert_int_eq(find(chunk + 2 * PS_GRANULE - 1, 2), -1);
	ck_assert_int_eq(find(chunk, 0), -1);
	ck_assert_int_eq(find(chunk, SIZE_MAX), -1);
	ck_assert_uint_eq(registered(), calls);
	fill_file(1);
	read_into(chunk + PS_GRANULE, BLOCK);
	ck_assert(pinned_filled(chunk + PS_GRANULE, BLOCK, 1));
	pinned_fill(chunk + 512, BLOCK, 2);
	write_from(chunk + 512, BLOCK);
	ck_assert(file_filled(2));
	ck_assert_uint_eq(registered(), calls);
	unpin(first);
}
END_TEST

START_TEST(what_is_not_pinned_costs_no_call)
{
	uint32_t first;
	char *chunk = pin(1, &first);
	static char plain[BLOCK];
	unsigned calls, opened;

	place_of(chunk, 1);
	calls = registered();
	opened = ps_fault_reached(PS_OS_OPEN);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(find(plain, BLOCK), -1);
		ck_assert_int_eq(find(&calls, 1), -1);
		ck_assert_int_eq(find(chunk + PS_GRANULE, 1), -1);
		ck_assert_int_eq(find(chunk - 1, 2), -1);
		ck_assert_int_eq(find(NULL, 1), -1);
	}
	ck_assert_uint_eq(registered(), calls);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_OPEN), opened);
	unpin(first);
}
END_TEST

/* The rule this file is about: other pages at the same address are other memory. */
START_TEST(other_memory_at_the_same_address)
{
	const uint64_t before = dropped();
	uint32_t first, again, other_first;
	char *chunk = pin(1, &first), *other = pin(1, &other_first);

	place_of(other, 1);
	for (uint64_t turn = 1; turn <= 20; turn++) {
		fill_file(turn);
		read_into(chunk, BLOCK);
		ck_assert(pinned_filled(chunk, BLOCK, turn));
		unpin(first);
		ck_assert_ptr_eq(pin(1, &again), chunk);
		ck_assert(pinned_is_zero(chunk, BLOCK));
		fill_file(turn + 100);
		read_into(chunk, BLOCK);
		ck_assert(pinned_filled(chunk, BLOCK, turn + 100));
		unpin(again);
		ck_assert_ptr_eq(pin(1, &first), chunk);
		pinned_fill(chunk, BLOCK, turn + 200);
		write_from(chunk, BLOCK);
		ck_assert(file_filled(turn + 200));
	}
	ck_assert_uint_ge(dropped() - before, 40);
	unpin(first);
	unpin(other_first);
}
END_TEST

/* The same with a request in flight on the old memory, and one on other memory that stays. */
START_TEST(under_requests_in_flight)
{
	uint32_t first, again, other_first;
	char *chunk = pin(1, &first), *other = pin(40, &other_first);
	int unrelated[2];

	ck_assert_int_eq(pipe2(unrelated, O_CLOEXEC), 0);
	fill_file(1);
	submit(IORING_OP_READ_FIXED, ends[0], chunk, 5, place_of(chunk, 5));
	submit(IORING_OP_READ_FIXED, unrelated[0], other, 5, place_of(other, 5));
	unpin(first);
	ck_assert_int_eq(find(chunk, BLOCK), -1);
	ck_assert_ptr_eq(pin(1, &again), chunk);
	read_into(chunk, BLOCK);
	ck_assert(pinned_filled(chunk, BLOCK, 1));
	pinned_fill(chunk, BLOCK, 2);
	write_from(chunk, BLOCK);
	ck_assert(file_filled(2));
	/* What was in flight goes to the memory it was for, wherever that is now. */
	ck_assert_int_eq(write(ends[1], "hello", 5), 5);
	ck_assert_int_eq(wait_for_one(), 5);
	ck_assert(pinned_filled(chunk, BLOCK, 2));
	ck_assert_int_eq(write(unrelated[1], "world", 5), 5);
	ck_assert_int_eq(wait_for_one(), 5);
	ck_assert_mem_eq(other, "world", 5);
	unpin(again);
	unpin(other_first);
	close(unrelated[0]);
	close(unrelated[1]);
}
END_TEST

/* Withdrawn, but not yet unlocked, is not pinned any more. */
START_TEST(a_ring_without_a_table)
{
	uint32_t first;
	char *chunk = pin(1, &first);

	place_of(chunk, 1);
	ps_table_close();
	place_of(chunk, 1);
	ps_table_reopen();
	place_of(chunk, BLOCK);
	unpin(first);
	ck_assert_int_eq(find(chunk, 1), -1);
	ck_assert_ptr_eq(pin(1, &first), chunk);
	fill_file(1);
	read_into(chunk, BLOCK);
	ck_assert(pinned_filled(chunk, BLOCK, 1));
	unpin(first);
}
END_TEST

START_TEST(neighbours_become_one_piece)
{
	uint32_t first, second, third;
	char *chunk = pin(1, &first);
	const uint64_t before = dropped();
	unsigned calls;
	int place;

	place_of(chunk, BLOCK);
	ck_assert_ptr_eq(pin(1, &second), chunk + PS_GRANULE);
	calls = registered();
	place = place_of(chunk + PS_GRANULE - BLOCK / 2, BLOCK);
	/* The larger was registered, and before the next batch the smaller is let go. */
	ck_assert_uint_eq(registered(), calls + 1);
	ck_assert_int_eq(find(chunk, 2 * PS_GRANULE), place);
	ck_assert_uint_eq(registered(), calls + 2);
	ck_assert_ptr_eq(pin(2, &third), chunk + 2 * PS_GRANULE);
	/* Neither was unpinned, so the piece is as good as before until more is wanted. */
	ck_assert_int_eq(find(chunk, 2 * PS_GRANULE), place);
	place = place_of(chunk + 3 * PS_GRANULE, BLOCK);
	ck_assert_int_eq(find(chunk, 4 * PS_GRANULE), place);
	ck_assert_uint_eq(dropped(), before);
	fill_file(1);
	read_into(chunk + 2 * PS_GRANULE - BLOCK / 2, BLOCK);
	ck_assert(pinned_filled(chunk + 2 * PS_GRANULE - BLOCK / 2, BLOCK, 1));
	unpin(first);
	unpin(second);
	unpin(third);
}
END_TEST

/* Requests of one batch: when the second needs a larger piece, the first names the smaller one already. */
START_TEST(replaced_while_a_request_that_names_it_is_prepared)
{
	uint32_t first, second;
	char *chunk = pin(1, &first), *next;
	struct io_uring_sqe *sqe[2];
	int place[2];

	place_of(chunk, BLOCK);
	next = pin(1, &second);
	ck_assert_ptr_eq(next, chunk + PS_GRANULE);
	fill_file(7);
	place[0] = find(chunk, BLOCK);
	sqe[0] = io_uring_get_sqe(&ring.uring);
	io_uring_prep_read_fixed(sqe[0], file, chunk, BLOCK, 0, place[0]);
	place[1] = ps_fixed_find(&fixed, &ring, (uintptr_t)next, BLOCK);
	ck_assert_int_ne(place[0], place[1]);
	MUST(ps_ring_submit(&ring) == 1);
	ck_assert_int_eq(wait_for_one(), BLOCK);
	sqe[1] = io_uring_get_sqe(&ring.uring);
	io_uring_prep_read_fixed(sqe[1], file, next, BLOCK, 0, place[1]);
	MUST(ps_ring_submit(&ring) == 1);
	ck_assert_int_eq(wait_for_one(), BLOCK);
	ck_assert(pinned_filled(chunk, BLOCK, 7));
	ck_assert(pinned_filled(next, BLOCK, 7));
	/* From the next batch on it is the larger one for both. */
	ck_assert_int_eq(find(chunk, BLOCK), place[1]);
	unpin(first);
	unpin(second);
}
END_TEST

/* What was replaced is not all that has to be looked over then. */
START_TEST(replaced_before_the_table_goes)
{
	uint32_t first, second;
	char *chunk = pin(1, &first);
	uint64_t generation;

	place_of(chunk, BLOCK);
	ck_assert_ptr_eq(pin(1, &second), chunk + PS_GRANULE);
	place_of(chunk + PS_GRANULE, BLOCK);
	generation = __atomic_exchange_n(&ps_pinned_table()->generation, 0, __ATOMIC_RELEASE);
	ck_assert_int_eq(find(chunk, BLOCK), -1);
	ck_assert_int_eq(find(chunk + PS_GRANULE, BLOCK), -1);
	__atomic_store_n(&ps_pinned_table()->generation, generation, __ATOMIC_RELEASE);
	place_of(chunk + PS_GRANULE - BLOCK / 2, BLOCK);
	unpin(first);
	unpin(second);
}
END_TEST

START_TEST(pieces_on_both_sides_of_a_hole)
{
	uint32_t first[3];
	char *chunk[3];
	int place[2];
	unsigned calls;

	for (int i = 0; i < 3; i++)
		chunk[i] = pin(1, &first[i]);
	unpin(first[1]);
	place[0] = place_of(chunk[0], BLOCK);
	place[1] = place_of(chunk[2], BLOCK);
	ck_assert_int_ne(place[0], place[1]);
	calls = registered();
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(find(chunk[0] + BLOCK, BLOCK), place[0]);
		ck_assert_int_eq(find(chunk[2], PS_GRANULE), place[1]);
		ck_assert_int_eq(find(chunk[0] + PS_GRANULE - 1, 2), -1);
	}
	ck_assert_uint_eq(registered(), calls);
	/* The hole is filled: one piece takes the place of both, when it is needed. */
	ck_assert_ptr_eq(pin(1, &first[1]), chunk[1]);
	ck_assert_int_eq(find(chunk[0], BLOCK), place[0]);
	ck_assert_int_eq(find(chunk[2], BLOCK), place[1]);
	place[0] = place_of(chunk[1], BLOCK);
	ck_assert_int_eq(find(chunk[0], 3 * PS_GRANULE), place[0]);
	ck_assert_int_eq(find(chunk[2], BLOCK), place[0]);
	for (int i = 0; i < 3; i++)
		unpin(first[i]);
}
END_TEST

START_TEST(more_than_one_block)
{
	const uint32_t granules = (uint32_t)(2 * PS_PIECE_MAX / PS_GRANULE);
	uint32_t first;
	char *chunk, *border;

	if (SANITIZED) {
		pinned_skip("more_than_one_block", "locks 128 MiB");
		return;
	}
	chunk = pin(granules, &first);
	border = (char *)(((uintptr_t)chunk + PS_PIECE_MAX) & ~(PS_PIECE_MAX - 1));
	ck_assert_int_ne(place_of(border - BLOCK, BLOCK), place_of(border, BLOCK));
	ck_assert_int_eq(find(border - 1, 2), -1);
	fill_file(1);
	read_into(border - BLOCK, BLOCK);
	ck_assert(pinned_filled(border - BLOCK, BLOCK, 1));
	read_into(border, BLOCK);
	ck_assert(pinned_filled(border, BLOCK, 1));
	unpin(first);
}
END_TEST

START_TEST(refused_pieces_are_not_asked_for_again)
{
	uint32_t first, other;
	char *chunk = pin(1, &first);
	unsigned calls;

	while (ps_pinned_generation() == 0)
		sched_yield();
	/* The table of places is the first call. */
	ps_fault_set(PS_OS_IO_URING_REGISTER, 2, 2, EFAULT);
	ck_assert_int_eq(find(chunk, BLOCK), -1);
	calls = registered();
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(find(chunk + BLOCK, BLOCK), -1);
	ck_assert_uint_eq(registered(), calls);
	ck_assert(!fixed.off);
	/* Something else changed. */
	pin(1, &other);
	ck_assert_int_eq(find(chunk, BLOCK), -1);
	ck_assert_uint_eq(registered(), calls);
	unpin(other);
	/* It was itself unpinned: its place is empty already. */
	unpin(first);
	ck_assert_int_eq(find(chunk, BLOCK), -1);
	ck_assert_ptr_eq(pin(1, &first), chunk);
	place_of(chunk, BLOCK);
	ck_assert_uint_eq(registered(), calls + 1);
	unpin(first);
}
END_TEST

/* A larger piece was refused; the smaller one is still registered and used. */
START_TEST(refused_to_grow)
{
	uint32_t first, second;
	char *chunk = pin(1, &first);
	int place = place_of(chunk, BLOCK);
	unsigned calls;

	ck_assert_ptr_eq(pin(1, &second), chunk + PS_GRANULE);
	ps_fault_set(PS_OS_IO_URING_REGISTER, 1, 1, EOPNOTSUPP);
	ck_assert_int_eq(find(chunk + PS_GRANULE, BLOCK), -1);
	calls = registered();
	ck_assert_int_eq(find(chunk, BLOCK), place);
	ck_assert_int_eq(find(chunk + PS_GRANULE, BLOCK), -1);
	ck_assert_uint_eq(registered(), calls);
	unpin(second);
	unpin(first);
	ck_assert_int_eq(find(chunk, BLOCK), -1);
}
END_TEST

/* Runs act in a child and returns what it writes to stderr at log level info. */
static const char *messages_of(void (*act)(void))
{
	static char text[4096];
	int out[2], pid;
	ssize_t length;

	ck_assert_int_eq(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		in_child = true;
		dup2(out[1], STDERR_FILENO);
		ps_log_level = PS_LOG_INFO;
		ps_fork_child();
		ps_pinned_fork_child();
		ps_fixed_end(&fixed);
		ps_ring_close(&ring);
		open_rings();
		act();
		ps_table_close();
		_exit(0);
	}
	close(out[1]);
	ck_assert_int_eq(scratch_wait(pid), 0);
	length = read(out[0], text, sizeof(text) - 1);
	close(out[0]);
	text[length > 0 ? length : 0] = '\0';
	return text;
}

static void over_the_limit(void)
{
	uint32_t first, second, third;
	char *chunk = pin(1, &first), *hole = pin(1, &second), *other = pin(1, &third);
	unsigned calls;
	int place;

	unpin(second);
	place = place_of(chunk, BLOCK);
	ps_fault_set(PS_OS_IO_URING_REGISTER, 1, 1, ENOMEM);
	MUST(find(other, BLOCK) == -1);
	MUST(fixed.off);
	calls = registered();
	MUST(find(other, BLOCK) == -1);
	MUST(find(hole, BLOCK) == -1);
	MUST(find(chunk, BLOCK) == place);
	MUST(registered() == calls);
	unpin(first);
	MUST(find(chunk, BLOCK) == -1);
	MUST(pin(1, &first) == chunk);
	MUST(find(chunk, BLOCK) == -1);
	/* Another ring of the same process: nothing more is said. */
	fixed.off = false;
	ps_fault_set(PS_OS_IO_URING_REGISTER, 1, 1, ENOMEM);
	MUST(find(other, BLOCK) == -1);
	unpin(first);
	unpin(third);
}

START_TEST(no_more_after_the_limit)
{
	const char *said = messages_of(over_the_limit);
	const char *line = strstr(said, "registering 2097152 bytes");

	ck_assert_ptr_nonnull(line);
	ck_assert_ptr_nonnull(strstr(line, "ulimit -l"));
	ck_assert_ptr_null(strstr(line + 1, "registering"));
}
END_TEST

static void without_places(void)
{
	uint32_t first;
	char *chunk = pin(1, &first);
	unsigned calls;

	while (ps_pinned_generation() == 0)
		sched_yield();
	ps_fault_set(PS_OS_IO_URING_REGISTER, 1, 1, EINVAL);
	MUST(find(chunk, BLOCK) == -1);
	calls = registered();
	for (int i = 0; i < 10; i++)
		MUST(find(chunk, BLOCK) == -1);
	MUST(registered() == calls);
	unpin(first);
}

START_TEST(no_places_on_an_old_kernel)
{
	const char *said = messages_of(without_places);

	ck_assert_ptr_nonnull(strstr(said, "registered buffers failed: Invalid argument"));
}
END_TEST

START_TEST(no_memory_for_places)
{
	uint32_t first;
	char *chunk = pin(1, &first);
	struct ps_piece piece;

	while (ps_pinned_generation() == 0)
		sched_yield();
	/* Not the reader's own: it has what it needs. */
	ck_assert(ps_pinned_piece((uintptr_t)chunk, 1, &piece));
	ps_fixed_refresh(&fixed, &ring);
	ps_fault_set(PS_OS_MMAP, 1, UINT_MAX, ENOMEM);
	ck_assert_int_eq(ps_fixed_find(&fixed, &ring, (uintptr_t)chunk, 1), -1);
	ck_assert(fixed.off);
	ck_assert_uint_eq(registered(), 0);
	ps_fault_clear();
	unpin(first);
}
END_TEST

/* The kernel does not let go of a piece that is stale: it is not used all the same. */
START_TEST(emptying_fails)
{
	uint32_t first;
	char *chunk = pin(1, &first);

	fill_file(1);
	read_into(chunk, BLOCK);
	unpin(first);
	ps_fault_set(PS_OS_IO_URING_REGISTER, 1, 1, EEXIST);
	ck_assert_int_eq(find(chunk, BLOCK), -1);
	ck_assert_ptr_eq(pin(1, &first), chunk);
	fill_file(2);
	read_into(chunk, BLOCK);
	ck_assert(pinned_filled(chunk, BLOCK, 2));
	unpin(first);
}
END_TEST

/* Nobody has so much memory: there is none at these addresses, so that the kernel refuses each piece. */
START_TEST(every_place_taken)
{
	static int slot[PS_FIXED_PLACES];
	const size_t step = 2 * PS_GRANULE;
	char *none = mmap(NULL, PS_FIXED_PLACES * step, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned calls;
	uint32_t first;
	char *chunk;

	ck_assert_ptr_ne(none, MAP_FAILED);
	for (size_t i = 0; i < PS_FIXED_PLACES; i++)
		slot[i] = ps_table_add((uintptr_t)none + i * step, PS_GRANULE, HEAP);
	while (ps_pinned_generation() == 0)
		sched_yield();
	for (size_t i = 0; i < PS_FIXED_PLACES; i++)
		ck_assert_int_eq(find(none + i * step, 1), -1);
	ck_assert_uint_eq(registered(), 1 + PS_FIXED_PLACES);
	chunk = pin(1, &first);
	calls = registered();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(find(chunk, BLOCK), -1);
	ck_assert_uint_eq(registered(), calls);
	ps_table_remove(slot[77]);
	ck_assert_int_eq(place_of(chunk, BLOCK), 77);
	for (size_t i = 0; i < PS_FIXED_PLACES; i++)
		ps_table_remove(slot[i]);
	place_of(chunk, BLOCK);
	unpin(first);
	munmap(none, PS_FIXED_PLACES * step);
}
END_TEST

/*
 * Each thread with a ring of its own, while chunks come and go under all of them. A neighbour that goes
 * while a piece is being registered makes the kernel refuse it; then the request goes on without.
 */
struct worker {
	pthread_t thread;
	uint64_t seed;
	unsigned fixed; /* turns that found a place */
	int failed;
};

static int work_once(struct worker *worker, struct ps_ring *mine, struct ps_fixed *places, int fd,
		     uint64_t seed)
{
	struct ps_refusal why;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	uint32_t first;
	char *block;
	int place;

	if (ps_chunk_new(1, 1, PS_GRANULE_LARGE, &first, &why) < 0)
		return 1;
	block = ps_granule_address(first);
	pinned_fill(block, BLOCK, seed);
	ps_fixed_refresh(places, mine);
	place = ps_fixed_find(places, mine, (uintptr_t)block, 2 * BLOCK);
	worker->fixed += place >= 0;
	for (int write = 1; write >= 0; write--) {
		sqe = io_uring_get_sqe(&mine->uring);
		if (place < 0 && write)
			io_uring_prep_write(sqe, fd, block, BLOCK, 0);
		else if (place < 0)
			io_uring_prep_read(sqe, fd, block + BLOCK, BLOCK, 0);
		else if (write)
			io_uring_prep_write_fixed(sqe, fd, block, BLOCK, 0, place);
		else
			io_uring_prep_read_fixed(sqe, fd, block + BLOCK, BLOCK, 0, place);
		if (ps_ring_submit(mine) != 1 || ps_ring_wait(mine, 1, NULL, NULL) < 0 ||
		    io_uring_peek_cqe(&mine->uring, &cqe) < 0 || cqe->res != BLOCK)
			return 2;
		io_uring_cq_advance(&mine->uring, 1);
	}
	if (!pinned_filled(block + BLOCK, BLOCK, seed))
		return 3;
	unpin(first);
	return 0;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct ps_fixed places = { .generation = 0 };
	struct ps_ring mine;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s.%d", file_path, (int)worker->seed);
	fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	unlink(path);
	if (fd < 0 || ps_ring_open(&mine, 8, 8, PS_RING_DEFERRED) < 0) {
		worker->failed = 4;
		return NULL;
	}
	for (uint64_t i = 0; i < 50 && worker->failed == 0; i++)
		worker->failed = work_once(worker, &mine, &places, fd, worker->seed * 1000 + i);
	ps_fixed_end(&places);
	ps_ring_close(&mine);
	close(fd);
	return NULL;
}

START_TEST(several_rings_and_threads)
{
	struct worker workers[3] = { { .seed = 1 }, { .seed = 2 }, { .seed = 3 } };
	uint32_t first;

	pin(1, &first);
	place_of(ps_granule_address(first), 1);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(workers[i].thread, NULL);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(workers[i].failed, 0);
		ck_assert_uint_gt(workers[i].fixed, 0);
	}
	unpin(first);
}
END_TEST

/* Memory that a child inherited is not pinned there, and what it pins itself is. */
static void in_a_child(void)
{
	uint32_t first;
	char *chunk = pin(1, &first);

	fill_file(5);
	read_into(chunk, BLOCK);
	MUST(pinned_filled(chunk, BLOCK, 5));
	unpin(first);
	MUST(find(chunk, BLOCK) == -1);
}

START_TEST(after_a_fork)
{
	uint32_t first;
	char *chunk = pin(1, &first);

	place_of(chunk, BLOCK);
	ck_assert_str_eq(messages_of(in_a_child), "");
	fill_file(6);
	read_into(chunk, BLOCK);
	ck_assert(pinned_filled(chunk, BLOCK, 6));
	/* Writing to it now: were its pages shared with a child, they would be replaced by copies. */
	pinned_fill(chunk, BLOCK, 7);
	write_from(chunk, BLOCK);
	ck_assert(file_filled(7));
	unpin(first);
}
END_TEST

/* While a child lives that has the same memory, the parent's registration is still of its own pages. */
START_TEST(while_a_child_lives)
{
	uint32_t first;
	char *chunk = pin(1, &first), byte;
	int pid;

	pinned_fill(chunk, BLOCK, 1);
	write_from(chunk, BLOCK);
	pid = fork();
	if (pid == 0) {
		close(ends[1]);
		_exit(read(ends[0], &byte, 1) != 0 || !pinned_filled(chunk, BLOCK, 1));
	}
	pinned_fill(chunk, BLOCK, 2);
	write_from(chunk, BLOCK);
	ck_assert(file_filled(2));
	fill_file(3);
	read_into(chunk, BLOCK);
	ck_assert(pinned_filled(chunk, BLOCK, 3));
	close(ends[1]);
	ck_assert_int_eq(scratch_wait(pid), 0);
	unpin(first);
}
END_TEST

/* Chunks that a case pins first lie in one block of addresses, wherever the window came to lie. */
static void place_window(void)
{
	while (ps_window.base % PS_PIECE_MAX > PS_PIECE_MAX / 2) {
		ps_window_release();
		ck_assert_ptr_ne(mmap(NULL, PS_PIECE_MAX / 2, PROT_NONE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
				 MAP_FAILED);
		ck_assert_int_eq(ps_window_reserve(0), 0);
	}
}

static void add_cases(TCase *tcase)
{
	tcase_set_timeout(tcase, 120);
	tcase_add_unchecked_fixture(tcase, place_window, NULL);
	tcase_add_unchecked_fixture(tcase, scratch_begin, NULL);
	tcase_add_unchecked_fixture(tcase, scratch_enter, scratch_end);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, registers_once);
	tcase_add_test(tcase, what_is_not_pinned_costs_no_call);
	tcase_add_test(tcase, other_memory_at_the_same_address);
	tcase_add_test(tcase, under_requests_in_flight);
	tcase_add_test(tcase, a_ring_without_a_table);
	tcase_add_test(tcase, neighbours_become_one_piece);
	tcase_add_test(tcase, replaced_while_a_request_that_names_it_is_prepared);
	tcase_add_test(tcase, replaced_before_the_table_goes);
	tcase_add_test(tcase, pieces_on_both_sides_of_a_hole);
	tcase_add_test(tcase, more_than_one_block);
	tcase_add_test(tcase, refused_pieces_are_not_asked_for_again);
	tcase_add_test(tcase, refused_to_grow);
	tcase_add_test(tcase, no_more_after_the_limit);
	tcase_add_test(tcase, no_places_on_an_old_kernel);
	tcase_add_test(tcase, no_memory_for_places);
	tcase_add_test(tcase, emptying_fails);
	tcase_add_test(tcase, every_place_taken);
	tcase_add_test(tcase, several_rings_and_threads);
	tcase_add_test(tcase, after_a_fork);
	tcase_add_test(tcase, while_a_child_lives);
}

int main(void)
{
	int failed;

	ps_log_level = PS_LOG_ERROR;
	ps_config.limit = UINT64_MAX;
	ring.fd = -1;
	file = mkostemp(file_path, O_CLOEXEC);
	if (file < 0)
		return 1;
	close(file);
	file = open(file_path, O_RDWR | O_DIRECT | O_CLOEXEC);
	unlink(file_path);
	if (file < 0) {
		printf("no direct I/O in /var/tmp\n");
		return 77;
	}
	failed = pinned_main("fixed", add_cases);
	close(file);
	return failed;
}
