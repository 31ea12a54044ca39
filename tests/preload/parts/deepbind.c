/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Usage: deepbind WHO [locked]: opens libplugin.so of its RUNPATH with RTLD_DEEPBIND; blocks are made on
 * one side and freed on the other. WHO is whose who() the library is to call.
 */
#include <dlfcn.h>

#include "../check.h"
#include "deepbind_library.h"

#define M ((size_t)1 << 20)

const char *who(void)
{
	return "program";
}

int main(int count, char **argument)
{
	void *library = dlopen("libplugin.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	bool locked = count > 2 && !strcmp(argument[2], "locked");
	char *ours = malloc(M), *theirs, *grown, *small = malloc(100);
	const char *(*library_who_)(void);
	void *(*make)(size_t), *(*grow)(void *, size_t), *(*open_)(const char *);
	void (*release)(void *);

	if (!check(library != NULL, "dlopen finds a library by the program's RUNPATH"))
		return say("# %s\n", dlerror()), 1;
	library_who_ = (const char *(*)(void))dlsym(library, "library_who");
	make = (void *(*)(size_t))dlsym(library, "library_make");
	grow = (void *(*)(void *, size_t))dlsym(library, "library_grow");
	release = (void (*)(void *))dlsym(library, "library_free");
	open_ = (void *(*)(const char *))dlsym(library, "library_open");
	check(count > 1 && !strcmp(library_who_(), argument[1]),
	      "the library binds to the %s's symbols", argument[1]);
	check(dlopen("libneighbour.so", RTLD_NOW) == NULL,
	      "dlopen by the program does not search the library's RUNPATH");
	check(open_("libneighbour.so") != NULL, "dlopen by the library does");
	check(dlopen("libno-such.so", RTLD_NOW | RTLD_DEEPBIND) == NULL &&
		      strstr(dlerror(), "libno-such.so"),
	      "dlerror says what was not found");
	if (count > 2 && !strcmp(argument[2], "apart"))
		return check_end(); /* blocks may not cross: that is what keep means */

	fill(ours, M, 1);
	fill(small, 100, 4);
	release(ours);
	release(small);
	theirs = make(M);
	fill(theirs, M, 2);
	check(!locked || is_locked(theirs, M), "blocks of the library are served");
	grown = realloc(theirs, 3 * M);
	check(filled(grown, M, M, 2), "the program reallocates a block of the library");
	grown = grow(grown, 100);
	check(filled(grown, 100, M, 2), "the library reallocates a block of the program");
	free(grown);
	check(true, "blocks are freed on either side");
	return check_end();
}
