/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts where the system refuses something, where threads get in each other's way, and what one
 * leaves to the next. What they do otherwise is shown by tests/aio.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "config.h"
#include "context.h"
#include "fault.h"
#include "held.h"
#include "kernel.h"
#include "log.h"
#include "pinned.h"
#include "pinshim_aio.h"
#include "scratch.h"
#include "start.h"
#include "table.h"

#define BLOCK ((size_t)4096)
#define BLOCKS 64
#define DEPTH 16

static char directory[] = "/var/tmp/test_context.XXXXXX";
static char path[64];
static int file;     /* BLOCKS of them, open for direct I/O, each with its own pinned_fill() */
static char *memory; /* as much, on a page, and a page more */
static struct iocb iocb[DEPTH];
static struct timespec at_once;

static void *map(size_t bytes)
{
	void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	return mapped != MAP_FAILED ? mapped : (abort(), NULL);
}

/* Who may enter a context's ring. */
enum kind { OWNED, SHARED, KINDS };

static pthread_t sleeper;
static atomic_bool may_end;

static void *sleep_until_told(void *unused)
{
	while (!atomic_load(&may_end))
		usleep(1000);
	return unused;
}

/* A process with several threads has shared rings, if it is told to have any. */
static void setup(void)
{
	ps_fault_clear();
	ps_config.aio = PS_AIO_URING;
	memset(memory, 0xee, (BLOCKS + 1) * BLOCK);
}

static void setup_threaded(void)
{
	setup();
	atomic_store(&may_end, false);
	ck_assert_int_eq(pthread_create(&sleeper, NULL, sleep_until_told, NULL), 0);
}

static void teardown_threaded(void)
{
	ps_fault_clear();
	atomic_store(&may_end, true);
	pthread_join(sleeper, NULL);
}

static aio_context_t open_context(enum kind kind)
{
	aio_context_t id = 0;

	ck_assert_int_eq(ps_context_setup(DEPTH, &id), 0);
	if (kind == OWNED)
		ps_context_own(id);
	return id;
}

/* A request of length bytes from the file to the same place of the memory, or back. */
static struct iocb transfer(unsigned number, bool write, uint64_t offset, uint64_t length)
{
	return (struct iocb){
		.aio_data = number,
		.aio_lio_opcode = write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
		.aio_fildes = (uint32_t)file,
		.aio_buf = (uintptr_t)memory + offset,
		.aio_nbytes = length,
		.aio_offset = (int64_t)offset,
	};
}

static void prepare(unsigned number, bool write, uint64_t offset, uint64_t length)
{
	iocb[number] = transfer(number, write, offset, length);
}

static int submit(aio_context_t id, unsigned first, unsigned count)
{
	struct iocb *list[DEPTH];

	for (unsigned i = 0; i < count; i++)
		list[i] = &iocb[first + i];
	return ps_context_submit(id, count, list);
}

/* Exactly these completions arrive, with these results. */
static void expect(aio_context_t id, unsigned first, unsigned count, const int64_t *result)
{
	struct io_event event[DEPTH + 1];
	unsigned have = 0, seen = 0;

	while (have < count) {
		int got = ps_context_getevents(id, 1, DEPTH + 1 - have, event + have, NULL, NULL);

		ck_assert_int_gt(got, 0);
		have += (unsigned)got;
	}
	ck_assert_int_eq(ps_context_getevents(id, 0, DEPTH, event + have, &at_once, NULL), 0);
	ck_assert_uint_eq(have, count);
	for (unsigned i = 0; i < count; i++) {
		const unsigned number = (unsigned)event[i].data;

		ck_assert_uint_ge(number, first);
		ck_assert_uint_lt(number, first + count);
		ck_assert_uint_eq(event[i].obj, (uintptr_t)&iocb[number]);
		ck_assert_int_eq(event[i].res, result[number - first]);
		ck_assert_int_eq(event[i].res2, 0);
		seen |= 1u << number;
	}
	ck_assert_int_eq(__builtin_popcount(seen), (int)count);
}

static bool block_is_read(unsigned i)
{
	return pinned_filled(memory + i * BLOCK, BLOCK, i);
}

