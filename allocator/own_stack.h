/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_OWN_STACK_H
#define PS_OWN_STACK_H

/*
 * Calls run(argument) on a stack of its own, for what needs more than the 16 KiB that are all some
 * threads have; on the caller's where no memory can be had for one. Leaves errno alone. May be called
 * with any lock held.
 */
void ps_on_own_stack(void (*run)(void *argument), void *argument);

#endif
