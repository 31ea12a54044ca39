/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The locked buffers of pinshim_aio.h. Each is remembered, so that freeing what is none is an error
 * that is returned and not damage to the heap, which would end the process.
 *
 * One lock, innermost.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "held.h"
#include "locked_buffer.h"
#include "memory.h"
#include "pinshim_aio.h"
#include "segment.h"
#include "start.h"

#define PUBLIC __attribute__((visibility("default")))
#define ALIGN 4096

static struct {
	struct ps_lock lock;
	struct ps_segments segments; /* the buffers in use */
} buffers = { .segments = PS_SEGMENTS_INIT };

void ps_locked_buffers_fork_prepare(void)
{
	ps_hold(&buffers.lock);
}

void ps_locked_buffers_fork_parent(void)
{
	ps_let_go(&buffers.lock);
}

void ps_locked_buffers_fork_child(void)
{
	ps_lock_reset(&buffers.lock);
}

/* 0 or -ENOMEM. */
static int remember(uintptr_t base, size_t length)
{
	int error;

	ps_hold(&buffers.lock);
	error = ps_segments_reserve(&buffers.segments, 1);
	if (!error)
		ps_segment_add(&buffers.segments, base, base + length);
	ps_let_go(&buffers.lock);
	return error ? -ENOMEM : 0;
}

PUBLIC void *pinshim_aio_new_buffer(size_t length)
{
	void *buffer;

	length += !length;
	ps_aio_start();
	buffer = length > PTRDIFF_MAX ? NULL : ps_memory_alloc(length, ALIGN);
	if (buffer && remember((uintptr_t)buffer, length)) {
		ps_memory_free(buffer);
		buffer = NULL;
	}
	if (!buffer)
		errno = ENOMEM;
	return buffer;
}

PUBLIC int pinshim_aio_free_buffer(void *buffer)
{
	struct ps_segment *segment;

	if (!buffer)
		return 0;
	ps_hold(&buffers.lock);
	segment = ps_segment_at_or_above(&buffers.segments, (uintptr_t)buffer);
	if (segment && segment->base == (uintptr_t)buffer)
		ps_segment_remove(&buffers.segments, segment);
	else
		segment = NULL;
	ps_let_go(&buffers.lock);
	if (!segment)
		return -EINVAL;
	ps_memory_free(buffer);
	return 0;
}

PUBLIC int pinshim_aio_is_pinned(const void *address, size_t length)
{
	ps_aio_start();
	return ps_memory_is_pinned(address, length);
}
