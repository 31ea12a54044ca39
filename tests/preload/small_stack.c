/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Everything happens in threads with the smallest stack there may be, the first pin too. Usage:
 * small_stack [KIB]
 */
#include <limits.h>
#include <malloc.h>
#include <pthread.h>

#include "check.h"

#define M ((size_t)1 << 20)

static void *work(void *good)
{
	char *small = malloc(100000), *block, *large;

	fill(small, 100000, 1);
	block = realloc(small, 5 * M);
	if (!block)
		return NULL;
	*(bool *)good = filled(block, 100000, 100000, 1);
	large = calloc(1, 40 * M);
	*(bool *)good &= large[0] == 0;
	free(large);
	free(block);
	for (size_t i = 0; i < 40; i++)
		free(opaque(memalign(8192, 70000 + i * 100000)));
	return NULL;
}

int main(int count, char **argument)
{
	size_t bytes = count > 1 ? strtoul(argument[1], NULL, 0) * 1024 : 16384;

	alarm(20);
	for (int i = 0; i < 3; i++) {
		pthread_attr_t attributes;
		pthread_t thread;
		bool good = false;

		pthread_attr_init(&attributes);
		if (pthread_attr_setstacksize(&attributes, bytes) ||
		    pthread_create(&thread, &attributes, work, &good))
			return 2;
		pthread_join(thread, NULL);
		check(good, "blocks of a thread with a stack of %zu KiB hold", bytes / 1024);
	}
	return check_end();
}
