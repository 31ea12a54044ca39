/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_OTHERS_H
#define PS_OTHERS_H
/*
 * What the other processes of the node claim, read from their tables, so that limits hold although
 * nobody holds a lock for all of them.
 *
 * A process publishes what it asks for, then reads what others have, and only then is granted it: of
 * two that do so together at least one sees the other. What is published moves in one direction, from
 * asking_bytes to credit_bytes and claimed_bytes, and from the former to the latter, and is in both
 * places for a moment; it is read in the same order. So a reader may count something twice, but misses
 * nothing. How much of it is memory already (present_bytes) is read before and after the claims, and
 * the less of it counts.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "cgroup.h"

#define PS_FLIGHTS 64

/* Bytes. */
struct ps_others {
	uint64_t claimed; /* by all others that live and whose tables can be read */
	uint64_t asking;  /* what they ask for, and may get or not */
	/*
	 * What others of this user are about to take: what they claimed and is not in memory yet, what
	 * they ask for, and what credit they have. Whatever other users write does not keep this one
	 * from its memory.
	 */
	uint64_t flying;
	unsigned flights; /* by process; the last one is of all that there was no more room for */
	struct ps_flight flight[PS_FLIGHTS];
};

/*
 * 0; -errno when a claim could not be read for want of descriptors or memory. Whoever else's table is
 * damaged or not readable does not count.
 */
int ps_others_read(struct ps_others *others);

/* Was it a shortage that may be over later, so that the error tells nothing of what was asked? */
static inline bool ps_is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

#endif
