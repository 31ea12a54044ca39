/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DEEPBIND_LIBRARY_H
#define DEEPBIND_LIBRARY_H
#include <stddef.h>

const char *who(void); /* "program" or "library": the program has a who() as well */
const char *library_who(void);
void *library_make(size_t size);
void *library_grow(void *block, size_t size);
void library_free(void *block);
void *library_open(const char *name); /* dlopen by the library, with its own RUNPATH */

#endif
