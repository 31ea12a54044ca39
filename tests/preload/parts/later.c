/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * later LIBRARY FUNCTION: maps memory and loads a library. Prints how many GiB away from the C library the
 * memory is, and the library's function.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint64_t gib_between(const void *one, const void *other)
{
	const uintptr_t a = (uintptr_t)one, b = (uintptr_t)other;

	return (a > b ? a - b : b - a) >> 30;
}

int main(int argc, char **argv)
{
	void *here = dlsym(RTLD_DEFAULT, "qsort");
	void *memory = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	void *there = library != NULL ? dlsym(library, argv[2]) : NULL;

	if (there == NULL || here == NULL || memory == MAP_FAILED) {
		fprintf(stderr, "later: %s\n", there == NULL ? dlerror() : "mmap");
		return 1;
	}
	printf("%llu %llu\n", (unsigned long long)gib_between(memory, here),
	       (unsigned long long)gib_between(there, here));
	return 0;
}
