/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * split FILE BYTES DEPTH MILLISECONDS
 *
 * Random direct reads of BYTES each, DEPTH of them in flight, through one libaio context: one thread
 * submits them, another reaps them and says which can be submitted again, as in servers with a
 * thread for completions.
 *
 * Prints name=value pairs: iops, and cpu_us, the microseconds of processor time an I/O took in this
 * process. Both leave out the first RAMP_MS.
 */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

#define RAMP_MS 200
#define DEPTH_MAX 1024

static struct {
	io_context_t context;
	int fd;
	size_t bytes;
	unsigned depth;
	uint64_t blocks; /* of the file */
	char *buffers;
	struct iocb iocb[DEPTH_MAX];
	sem_t free; /* as many as there are iocbs to submit, which come back in any order: */
	_Atomic(unsigned) queue[DEPTH_MAX];
	atomic_uint put; /* into the queue, ever */
	atomic_ulong done;
	atomic_bool stop;
} split;

static void fail(const char *what, int error)
{
	fprintf(stderr, "split: %s: %s\n", what, strerror(error));
	exit(1);
}

static void give_back(unsigned number)
{
	const unsigned put = atomic_load_explicit(&split.put, memory_order_relaxed);

	atomic_store_explicit(&split.queue[put % split.depth], number, memory_order_release);
	atomic_store_explicit(&split.put, put + 1, memory_order_release);
	sem_post(&split.free);
}

static void *submit(void *unused)
{
	uint64_t state = 88172645463325252u;
	unsigned taken = 0;

	for (;;) {
		unsigned number;
		struct iocb *iocb;
		int result;

		while (sem_wait(&split.free) < 0)
			;
		if (split.stop)
			return unused;
		number = atomic_load(&split.queue[taken++ % split.depth]);
		iocb = &split.iocb[number];
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		io_prep_pread(iocb, split.fd, split.buffers + number * split.bytes, split.bytes,
			      (long long)(state % split.blocks) * (long long)split.bytes);
		result = io_submit(split.context, 1, &iocb);
		if (result != 1)
			fail("io_submit", result < 0 ? -result : EAGAIN);
	}
}

static void *reap(void *unused)
{
	struct io_event events[DEPTH_MAX];
	struct timespec second = { 1, 0 };

	while (!split.stop) {
		int count = io_getevents(split.context, 1, split.depth, events, &second);

		if (count < 0 && count != -EINTR)
			fail("io_getevents", -count);
		for (int i = 0; i < count; i++) {
			if (events[i].res != split.bytes)
				fail("read",
				     (long)events[i].res < 0 ? (int)-(long)events[i].res : EIO);
			give_back((unsigned)(events[i].obj - split.iocb));
		}
		atomic_fetch_add(&split.done, count > 0 ? (unsigned)count : 0);
	}
	return unused;
}

static pthread_t begin(void *(*function)(void *))
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, function, NULL);

	if (error)
		fail("pthread_create", error);
	return thread;
}

static void sleep_ms(long ms)
{
	struct timespec left = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&left, &left) < 0)
		;
}

static void set_up(char **argv)
{
	int error;

	split.bytes = strtoul(argv[2], NULL, 0);
	split.depth = (unsigned)strtoul(argv[3], NULL, 0);
	if (split.bytes == 0 || split.depth == 0 || split.depth > DEPTH_MAX)
		fail("BYTES or DEPTH", EINVAL);
	split.fd = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (split.fd < 0)
		fail(argv[1], errno);
	split.blocks = (uint64_t)lseek(split.fd, 0, SEEK_END) / split.bytes;
	if (split.blocks == 0)
		fail(argv[1], ENODATA);
	error = posix_memalign((void **)&split.buffers, 4096, split.depth * split.bytes);
	if (error)
		fail("buffers", error);
	memset(split.buffers, 1, split.depth * split.bytes);
	error = io_setup((int)split.depth, &split.context);
	if (error < 0)
		fail("io_setup", -error);
	sem_init(&split.free, 0, 0);
	for (unsigned i = 0; i < split.depth; i++)
		give_back(i);
}

int main(int argc, char **argv)
{
	pthread_t submitter, reaper;
	double began, passed, cpu;
	unsigned long before, count;

	if (argc != 5) {
		fprintf(stderr, "usage: split FILE BYTES DEPTH MILLISECONDS\n");
		return 2;
	}
	set_up(argv);
	reaper = begin(reap);
	submitter = begin(submit);
	sleep_ms(RAMP_MS);
	before = split.done;
	cpu = cpu_seconds();
	began = now();
	sleep_ms(strtol(argv[4], NULL, 0));
	count = split.done - before;
	passed = now() - began;
	cpu = cpu_seconds() - cpu;
	split.stop = 1;
	sem_post(&split.free);
	pthread_join(submitter, NULL);
	pthread_join(reaper, NULL);
	io_destroy(split.context);
	if (count == 0)
		fail("reading", ETIMEDOUT);
	printf("iops=%.1f cpu_us=%.4f\n", (double)count / passed, cpu * 1e6 / (double)count);
	return 0;
}
