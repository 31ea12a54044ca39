/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * loops FILE libaio|io_uring|io_uring,file DEPTH MILLISECONDS [beyond]
 *
 * The least that a program can do: direct reads of 4 KiB at random, DEPTH of them in flight, each submitted
 * again by itself as soon as it is reaped. By libaio, or by a deferred io_uring with registered buffers, and
 * a registered file if so said. With "beyond" they lie beyond the end of the file, where nothing is read
 * and no disk is asked: what is left are the calls.
 *
 * Prints name=value pairs: iops, and cpu_us, the microseconds of processor time a read took.
 */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

#define BYTES 4096u
#define DEPTH_MAX 128
#define BUFFERS ((size_t)DEPTH_MAX * BYTES) /* enough for pinshim's 128K- */
#define LOOK_EVERY 256                      /* reads between two looks at the clock */

static struct {
	int fd;
	unsigned depth;
	char *buffers;
	uint64_t first, blocks; /* of the file, where to read */
	uint64_t state;         /* of the random numbers */
	unsigned expected;      /* bytes a read returns */
	/* One of the two: */
	io_context_t context;
	struct iocb iocb[DEPTH_MAX];
	struct io_uring ring;
	bool registered_file;
} loops = { .state = 88172645463325252u };

static void fail(const char *what, int error)
{
	fprintf(stderr, "loops: %s: %s\n", what, strerror(error));
	exit(1);
}

static long long next_offset(void)
{
	loops.state ^= loops.state << 13;
	loops.state ^= loops.state >> 7;
	loops.state ^= loops.state << 17;
	return (long long)(loops.first + loops.state % loops.blocks) * BYTES;
}

static char *buffer_of(unsigned number)
{
	return loops.buffers + (size_t)number * BYTES;
}

static void check(long result)
{
	if (result != (long)loops.expected)
		fail("read", result < 0 ? (int)-result : EIO);
}

static void submit_libaio(unsigned number)
{
	struct iocb *iocb = &loops.iocb[number];
	int result;

	io_prep_pread(iocb, loops.fd, buffer_of(number), BYTES, next_offset());
	result = io_submit(loops.context, 1, &iocb);
	if (result != 1)
		fail("io_submit", result < 0 ? -result : EAGAIN);
}

static unsigned reap_libaio(void)
{
	struct io_event events[DEPTH_MAX];
	const int count = io_getevents(loops.context, 1, loops.depth, events, NULL);

	if (count < 0)
		fail("io_getevents", -count);
	for (int i = 0; i < count; i++) {
		check((long)events[i].res);
		submit_libaio((unsigned)(events[i].obj - loops.iocb));
	}
	return (unsigned)count;
}

static void submit_uring(unsigned number)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&loops.ring);
	int result;

	io_uring_prep_read_fixed(sqe, loops.registered_file ? 0 : loops.fd, buffer_of(number),
				 BYTES, (uint64_t)next_offset(), 0);
	if (loops.registered_file)
		sqe->flags = IOSQE_FIXED_FILE;
	sqe->user_data = number;
	result = io_uring_submit_and_get_events(&loops.ring);
	if (result != 1)
		fail("io_uring_submit_and_get_events", result < 0 ? -result : EAGAIN);
}

static unsigned reap_uring(void)
{
	unsigned numbers[DEPTH_MAX], head, count = 0;
	struct io_uring_cqe *cqe;
	int error;

	error = io_uring_wait_cqe(&loops.ring, &cqe);
	if (error < 0)
		fail("io_uring_wait_cqe", -error);
	io_uring_for_each_cqe(&loops.ring, head, cqe)
	{
		check(cqe->res);
		numbers[count++] = (unsigned)cqe->user_data;
	}
	io_uring_cq_advance(&loops.ring, count);
	for (unsigned i = 0; i < count; i++)
		submit_uring(numbers[i]);
	return count;
}

static void open_file(const char *path, bool beyond)
{
	loops.fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (loops.fd < 0)
		fail(path, errno);
	loops.blocks = (uint64_t)lseek(loops.fd, 0, SEEK_END) / BYTES;
	if (loops.blocks == 0)
		fail(path, ENODATA);
	loops.first = beyond ? loops.blocks + 1 : 0;
	loops.expected = beyond ? 0 : BYTES;
}

static void open_ring(void)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
	};
	const struct iovec memory = { loops.buffers, BUFFERS };
	int error = io_uring_queue_init_params(DEPTH_MAX, &loops.ring, &params);

	if (error == 0)
		error = io_uring_register_buffers(&loops.ring, &memory, 1);
	if (error == 0 && loops.registered_file)
		error = io_uring_register_files(&loops.ring, &loops.fd, 1);
	if (error < 0)
		fail("io_uring", -error);
}

static void run(void (*submit)(unsigned number), unsigned (*reap)(void), double milliseconds)
{
	const double began = now(), cpu = cpu_seconds();
	unsigned long count = 0, look = LOOK_EVERY;
	double passed = 0;

	for (unsigned i = 0; i < loops.depth; i++)
		submit(i);
	while (passed * 1e3 < milliseconds) {
		while (count < look)
			count += reap();
		look = count + LOOK_EVERY;
		passed = now() - began;
	}
	printf("iops=%.1f cpu_us=%.4f\n", (double)count / passed,
	       (cpu_seconds() - cpu) * 1e6 / (double)count);
}

static bool is_way(const char *name)
{
	return strcmp(name, "libaio") == 0 || strcmp(name, "io_uring") == 0 ||
	       strcmp(name, "io_uring,file") == 0;
}

int main(int argc, char **argv)
{
	int error;

	if (argc < 5 || argc > 6 || !is_way(argv[2])) {
		fprintf(stderr,
			"usage: loops FILE libaio|io_uring|io_uring,file DEPTH MILLISECONDS "
			"[beyond]\n");
		return 2;
	}
	loops.depth = (unsigned)strtoul(argv[3], NULL, 0);
	if (loops.depth == 0 || loops.depth > DEPTH_MAX)
		fail("DEPTH", EINVAL);
	open_file(argv[1], argc == 6);
	error = posix_memalign((void **)&loops.buffers, BYTES, BUFFERS);
	if (error != 0)
		fail("buffers", error);
	memset(loops.buffers, 1, BUFFERS);
	if (strcmp(argv[2], "libaio") == 0) {
		error = io_setup(DEPTH_MAX, &loops.context);
		if (error < 0)
			fail("io_setup", -error);
		run(submit_libaio, reap_libaio, strtod(argv[4], NULL));
	} else {
		loops.registered_file = strcmp(argv[2], "io_uring,file") == 0;
		open_ring();
		run(submit_uring, reap_uring, strtod(argv[4], NULL));
	}
	return 0;
}
