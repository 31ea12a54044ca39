/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_MEMORY_H
#define PS_MEMORY_H
/*
 * What memory.c (locks and advice) and mapping.c (mappings) share: which calls concern us at all.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "counters.h"
#include "foreign.h"
#include "window.h"

#define PUBLIC __attribute__((visibility("default")))
#define NOINLINE __attribute__((noinline)) /* what is rare must not cost the rest saved registers */
#define unlikely(x) __builtin_expect(!!(x), 0)

/*
 * Does [address, address+length) reach into the window? One compare; ranges that wrap around may get
 * either answer.
 */
static inline bool ps_reaches_window(const void *address, size_t length)
{
	return (uintptr_t)address - ps_window.base + length - 1 < ps_window.size + length - 1;
}

/* May a call on this range concern anything of ours? */
static inline bool ps_concerned(const void *address, size_t length)
{
	return unlikely(ps_reaches_window(address, length) || ps_foreign_count());
}

/*
 * Does the call come from inside pinshim? Asks for the table first: that is where a child of a raw
 * clone() notices that what it inherited is neither locked nor published.
 */
static inline bool ps_inside(void)
{
	(void)ps_table();
	return ps_thread.depth > 0;
}

/*
 * The pages that the kernel makes of a range: the start rounded down, the end up. false if there are
 * none or they wrap around, which the kernel answers without touching anything.
 */
static inline bool ps_kernel_pages(const void *address, size_t length, uintptr_t *base,
				   uintptr_t *end)
{
	const uintptr_t page = (uintptr_t)getpagesize();

	*base = (uintptr_t)address & -page;
	*end = *base + ((((uintptr_t)address - *base) + length + page - 1) & -page);
	return *end > *base;
}

/* As above, for calls that demand an address on a page. */
static inline bool ps_whole_pages(const void *address, size_t length, uintptr_t *base,
				  uintptr_t *end)
{
	return length && ps_kernel_pages(address, length, base, end) &&
	       *base == (uintptr_t)address && *end - *base >= length;
}

/* Turns 0 or -errno into what libc's functions return. */
static inline int ps_answer(int result)
{
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

/* The other way round, for the next definition's result. */
static inline int ps_outcome(int result)
{
	return result < 0 ? -errno : result;
}

#endif
