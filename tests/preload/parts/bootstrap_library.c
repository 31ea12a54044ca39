/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library of the program's own. Its constructor runs before that of a preloaded library and its
 * destructor after it, so both use the allocator at the very ends of its life.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap_library.h"

struct bootstrap_block bootstrap_block[BOOTSTRAP_BLOCKS];

static void make(int i, size_t size)
{
	bootstrap_block[i].size = size;
	bootstrap_block[i].bytes = i % 2 ? malloc(size) : calloc(1, size);
	if (!bootstrap_block[i].bytes)
		abort();
	memset(bootstrap_block[i].bytes, i, size);
}

__attribute__((constructor)) static void start(void)
{
	for (int i = 0; i < BOOTSTRAP_BLOCKS; i++)
		make(i, i < 4 ? 100 : (size_t)i * 20000);
	/* One grown, one shrunk and one freed before the preloaded library's constructor. */
	bootstrap_block[0].bytes = realloc(bootstrap_block[0].bytes, 300000);
	bootstrap_block[0].size = 300000;
	memset(bootstrap_block[0].bytes, 0, 300000);
	bootstrap_block[9].bytes = realloc(bootstrap_block[9].bytes, 50);
	bootstrap_block[9].size = 50;
	free(bootstrap_block[5].bytes);
	make(5, 70000);
}

/* Everything is freed here, whoever it came from: before start-up, from main, or from below. */
__attribute__((destructor)) static void stop(void)
{
	for (int i = 0; i < BOOTSTRAP_BLOCKS; i++) {
		for (size_t j = 0; j < bootstrap_block[i].size; j++)
			if (bootstrap_block[i].bytes[j] != i)
				abort();
		free(bootstrap_block[i].bytes);
	}
	for (int i = 0; i < 50; i++) {
		char *late = malloc(200000);

		memset(late, i, 200000);
		late = realloc(late, 400000);
		if (late[199999] != i || malloc_usable_size(late) < 400000)
			abort();
		free(late);
	}
}
