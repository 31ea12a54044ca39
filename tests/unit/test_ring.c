/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of either kind: every call that enters the kernel, how it fails, and what is left then.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptor.h"
#include "fault.h"
#include "os.h"
#include "ring.h"
#include "scratch.h"

#define LENGTH ((size_t)64 << 10)

static const enum ps_ring_kind kinds[] = { PS_RING_DEFERRED, PS_RING_SHARED };

static struct ps_ring ring;
static char *memory; /* LENGTH bytes on a page */
static int ends[2];  /* of a pipe: a read of it stays in flight */

static void *map(size_t length)
{
	void *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	ck_assert_ptr_ne(mapped, MAP_FAILED);
	return mapped;
}

static void setup(void)
{
	ps_fault_clear();
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	memory = map(LENGTH);
	errno = 0;
}

static void teardown(void)
{
	ck_assert_int_eq(errno, 0);
	ps_ring_close(&ring);
	ck_assert_int_eq(ring.fd, -1);
	ps_ring_close(&ring);
	munmap(memory, LENGTH);
	close(ends[0]);
	close(ends[1]);
}

static void open_ring(int kind)
{
	ck_assert_int_eq(ps_ring_open(&ring, 8, 32, kinds[kind]), 0);
}

static struct io_uring_sqe *prepare(uint64_t data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring.uring);

	ck_assert_ptr_nonnull(sqe);
	io_uring_prep_nop(sqe);
	sqe->user_data = data;
	return sqe;
}

/* Submits a read of the pipe, which ends when something is written to it. */
static void submit_pipe(uint64_t data, void *to, unsigned length)
{
	io_uring_prep_read(prepare(data), ends[0], to, length, 0);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
}

/* Takes the completions that are there, which must be these, in this order. */
static void expect_completions(unsigned count, const uint64_t *data)
{
	struct io_uring_cqe *cqe;
	unsigned head, seen = 0;

	io_uring_for_each_cqe(&ring.uring, head, cqe)
	{
		ck_assert_uint_lt(seen, count);
		ck_assert_uint_eq(cqe->user_data, data[seen++]);
	}
	ck_assert_uint_eq(seen, count);
	io_uring_cq_advance(&ring.uring, seen);
}

/* Waits for one completion and returns its result. */
static int result_of_one(uint64_t data)
{
	struct io_uring_cqe *cqe;
	unsigned head, seen = 0;
	int result = 0;

	ck_assert_int_eq(ps_ring_wait(&ring, 1, NULL, NULL), 0);
	io_uring_for_each_cqe(&ring.uring, head, cqe)
	{
		ck_assert_uint_eq(cqe->user_data, data);
		result = cqe->res;
		seen++;
	}
	ck_assert_uint_eq(seen, 1);
	io_uring_cq_advance(&ring.uring, 1);
	return result;
}

START_TEST(opens_out_of_the_way)
{
	ck_assert_int_eq(ps_ring_open(&ring, 8, 100, kinds[_i]), 0);
	ck_assert_int_ge(ring.fd, 1000);
	ck_assert_int_eq(ring.fd, ring.uring.ring_fd);
	ck_assert_int_eq(fcntl(ring.fd, F_GETFD), FD_CLOEXEC);
	ck_assert(ps_descriptor_is_ours(ring.fd));
	ck_assert_uint_ge(ring.uring.sq.ring_entries, 8);
	ck_assert_uint_ge(ring.uring.cq.ring_entries, 100);
	prepare(1);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
	ck_assert_int_eq(result_of_one(1), 0);
}
END_TEST

START_TEST(closing_leaves_nothing)
{
	const int next = dup(ends[0]);
	int fd;

	close(next);
	open_ring(_i);
	fd = ring.fd;
	ps_ring_close(&ring);
	ck_assert(!ps_descriptor_is_ours(fd));
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	errno = 0;
	fd = dup(ends[0]);
	ck_assert_int_eq(fd, next);
	close(fd);
}
END_TEST

START_TEST(opens_below_a_low_limit)
{
	struct rlimit before, low;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = before;
	low.rlim_cur = 500;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	open_ring(_i);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ck_assert_int_lt(ring.fd, 500);
	ck_assert_int_eq(fcntl(ring.fd, F_GETFD), FD_CLOEXEC);
	ck_assert(ps_descriptor_is_ours(ring.fd));
	prepare(1);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
	ck_assert_int_eq(result_of_one(1), 0);
}
END_TEST

