/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_DRIVER_H
#define PS_DRIVER_H
/*
 * What the heap needs of a GPU's driver, so that it knows of no vendor. Implemented in interpose/;
 * unit tests bring their own.
 *
 * None of these may be called with a lock of jemalloc's, the window's or below held: drivers take
 * locks of their own and allocate under them. All are called with ps_thread.depth raised, so that
 * what the driver allocates does not come from this heap.
 */
#include <stdbool.h>
#include <stddef.h>

struct ps_driver {
	/* The most bytes that are registered in one call, whole granules. */
	size_t piece;
	/* Has the calling thread a context, without which memory cannot be registered? */
	bool (*ready)(void);
	/* Registers memory for all contexts. 0, or the driver's error, positive. */
	int (*register_memory)(void *address, size_t length);
	int (*unregister_memory)(void *address);
	/* Waits for everything that was given to any device. 0 or the driver's error. */
	int (*synchronize)(void);
};

/* The driver that was seen in this process; NULL before, and in a forked child of one that saw it. */
extern const struct ps_driver *ps_driver;

/* In a forked child of a process that had seen a driver: it must not be called, nor looked for. */
extern bool ps_driver_forbidden;

#endif
