/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What pinshim stat shows to a person: a line a process, then one for the sum of each job that has
 * more than one, and one for all.
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "formats.h"
#include "report.h"
#include "text.h"

static void write_bytes(FILE *to, uint64_t bytes)
{
	char buffer[32];
	struct ps_text text = PS_TEXT_INIT(buffer);

	ps_text_add_bytes(&text, bytes);
	fprintf(to, " %11s", buffer);
}

#define CLEAN_BYTES sizeof(((struct pinshim_table *)0)->program) /* the longest of its strings */

/* A string of the table, of which nothing may steer a terminal. */
static const char *clean(const char *string, char buffer[CLEAN_BYTES])
{
	size_t i;

	for (i = 0; i < CLEAN_BYTES - 1 && string[i]; i++)
		buffer[i] = isprint((unsigned char)string[i]) ? string[i] : '?';
	buffer[i] = '\0';
	return *buffer ? buffer : "-";
}

static void write_heading(FILE *to)
{
	fprintf(to, "%-20s %8s %-5s %-7s %5s %11s %11s %11s %11s %11s %9s %9s\n", "PROGRAM", "PID",
		"STATE", "BACKEND", "RANK", "PINNED", "PEAK", "LOCKED", "REGISTERED", "HUGE",
		"BLOCKS", "REFUSED");
}

/* The rest of a line, and one about asynchronous I/O where there was any. */
static void write_figures(FILE *to, const struct ps_figures *figures)
{
	char line[512];
	struct ps_text text = PS_TEXT_INIT(line);

	write_bytes(to, figures->pinned);
	write_bytes(to, figures->peak);
	write_bytes(to, figures->locked);
	write_bytes(to, figures->registered);
	write_bytes(to, figures->huge);
	fprintf(to, " %9" PRIu64 " %9" PRIu64 "\n", figures->blocks, figures->refusals);
	if (!ps_report_has_aio(&figures->aio))
		return;
	ps_report_text_aio(&figures->aio, &text);
	fprintf(to, "    %s\n", line);
}

static void write_ranges(FILE *to, const struct ps_holder *holder)
{
	for (size_t i = 0; i < holder->ranges; i++) {
		const struct pinshim_range *range = &holder->range[i];

		fprintf(to, "    0x%012" PRIx64 "-0x%012" PRIx64, range->base,
			range->base + range->length);
		write_bytes(to, range->length);
		fputs("  ", to);
		ps_range_flags_write(to, range->flags, "");
		putc('\n', to);
	}
}

static void write_holder(FILE *to, const struct ps_holder *holder)
{
	const struct pinshim_table *table = holder->table;
	char program[CLEAN_BYTES], backend[CLEAN_BYTES], rank[CLEAN_BYTES];

	fprintf(to, "%-20s %8" PRIu32 " %-5s %-7s %5s", clean(table->program, program), table->pid,
		holder->alive ? "alive" : "dead", clean(table->backend, backend),
		clean(table->rank, rank));
	write_figures(to, &holder->figures);
	write_ranges(to, holder);
}

/* Several are worth a line. */
static void write_sum(FILE *to, const char *what, const struct ps_sum *sum)
{
	if (sum->alive < 2)
		return;
	fprintf(to, "%-20s %8zu %-5s %-7s %5s", what, sum->alive, "alive", "", "");
	write_figures(to, &sum->figures);
}

static void write_job(FILE *to, const struct ps_jobs *jobs, const struct ps_job *job)
{
	char name[CLEAN_BYTES], what[CLEAN_BYTES + 4];

	for (size_t i = 0; i < job->count; i++)
		write_holder(to, &jobs->holders->holder[job->first + i]);
	if (!*job->name)
		return;
	snprintf(what, sizeof(what), "job %s", clean(job->name, name));
	write_sum(to, what, &job->sum);
}

void ps_listing_write(FILE *to, const struct ps_jobs *jobs)
{
	if (!jobs->count)
		return;
	write_heading(to);
	for (size_t i = 0; i < jobs->count; i++)
		write_job(to, jobs, &jobs->job[i]);
	write_sum(to, "total", &jobs->total);
}