START_TEST(any_size_is_cut_to_what_there_is)
{
	ck_assert_int_eq(ps_ring_open(&ring, 0, 0, kinds[_i]), 0);
	ps_ring_close(&ring);
	ck_assert_int_eq(ps_ring_open(&ring, 8, 1, kinds[_i]), 0);
	ps_ring_close(&ring);
	ck_assert_int_eq(ps_ring_open(&ring, 8, 1u << 30, kinds[_i]), 0);
	ck_assert_uint_ge(ring.uring.cq.ring_entries, 65536);
}
END_TEST

START_TEST(opening_can_fail)
{
	static const int errors[] = { ENOSYS, EPERM, ENOMEM, EMFILE };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		ps_fault_set(PS_OS_IO_URING_SETUP, 1, 1, errors[i]);
		ck_assert_int_eq(ps_ring_open(&ring, 8, 8, kinds[_i]), -errors[i]);
		ck_assert_int_eq(ring.fd, -1);
	}
}
END_TEST

START_TEST(older_kernels)
{
	/* A kernel without deferred rings; one that has all that shared ones need. */
	ps_fault_set(PS_OS_IO_URING_SETUP, 1, 1, EINVAL);
	ck_assert_int_eq(ps_ring_open(&ring, 8, 8, PS_RING_DEFERRED), -EINVAL);
	ps_fault_set(PS_OS_IO_URING_SETUP, 1, 1, EINVAL);
	ck_assert_int_eq(ps_ring_open(&ring, 8, 8, PS_RING_SHARED), 0);
}
END_TEST

START_TEST(submits)
{
	static const uint64_t data[] = { 1, 2, 3 };

	open_ring(_i);
	for (int i = 0; i < 3; i++)
		prepare(data[i]);
	ck_assert_int_eq(ps_ring_submit(&ring), 3);
	expect_completions(3, data);
	ck_assert_int_eq(ps_ring_submit(&ring), 0);
}
END_TEST

START_TEST(a_wrong_request_does_not_hold_up_others)
{
	static const uint64_t data[] = { 1, 2, 3 };

	open_ring(_i);
	prepare(1);
	prepare(2)->opcode = 255;
	prepare(3);
	ck_assert_int_eq(ps_ring_submit(&ring), 3);
	expect_completions(3, data);
}
END_TEST

START_TEST(submitting_restarts_after_a_signal)
{
	static const uint64_t data[] = { 1 };

	open_ring(_i);
	prepare(1);
	ps_fault_set(PS_OS_IO_URING_ENTER, 1, 2, EINTR);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_IO_URING_ENTER), 3);
	expect_completions(1, data);
}
END_TEST

START_TEST(what_was_not_taken_can_be_taken_back)
{
	static const uint64_t data[] = { 1, 2, 5 };

	open_ring(_i);
	for (uint64_t i = 1; i <= 4; i++)
		prepare(i);
	ps_fault_set(PS_OS_IO_URING_ENTER, 1, 1, EAGAIN);
	ck_assert_int_eq(ps_ring_submit(&ring), -EAGAIN);
	expect_completions(0, data);
	ps_ring_unprepare(&ring, 2);
	prepare(5);
	ck_assert_int_eq(ps_ring_submit(&ring), 3);
	expect_completions(3, data);
	/* There is room for as many as ever, over and over. */
	for (int turn = 0; turn < 5; turn++) {
		for (int i = 0; i < 8; i++)
			prepare(6);
		ck_assert_ptr_null(io_uring_get_sqe(&ring.uring));
		ps_ring_unprepare(&ring, 8);
	}
	ck_assert_int_eq(ps_ring_submit(&ring), 0);
	expect_completions(0, data);
}
END_TEST

/* The kernel itself refuses, when the queue was shown to it already. */
START_TEST(what_was_shown_can_be_taken_back)
{
	static const uint64_t data[] = { 1, 2, 5, 6 };

	open_ring(_i);
	for (uint64_t i = 1; i <= 4; i++)
		prepare(i);
	ring.uring.enter_ring_fd = -1;
	ck_assert_int_eq(ps_ring_submit(&ring), -EBADF);
	ring.uring.enter_ring_fd = ring.fd;
	ps_ring_unprepare(&ring, 2);
	prepare(5);
	prepare(6);
	ck_assert_int_eq(ps_ring_submit(&ring), 4);
	expect_completions(4, data);
	prepare(7);
	ring.uring.enter_ring_fd = -1;
	ck_assert_int_eq(ps_ring_submit(&ring), -EBADF);
	ring.uring.enter_ring_fd = ring.fd;
	ps_ring_unprepare(&ring, 1);
	ck_assert_int_eq(ps_ring_submit(&ring), 0);
	expect_completions(0, data);
}
END_TEST