static void expect_file_as_it_was(void)
{
	char block[BLOCK];
	int fd = open(path, O_RDONLY);

	for (unsigned i = 0; i < BLOCKS; i++) {
		ck_assert_int_eq(pread(fd, block, BLOCK, (off_t)(i * BLOCK)), BLOCK);
		ck_assert(pinned_filled(block, BLOCK, i));
	}
	close(fd);
}

/* A misaligned request behind one that the ring refuses: read by way of a bounce, or written at once. */
static void prepare_refused(bool write)
{
	prepare(0, false, 0, BLOCK);
	prepare(1, write, 3 * BLOCK + 7, 100);
}

/* Nothing is left in the ring of a batch that was refused, nor begun of what was behind it. */
START_TEST(refused_batch_leaves_nothing)
{
	static const int errors[] = { EAGAIN, EBUSY };
	static const int64_t whole[] = { BLOCK };
	const aio_context_t id = open_context((enum kind)(_i % KINDS));

	for (unsigned i = 0; i < 4; i++) {
		prepare_refused(i % 2);
		ps_fault_set(PS_OS_IO_URING_ENTER, 1, 1, errors[i / 2]);
		ck_assert_int_eq(submit(id, 0, 2), -EAGAIN);
		ps_fault_clear();
		expect(id, 0, 0, NULL);
		memset(memory, 0xee, BLOCKS * BLOCK);
		prepare(2, false, BLOCK, BLOCK);
		ck_assert_int_eq(submit(id, 2, 1), 1);
		expect(id, 2, 1, whole);
		ck_assert(block_is_read(1));
		ck_assert_int_eq(memory[0], (char)0xee);
	}
	ck_assert_int_eq(ps_context_destroy(id), 0);
	expect_file_as_it_was();
}
END_TEST

/* What was taken before counts, and the rest of the batch can be submitted again. */
START_TEST(second_half_refused)
{
	static const int64_t first[] = { BLOCK }, second[] = { 100, 100 };
	const aio_context_t id = open_context((enum kind)_i);

	prepare(0, false, 0, BLOCK);
	prepare(1, false, BLOCK + 7, 100);
	prepare(2, false, 2 * BLOCK + 7, 100);
	/* What is before a misaligned one goes first: the second entry is for the first of these. */
	ps_fault_set(PS_OS_IO_URING_ENTER, 2, 2, EAGAIN);
	ck_assert_int_eq(submit(id, 0, 3), 1);
	ps_fault_clear();
	expect(id, 0, 1, first);
	ck_assert_int_eq(submit(id, 1, 2), 2);
	expect(id, 1, 2, second);
	ck_assert(block_is_read(0));
	ck_assert_int_eq(ps_context_destroy(id), 0);
}
END_TEST

/* A ring that is broken gives way to the kernel's AIO, in the middle of a batch. */
START_TEST(broken_ring_gives_way)
{
	static const int64_t both[] = { BLOCK, 100 }, one[] = { BLOCK };
	const aio_context_t id = open_context((enum kind)_i);

	prepare_refused(false);
	ps_fault_set(PS_OS_IO_URING_ENTER, 1, ~0u, ENOMEM);
	ck_assert_int_eq(submit(id, 0, 2), 2);
	ps_fault_clear();
	expect(id, 0, 2, both);
	ck_assert(block_is_read(0));
	prepare(2, false, BLOCK, BLOCK);
	ck_assert_int_eq(submit(id, 2, 1), 1);
	expect(id, 2, 1, one);
	ck_assert_int_eq(ps_context_destroy(id), 0);
}
END_TEST

/* A repair that fails is told by its event, once, and what is beside it is served. */
START_TEST(repair_that_fails)
{
	static const int64_t result[] = { BLOCK, -EIO, BLOCK };
	const aio_context_t id = open_context((enum kind)_i);

	prepare(0, false, 0, BLOCK);
	prepare(1, true, 3 * BLOCK + 512, 512 + 7);
	prepare(2, false, 2 * BLOCK, BLOCK);
	ps_fault_set(PS_OS_PWRITEV, 1, ~0u, EIO);
	ck_assert_int_eq(submit(id, 0, 3), 3);
	expect(id, 0, 3, result);
	ps_fault_clear();
	ck_assert(block_is_read(0) && block_is_read(2));
	ck_assert_int_eq(ps_context_destroy(id), 0);
	expect_file_as_it_was();
}
END_TEST

