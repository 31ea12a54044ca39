/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For callgrind: looks each name up LOOKUPS times and has the cost of that written to a file of its
 * own. The argument is a library that has them all, so that no look-up allocates the text of an
 * error. Usage: lookup_count LIBRARY
 */
#include <dlfcn.h>
#include <stdio.h>
#include <valgrind/callgrind.h>

#include "lookup_names.h"

#define LOOKUPS 1000

/* Found first by RTLD_DEFAULT: what comes after the program differs between the two runs. */
int cuMemAllocHost_v2(void);
int cuMemAllocHost_v2(void)
{
	return 0;
}

static void look_up(const char *how, void *handle, const char *name)
{
	char label[128];
	void *volatile found = dlsym(handle, name);

	snprintf(label, sizeof(label), "%s %s", how, name);
	if (found == NULL)
		printf("missing: %s\n", label);
	CALLGRIND_ZERO_STATS;
	for (int i = 0; i < LOOKUPS; i++)
		found = dlsym(handle, name);
	CALLGRIND_DUMP_STATS_AT(label);
}

int main(int count, char **argument)
{
	static const char *const plain[] = { PLAIN_NAMES(NAME_ENTRY) };
	static const char *const others[] = { UNRELATED_NAMES(NAME_ENTRY) DRIVER_OTHERS(NAME_ENTRY)
						      RUNTIME_OTHERS(NAME_ENTRY) };
	void *library = count > 1 ? dlopen(argument[1], RTLD_NOW) : NULL;
	void *libc = dlopen("libc.so.6", RTLD_NOW);

	if (library == NULL)
		return 2;
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		look_up("other", libc, plain[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		look_up("other", library, others[i]);
	look_up("default", RTLD_DEFAULT, "cuMemAllocHost_v2");
	look_up("candidate", library, "cuMemAllocHost_v2");
	look_up("candidate", library, "cuGetProcAddress_v2");
	return 0;
}
