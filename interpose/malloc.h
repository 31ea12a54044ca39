/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_MALLOC_H
#define PS_MALLOC_H

#include "config.h"

/* Begins to serve the size classes of the settings. Until then, and with none, all pass through. */
void ps_malloc_start(const struct ps_config *config);

/*
 * From now on free() and realloc() look whether what they release is a foreign range (foreign.h):
 * the C library unmaps it without calling our munmap. Called at the first such pin.
 */
void ps_malloc_watch_foreign(void);

/* Is the malloc that the program calls this library's? Calls it, before ps_malloc_start(). */
bool ps_malloc_is_ours(void);

#endif