static unsigned magic_of(aio_context_t id)
{
	return ((const struct ps_kernel_ring *)id)->magic;
}

/*
 * A context whose ring ended before its events were asked for: whoever reads the kernel's ring must not
 * believe that there are none, and none of them comes to the next context, which often has the same id.
 */
START_TEST(kept_events_end_with_their_context)
{
	static const int64_t whole[] = { BLOCK, BLOCK, BLOCK, BLOCK };
	struct io_event event[2];

	if (UNDER_TSAN) {
		pinned_skip("kept_events_end_with_their_context", "TSan has a thread of its own");
		return;
	}
	for (unsigned taken = 0; taken <= 2; taken++) {
		const aio_context_t id = open_context(SHARED);

		for (unsigned i = 0; i < 4; i++)
			prepare(i, false, i * BLOCK, BLOCK);
		ck_assert_int_eq(submit(id, 0, 4), 4);
		ck_assert_uint_eq(magic_of(id), 0);
		ps_context_before_thread();
		ck_assert_uint_eq(magic_of(id), 0);
		ck_assert_int_eq(ps_context_getevents(id, taken, taken, event, NULL, NULL), taken);
		ck_assert_int_eq(ps_context_destroy(id), 0);
	}
	for (unsigned round = 0; round < 2; round++) {
		const aio_context_t id = open_context(SHARED);

		expect(id, 0, 0, NULL);
		ck_assert_int_eq(submit(id, 0, 4), 4);
		if (round == 1)
			ps_context_before_thread();
		expect(id, 0, 4, whole);
		ck_assert_int_eq(submit(id, 1, 1), 1);
		expect(id, 1, 1, whole);
		ck_assert_int_eq(ps_context_destroy(id), 0);
	}
}
END_TEST

/* The ends of contexts that other threads are using. */

#define LANES 10  /* contexts that end at a time: more than rings are kept */
#define WAITERS 3 /* threads for each */

struct lane {
	aio_context_t id;
	struct iocb iocb[4];
	atomic_int waiting, seen[4];
	atomic_bool wrong;
	unsigned round;
};

struct waiter {
	struct lane *lane;
	unsigned number;
};

/* One sleeps for an event, one for more than will come, one asks again and again. */
static void *wait_for_events(void *argument)
{
	struct waiter *waiter = argument;
	struct lane *lane = waiter->lane;
	const long least = waiter->number == 0 ? 1 : waiter->number == 1 ? DEPTH : 0;
	struct io_event event[DEPTH];
	int got;

	atomic_fetch_add(&lane->waiting, 1);
	do {
		got = ps_context_getevents(lane->id, least, DEPTH, event,
					   waiter->number == 2 ? &at_once : NULL, NULL);
		for (int i = 0; i < got; i++)
			if (atomic_fetch_add(&lane->seen[event[i].data], 1) != 0)
				atomic_store(&lane->wrong, true);
	} while (got >= 0);
	if (got != -EINVAL)
		atomic_store(&lane->wrong, true);
	return NULL;
}

static void *end_in_use(void *argument)
{
	struct lane *lane = argument;
	/* TSan does not see that the kernel stands between who submits and who reaps. */
	const unsigned count = UNDER_TSAN ? 0 : lane->round % 5;
	struct iocb *list[4];

	for (unsigned i = 0; i < count; i++) {
		lane->iocb[i] = transfer(i, false, i * BLOCK, BLOCK);
		list[i] = &lane->iocb[i];
	}
	while (lane->round % 2 != 0 && atomic_load(&lane->waiting) < WAITERS)
		sched_yield();
	if (count > 0 && ps_context_submit(lane->id, count, list) != (int)count)
		atomic_store(&lane->wrong, true);
	while (atomic_load(&lane->waiting) < WAITERS)
		sched_yield();
	if (ps_context_destroy(lane->id) != 0)
		atomic_store(&lane->wrong, true);
	return NULL;
}

