/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_PROCESS_H
#define PS_PROCESS_H

/* Registers the fork handlers. Called by the constructor, before jemalloc is first used. */
void ps_process_start(void);

#endif
