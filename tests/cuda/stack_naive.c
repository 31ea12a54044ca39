/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An interposer with a dlsym of the naive kind: a function that calls the real one, which it finds by
 * version. It counts, and stands in for cuDeviceGet; with -DHOST for cuMemHostAlloc too, as HAMi-core
 * does; with -DMALLOC it also wraps malloc, which it looks up through itself.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

typedef void *lookup(void *handle, const char *name);

PUBLIC int naive_lookups, naive_mallocs;
PUBLIC int naive_cuDeviceGet(void);
PUBLIC int naive_cuMemHostAlloc(void);

PUBLIC int naive_cuDeviceGet(void)
{
	return 4711;
}

PUBLIC int naive_cuMemHostAlloc(void)
{
	return 4712;
}

static lookup *real_dlsym(void)
{
	static const char *const versions[] = { "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34" };
	static lookup *real;

	for (int i = 0; real == NULL && i < 3; i++)
		*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	return real;
}

PUBLIC void *dlsym(void *restrict handle, const char *restrict name)
{
	void *volatile found = real_dlsym()(handle, name);

	naive_lookups++;
	if (found != NULL && handle != RTLD_NEXT && strcmp(name, "cuDeviceGet") == 0)
		return (void *)naive_cuDeviceGet;
#ifdef HOST
	if (found != NULL && handle != RTLD_NEXT && strcmp(name, "cuMemHostAlloc") == 0)
		return (void *)naive_cuMemHostAlloc;
#endif
	return found;
}

#ifdef MALLOC
PUBLIC void *malloc(size_t size)
{
	static void *(*next)(size_t size);

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "malloc");
	naive_mallocs++;
	return next(size);
}
#endif