START_TEST(destroyed_in_use)
{
	static struct lane lanes[LANES];
	struct waiter waiter[LANES * WAITERS];
	pthread_t thread[LANES * WAITERS], ender[LANES];

	for (unsigned round = 0; round < 40; round++) {
		memset(lanes, 0, sizeof(lanes));
		for (unsigned i = 0; i < LANES; i++) {
			lanes[i].id = open_context(SHARED);
			lanes[i].round = round + i;
		}
		for (unsigned i = 0; i < LANES * WAITERS; i++) {
			waiter[i] = (struct waiter){ &lanes[i / WAITERS], i % WAITERS };
			ck_assert_int_eq(
				pthread_create(&thread[i], NULL, wait_for_events, &waiter[i]), 0);
		}
		for (unsigned i = 0; i < LANES; i++)
			ck_assert_int_eq(pthread_create(&ender[i], NULL, end_in_use, &lanes[i]), 0);
		for (unsigned i = 0; i < LANES; i++)
			pthread_join(ender[i], NULL);
		for (unsigned i = 0; i < LANES * WAITERS; i++)
			pthread_join(thread[i], NULL);
		for (unsigned i = 0; i < LANES; i++)
			ck_assert(!atomic_load(&lanes[i].wrong));
	}
}
END_TEST

/* A request that is gone, with the memory it was in, before the batch has all been submitted. */

#define LONG ((size_t)64 << 20)

static void *unmap_when_done(void *id)
{
	struct io_event event;

	while (ps_context_getevents((aio_context_t)(uintptr_t)id, 1, 1, &event, NULL, NULL) ==
	       -EINTR)
		;
	munmap((void *)(uintptr_t)event.obj, BLOCK);
	return NULL;
}

START_TEST(requests_may_go_early)
{
	const int buffered = memfd_create("buffered", MFD_CLOEXEC);
	struct iocb *list[3] = { map(BLOCK), &iocb[1], &iocb[2] };
	char *large = map(LONG);
	struct io_event event;
	aio_context_t id;
	pthread_t thread;

	ps_config.aio = PS_AIO_LIBAIO;
	id = open_context(SHARED);
	expect(id, 0, 0, NULL); /* From now on it is the kernel's. */
	ck_assert_int_eq(ftruncate(buffered, (off_t)LONG), 0);
	for (unsigned i = 0; i < 3; i++)
		*list[i] = (struct iocb){ .aio_lio_opcode = IOCB_CMD_PREAD,
					  .aio_fildes = (uint32_t)(i < 2 ? buffered : -1),
					  .aio_buf = (uintptr_t)large,
					  .aio_nbytes = i == 0 ? BLOCK : LONG };
	ck_assert_int_eq(pthread_create(&thread, NULL, unmap_when_done, (void *)(uintptr_t)id), 0);
	ck_assert_int_eq(ps_context_submit(id, 3, list), 2);
	pthread_join(thread, NULL);
	ck_assert_int_eq(ps_context_getevents(id, 1, 1, &event, NULL, NULL), 1);
	ck_assert_int_eq(event.res, (int64_t)LONG);
	ck_assert_int_eq(ps_context_destroy(id), 0);
	munmap(large, LONG);
	close(buffered);
}
END_TEST

/* Memory that a context had registered is not kept by one that uses the kernel's AIO from now on. */
START_TEST(expected_memory_is_registered)
{
	const long before = pinned_proc_kb("status", "VmPin:");
	char *locked = pinshim_aio_new_buffer(MIB);
	aio_context_t id = open_context(OWNED);

	ck_assert_ptr_nonnull(locked);
	/* There is no ring before the first request. */
	ps_context_expect(id, locked, BLOCK);
	ps_context_expect(0, locked, BLOCK);
	ck_assert_int_eq(pinned_proc_kb("status", "VmPin:"), before);
	prepare(0, false, 0, BLOCK);
	ck_assert_int_eq(submit(id, 0, 1), 1);
	ps_context_expect(id, memory, BLOCK);
	ck_assert_int_eq(pinned_proc_kb("status", "VmPin:"), before);
	ps_context_expect(id, locked, BLOCK);
	ck_assert_int_gt(pinned_proc_kb("status", "VmPin:"), before);
	prepare(1, false, BLOCK, BLOCK);
	iocb[1].aio_buf = (uintptr_t)locked;
	ck_assert_int_eq(submit(id, 1, 1), 1);
	expect(id, 0, 2, (const int64_t[]){ BLOCK, BLOCK });
	ck_assert(pinned_filled(locked, BLOCK, 1));
	ck_assert_int_eq(ps_context_destroy(id), 0);
	ck_assert_int_eq(pinshim_aio_free_buffer(locked), 0);
}
END_TEST

