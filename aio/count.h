/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_COUNT_H
#define PS_COUNT_H
/*
 * Counting I/O, in struct pinshim_aio of the table's stripes (pinshim_table.h), a stripe a thread, so
 * that threads do not contend. Before there is a table, counts are kept in this library and
 * added to the table when it appears.
 */
#include <stdint.h>

#include "pinshim_table.h"

/* A word of struct pinshim_aio. */
#define PS_AIO(member) (offsetof(struct pinshim_aio, member) / sizeof(uint64_t))

/* Adds to one. No system call, no lock. */
void ps_aio_count(unsigned word, uint64_t amount);

/* What a number of completed requests came to. */
struct ps_tally {
	uint64_t bytes, failed, partial;
};

/* One that was to transfer this many bytes, 0 where it is not known; its result is a count or -errno. */
static inline void ps_tally_add(struct ps_tally *tally, int64_t result, uint64_t length)
{
	if (result < 0) {
		tally->failed++;
	} else {
		tally->bytes += (uint64_t)result;
		tally->partial += (uint64_t)result < length;
	}
}

void ps_tally_count(const struct ps_tally *tally);

/* Moves what was counted without a table into the table, if there is one now. Rarely called. */
void ps_aio_count_publish(void);

/* In a forked child counters begin at zero. */
void ps_aio_count_fork_child(void);

#endif
