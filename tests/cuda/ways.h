/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_WAYS_H
#define TEST_WAYS_H
/*
 * What the programs of ways.sh do with a block, whichever way they got it: it must be the heap's and
 * known to the driver if pinshim is there, and CUDA's own if not.
 */
#include "../../interpose/pinshim.h"
#include "fakes.h"

#define BYTES ((size_t)1 << 20)

static inline void *driver_function(const char *name)
{
	return fake_cuda_find("libcuda.so.1", name);
}

static inline void look_at(const char *way, char *block, size_t bytes)
{
	if (pinshim_present()) {
		check(pinshim_is_pinned(block, bytes) == 1, "%s: pinned", way);
		check(is_locked(block, bytes), "%s: locked", way);
		check(FAKE_CUDA(fake_cuda_is_registered)(block, bytes), "%s: registered", way);
		check(!FAKE_CUDA(fake_cuda_is_allocated)(block, 1), "%s: not CUDA's", way);
	} else {
		check(FAKE_CUDA(fake_cuda_is_allocated)(block, bytes), "%s: CUDA's", way);
	}
	fill(block, bytes, 7);
	check(filled(block, bytes, bytes, 7), "%s: keeps its contents", way);
}

/* Allocates into `block` and frees it again. */
#define WAY(way, allocation, release)                                                              \
	do {                                                                                       \
		if (check((allocation) == 0, "%s: %s", way, #allocation)) {                        \
			look_at(way, block, BYTES);                                                \
			check((release) == 0, "%s: %s", way, #release);                            \
		}                                                                                  \
	} while (0)

#endif