/* Also what was completed by the very requests submitted. */
START_TEST(submitting_collects)
{
	open_ring(_i);
	submit_pipe(1, memory, 1);
	io_uring_prep_write(prepare(2), ends[1], "x", 1, 0);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
	ck_assert_uint_eq(io_uring_cq_ready(&ring.uring), 2);
}
END_TEST

START_TEST(waits_for_so_many)
{
	static const uint64_t data[] = { 1, 2, 3 };
	const struct timespec moment = { .tv_nsec = 1000000 }, at_once = { 0 };

	open_ring(_i);
	ck_assert_int_eq(ps_ring_wait(&ring, 1, &moment, NULL), -ETIME);
	ck_assert_int_eq(ps_ring_wait(&ring, 1, &at_once, NULL), -ETIME);
	for (int i = 0; i < 3; i++)
		prepare(data[i]);
	ck_assert_int_eq(ps_ring_submit(&ring), 3);
	ck_assert_int_eq(ps_ring_wait(&ring, 3, NULL, NULL), 0);
	/* Fewer, but some: the end of the time is not an error. */
	ck_assert_int_eq(ps_ring_wait(&ring, 4, &moment, NULL), 0);
	expect_completions(3, data);
}
END_TEST

static volatile sig_atomic_t handled;

static void handle(int signal)
{
	(void)signal;
	handled++;
}

START_TEST(the_mask_holds_while_it_waits)
{
	const struct sigaction action = { .sa_handler = handle };
	const struct timespec moment = { .tv_nsec = 1000000 };
	sigset_t blocked, none;

	open_ring(_i);
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
	ck_assert_int_eq(sigprocmask(SIG_BLOCK, &blocked, NULL), 0);
	handled = 0;
	raise(SIGUSR1);
	ck_assert_int_eq(ps_ring_wait(&ring, 1, &moment, NULL), -ETIME);
	ck_assert_int_eq(ps_ring_wait(&ring, 1, &moment, &blocked), -ETIME);
	ck_assert_int_eq(handled, 0);
	ck_assert_int_eq(ps_ring_wait(&ring, 1, NULL, &none), -EINTR);
	ck_assert_int_eq(handled, 1);
	ck_assert_int_eq(sigprocmask(SIG_UNBLOCK, &blocked, NULL), 0);
}
END_TEST

START_TEST(waiting_can_fail)
{
	open_ring(_i);
	ps_fault_set(PS_OS_IO_URING_ENTER, 1, 1, EINTR);
	ck_assert_int_eq(ps_ring_wait(&ring, 1, NULL, NULL), -EINTR);
}
END_TEST

START_TEST(collects_what_is_held_back)
{
	const uint64_t data[] = { 1 };
	char byte = 'x';

	open_ring(_i);
	submit_pipe(1, memory, 1);
	ps_ring_collect(&ring);
	expect_completions(0, data);
	ck_assert_int_eq(write(ends[1], &byte, 1), 1);
	ps_ring_collect(&ring);
	expect_completions(1, data);
	ck_assert_int_eq(memory[0], 'x');
}
END_TEST

START_TEST(nothing_to_collect_costs_no_call)
{
	open_ring(_i);
	ps_fault_clear();
	for (int i = 0; i < 3; i++)
		ps_ring_collect(&ring);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_IO_URING_ENTER), 0);
}
END_TEST

START_TEST(an_overflow_loses_nothing)
{
	struct io_uring_cqe *cqe;
	uint64_t expected = 0;
	unsigned head;

	ck_assert_int_eq(ps_ring_open(&ring, 2, 2, kinds[_i]), 0);
	for (uint64_t i = 0; i < 8; i += 2) {
		prepare(i);
		prepare(i + 1);
		ck_assert_int_eq(ps_ring_submit(&ring), 2);
	}
	while (expected < 8) {
		unsigned seen = 0;

		io_uring_for_each_cqe(&ring.uring, head, cqe)
		{
			ck_assert_uint_eq(cqe->user_data, expected++);
			seen++;
		}
		ck_assert_uint_gt(seen, 0);
		io_uring_cq_advance(&ring.uring, seen);
		ps_ring_collect(&ring);
	}
}
END_TEST

static void *enter_from_a_thread(void *unused)
{
	const struct timespec moment = { .tv_nsec = 1000000 };

	(void)unused;
	return (void *)(intptr_t)ps_ring_wait(&ring, 1, &moment, NULL);
}

