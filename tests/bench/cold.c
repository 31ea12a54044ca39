/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cold malloc|mlock|huge BYTES
 *
 * How long a process that never had it waits for BYTES of locked memory:
 *   malloc  one malloc, which the preloaded library serves from locked memory
 *   mlock   posix_memalign and mlock, what DeepSpeed's pin manager does
 *   huge    the same by hand in huge pages: 2 MiB alignment, MADV_HUGEPAGE, mlock
 *
 * Before the clock starts, as much memory of the same kind is touched and given back: memory that a
 * virtual machine never used must first be got from its host, which is far slower and not our matter.
 *
 * Prints name=value pairs: seconds to get it, to touch it (a byte in every 4 KiB), to give it back,
 * and how much of it is locked and in huge pages, in bytes.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "proc.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define MAX_WARM_UPS 6

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what, int error)
{
	fprintf(stderr, "cold: %s: %s\n", what, strerror(error));
	exit(1);
}

static double touch_and_return(size_t bytes, int huge)
{
	double begin = now();
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap", errno);
	madvise(p, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	populate(p, bytes);
	munmap(p, bytes);
	return now() - begin;
}

/* Until it no longer gets faster: the host's share of the work is then done. */
static void warm_up(size_t bytes, int huge)
{
	double before = touch_and_return(bytes, huge), took;

	for (int i = 1; i < MAX_WARM_UPS; i++, before = took) {
		took = touch_and_return(bytes, huge);
		if (took > before * 0.8)
			break;
	}
}

/* Sums AnonHugePages and Locked over the mappings that overlap the block, in bytes. */
static void look(const char *start, size_t bytes, size_t *huge, size_t *locked)
{
	uintptr_t from = (uintptr_t)start, to = from + bytes;
	unsigned long low, high, kib;
	char line[512];
	int inside = 0;
	FILE *smaps = fopen("/proc/self/smaps", "re");

	*huge = *locked = 0;
	if (!smaps)
		fail("/proc/self/smaps", errno);
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &low, &high) == 2)
			inside = low < to && high > from;
		else if (inside && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
			*huge += kib * 1024;
		else if (inside && sscanf(line, "Locked: %lu kB", &kib) == 1)
			*locked += kib * 1024;
	}
	fclose(smaps);
	/* A mapping may be larger than the block. */
	*huge = *huge < bytes ? *huge : bytes;
	*locked = *locked < bytes ? *locked : bytes;
}

int main(int argc, char **argv)
{
	double begin, got, touched, returned;
	size_t bytes, huge, locked;
	int by_malloc, by_hand, error;
	void *block = NULL;

	if (argc != 3) {
		fprintf(stderr, "usage: cold malloc|mlock|huge BYTES\n");
		return 2;
	}
	by_malloc = strcmp(argv[1], "malloc") == 0;
	by_hand = strcmp(argv[1], "huge") == 0;
	bytes = strtoull(argv[2], NULL, 0);
	warm_up(bytes + bytes / 8, by_malloc || by_hand);

	begin = now();
	if (by_malloc) {
		block = malloc(bytes);
		if (!block)
			fail("malloc", errno);
	} else {
		error = posix_memalign(&block, by_hand ? HUGE_BYTES : 4096, bytes);
		if (error)
			fail("posix_memalign", error);
		if (by_hand)
			madvise(block, bytes, MADV_HUGEPAGE);
		if (mlock(block, bytes) != 0)
			fail("mlock", errno);
	}
	got = now() - begin;

	look(block, bytes, &huge, &locked);
	if (locked < bytes) {
		fprintf(stderr, "cold: %zu of %zu bytes are locked\n", locked, bytes);
		return 1;
	}
	begin = now();
	for (size_t at = 0; at < bytes; at += 4096)
		((volatile char *)block)[at] = 1;
	touched = now() - begin;

	begin = now();
	if (!by_malloc)
		munlock(block, bytes);
	free(block);
	returned = now() - begin;
	printf("got=%.6f touched=%.6f returned=%.6f huge=%zu locked=%zu\n", got, touched, returned,
	       huge, locked);
	return 0;
}
