/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Another preload library in the usual style: wrappers that call dlsym(RTLD_NEXT, ...) and count. At
 * exit it writes the number of blocks of 1 MiB and more that it saw to the file COUNTING_FILE.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *(*next_malloc)(size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static atomic_ulong seen;

static void find(void)
{
	next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
	next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
	next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}

void *malloc(size_t size)
{
	if (!next_malloc)
		find();
	if (size >= 1 << 20)
		atomic_fetch_add(&seen, 1);
	return next_malloc(size);
}

void *realloc(void *block, size_t size)
{
	if (!next_realloc)
		find();
	return next_realloc(block, size);
}

void free(void *block)
{
	if (!next_free)
		find();
	next_free(block);
}

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("COUNTING_FILE");
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;

	if (fd >= 0) {
		dprintf(fd, "%lu\n", atomic_load(&seen));
		close(fd);
	}
}
