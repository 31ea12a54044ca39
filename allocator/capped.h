/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CAPPED_H
#define PS_CAPPED_H
/* Sums and differences of bytes that other processes and files say: they stop at the ends of what there is. */
#include <stdint.h>

static inline uint64_t ps_capped_add(uint64_t to, uint64_t bytes)
{
	return __builtin_add_overflow(to, bytes, &to) ? UINT64_MAX : to;
}

static inline uint64_t ps_capped_sub(uint64_t from, uint64_t bytes)
{
	return from > bytes ? from - bytes : 0;
}

#endif
