/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_LOOKUP_H
#define TEST_LOOKUP_H
/*
 * Where a symbol that was looked up lies.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The name of the file, without directories, that an address belongs to; "nowhere". */
static inline const char *library_of(const void *address)
{
	const char *slash;
	Dl_info info;

	if (address == NULL || dladdr(address, &info) == 0 || info.dli_fname == NULL)
		return "nowhere";
	slash = strrchr(info.dli_fname, '/');
	return slash != NULL ? slash + 1 : info.dli_fname;
}

static inline bool is_in(const void *address, const char *library)
{
	return strcmp(library_of(address), library) == 0;
}

/* How far from where its file is mapped. */
static inline long offset_of(const void *address)
{
	Dl_info info;

	if (address == NULL || dladdr(address, &info) == 0)
		return 0;
	return (const char *)address - (const char *)info.dli_fbase;
}

#endif
