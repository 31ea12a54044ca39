/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_LOADER_H
#define PS_LOADER_H
/*
 * Finding shared libraries where ld.so(8) would for an ordinary program: RPATH, LD_LIBRARY_PATH,
 * RUNPATH, the cache, the standard directories. Nothing is run or loaded. Variants for special
 * processors (glibc-hwcaps) are found through the cache alone.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "elf_file.h"

/* An object that was found: its path and what is in it. */
struct ps_object {
	char path[PATH_MAX];
	struct ps_elf elf;
};

/* Who needs the library; both NULL where nobody does. */
struct ps_needer {
	const struct ps_object *object; /* the object that needs it */
	const struct ps_object *main;   /* the program, whose RPATH counts for its libraries too */
};

/* Opens the file at this path. 0 or -errno; -ENOEXEC where it is no ELF file. */
int ps_object_open(struct ps_object *object, const char *path);
void ps_object_close(struct ps_object *object);

/* Finds a library of this machine by name, or by path where it has a slash. 0; -ENOENT; -ENOMEM. */
int ps_loader_find(const char *name, const struct ps_needer *needer, struct ps_object *object);

#endif
