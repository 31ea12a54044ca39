/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_SEMANTICS_H
#define TEST_SEMANTICS_H
/*
 * Programs that print what every call gives. semantics.sh runs them with and without the shim: all
 * lines have to be the same, but for the values of those that begin with "may differ", which say why.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "../fakes/fake_cuda.h"
#include "../preload/check.h"

#define VALUE(what, value) say("%s = %ld\n", what, (long)(value))
#define GIVES(call) VALUE(#call, call)
#define MAY_DIFFER(why, call) say("may differ (%s): %s = %ld\n", why, #call, (long)(call))

#define CHUNK "a block is part of a larger registration"
#define KEPT "freed memory of the heap stays registered"
#define OUTLIVES "blocks of the heap outlive a context"

/* Can the device reach every byte, and without staging? */
static inline bool reachable(const void *block, size_t bytes)
{
	return FAKE_CUDA(fake_cuda_is_registered)(block, bytes) ||
	       FAKE_CUDA(fake_cuda_is_allocated)(block, bytes);
}

static inline void fill_all(void *block, size_t bytes, int seed)
{
	unsigned char *at = block;

	for (size_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)(seed + i * 31 + i / 4096);
}

static inline bool holds(const void *block, size_t bytes, int seed)
{
	const unsigned char *at = block;

	for (size_t i = 0; i < bytes; i++)
		if (at[i] != (unsigned char)(seed + i * 31 + i / 4096))
			return false;
	return true;
}

#endif
