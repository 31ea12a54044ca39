/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_REGISTRATION_H
#define PS_REGISTRATION_H
/*
 * Registering chunks with the driver, of the heaps that it is told of (window.h): whole chunks, so that
 * no block lies across the border of a registration (a copy that does fails), in pieces of at most
 * 64 GiB (a call for 512 GiB fails, vllm#51080); lazily, when there is a context; once.
 *
 * Owns one lock, an outermost one (lock.h): the driver is called with it held.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "pinshim_table.h"

/*
 * Makes sure that the chunk of this block is registered, if there is a driver and a context. 0 also
 * where there is none, and for any address that is in no chunk of these heaps; else the driver's
 * error, positive.
 */
int ps_registration_cover(const void *block);

/*
 * Unregisters a chunk that is to be unpinned. 0; the driver's error, upon which the memory must not be
 * unmapped. Called by ps_chunk_release() for chunks that are registered.
 */
int ps_registration_drop(uint32_t first);

/* A context is about to go, and every registration with it: forgets them; blocks stay locked. */
void ps_registration_drop_all(void);

/*
 * After that, where another context is current: registers all chunks again, for the blocks that are
 * in use. What cannot be registered is as it is without a context.
 */
void ps_registration_cover_all(void);

/*
 * Says once what a fork costs, when much private memory is registered. The driver holds its pages for a device,
 * so the kernel cannot leave them to parent and child until one writes (page_maybe_dma_pinned() in
 * Documentation/core-api/pin_user_pages.rst): it copies them at once. Any thread, no lock held.
 */
void ps_registration_before_fork(void);

/*
 * Frees a block of a heap that the driver is told of once the device can no longer be using it:
 * cudaFreeHost() waits for the device, and a copy from the block may be under way. The block is parked;
 * the device is waited for here when many or much is parked, and by ps_registration_unpark(). call as in
 * ps_heap_free().
 * May be called from inside pinshim, where a fork handler of the program is.
 */
void ps_registration_park(void *block, const char *call);

/*
 * Waits for the device if blocks are parked, and frees them. false if there were none, or the device
 * cannot be waited for now.
 */
bool ps_registration_unpark(void);

/*
 * A block of the heap of this entry point: pinshim_alloc()'s, or CUDA host memory. As ps_heap_alloc(); where
 * that is refused, again after parked blocks were freed: not before it is needed, since an allocation of
 * CUDA's own does not wait for the device.
 */
void *ps_registration_alloc(enum pinshim_entry_point entry, size_t size, size_t align,
			    struct ps_refusal *why);

/* In a forked child nothing is registered, and no driver is ever called. */
void ps_registration_fork_child(void);

#endif
