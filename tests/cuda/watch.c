/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which of CUDA's memory makes free() look whether a block is pinned. Looking asks the next allocator how large the
 * block is, which a library counts that comes after pinshim's: with -DCOUNTS this is that library.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef COUNTS

unsigned long watch_count(void);

static unsigned long asked;

size_t malloc_usable_size(void *block)
{
	static size_t (*next)(void *);

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "malloc_usable_size");
	asked++;
	return next(block);
}

unsigned long watch_count(void)
{
	return asked;
}

#else

#define MAPPED 2u
#define SMALL ((size_t)4096)

/* How often freeing ten blocks made somebody look. */
static unsigned long looks(unsigned long (*count)(void))
{
	const unsigned long before = count();

	for (int i = 0; i < 10; i++)
		free(malloc(100));
	return count() - before;
}

int main(void)
{
	static char memory[SMALL];
	void *runtime = dlopen("libcudart.so.13", RTLD_NOW), *block = NULL;
	int (*allocate)(void **, size_t, unsigned) = NULL, (*add)(void *, size_t, unsigned) = NULL;
	unsigned long (*count)(void);

	*(void **)&count = dlsym(RTLD_DEFAULT, "watch_count");
	if (runtime != NULL) {
		*(void **)&allocate = dlsym(runtime, "cudaHostAlloc");
		*(void **)&add = dlsym(runtime, "cudaHostRegister");
	}
	if (count == NULL || allocate == NULL || add == NULL)
		return 2;
	/* As NCCL has its flags: too small to be registered in place of being allocated. */
	if (allocate(&block, SMALL, MAPPED) != 0)
		return 3;
	printf("allocated %lu\n", looks(count));
	if (add(memory, sizeof(memory), 0) != 0)
		return 4;
	printf("registered %lu\n", looks(count));
	return 0;
}

#endif
