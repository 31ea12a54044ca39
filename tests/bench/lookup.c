/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lookup RANGES MILLISECONDS
 *
 * What it costs to ask whether a buffer is pinned, of a process with so many pinned ranges: pages of its
 * own that it pins where they are, every other one, so that none of them join. Asked about is one of
 * them at random, half a page of it:
 *   process  pinshim_is_pinned()
 *   table    the table in /dev/shm, as any process may read it: is it as it was, and is it in there
 *   copy     a copy of the table that is known to be as it is (libpinshim-aio.so knows from one load)
 *   scan     an array of ranges from its beginning on, under a mutex
 *
 * Prints name=value pairs, nanoseconds per question. Needs libpinshim.so preloaded.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "pinshim.h"
#include "pinshim_table_reader.h"

#define PAGE ((size_t)4096)

struct range {
	uintptr_t base;
	uintptr_t end;
};

static struct range *ranges;
static size_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pinshim_reader *reader;

static void fail(const char *what, int error)
{
	fprintf(stderr, "lookup: %s: %s\n", what, strerror(error));
	exit(1);
}

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static bool by_process(uintptr_t address, size_t length)
{
	return pinshim_is_pinned((void *)address, length) == 1;
}

static bool by_copy(uintptr_t address, size_t length)
{
	return pinshim_reader_covers(reader, address, length, PINSHIM_RANGE_LOCKED);
}

static bool by_table(uintptr_t address, size_t length)
{
	return pinshim_reader_refresh(reader) == 0 && by_copy(address, length);
}

static bool by_scan(uintptr_t address, size_t length)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count && !found; i++)
		found = address >= ranges[i].base && address + length <= ranges[i].end;
	pthread_mutex_unlock(&lock);
	return found;
}

/* Nanoseconds per question, of at least budget_ns of them. */
static double ask(bool (*covers)(uintptr_t, size_t), long budget_ns)
{
	uint64_t random = 88172645463325252u;
	long asked = 0, begin = now_ns(), passed;

	do {
		for (int i = 0; i < 16; i++, asked++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			if (!covers(ranges[random % count].base + PAGE / 4, PAGE / 2))
				fail("a pinned range was not found", ENOENT);
		}
		passed = now_ns() - begin;
	} while (passed < budget_ns);
	return (double)passed / (double)asked;
}

/*
 * All is locked by ourselves first, as one mapping: pinning a page of it then splits none, of which the
 * kernel allows 65530.
 */
static void pin(void)
{
	const size_t bytes = 2 * count * PAGE;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	int error;

	if (memory == MAP_FAILED)
		fail("mmap", errno);
	madvise(memory, bytes, MADV_HUGEPAGE);
	if (mlock(memory, bytes) != 0)
		fail("mlock", errno);
	for (size_t i = 0; i < count; i++) {
		ranges[i].base = (uintptr_t)memory + 2 * i * PAGE;
		ranges[i].end = ranges[i].base + PAGE;
		error = pinshim_pin((void *)ranges[i].base, PAGE);
		if (error < 0)
			fail("pinshim_pin", -error);
	}
	if (by_process(ranges[0].end, PAGE / 2))
		fail("a page between two ranges counts as pinned", EINVAL);
}

int main(int argc, char **argv)
{
	size_t in_table;
	long budget_ns;
	int error;

	if (argc != 3 || strtoull(argv[1], NULL, 0) == 0 || atol(argv[2]) <= 0) {
		fprintf(stderr, "usage: lookup RANGES MILLISECONDS\n");
		return 2;
	}
	count = strtoull(argv[1], NULL, 0);
	budget_ns = atol(argv[2]) * 1000000L;
	ranges = calloc(count, sizeof(*ranges));
	if (!ranges)
		fail("calloc", errno);
	pin();

	error = pinshim_reader_open_pid(NULL, getpid(), &reader);
	if (error < 0)
		fail("the table in /dev/shm", -error);
	if (pinshim_reader_refresh(reader) != 0)
		fail("reading the table", EPROTO);
	pinshim_reader_ranges(reader, &in_table);
	if (in_table < count)
		fail("the table has fewer ranges", ENOSPC);
	printf("process=%.1f ", ask(by_process, budget_ns));
	printf("table=%.1f ", ask(by_table, budget_ns));
	printf("copy=%.1f ", ask(by_copy, budget_ns));
	printf("scan=%.1f\n", ask(by_scan, budget_ns));
	pinshim_reader_close(reader);
	return 0;
}
