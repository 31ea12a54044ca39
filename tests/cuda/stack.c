/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with interposers below it. Usage: stack DRIVER WHERE [EXPECTED...]
 *
 * Allocates, and looks functions up on the driver's handle. WHERE is the library that cuMemHostAlloc
 * and cuGetProcAddress_v2 are to be found in; each EXPECTED an interposer's counter that is to have
 * counted ("naive_lookups") or a function of one that is to be found ("cuDeviceGet").
 */
#include <dlfcn.h>

#include "../preload/check.h"
#include "lookup.h"

#define M ((size_t)1 << 20)

int cudaHostAlloc(void **pointer, size_t size, unsigned int flags);
int cudaFreeHost(void *pointer);

int main(int count, char **argument)
{
	void *pinned = NULL, *block = opaque(malloc(3 * M)), *driver;
	void *(*look_up)(void *handle, const char *name);

	if (count < 3)
		return 2;
	check(block != NULL && opaque(realloc(block, 4 * M)) != NULL, "malloc works");
	check(cudaHostAlloc(&pinned, M, 0) == 0 && pinned != NULL, "cudaHostAlloc works");
	memset(pinned, 1, M);
	check(cudaFreeHost(pinned) == 0, "cudaFreeHost works");
	driver = dlopen(argument[1], RTLD_NOW | RTLD_LOCAL);
	check(is_in(dlsym(driver, "cuMemHostAlloc"), argument[2]), "cuMemHostAlloc is of %s: %s",
	      argument[2], library_of(dlsym(driver, "cuMemHostAlloc")));
	check(is_in(dlsym(driver, "cuGetProcAddress_v2"), argument[2]),
	      "so is cuGetProcAddress_v2");
	check(is_in(dlsym(driver, "cuInit"), "libcuda.so.1"), "and cuInit the driver's");
	check(dlsym(driver, "cuMemHostNone") == NULL, "and a missing name is missing");
	*(void **)&look_up = dlsym(RTLD_DEFAULT, "next_look_up");
	if (look_up != NULL)
		check(is_in(look_up(driver, "cuInit"), "libcuda.so.1"),
		      "through the dlsym that an interposer has found as well");
	for (int i = 3; i < count; i++) {
		int *counter = dlsym(RTLD_DEFAULT, argument[i]);

		if (strcmp(argument[i], "cuDeviceGet") == 0)
			check(is_in(dlsym(driver, "cuDeviceGet"), "libnaive.so"),
			      "the interposer's own cuDeviceGet");
		else
			check(counter != NULL && *counter > 0, "%s", argument[i]);
	}
	return check_end();
}
