/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A plug-in. Opened with RTLD_DEEPBIND its malloc, free and who() are those of its own scope: libc
 * and itself, not the program's and not a preload's.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "deepbind_library.h"

const char *who(void)
{
	return "library";
}

const char *library_who(void)
{
	return who();
}

void *library_make(size_t size)
{
	return malloc(size);
}

void *library_grow(void *block, size_t size)
{
	return realloc(block, size);
}

void library_free(void *block)
{
	free(block);
}

void *library_open(const char *name)
{
	return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}
