/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_LOCKED_BUFFER_H
#define PS_LOCKED_BUFFER_H
/* The locked buffers of pinshim_aio.h across fork. */

void ps_locked_buffers_fork_prepare(void);
void ps_locked_buffers_fork_parent(void);
void ps_locked_buffers_fork_child(void);

#endif