START_TEST(who_may_enter)
{
	pthread_t thread;
	void *result;

	open_ring(_i);
	ck_assert_int_eq(pthread_create(&thread, NULL, enter_from_a_thread, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_int_eq((int)(intptr_t)result, kinds[_i] == PS_RING_DEFERRED ? -EEXIST : -ETIME);
}
END_TEST

static void *wait_in_a_thread(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)ps_ring_wait(&ring, 1, NULL, NULL);
}

START_TEST(several_wait_at_once)
{
	pthread_t threads[4];
	void *result;

	ck_assert_int_eq(ps_ring_open(&ring, 8, 8, PS_RING_SHARED), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_in_a_thread, NULL), 0);
	prepare(1);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &result), 0);
		ck_assert_ptr_null(result);
	}
}
END_TEST

static int write_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	for (size_t i = 0; i < LENGTH; i++)
		memory[i] = (char)(i >> 9);
	ck_assert_int_eq(write(fd, memory, LENGTH), LENGTH);
	return fd;
}

static int read_fixed(int fd, void *to, size_t length, unsigned place)
{
	io_uring_prep_read_fixed(prepare(0), fd, to, (unsigned)length, 0, (int)place);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
	return result_of_one(0);
}

START_TEST(reads_into_registered_memory)
{
	int fd = write_file(scratch_path("file"));
	char *other = map(LENGTH);

	open_ring(_i);
	ck_assert_int_eq(ps_ring_buffers(&ring, 8), 0);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 3, other, LENGTH), 0);
	ck_assert_int_eq(read_fixed(fd, other + 512, 1024, 3), 1024);
	ck_assert_mem_eq(other + 512, memory, 1024);
	ck_assert_int_eq(read_fixed(fd, other + LENGTH - 512, 1024, 3), -EFAULT);
	ck_assert_int_eq(read_fixed(fd, other, 512, 2), -EFAULT);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 3, NULL, 0), 0);
	ck_assert_int_eq(read_fixed(fd, other, 512, 3), -EFAULT);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 3, memory, LENGTH), 0);
	ck_assert_int_eq(read_fixed(fd, memory + 4096, 512, 3), 512);
	ck_assert_int_eq(memory[4096 + 511], 0);
	munmap(other, LENGTH);
	close(fd);
}
END_TEST

START_TEST(what_cannot_be_registered)
{
	int fd = write_file(scratch_path("file"));
	void *mapped = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	void *bare = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int error;

	open_ring(_i);
	ck_assert_int_lt(ps_ring_buffer_set(&ring, 0, memory, LENGTH), 0);
	ck_assert_int_eq(ps_ring_buffers(&ring, 8), 0);
	ck_assert_int_lt(ps_ring_buffers(&ring, 8), 0);
	error = ps_ring_buffer_set(&ring, 0, mapped, LENGTH);
	ck_assert(error == -EOPNOTSUPP || error == -EFAULT);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 0, bare, LENGTH), -EFAULT);
	ck_assert_int_lt(ps_ring_buffer_set(&ring, 8, memory, LENGTH), 0);
	munmap(mapped, LENGTH);
	munmap(bare, LENGTH);
	close(fd);
}
END_TEST

START_TEST(registering_can_fail)
{
	open_ring(_i);
	ps_fault_set(PS_OS_IO_URING_REGISTER, 1, 1, ENOMEM);
	ck_assert_int_eq(ps_ring_buffers(&ring, 8), -ENOMEM);
	ck_assert_int_eq(ps_ring_buffers(&ring, 8), 0);
	ps_fault_set(PS_OS_IO_URING_REGISTER, 1, 1, EFAULT);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 0, memory, LENGTH), -EFAULT);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 0, memory, LENGTH), 0);
}
END_TEST

/* An ordinary user may have only so much registered; it is counted by user, so this one is nobody's. */
START_TEST(the_limit_on_locked_memory)
{
	const struct rlimit little = { LENGTH / 2, LENGTH / 2 };
	const uid_t uid = (uid_t)(1000000 + 2 * getpid() + _i);
	int pid, status;

	pid = fork();
	if (pid == 0) {
		if (setrlimit(RLIMIT_MEMLOCK, &little) < 0 || setresuid(uid, uid, uid) < 0)
			_exit(77);
		if (ps_ring_open(&ring, 8, 8, kinds[_i]) < 0 || ps_ring_buffers(&ring, 8) < 0)
			_exit(2);
		if (ps_ring_buffer_set(&ring, 0, memory, LENGTH) != -ENOMEM)
			_exit(3);
		_exit(ps_ring_buffer_set(&ring, 0, memory, LENGTH / 4) != 0);
	}
	status = scratch_wait(pid);
	if (status == 77)
		printf("skip - the_limit_on_locked_memory: needs root, to become another user\n");
	else
		ck_assert_int_eq(status, 0);
}
END_TEST

