/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_BUFFER_H
#define PS_BUFFER_H
/*
 * Bounce buffers: locked memory of the heap, where that is to be had, and kept for the next request.
 * Used and kept ones together take at most PS_BOUNCE_MAX.
 *
 * One lock, innermost: the heap is called without it.
 */
#include <stdbool.h>
#include <stddef.h>

#define PS_BOUNCE_MAX ((size_t)64 << 20)

struct ps_buffer {
	char *memory;  /* aligned to the largest power of two in length, up to 2 MiB */
	size_t length; /* bytes, at least what was asked for */
	bool pinned;
	bool extra; /* not one of the pool's */
};

/* 0; -ENOMEM where the pool is used up or there is no memory. */
int ps_buffer_get(struct ps_buffer *buffer, size_t length);

/* Ordinary memory for once, on a page boundary, not counted. 0; -ENOMEM. */
int ps_buffer_get_extra(struct ps_buffer *buffer, size_t length);

void ps_buffer_put(struct ps_buffer *buffer);

void ps_buffer_fork_prepare(void);
void ps_buffer_fork_parent(void);
/* A child begins without any: the parent's are not locked here. */
void ps_buffer_fork_child(void);

#endif
