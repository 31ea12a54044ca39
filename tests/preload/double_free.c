/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Damages the heap in one way and must not live to tell. Usage: double_free WAY
 * double_free.sh expects SIGABRT and one line that names the fault. Stdout has the process ids.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"

#define K ((size_t)1 << 10)
#define M ((size_t)1 << 20)
#define G ((size_t)1 << 30)

static void free_twice(void)
{
	char *block = malloc(100 * K);

	free(opaque(block));
	free(opaque(block));
}

static void free_twice_large(void)
{
	char *block = malloc(64 * M);

	free(opaque(block));
	free(opaque(block));
}

/* The second free comes after others have used the same thread's cache. */
static void free_twice_later(void)
{
	char *block = malloc(100 * K), *other[50];

	free(opaque(block));
	for (int i = 0; i < 50; i++)
		other[i] = malloc(200 * K);
	for (int i = 0; i < 50; i++)
		free(other[i]);
	free(opaque(block));
}

static void *free_it(void *block)
{
	free(block);
	return NULL;
}

static void free_twice_in_threads(void)
{
	char *block = malloc(100 * K);
	pthread_t thread;

	if (pthread_create(&thread, NULL, free_it, block) || pthread_join(thread, NULL))
		return;
	free(opaque(block));
}

static void cfree_twice(void)
{
	void (*cfree)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
	char *block = malloc(100 * K);

	cfree(opaque(block));
	cfree(opaque(block));
}

static void free_interior(void)
{
	char *block = malloc(100 * K);

	free(opaque(block + 16));
}

static void free_interior_page(void)
{
	char *block = malloc(100 * K);

	free(opaque(block + 4096));
}

static void free_interior_large(void)
{
	char *block = malloc(64 * M);

	free(opaque(block + 2 * M));
}

static void free_interior_aligned(void)
{
	char *block = memalign(2 * M, 3 * M);

	free(opaque(block + 1));
}

/* The window is 1 TiB or more and blocks come from its start. */
static void free_wild(void)
{
	char *block = malloc(100 * K);

	free(opaque(block + 64 * G));
}

static void realloc_freed(void)
{
	char *block = malloc(100 * K);

	free(opaque(block));
	if (!realloc(opaque(block), 200 * K))
		exit(1);
}

static void realloc_interior(void)
{
	char *block = malloc(100 * K);

	if (!realloc(opaque(block + 4096), 200 * K))
		exit(1);
}

static void realloc_to_nothing_twice(void)
{
	char *block = malloc(100 * K);

	if (!realloc(opaque(block), opaque((size_t)0)))
		free(opaque(block));
}

/* realloc moved the block to the other heap; its old address is free. */
static void free_moved(void)
{
	char *block = malloc(100 * K);

	if (realloc(opaque(block), 10) != opaque(block))
		free(opaque(block));
}

static void usable_freed(void)
{
	char *block = malloc(100 * K);

	free(opaque(block));
	if (malloc_usable_size(opaque(block)))
		exit(1);
}

/* A forked child frees an inherited block twice: it, too, must notice. */
static void free_inherited_twice(void)
{
	char *block = malloc(100 * K);
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		say("%d\n", (int)getpid());
		free(opaque(block));
		free(opaque(block));
		_exit(1);
	}
	if (waitpid(child, &status, 0) == child && WIFSIGNALED(status))
		raise(WTERMSIG(status));
	exit(1);
}

static const struct way {
	const char *name;
	void (*go)(void);
} ways[] = {
	{ "free_twice", free_twice },
	{ "free_twice_large", free_twice_large },
	{ "free_twice_later", free_twice_later },
	{ "free_twice_in_threads", free_twice_in_threads },
	{ "cfree_twice", cfree_twice },
	{ "free_interior", free_interior },
	{ "free_interior_page", free_interior_page },
	{ "free_interior_large", free_interior_large },
	{ "free_interior_aligned", free_interior_aligned },
	{ "free_wild", free_wild },
	{ "realloc_freed", realloc_freed },
	{ "realloc_interior", realloc_interior },
	{ "realloc_to_nothing_twice", realloc_to_nothing_twice },
	{ "free_moved", free_moved },
	{ "usable_freed", usable_freed },
	{ "free_inherited_twice", free_inherited_twice },
};

int main(int count, char **argument)
{
	say("%d\n", (int)getpid());
	for (size_t i = 0; count == 2 && i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (!strcmp(argument[1], ways[i].name)) {
			ways[i].go();
			return 0; /* nobody noticed */
		}
	}
	return 2;
}
