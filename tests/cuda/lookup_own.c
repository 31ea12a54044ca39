/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library that has definitions of its own of 20 functions of libc, as an interposer has, and looks
 * up whose come after them. With -DOTHER a second such library.
 */
#include "lookup.h"
#include "lookup_names.h"

#define OWN(name)                                                                                  \
	int own_##name(void) __asm__(#name);                                                       \
	int own_##name(void)                                                                       \
	{                                                                                          \
		return 0;                                                                          \
	}

PLAIN_NAMES(OWN)

#ifndef OTHER
void own_print(void);
void own_print(void)
{
	static const char *const names[] = { PLAIN_NAMES(NAME_ENTRY) };
	static const char *const missing[] = { "missing", "cuMissing", "cuMemHostNone" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		void *found = dlsym(RTLD_NEXT, names[i]);

		printf("library next %s %s+%lx\n", names[i], library_of(found), offset_of(found));
	}
	for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++) {
		void *found = dlsym(RTLD_NEXT, missing[i]);

		printf("library next %s %p", missing[i], found);
		printf(" dlerror %s\n", dlerror());
	}
}
#endif
