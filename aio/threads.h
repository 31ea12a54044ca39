/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_THREADS_H
#define PS_THREADS_H
/*
 * How many threads the process has.
 */
#include <stdbool.h>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#else
#define __libc_single_threaded 0
#endif

/*
 * Has the process this thread only? Asks the kernel, whose own threads for io_uring do not count. false
 * where it cannot be told.
 */
bool ps_threads_single(void);

/* Does the C library know of no other thread? A load. It may have forgotten that others have ended. */
static inline bool ps_threads_never_more(void)
{
	return __libc_single_threaded != 0;
}

#endif
