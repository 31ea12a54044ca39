/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that allocates in a constructor of priority 101, passes blocks to and from a library
 * that allocated before every constructor of a preload, and frees in a destructor of priority 101.
 */
#include <string.h>

#include "../check.h"
#include "bootstrap_library.h"

static char *early, *late;

__attribute__((constructor(101))) static void start(void)
{
	early = malloc(100000);
	fill(early, 100000, 1);
	early = realloc(early, 3 << 20);
}

__attribute__((destructor(101))) static void stop(void)
{
	if (!filled(early, 100000, 100000, 1) || !filled(late, 100000, 100000, 2))
		abort();
	free(early);
	free(late);
	say("destructor\n");
}

int main(void)
{
	unsigned char *moved;

	check(filled(early, 100000, 100000, 1), "blocks of a constructor of priority 101 hold");
	for (int i = 0; i < BOOTSTRAP_BLOCKS; i++)
		check(bootstrap_block[i].bytes[bootstrap_block[i].size - 1] == i,
		      "block %d of the library's constructor holds", i);
	/* From before start-up into the pinned heap and back. */
	moved = realloc(bootstrap_block[3].bytes, 1 << 20);
	memset(moved, 3, 1 << 20);
	bootstrap_block[3].bytes = moved;
	bootstrap_block[3].size = 1 << 20;
	moved = realloc(bootstrap_block[11].bytes, 10);
	bootstrap_block[11].bytes = moved;
	bootstrap_block[11].size = 10;
	late = malloc(100000);
	fill(late, 100000, 2);
	return check_end();
}
