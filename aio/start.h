/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_START_H
#define PS_START_H
/*
 * Start-up of libpinshim-aio.so, and of programs that have the handle API linked in.
 */
#include <stdbool.h>

/*
 * Reads the settings and finds the next library's functions; ends the process with status 78 where a
 * setting is wrong. Called by the constructor, and by pinshim_aio_open() where there is none; what is
 * done once is not done again.
 */
void ps_aio_start(void);

/* Are requests looked at? Not before ps_aio_start(), nor with PINSHIM_AIO=off. */
bool ps_aio_is_on(void);

/*
 * Does the kernel let this process use io_uring? Probed once. The answer, and why not, is
 * said at log level info.
 */
bool ps_aio_ring_allowed(void);

#endif
