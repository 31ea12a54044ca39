/* SPDX-License-Identifier: BSD-2-Clause */
#include "jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIGURE(name, member)                                                                       \
	{                                                                                          \
		name, PS_COLUMN_FIGURE, offsetof(struct ps_figures, member)                        \
	}
#define STRING(name, member)                                                                       \
	{                                                                                          \
		name, PS_COLUMN_STRING, offsetof(struct pinshim_table, member)                     \
	}

const struct ps_column ps_columns[] = {
	STRING("program", program),
	{ "pid", PS_COLUMN_PID, 0 },
	{ "state", PS_COLUMN_STATE, 0 },
	STRING("backend", backend),
	STRING("rank", rank),
	FIGURE("pinned", pinned),
	FIGURE("peak", peak),
	FIGURE("locked", locked),
	FIGURE("registered", registered),
	FIGURE("huge", huge),
	FIGURE("blocks", blocks),
	FIGURE("refused", refusals),
	FIGURE("aio", aio.submitted),
	{ NULL, 0, 0 },
};

const struct ps_column *ps_column_find(const char *name)
{
	for (const struct ps_column *column = ps_columns; column->name; column++)
		if (!strcmp(column->name, name))
			return column;
	return NULL;
}

static uint64_t figure_of(const struct ps_figures *figures, const struct ps_column *column)
{
	return *(const uint64_t *)((const char *)figures + column->offset);
}

/* Below zero if a comes before b: the smaller does. */
static int compare_numbers(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_column(const struct ps_holder *a, const struct ps_holder *b,
			  const struct ps_column *column)
{
	switch (column->kind) {
	case PS_COLUMN_FIGURE:
		return compare_numbers(figure_of(&b->figures, column),
				       figure_of(&a->figures, column));
	case PS_COLUMN_STRING:
		return strverscmp((const char *)a->table + column->offset,
				  (const char *)b->table + column->offset);
	case PS_COLUMN_PID:
		return compare_numbers(a->table->pid, b->table->pid);
	case PS_COLUMN_STATE:
		return b->alive - a->alive;
	}
	return 0;
}

static int compare_job_names(const char *a, const char *b)
{
	if (!*a || !*b)
		return !*a - !*b; /* no job comes last */
	return strverscmp(a, b);
}

static int by_job(const void *left, const void *right)
{
	const struct ps_holder *a = left, *b = right;

	return compare_job_names(a->table->job, b->table->job);
}

/* Whatever is sorted by, of those that are equal by it the ranks follow each other. */
static int by_order(const void *left, const void *right, void *context)
{
	const struct ps_holder *a = left, *b = right;
	const struct ps_order *order = context;
	int result = order->column ? compare_column(a, b, order->column) : 0;

	if (!result)
		result = strverscmp(a->table->rank, b->table->rank);
	if (!result)
		result = compare_numbers(a->table->pid, b->table->pid);
	if (!result)
		result = compare_numbers(a->table->start_time, b->table->start_time);
	return order->reverse ? -result : result;
}

static int by_sum(const void *left, const void *right, void *context)
{
	const struct ps_job *a = left, *b = right;
	const struct ps_order *order = context;
	int result = !*a->name - !*b->name;

	if (result)
		return result;
	if (order->column && order->column->kind == PS_COLUMN_FIGURE)
		result = compare_numbers(figure_of(&b->sum.figures, order->column),
					 figure_of(&a->sum.figures, order->column));
	if (!result)
		result = compare_job_names(a->name, b->name);
	return order->reverse ? -result : result;
}

static void add_up(struct ps_sum *sum, const struct ps_holder *holder)
{
	if (!holder->alive) {
		sum->dead++; /* it holds nothing any more */
		return;
	}
	sum->alive++;
	ps_figures_add(&sum->figures, &holder->figures);
}

/* The holders are sorted by job, and there is room for as many jobs as holders. Returns how many. */
static size_t find_jobs(struct ps_job *job, const struct ps_holders *holders)
{
	size_t count = 0;

	for (size_t i = 0; i < holders->count; i++) {
		const struct ps_holder *holder = &holders->holder[i];

		if (i == 0 || strcmp(holder[-1].table->job, holder->table->job) != 0)
			job[count++] = (struct ps_job){ .name = holder->table->job, .first = i };
		job[count - 1].count++;
		add_up(&job[count - 1].sum, holder);
	}
	return count;
}

int ps_jobs_make(struct ps_jobs *jobs, struct ps_holders *holders, const struct ps_order *order)
{
	struct ps_order by = *order;

	*jobs = (struct ps_jobs){ .holders = holders };
	if (!holders->count)
		return 0;
	jobs->job = calloc(holders->count, sizeof(*jobs->job));
	if (!jobs->job)
		return -ENOMEM;
	qsort(holders->holder, holders->count, sizeof(*holders->holder), by_job);
	jobs->count = find_jobs(jobs->job, holders);
	for (size_t i = 0; i < holders->count; i++)
		add_up(&jobs->total, &holders->holder[i]);
	for (size_t i = 0; i < jobs->count; i++)
		qsort_r(holders->holder + jobs->job[i].first, jobs->job[i].count,
			sizeof(*holders->holder), by_order, &by);
	qsort_r(jobs->job, jobs->count, sizeof(*jobs->job), by_sum, &by);
	return 0;
}

void ps_jobs_free(struct ps_jobs *jobs)
{
	free(jobs->job);
	*jobs = (struct ps_jobs){ .count = 0 };
}
