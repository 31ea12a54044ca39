/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads x fork: four threads allocate, free and reallocate over all sizes while the program forks.
 * Each child checks what it inherited, frees it, allocates anew and exits; the threads it was copied
 * from may have been anywhere, inside the allocator too. alarm() ends what hangs.
 * Usage: threads_fork CHILDREN [locked], the latter when pinshim serves 64 KiB and more.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#include "check.h"

#define M ((size_t)1 << 20)

enum { THREADS = 4, SLOTS = 24, KEPT = 40, SECONDS = 60 };

static atomic_bool stop;
static atomic_ulong operations;
static atomic_int damaged;

static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* Mostly 64 KiB to 1 MiB, often small, sometimes up to 24 MiB (served without jemalloc). */
static size_t random_size(uint32_t *state)
{
	uint32_t kind = next_random(state) % 16, value = next_random(state);

	if (kind < 5)
		return 1 + value % 8192;
	if (kind < 15)
		return 65536 + value % M;
	return 1 + value % (24 * M);
}

struct slot {
	unsigned char *block;
	size_t size;
	unsigned char seed;
};

static void one_step(struct slot *slot, uint32_t *state)
{
	size_t size = random_size(state);
	unsigned char seed = (unsigned char)next_random(state);

	if (slot->block && !filled(slot->block, slot->size, slot->size, slot->seed))
		atomic_store(&damaged, 1);
	switch (next_random(state) % 4) {
	case 0: {
		size_t common = size < slot->size ? size : slot->size;
		unsigned char *moved = realloc(slot->block, size);

		if (slot->block && moved && !filled(moved, common, slot->size, slot->seed))
			atomic_store(&damaged, 1);
		slot->block = moved;
		break;
	}
	case 1:
		free(slot->block);
		slot->block = memalign(4096, size);
		break;
	case 2:
		free(slot->block);
		slot->block = calloc(1, size);
		if (slot->block && (slot->block[0] || slot->block[size - 1]))
			atomic_store(&damaged, 1);
		break;
	default:
		free(slot->block);
		slot->block = malloc(size);
		break;
	}
	if (!slot->block)
		abort();
	slot->size = size;
	slot->seed = seed;
	fill(slot->block, size, seed);
}

static void *work(void *number)
{
	struct slot slot[SLOTS] = { 0 };
	uint32_t state = 2463534242u + (uint32_t)(uintptr_t)number * 7919u;

	while (!atomic_load(&stop)) {
		one_step(&slot[next_random(&state) % SLOTS], &state);
		atomic_fetch_add(&operations, 1);
	}
	for (int i = 0; i < SLOTS; i++)
		free(slot[i].block);
	return NULL;
}

/* In a child: 0 when all is right, else the number of the check that was not. */
static int child(struct slot *kept, bool locks)
{
	struct slot mine[SLOTS] = { 0 };
	uint32_t state = (uint32_t)getpid();

	alarm(20);
	if (locks && locked_bytes() != 0)
		return 10; /* locks are not inherited */
	for (int i = 0; i < KEPT; i++)
		if (!filled(kept[i].block, kept[i].size, kept[i].size, kept[i].seed))
			return 11;
	for (int i = 0; i < KEPT; i++) {
		if (i % 3 == 0) {
			size_t size = kept[i].size / 2 + 1;

			kept[i].block = realloc(kept[i].block, size);
			if (!filled(kept[i].block, size, kept[i].size, kept[i].seed))
				return 12;
		}
		free(kept[i].block);
	}
	for (int i = 0; i < 60; i++)
		one_step(&mine[next_random(&state) % SLOTS], &state);
	if (atomic_load(&damaged))
		return 13;
	free(mine[0].block);
	mine[0].block = malloc(3 * M);
	fill(mine[0].block, 3 * M, 5);
	if (locks && !is_locked(mine[0].block, 3 * M))
		return 14; /* new blocks are served */
	if (locks && table_count(getpid()) != 1)
		return 15; /* and published */
	for (int i = 0; i < SLOTS; i++)
		free(mine[i].block);
	return 0;
}

int main(int count, char **argument)
{
	bool locks = count > 2 && !strcmp(argument[2], "locked");
	int children = count > 1 ? atoi(argument[1]) : 0;
	int bad = 0, reason = 0, leftover = 0;
	pthread_t thread[THREADS];
	struct slot kept[KEPT];
	uint32_t state = 88172645;

	alarm(SECONDS);
	for (int i = 0; i < KEPT; i++) {
		kept[i].size = i % 2 ? 65536 + (size_t)i * 20000 : 100 + (size_t)i * 100;
		kept[i].seed = (unsigned char)next_random(&state);
		kept[i].block = malloc(kept[i].size);
		fill(kept[i].block, kept[i].size, kept[i].seed);
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, work, (void *)i))
			return 2;
	for (int i = 0; i < children; i++) {
		unsigned long before = atomic_load(&operations);
		int status = 0;
		pid_t pid;

		while (atomic_load(&operations) < before + 20)
			sched_yield(); /* so that each fork meets the threads elsewhere */
		pid = fork();
		if (pid == 0) {
			int result = child(kept, locks);

			if (i % 2)
				exit(result);
			_exit(result);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
			bad++;
			reason = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
		}
		leftover += table_count(pid);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);

	if (!check(children > 0 && bad == 0,
		   "%d children forked beside four allocating threads check, free, allocate and exit",
		   children))
		say("# %d children failed, the last with %d\n", bad, reason);
	check(!atomic_load(&damaged), "no block of the threads was damaged by the forks");
	check(leftover == 0, "no child leaves a table behind");
	for (int i = 0; i < KEPT; i++)
		bad += !filled(kept[i].block, kept[i].size, kept[i].size, kept[i].seed);
	check(bad == 0, "the parent's blocks are as they were");
	for (int i = 0; i < KEPT; i++)
		free(kept[i].block);
	return check_end();
}