/*
 * A request is in flight on registered memory for as long as its pipe is empty. Its place can be
 * emptied and filled all the same, at once; the request goes on where it began.
 */
START_TEST(places_change_under_requests_in_flight)
{
	char *other = map(LENGTH);
	int fd = write_file(scratch_path("file"));

	open_ring(_i);
	ck_assert_int_eq(ps_ring_buffers(&ring, 8), 0);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 0, other, LENGTH), 0);
	io_uring_prep_read_fixed(prepare(1), ends[0], other, 5, 0, 0);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 0, NULL, 0), 0);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 0, memory, LENGTH), 0);
	ck_assert_int_eq(ps_ring_buffer_set(&ring, 1, memory, LENGTH), 0);
	ck_assert_int_eq(read_fixed(fd, memory, 512, 0), 512);
	ck_assert_int_eq(write(ends[1], "hello", 5), 5);
	ck_assert_int_eq(result_of_one(1), 5);
	ck_assert_mem_eq(other, "hello", 5);
	munmap(other, LENGTH);
	close(fd);
}
END_TEST

START_TEST(a_forked_child_lets_go)
{
	static const uint64_t data[] = { 1, 2 };
	int pid;

	open_ring(_i);
	prepare(1);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
	pid = fork();
	if (pid == 0) {
		int fd = ring.fd;

		ps_ring_close(&ring);
		_exit(ring.fd != -1 || fcntl(fd, F_GETFD) != -1 || ps_descriptor_is_ours(fd));
	}
	ck_assert_int_eq(scratch_wait(pid), 0);
	prepare(2);
	ck_assert_int_eq(ps_ring_submit(&ring), 1);
	expect_completions(2, data);
	/* A request of before the fork, too. */
	submit_pipe(3, memory, 1);
	pid = fork();
	if (pid == 0) {
		ps_ring_close(&ring);
		_exit(0);
	}
	ck_assert_int_eq(scratch_wait(pid), 0);
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	ck_assert_int_eq(result_of_one(3), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring");
	TCase *tcase = tcase_create("ring");
	SRunner *runner;
	int failed;

	ring.fd = -1;
	tcase_add_unchecked_fixture(tcase, scratch_begin, scratch_end);
	tcase_add_checked_fixture(tcase, scratch_enter, NULL);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, opens_out_of_the_way, 0, 2);
	tcase_add_loop_test(tcase, closing_leaves_nothing, 0, 2);
	tcase_add_loop_test(tcase, opens_below_a_low_limit, 0, 2);
	tcase_add_loop_test(tcase, any_size_is_cut_to_what_there_is, 0, 2);
	tcase_add_loop_test(tcase, opening_can_fail, 0, 2);
	tcase_add_test(tcase, older_kernels);
	tcase_add_loop_test(tcase, submits, 0, 2);
	tcase_add_loop_test(tcase, a_wrong_request_does_not_hold_up_others, 0, 2);
	tcase_add_loop_test(tcase, submitting_restarts_after_a_signal, 0, 2);
	tcase_add_loop_test(tcase, what_was_not_taken_can_be_taken_back, 0, 2);
	tcase_add_loop_test(tcase, what_was_shown_can_be_taken_back, 0, 2);
	tcase_add_loop_test(tcase, submitting_collects, 0, 2);
	tcase_add_loop_test(tcase, waits_for_so_many, 0, 2);
	tcase_add_loop_test(tcase, the_mask_holds_while_it_waits, 0, 2);
	tcase_add_loop_test(tcase, waiting_can_fail, 0, 2);
	tcase_add_loop_test(tcase, collects_what_is_held_back, 0, 2);
	tcase_add_loop_test(tcase, nothing_to_collect_costs_no_call, 0, 2);
	tcase_add_loop_test(tcase, an_overflow_loses_nothing, 0, 2);
	tcase_add_loop_test(tcase, who_may_enter, 0, 2);
	tcase_add_test(tcase, several_wait_at_once);
	tcase_add_loop_test(tcase, reads_into_registered_memory, 0, 2);
	tcase_add_loop_test(tcase, what_cannot_be_registered, 0, 2);
	tcase_add_loop_test(tcase, registering_can_fail, 0, 2);
	tcase_add_loop_test(tcase, the_limit_on_locked_memory, 0, 2);
	tcase_add_loop_test(tcase, places_change_under_requests_in_flight, 0, 2);
	tcase_add_loop_test(tcase, a_forked_child_lets_go, 0, 2);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
