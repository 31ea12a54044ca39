/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_IDENTITY_H
#define PS_IDENTITY_H
/*
 * Whose table it is. Neither function takes a lock.
 */
#include "pinshim_table.h"

/*
 * What the scheduler says we are: rank, local_rank and job. Called at start only, because a program
 * may change its environment.
 */
void ps_identity_rank(struct pinshim_table *table);

/* start_time (0 where there is no /proc), uid, program and backend. pid is there already. */
void ps_identity_process(struct pinshim_table *table);

#endif
