/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sequential FILE BYTES BLOCK DEPTH LOOPS
 *
 * Reads the first BYTES of FILE, LOOPS times, into as much memory, as fast as io_uring can: registered huge
 * pages, DEPTH reads of BLOCK bytes in flight, completions reaped and reads submitted by the same system
 * call. Prints "gbps=...", without the time that it takes to make and register the memory.
 */
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"

#define PIECE ((size_t)64 << 20) /* of memory that is registered at a time */

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static char *make_memory(size_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	if (memory == MAP_FAILED)
		fail("mmap");
	madvise(memory, bytes, MADV_HUGEPAGE);
	memset(memory, 1, bytes);
	return memory;
}

static void register_memory(struct io_uring *ring, char *memory, size_t bytes)
{
	const unsigned pieces = (unsigned)((bytes + PIECE - 1) / PIECE);
	struct iovec *piece = calloc(pieces, sizeof(*piece));

	if (piece == NULL)
		fail("calloc");
	for (unsigned i = 0; i < pieces; i++) {
		const size_t left = bytes - i * PIECE;

		piece[i] = (struct iovec){ memory + i * PIECE, left < PIECE ? left : PIECE };
	}
	if (io_uring_register_buffers(ring, piece, pieces) != 0)
		fail("io_uring_register_buffers");
	free(piece);
}

/* Takes what has completed. Returns how many, which all have read a whole block. */
static unsigned reap(struct io_uring *ring, size_t block)
{
	struct io_uring_cqe *cqe;
	unsigned head, count = 0;

	io_uring_for_each_cqe(ring, head, cqe)
	{
		if (cqe->res != (int)block) {
			fprintf(stderr, "a read returned %d\n", cqe->res);
			exit(1);
		}
		count++;
	}
	io_uring_cq_advance(ring, count);
	return count;
}

static void read_once(struct io_uring *ring, int fd, char *memory, size_t bytes, size_t block,
		      unsigned depth)
{
	unsigned in_flight = 0;
	size_t at = 0;

	while (at < bytes || in_flight > 0) {
		for (; in_flight < depth && at < bytes; in_flight++, at += block)
			io_uring_prep_read_fixed(io_uring_get_sqe(ring), fd, memory + at,
						 (unsigned)block, at, (int)(at / PIECE));
		if (io_uring_submit_and_wait(ring, 1) < 0)
			fail("io_uring_submit_and_wait");
		in_flight -= reap(ring, block);
	}
}

int main(int argc, char **argv)
{
	struct io_uring_params params = { .flags = IORING_SETUP_SINGLE_ISSUER |
						   IORING_SETUP_DEFER_TASKRUN };
	struct io_uring ring;
	size_t bytes, block;
	unsigned depth, loops;
	char *memory;
	double begin;
	int fd;

	if (argc != 6)
		return 2;
	bytes = strtoull(argv[2], NULL, 10);
	block = strtoull(argv[3], NULL, 10);
	depth = (unsigned)strtoul(argv[4], NULL, 10);
	loops = (unsigned)strtoul(argv[5], NULL, 10);
	/* So that no read crosses a piece, nor the end. */
	if (block == 0 || PIECE % block != 0 || bytes % block != 0)
		return 2;
	fd = open(argv[1], O_RDONLY | O_DIRECT);
	if (fd < 0)
		fail(argv[1]);
	if (io_uring_queue_init_params(depth, &ring, &params) < 0)
		fail("io_uring_queue_init_params");
	memory = make_memory(bytes);
	register_memory(&ring, memory, bytes);
	begin = now();
	for (unsigned i = 0; i < loops; i++)
		read_once(&ring, fd, memory, bytes, block, depth);
	printf("gbps=%.3f\n", (double)bytes * loops / (now() - begin) / 1e9);
	io_uring_queue_exit(&ring);
	return 0;
}
