/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cold malloc|mlock|map|huge BYTES
 *
 * How long a process that never had it waits for BYTES of locked memory:
 *   malloc  one malloc, which the preloaded library serves from locked memory
 *   mlock   posix_memalign and mlock, what DeepSpeed's pin manager does
 *   map     mmap with MAP_LOCKED
 *   huge    as mlock, by hand in huge pages: 2 MiB alignment, MADV_HUGEPAGE, mlock
 * and how long it waits for the same again, having given it back.
 *
 * Before the clock starts, as much memory of the same kind is touched and given back: memory that a
 * virtual machine never used must first be got from its host, which is far slower and not our matter.
 *
 * Prints name=value pairs: seconds to get it, to touch it (a byte in every 4 KiB), to give it back, to get
 * it again (the mean of some times, after one that is not counted), and how much of it is locked and in huge
 * pages, in bytes.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "proc.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define MAX_WARM_UPS 6
#define MANY_BELOW ((size_t)16 << 20)

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

enum way { BY_MALLOC, BY_MLOCK, BY_MAP, BY_HAND, WAYS };
static const char *const names[WAYS] = { "malloc", "mlock", "map", "huge" };

static void *aligned_and_locked(size_t alignment, size_t bytes)
{
	void *block = NULL;
	int error = posix_memalign(&block, alignment, bytes);

	if (error)
		fail("posix_memalign", error);
	if (alignment == HUGE_BYTES)
		madvise(block, bytes, MADV_HUGEPAGE);
	if (mlock(block, bytes) != 0)
		fail("mlock", errno);
	return block;
}

static void *get(enum way way, size_t bytes)
{
	void *block;

	switch (way) {
	case BY_MALLOC:
		block = malloc(bytes);
		if (!block)
			fail("malloc", errno);
		return block;
	case BY_MAP:
		block = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
		if (block == MAP_FAILED)
			fail("mmap", errno);
		return block;
	case BY_HAND:
		return aligned_and_locked(HUGE_BYTES, bytes);
	default:
		return aligned_and_locked(4096, bytes);
	}
}

static void put(enum way way, void *block, size_t bytes)
{
	if (way == BY_MAP) {
		munmap(block, bytes);
		return;
	}
	if (way != BY_MALLOC)
		munlock(block, bytes);
	free(block);
}

static double get_again(enum way way, size_t bytes)
{
	const int times = bytes <= MANY_BELOW ? 16 : 1;
	double taken = 0;

	put(way, get(way, bytes), bytes);
	for (int i = 0; i < times; i++) {
		const double begin = now();
		void *block = get(way, bytes);

		taken += now() - begin;
		put(way, block, bytes);
	}
	return taken / times;
}

static double touch(char *block, size_t bytes)
{
	const double begin = now();

	for (size_t at = 0; at < bytes; at += 4096)
		((volatile char *)block)[at] = 1;
	return now() - begin;
}

int main(int argc, char **argv)
{
	double begin, got, touched, returned;
	size_t bytes, huge, locked;
	enum way way = BY_MALLOC;
	char *block;

	while (argc == 3 && way < WAYS && strcmp(argv[1], names[way]) != 0)
		way++;
	if (argc != 3 || way == WAYS) {
		fprintf(stderr, "usage: cold malloc|mlock|map|huge BYTES\n");
		return 2;
	}
	bytes = strtoull(argv[2], NULL, 0);
	warm_up(bytes + bytes / 8, way == BY_MALLOC || way == BY_HAND);

	begin = now();
	block = get(way, bytes);
	got = now() - begin;
	look(block, bytes, &huge, &locked);
	if (locked < bytes) {
		fprintf(stderr, "cold: %zu of %zu bytes are locked\n", locked, bytes);
		return 1;
	}
	touched = touch(block, bytes);
	begin = now();
	put(way, block, bytes);
	returned = now() - begin;
	printf("get_seconds=%.9f touch_seconds=%.9f return_seconds=%.9f again_seconds=%.9f huge=%zu "
	       "locked=%zu\n",
	       got, touched, returned, get_again(way, bytes), huge, locked);
	return 0;
}
