/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_JOBS_H
#define PS_JOBS_H
/*
 * The processes in the order in which they are shown: those of a job together, with their sums, and
 * those of no job after them.
 */
#include <stdbool.h>
#include <stddef.h>

#include "figures.h"
#include "holders.h"

/* What can be sorted by. */
enum ps_column_kind {
	PS_COLUMN_FIGURE, /* a word of struct ps_figures; the largest first */
	PS_COLUMN_STRING, /* of the table; digits in it compare as numbers */
	PS_COLUMN_PID,
	PS_COLUMN_STATE, /* the living first */
};

struct ps_column {
	const char *name;
	enum ps_column_kind kind;
	size_t offset; /* of the figure or string */
};

/* All columns, in the order in which they are shown, ended by one without a name. */
extern const struct ps_column ps_columns[];

/* The column of this name, or NULL. */
const struct ps_column *ps_column_find(const char *name);

struct ps_order {
	const struct ps_column *column; /* NULL: jobs by name, and their processes by rank */
	bool reverse;
};

/* Several processes together. The sums are those of the living. */
struct ps_sum {
	size_t alive;
	size_t dead;
	struct ps_figures figures;
};

struct ps_job {
	const char *name; /* "" are those of no job; lies in a table of the holders */
	struct ps_sum sum;
	size_t first; /* of its processes among the holders */
	size_t count;
};

struct ps_jobs {
	const struct ps_holders *holders;
	struct ps_job *job;
	size_t count;
	struct ps_sum total;
};

/*
 * Sorts the holders and finds their jobs. Where a figure is sorted by, jobs are by their sum of it.
 * 0 or -ENOMEM.
 */
int ps_jobs_make(struct ps_jobs *jobs, struct ps_holders *holders, const struct ps_order *order);

void ps_jobs_free(struct ps_jobs *jobs);

#endif
