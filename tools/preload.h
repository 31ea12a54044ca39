/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_PRELOAD_H
#define PS_PRELOAD_H
/*
 * The libraries of pinshim, and the value of LD_PRELOAD that has them.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "text.h"

#define PS_LIBRARY "libpinshim.so"
#define PS_AIO_LIBRARY "libpinshim-aio.so"

struct ps_preload {
	char library[PATH_MAX];     /* of libpinshim.so, from the root */
	char aio_library[PATH_MAX]; /* of libpinshim-aio.so; empty: not wanted */
};

/*
 * Finds the libraries in the directory, or where that is NULL beside this command and in the lib
 * directories beside the command's own. 0; -ENOENT and other -errno with one line in *why, what to do
 * about it included.
 */
int ps_preload_find(struct ps_preload *preload, const char *directory, bool aio,
		    struct ps_text *why);

/*
 * Puts the libraries before what LD_PRELOAD was (NULL: unset), from which other copies of them are
 * dropped: two of them would be two heaps.
 */
void ps_preload_value(const struct ps_preload *preload, const char *before, struct ps_text *value);

/* Calls visit(path, context) for each library in a value of LD_PRELOAD, until it returns false. */
void ps_preload_each(const char *value, bool (*visit)(const char *path, void *context),
		     void *context);

#endif
