/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that does not care who allocates. Usage: stacking [locked|unlocked|any] [ROOM]
 *
 * Says whether blocks of 64 KiB and more are to be locked; smaller ones never are. ROOM is what
 * malloc_usable_size of 1000 bytes is to be: 1000 for glibc, 1024 for the other allocators, which
 * tells them apart.
 */
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#include "check.h"

#define M ((size_t)1 << 20)

static const char *expected = "any";

static bool locked_as_expected(const void *block, size_t size)
{
	return !strcmp(expected, "any") || is_locked(block, size) == !strcmp(expected, "locked");
}

static bool churn(unsigned seed)
{
	enum { SLOTS = 32 };
	char *block[SLOTS] = { NULL };
	size_t size[SLOTS] = { 0 };
	bool good = true;

	for (int i = 0; i < 4000; i++) {
		int slot = (int)(seed >> 8) % SLOTS;
		size_t next = i % 3 ? (seed >> 4) % 3000 + 1 : (seed >> 4) % 400000 + 1;

		if (i % 5 == 0) {
			size_t common = next < size[slot] ? next : size[slot];

			block[slot] = realloc(block[slot], next);
			good &= filled(block[slot], common, size[slot], (unsigned char)slot);
		} else {
			good &= filled(block[slot], size[slot], size[slot], (unsigned char)slot);
			free(block[slot]);
			block[slot] = i % 2 ? memalign(256, next) : calloc(next, 1);
		}
		good &= malloc_usable_size(block[slot]) >= next;
		size[slot] = next;
		fill(block[slot], next, (unsigned char)slot);
		seed = seed * 1103515245u + 12345u;
	}
	for (int i = 0; i < SLOTS; i++)
		free(block[i]);
	return good;
}

static void *churn_in_thread(void *seed)
{
	return churn(*(unsigned *)seed) ? seed : NULL;
}

int main(int count, char **argument)
{
	char *small = malloc(1000), *large = malloc(3 * M), *grown, *shrunk;
	unsigned seed = 12345;
	void *result = NULL;
	pthread_t thread;
	pid_t child;
	int status;

	if (count > 1)
		expected = argument[1];
	if (count > 2)
		check(malloc_usable_size(small) == strtoul(argument[2], NULL, 0),
		      "blocks outside the ranges come from the other allocator");
	fill(small, 1000, 1);
	fill(large, 3 * M, 2);
	check(!is_locked(small, 1000), "blocks outside the ranges are not locked");
	check(locked_as_expected(large, 3 * M), "blocks of the ranges are %s", expected);
	grown = realloc(small, 2 * M);
	check(filled(grown, 1000, 1000, 1) && locked_as_expected(grown, 2 * M),
	      "a block that grows into the ranges is %s", expected);
	shrunk = realloc(large, 500);
	check(filled(shrunk, 500, 3 * M, 2) && !is_locked(shrunk, 500),
	      "a block that shrinks out of the ranges is not locked");
	free(grown);
	free(shrunk);
	check(churn(1), "blocks of all sizes hold");
	if (!pthread_create(&thread, NULL, churn_in_thread, &seed))
		pthread_join(thread, &result);
	check(result != NULL, "in a thread too");
	child = fork();
	if (child == 0)
		_exit(churn(7) ? 0 : 1);
	check(waitpid(child, &status, 0) == child && status == 0, "and in a forked child");
	return check_end();
}
