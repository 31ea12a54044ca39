/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel's asynchronous I/O: by system call, and through libaio where that is the next library.
 */
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "kernel.h"

#define LENGTH 4096

static char file[] = "/tmp/test_kernel.XXXXXX";
static char content[LENGTH], buffer[LENGTH];
static int fd;
static aio_context_t context;

static void setup(void)
{
	ps_fault_clear();
	context = 0;
	ck_assert_int_eq(ps_kernel_setup(4, &context), 0);
	memset(buffer, 0, sizeof(buffer));
	errno = 0;
}

static void teardown(void)
{
	ck_assert_int_eq(ps_kernel_destroy(context), 0);
	ck_assert_int_eq(errno, 0);
}

static struct iocb request(int from)
{
	return (struct iocb){ .aio_data = 7,
			      .aio_lio_opcode = IOCB_CMD_PREAD,
			      .aio_fildes = (uint32_t)from,
			      .aio_buf = (uintptr_t)buffer,
			      .aio_nbytes = LENGTH };
}

START_TEST(a_context_is_a_ring_of_the_kernels)
{
	const struct ps_kernel_ring *ring = (const void *)context;

	ck_assert_uint_eq(ring->magic, PS_KERNEL_RING_MAGIC);
	ck_assert_uint_ge(ring->nr, 4);
	ck_assert_uint_eq(ring->head, ring->tail);
	ck_assert_uint_eq(ring->header_bytes, sizeof(*ring));
}
END_TEST

/* Any context, and one that was set up through us. */
static const struct {
	int (*submit)(aio_context_t context, long count, struct iocb **iocbs);
	int (*getevents)(aio_context_t context, long least, long most, struct io_event *events,
			 struct timespec *timeout, const sigset_t *mask);
} ways[] = { { ps_kernel_submit, ps_kernel_getevents },
	     { ps_kernel_submit_ours, ps_kernel_getevents_ours } };

START_TEST(reads)
{
	struct timespec at_once = { 0 };
	struct iocb iocb = request(fd), *iocbs[] = { &iocb };
	struct io_event event;

	ck_assert_int_eq(ways[_i].getevents(context, 0, 1, &event, &at_once, NULL), 0);
	ck_assert_int_eq(ways[_i].getevents(context, 1, 1, &event, &at_once, NULL), 0);
	ck_assert_int_eq(ways[_i].submit(context, 1, iocbs), 1);
	ck_assert_int_eq(ways[_i].getevents(context, 1, 1, &event, NULL, NULL), 1);
	ck_assert_int_eq(event.res, LENGTH);
	ck_assert_uint_eq(event.data, 7);
	ck_assert_uint_eq(event.obj, (uintptr_t)&iocb);
	ck_assert_mem_eq(buffer, content, LENGTH);
}
END_TEST

START_TEST(errors_are_results)
{
	struct iocb iocb = request(-1), *iocbs[] = { &iocb };
	struct io_event event;

	ck_assert_int_eq(ps_kernel_submit(context, 1, iocbs), -EBADF);
	ck_assert_int_eq(ps_kernel_submit(0, 1, iocbs), -EINVAL);
	ck_assert_int_eq(ps_kernel_getevents(0, 0, 1, &event, NULL, NULL), -EINVAL);
	ck_assert_int_eq(ps_kernel_cancel(0, &iocb, &event), -EINVAL);
	ck_assert_int_eq(ps_kernel_destroy(0), -EINVAL);
	ck_assert_int_eq(ps_kernel_setup(0, &context), -EINVAL);
}
END_TEST

START_TEST(cancels_a_poll)
{
	struct iocb iocb = { .aio_lio_opcode = IOCB_CMD_POLL }, *iocbs[] = { &iocb };
	struct timespec soon = { .tv_sec = 10 };
	struct io_event event;
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	iocb.aio_fildes = (uint32_t)ends[0];
	iocb.aio_buf = 1; /* POLLIN */
	ck_assert_int_eq(ps_kernel_submit(context, 1, iocbs), 1);
	ck_assert_int_eq(ps_kernel_cancel(context, &iocb, &event), -EINPROGRESS);
	ck_assert_int_eq(ps_kernel_getevents(context, 1, 1, &event, &soon, NULL), 1);
	ck_assert_uint_eq(event.obj, (uintptr_t)&iocb);
	close(ends[0]);
	close(ends[1]);
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
	struct sigaction action = { .sa_handler = handle };
	struct timespec later = { .tv_sec = 60 }, at_once = { 0 };
	struct io_event event;
	sigset_t blocked, none;

	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
	ck_assert_int_eq(sigprocmask(SIG_BLOCK, &blocked, NULL), 0);
	handled = 0;
	raise(SIGUSR1);
	ck_assert_int_eq(ps_kernel_getevents(context, 1, 1, &event, &at_once, &blocked), 0);
	ck_assert_int_eq(handled, 0);
	ck_assert_int_eq(ps_kernel_getevents(context, 1, 1, &event, &later, &none), -EINTR);
	ck_assert_int_eq(handled, 1);
	ck_assert_int_eq(sigprocmask(SIG_UNBLOCK, &blocked, NULL), 0);
}
END_TEST

START_TEST(each_can_fail)
{
	struct iocb iocb = request(fd), *iocbs[] = { &iocb };
	aio_context_t none = 0;
	struct io_event event;

	ps_fault_set(PS_OS_IO_SETUP, 1, 1, EAGAIN);
	ck_assert_int_eq(ps_kernel_setup(1, &none), -EAGAIN);
	ck_assert_uint_eq(none, 0);
	ps_fault_set(PS_OS_IO_SUBMIT, 1, 1, EAGAIN);
	ck_assert_int_eq(ps_kernel_submit(context, 1, iocbs), -EAGAIN);
	ps_fault_set(PS_OS_IO_GETEVENTS, 1, 1, EINTR);
	ck_assert_int_eq(ps_kernel_getevents(context, 1, 1, &event, NULL, NULL), -EINTR);
}
END_TEST

static TCase *all(const char *name)
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_context_is_a_ring_of_the_kernels);
	tcase_add_loop_test(tcase, reads, 0, sizeof(ways) / sizeof(ways[0]));
	tcase_add_test(tcase, errors_are_results);
	tcase_add_test(tcase, cancels_a_poll);
	tcase_add_test(tcase, the_mask_holds_while_it_waits);
	tcase_add_test(tcase, each_can_fail);
	return tcase;
}

static int run(const char *name)
{
	Suite *suite = suite_create("kernel");
	SRunner *runner;
	int failed;

	suite_add_tcase(suite, all(name));
	runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed;
}

int main(void)
{
	int failed;

	for (size_t i = 0; i < LENGTH; i++)
		content[i] = (char)(i * 7);
	fd = mkstemp(file);
	if (fd < 0 || unlink(file) < 0 || write(fd, content, LENGTH) != LENGTH)
		return 1;
	ps_kernel_resolve();
	failed = run("by system call");
	/* From here on it comes after this program in the search for symbols. */
	if (dlopen("libaio.so.1", RTLD_NOW | RTLD_GLOBAL) == NULL) {
		printf("skip - libaio: %s\n", dlerror());
		return failed != 0;
	}
	if (dlsym(RTLD_NEXT, "io_submit") == NULL)
		return 1;
	ps_kernel_resolve();
	failed += run("libaio");
	return failed != 0;
}
