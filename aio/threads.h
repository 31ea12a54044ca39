/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_THREADS_H
#define PS_THREADS_H
/*
 * How many threads the process has.
 */
#include <stdbool.h>

/*
 * Has the process this thread only? Asks the kernel, whose own threads for io_uring do not count. false
 * where it cannot be told.
 */
bool ps_threads_single(void);

#endif
