/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pack MIN MAX TOTAL SEED CHURN
 *
 * How much is locked for what the program holds: mallocs blocks of MIN to MAX bytes (evenly spread)
 * until TOTAL bytes are live, then CHURN times as many blocks are each replaced by one of another
 * size, then all are freed, then pinshim_trim(0), if the process has it.
 *
 * Prints name=value pairs: live bytes, and VmLck in bytes when full, after the churn, after the free
 * and after the trim.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "proc.h"

#define MAX_BLOCKS 65536

struct block {
	char *start;
	size_t bytes;
};

static struct block block[MAX_BLOCKS];
static size_t blocks, live;
static uint64_t state;

static size_t choose(size_t min, size_t max)
{
	/* xorshift64*, so that a seed means the same sizes everywhere. */
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return min + (size_t)((state * 2685821657736338717ULL) >> 11) % (max - min + 1);
}

static void get(struct block *b, size_t bytes)
{
	b->start = malloc(bytes);
	if (!b->start) {
		fprintf(stderr, "pack: malloc of %zu bytes failed\n", bytes);
		exit(1);
	}
	b->start[0] = 1;
	b->bytes = bytes;
	live += bytes;
}

static void put(struct block *b)
{
	free(b->start);
	live -= b->bytes;
}

int main(int argc, char **argv)
{
	size_t (*trim)(size_t keep) = (size_t(*)(size_t))dlsym(RTLD_DEFAULT, "pinshim_trim");
	size_t min, max, total, full_live, churn_live;
	long full, churned, freed, trimmed;

	if (argc != 6) {
		fprintf(stderr, "usage: pack MIN MAX TOTAL SEED CHURN\n");
		return 2;
	}
	min = strtoull(argv[1], NULL, 0);
	max = strtoull(argv[2], NULL, 0);
	total = strtoull(argv[3], NULL, 0);
	state = strtoull(argv[4], NULL, 0) * 0x9e3779b97f4a7c15ULL + 1;
	if (min == 0 || max < min)
		return 2;

	while (live + max <= total && blocks < MAX_BLOCKS)
		get(&block[blocks++], choose(min, max));
	full_live = live;
	full = locked_kib();
	for (size_t i = 0; i < blocks * strtoull(argv[5], NULL, 0); i++) {
		struct block *b = &block[choose(0, blocks - 1)];

		put(b);
		get(b, choose(min, max));
	}
	churn_live = live;
	churned = locked_kib();
	for (size_t i = 0; i < blocks; i++)
		put(&block[i]);
	freed = locked_kib();
	if (trim)
		trim(0);
	trimmed = locked_kib();
	printf("blocks=%zu live=%zu full=%ld churn_live=%zu churned=%ld freed=%ld trimmed=%ld trim=%d\n",
	       blocks, full_live, full * 1024, churn_live, churned * 1024, freed * 1024,
	       trimmed * 1024, trim != NULL);
	return 0;
}
