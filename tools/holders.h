/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_HOLDERS_H
#define PS_HOLDERS_H
/*
 * The processes of the node that hold pinned memory, as their tables in /dev/shm say.
 *
 * Anybody may put anything there, so no content is trusted: strings end, and everything else is a
 * number. What cannot be read is said on standard error and counted.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "figures.h"
#include "pinshim_table.h"

struct ps_holder {
	struct pinshim_table *table; /* a copy, whose strings end */
	struct pinshim_range *range; /* its ranges, if they were asked for */
	size_t ranges;
	bool alive; /* else it ended without tidying up */
	bool whole; /* false: its ranges were being changed, and some may be missing */
	struct ps_figures figures;
};

struct ps_holders {
	struct ps_holder *holder;
	size_t count;
	size_t room;
	size_t unread; /* tables, or processes that were asked for, that could not be read */
};

/* Which processes, and what of them. */
struct ps_search {
	const char *directory; /* NULL: PINSHIM_TABLE_DIRECTORY */
	const pid_t *pid;      /* these only, if pids is not 0 */
	size_t pids;
	bool ranges; /* read them, too */
	bool quiet;  /* say nothing, only count what could not be read */
};

/* Reads them in no particular order. What was there before is let go first. */
void ps_holders_read(struct ps_holders *holders, const struct ps_search *search);

void ps_holders_free(struct ps_holders *holders);

#endif
