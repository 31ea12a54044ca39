/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_DESCRIPTOR_H
#define PS_DESCRIPTOR_H
/*
 * The descriptors that this library has open in the program's process. They are moved up to 1000 and
 * above where the limit allows, so that the numbers of the program's own stay what they would be and
 * small enough for select(2); and a program that closes whatever is open (daemons do) is told of
 * each that it is not open, which without us is the truth.
 *
 * No lock; any thread, any time, in signal handlers too.
 */
#include <stdbool.h>

/*
 * Moves fd up and notes it as ours. Returns the new number, or fd itself where it cannot be moved or
 * there is no room to note it. -errno is passed through.
 */
int ps_descriptor_keep(int fd);

/* Closes one of ours; -1 is allowed. */
void ps_descriptor_close(int fd);

bool ps_descriptor_is_ours(int fd);

/*
 * Closes all from first to last but ours, as close_range(2) with these flags. 0 or -errno.
 */
int ps_descriptor_close_range(unsigned first, unsigned last, unsigned flags);

#endif