/* A locked buffer, which a read of the first block, number 0, has had registered. */
static void *read_into_locked(aio_context_t *id)
{
	const long before = pinned_proc_kb("status", "VmPin:");
	void *locked = pinshim_aio_new_buffer(MIB);

	ck_assert_ptr_nonnull(locked);
	*id = open_context(OWNED);
	prepare(0, false, 0, BLOCK);
	iocb[0].aio_buf = (uintptr_t)locked;
	ck_assert_int_eq(submit(*id, 0, 1), 1);
	ck_assert_int_gt(pinned_proc_kb("status", "VmPin:"), before);
	return locked;
}

START_TEST(settled_context_lets_memory_go)
{
	static const int64_t whole[] = { BLOCK };
	const int buffered = open(path, O_RDONLY | O_CLOEXEC);
	const long before = pinned_proc_kb("status", "VmPin:");
	aio_context_t id;
	void *locked = read_into_locked(&id);

	prepare(1, false, 0, BLOCK);
	iocb[1].aio_fildes = (uint32_t)buffered;
	ck_assert_int_eq(submit(id, 1, 1), 1);
	/* The kernel lets go when the request is done. */
	expect(id, 0, 2, (const int64_t[]){ BLOCK, BLOCK });
	ck_assert_int_eq(pinned_proc_kb("status", "VmPin:"), before);
	ck_assert(pinned_filled(locked, BLOCK, 0));
	prepare(2, false, 0, BLOCK);
	iocb[2].aio_buf = (uintptr_t)locked;
	ck_assert_int_eq(submit(id, 2, 1), 1);
	expect(id, 2, 1, whole);
	ck_assert_int_eq(ps_context_destroy(id), 0);
	ck_assert_int_eq(pinshim_aio_free_buffer(locked), 0);
	close(buffered);
}
END_TEST

/* As if this thread were its own handler, and had interrupted a submission, and then the taking of events. */
START_TEST(submitted_by_a_handler)
{
	const long before = pinned_proc_kb("status", "VmPin:");
	struct io_event event;
	aio_context_t id;
	void *locked = read_into_locked(&id);

	prepare(1, false, BLOCK, BLOCK);
	ps_held[PS_HELD_SUBMISSION] = 1;
	ck_assert_int_eq(submit(id, 1, 1), 1);
	ps_held[PS_HELD_SUBMISSION] = 0;
	ps_held[PS_HELD_OTHER] = 1;
	ck_assert_int_eq(ps_context_getevents(id, 0, 1, &event, &at_once, NULL), 0);
	ck_assert_int_eq(ps_context_getevents(id, 1, 1, &event, NULL, NULL), -EINTR);
	ps_held[PS_HELD_OTHER] = 0;
	expect(id, 0, 2, (const int64_t[]){ BLOCK, BLOCK });
	/* The context goes on with the kernel's AIO, and keeps no memory registered. */
	ck_assert_int_eq(pinned_proc_kb("status", "VmPin:"), before);
	ck_assert(block_is_read(1));
	ck_assert_int_eq(ps_context_destroy(id), 0);
	ck_assert_int_eq(pinshim_aio_free_buffer(locked), 0);
}
END_TEST

/* A signal handler ends the process, whatever it interrupted. */

static void end_process(int number)
{
	(void)number;
	signal(SIGALRM, SIG_DFL); /* Check's own ends the parent, too. */
	alarm(20);
	ps_context_at_exit();
	_exit(0);
}

static void end_at(int number)
{
	const struct sigaction action = { .sa_handler = end_process,
					  .sa_flags = SA_NODEFER | (int)SA_RESETHAND };

	sigaction(number, &action, NULL);
}

