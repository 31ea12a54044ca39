/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_FIGURES_H
#define PS_FIGURES_H
/*
 * What every format shows of a process, or of several together.
 */
#include <stdint.h>

#include "pinshim_table.h"

/* Words only, so that adding up is one loop. */
struct ps_figures {
	uint64_t pinned; /* bytes, as the rest of the first seven */
	uint64_t peak;   /* of several: the peaks added up, which need not have been at once */
	uint64_t locked;
	uint64_t registered;
	uint64_t huge;
	uint64_t foreign;
	uint64_t retained;
	uint64_t blocks;   /* served and not freed */
	uint64_t refusals; /* by any limit */
	struct pinshim_aio aio;
};

/* Of a table that was read; whatever is in it. */
void ps_figures_of(const struct pinshim_table *table, struct ps_figures *figures);

/* Adds one to a sum, which stays at the largest number there is instead of starting over. */
void ps_figures_add(struct ps_figures *sum, const struct ps_figures *one);

#endif
