/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_JEMALLOC_PRIVATE_H
#define PS_JEMALLOC_PRIVATE_H
/*
 * Our private copy of jemalloc 5.3.x, made by scripts/private-jemalloc: every symbol begins psje_,
 * those below are all that can be reached. It initialises itself at the first call, not at start.
 *
 * Types and MALLOCX_* come from jemalloc's own header: its constants are easily remembered wrong.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef JEMALLOC_VERSION
#error "include jemalloc_private.h, not jemalloc/jemalloc.h"
#endif

#define JEMALLOC_NO_RENAME
#define JEMALLOC_EXPORT __attribute__((visibility("hidden")))
#define je_dallocx psje_dallocx
#define je_mallctl psje_mallctl
#define je_mallctlbymib psje_mallctlbymib
#define je_mallctlnametomib psje_mallctlnametomib
#define je_mallocx psje_mallocx
#define je_nallocx psje_nallocx
#define je_sallocx psje_sallocx
#define je_sdallocx psje_sdallocx
#define je_xallocx psje_xallocx
#include <jemalloc/jemalloc.h>

/*
 * Settings, read last at initialisation, so they win over any other source. The copy's own is weak
 * and NULL: whoever uses the copy defines this one.
 */
extern const char *psje_malloc_conf_2_conf_harder JEMALLOC_EXPORT;

/*
 * Whether large classes get an extra page and a random offset. 5.3.0 forgot the setting's name, so
 * this is the only way to turn it off; to be written before the first call.
 */
extern bool psje_opt_cache_oblivious JEMALLOC_EXPORT;

/*
 * Beginning of jemalloc's map of addresses, as 5.3.x lays it out. Its handlers of fork leave out this
 * one lock, which a thread holds that makes a leaf of the map, for a gibibyte not used before.
 */
struct psje_emap {
	void *base;
	char profile[64]; /* of the lock: counts of waits */
	pthread_mutex_t lock;
};

extern struct psje_emap psje_arena_emap_global JEMALLOC_EXPORT;

/* What mallctl("experimental.arenas_create_ext") takes; jemalloc's header does not have it. */
struct arena_config_s {
	extent_hooks_t *extent_hooks;
	bool metadata_use_hooks; /* false: jemalloc's own bookkeeping stays out of the window */
};

#endif
