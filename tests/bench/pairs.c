/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pairs malloc|fill|mlock BYTES THREADS MILLISECONDS
 *
 * What one allocation and its free cost in steady state: every thread gets a block, writes its first
 * byte and frees it, over and over. `malloc` calls malloc and free, whoever serves them; `fill` the
 * same, and every byte is written; `mlock` does what DeepSpeed's pin manager does: posix_memalign, mlock,
 * and munlock, free.
 *
 * Prints a line for each thread: nanoseconds per pair, and the bytes that the process had locked while
 * the thread held a block.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "proc.h"

#define MAX_THREADS 64
#define WARM_UP 4 /* pairs; pinning each time has nothing that gets warm */

struct worker {
	pthread_t thread;
	double ns_per_pair;
	long locked_kib; /* VmLck of the process while this thread holds a block */
};

static size_t bytes;
static long budget_ns;
static int lock_each, fill_each;
static pthread_barrier_t start;

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void fail(const char *what, int error)
{
	fprintf(stderr, "pairs: %s of %zu bytes: %s\n", what, bytes, strerror(error));
	exit(1);
}

static void *get(void)
{
	void *block = NULL;

	if (lock_each) {
		int error = posix_memalign(&block, 4096, bytes);

		if (error)
			fail("posix_memalign", error);
		if (mlock(block, bytes) != 0)
			fail("mlock", errno);
	} else {
		block = malloc(bytes);
		if (!block)
			fail("malloc", errno);
	}
	if (fill_each)
		memset(block, 1, bytes);
	*(volatile char *)block = 1;
	return block;
}

static void put(void *block)
{
	if (lock_each)
		munlock(block, bytes);
	free(block);
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	long pairs = 0, batch = 1, begin, passed;

	for (int i = 0; i < (lock_each ? 1 : WARM_UP); i++) {
		void *block = get();

		worker->locked_kib = locked_kib();
		put(block);
	}
	pthread_barrier_wait(&start);
	begin = now_ns();
	do {
		for (long i = 0; i < batch; i++)
			put(get());
		pairs += batch;
		passed = now_ns() - begin;
		/* Batches of about a hundredth of the budget: the clock must not be what is measured. */
		if (passed < budget_ns / 100)
			batch *= 2;
	} while (passed < budget_ns);
	worker->ns_per_pair = (double)passed / (double)pairs;
	return NULL;
}

int main(int argc, char **argv)
{
	struct worker worker[MAX_THREADS];
	int threads;

	if (argc != 5) {
		fprintf(stderr, "usage: pairs malloc|fill|mlock BYTES THREADS MILLISECONDS\n");
		return 2;
	}
	lock_each = strcmp(argv[1], "mlock") == 0;
	fill_each = strcmp(argv[1], "fill") == 0;
	bytes = strtoull(argv[2], NULL, 0);
	threads = atoi(argv[3]);
	budget_ns = atol(argv[4]) * 1000000L;
	if (bytes == 0 || threads < 1 || threads > MAX_THREADS || budget_ns <= 0) {
		fprintf(stderr, "pairs: needs a size, 1 to %d threads and a time\n", MAX_THREADS);
		return 2;
	}

	pthread_barrier_init(&start, NULL, (unsigned int)threads);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&worker[i].thread, NULL, work, &worker[i]) != 0)
			fail("pthread_create", EAGAIN);
	for (int i = 0; i < threads; i++)
		pthread_join(worker[i].thread, NULL);
	for (int i = 0; i < threads; i++)
		printf("%.1f %ld\n", worker[i].ns_per_pair, worker[i].locked_kib * 1024);
	return 0;
}
