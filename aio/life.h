/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_LIFE_H
#define PS_LIFE_H
/*
 * The ends of a process: fork and exit. A child has no contexts. Before the end what rings have in
 * flight is finished, as the kernel's AIO would, and the report is written.
 */

/* Asks to be told of forks. Once, by ps_aio_start(). */
void ps_aio_life_start(void);

/* The process ends now. Does what there is to do once; also as a destructor. Preserves errno. */
void ps_aio_at_exit(void);

/* The program may be replaced now: finishes what rings have in flight. Preserves errno. */
void ps_aio_before_exec(void);

#endif
