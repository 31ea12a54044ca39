/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A driver in two libraries, as that of WSL: a front, which looks up the function behind it at each call.
 * Three programs in one: with -DFRONT libcuda.so.1, with -DBEHIND libcuda.so.1.1, else one that calls it.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#define NO_SUCH 500

int cuMemHostAlloc(void **pointer, size_t size, unsigned flags);

#if defined(BEHIND)

int cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
	static char memory[4096];

	*pointer = size <= sizeof(memory) && flags == 0 ? memory : NULL;
	return *pointer != NULL ? 0 : 2;
}

#elif defined(FRONT)

int cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
	void *behind = dlopen("libcuda.so.1.1", RTLD_NOW);
	int (*next)(void **, size_t, unsigned) = NULL;

	if (behind != NULL)
		*(void **)&next = dlsym(behind, "cuMemHostAlloc");
	return next != NULL ? next(pointer, size, flags) : NO_SUCH;
}

#else

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *pointer = NULL;
	int (*allocate)(void **, size_t, unsigned) = NULL;

	if (driver != NULL)
		*(void **)&allocate = dlsym(driver, "cuMemHostAlloc");
	if (allocate == NULL)
		return 2;
	printf("%d", allocate(&pointer, 100, 0));
	printf(" %s\n", pointer != NULL ? "memory" : "none");
	return 0;
}

#endif