/* Where events cannot be stored, the handler runs in the very middle of reading completions. */
START_TEST(ended_while_reading_completions)
{
	void *none = mmap(NULL, BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const pid_t pid = fork();

	if (pid == 0) {
		aio_context_t id = open_context((enum kind)_i);

		end_at(SIGSEGV);
		prepare(0, false, 0, BLOCK);
		submit(id, 0, 1);
		ps_context_getevents(id, 1, 1, none, NULL, NULL);
		_exit(1);
	}
	ck_assert_int_eq(scratch_wait(pid), 0);
	munmap(none, BLOCK);
}
END_TEST

/* While a bounce buffer of this many bytes is copied, most likely. */
#define BOUNCED ((size_t)8 << 20)

static void be_ended_after(unsigned microseconds, char *to, int large)
{
	const struct itimerval time = { .it_value.tv_usec = microseconds };
	struct iocb request = transfer(0, false, 0, BOUNCED - BLOCK), *list[] = { &request };
	struct io_event event;
	aio_context_t id = open_context(OWNED);

	request.aio_fildes = (uint32_t)large;
	request.aio_buf = (uintptr_t)to + 1;
	end_at(SIGALRM);
	if (ps_context_submit(id, 1, list) != 1)
		_exit(1);
	setitimer(ITIMER_REAL, &time, NULL);
	ps_context_getevents(id, 1, 1, &event, NULL, NULL);
	_exit(0);
}

START_TEST(ended_while_copying)
{
	const int large = open(directory, O_RDWR | O_TMPFILE | O_DIRECT | O_CLOEXEC, 0600);
	char *to = map(BOUNCED);

	if (large < 0) {
		pinned_skip("ended_while_copying", "there is no O_TMPFILE here");
		return;
	}
	ck_assert_int_eq(pwrite(large, to, BOUNCED, 0), (ssize_t)BOUNCED);
	for (unsigned delay = 500; delay < 12000; delay += 250) {
		const pid_t pid = fork();

		if (pid == 0)
			be_ended_after(delay, to, large);
		ck_assert_int_eq(scratch_wait(pid), 0);
	}
	munmap(to, BOUNCED);
	close(large);
}
END_TEST

static void add(Suite *suite)
{
	TCase *alone = tcase_create("alone"), *threaded = tcase_create("threaded");

	tcase_add_checked_fixture(alone, setup, ps_fault_clear);
	tcase_add_test(alone, kept_events_end_with_their_context);
	tcase_add_test(alone, expected_memory_is_registered);
	tcase_add_test(alone, settled_context_lets_memory_go);
	tcase_add_test(alone, submitted_by_a_handler);
	tcase_add_loop_test(alone, ended_while_reading_completions, 0, KINDS);
	tcase_add_test(alone, ended_while_copying);
	tcase_add_checked_fixture(threaded, setup_threaded, teardown_threaded);
	tcase_add_loop_test(threaded, refused_batch_leaves_nothing, 0, KINDS);
	tcase_add_loop_test(threaded, second_half_refused, 0, KINDS);
	tcase_add_loop_test(threaded, broken_ring_gives_way, 0, KINDS);
	tcase_add_loop_test(threaded, repair_that_fails, 0, KINDS);
	tcase_add_test(threaded, destroyed_in_use);
	tcase_add_test(threaded, requests_may_go_early);
	suite_add_tcase(suite, alone);
	suite_add_tcase(suite, threaded);
}

static void make_file(void)
{
	snprintf(path, sizeof(path), "%s/file", directory);
	memory = map((BLOCKS + 1) * BLOCK);
	for (unsigned i = 0; i < BLOCKS; i++)
		pinned_fill(memory + i * BLOCK, BLOCK, i);
	file = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	if (file < 0 || pwrite(file, memory, BLOCKS * BLOCK, 0) != (ssize_t)(BLOCKS * BLOCK))
		abort();
}

int main(void)
{
	Suite *suite = suite_create("context");
	char command[sizeof(directory) + 8];
	SRunner *runner;
	int failed;

	if (!mkdtemp(directory))
		return 1;
	ps_table_directory = directory;
	ps_aio_start();
	ps_config.stats = "off";
	ps_log_level = PS_LOG_ERROR;
	make_file();
	add(suite);
	runner = srunner_create(suite);
	/* Locks are not inherited: a case in a forked child would have no pinned memory. */
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	close(file);
	ps_table_close();
	/* Tables of children that were killed are there, too. */
	snprintf(command, sizeof(command), "rm -r %s", directory);
	return system(command) != 0 || failed != 0;
}
