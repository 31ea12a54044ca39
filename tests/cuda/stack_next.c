/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An interposer that finds what it wraps by RTLD_NEXT: malloc, cudaHostAlloc, and dlsym, which it
 * calls rather than wraps.
 */
#include <dlfcn.h>
#include <stdlib.h>

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int next_mallocs, next_host_allocs;
PUBLIC int cudaHostAlloc(void **pointer, size_t size, unsigned int flags);
PUBLIC void *next_look_up(void *handle, const char *name);

PUBLIC void *malloc(size_t size)
{
	static void *(*next)(size_t size);

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "malloc");
	next_mallocs++;
	return next(size);
}

PUBLIC int cudaHostAlloc(void **pointer, size_t size, unsigned int flags)
{
	static int (*next)(void **pointer, size_t size, unsigned int flags);

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "cudaHostAlloc");
	next_host_allocs++;
	return next(pointer, size, flags);
}

PUBLIC void *next_look_up(void *handle, const char *name)
{
	static void *(*next)(void *handle, const char *name);

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "dlsym");
	return next(handle, name);
}
