/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The JSON of pinshim stat, as pinshim-stats(5) documents it: keys are added, and never change their
 * meaning while "schema" stays.
 */
#include <inttypes.h>

#include "formats.h"
#include "report.h"
#include "text.h"

static const char *truth(bool value)
{
	return value ? "true" : "false";
}

static void write_ranges(FILE *to, const struct ps_holder *holder)
{
	fputs(", \"ranges\": [", to);
	for (size_t i = 0; i < holder->ranges; i++) {
		const struct pinshim_range *range = &holder->range[i];

		fprintf(to, "%s{\"base\": %" PRIu64 ", \"length_bytes\": %" PRIu64 ", \"flags\": [",
			i ? ", " : "", range->base, range->length);
		ps_range_flags_write(to, range->flags, "\"");
		fputs("]}", to);
	}
	putc(']', to);
}

static void write_holder(FILE *to, const struct ps_holder *holder, bool ranges)
{
	static char report[64 << 10];
	struct ps_text text = PS_TEXT_INIT(report);

	ps_report_json(holder->table, &text);
	text.buffer[text.length - 1] = '\0'; /* its newline */
	fprintf(to, "{\"alive\": %s, \"whole\": %s, \"report\": %s", truth(holder->alive),
		truth(holder->whole), report);
	if (ranges)
		write_ranges(to, holder);
	putc('}', to);
}

static void write_sum(FILE *to, const struct ps_sum *sum)
{
	const struct ps_figures *figures = &sum->figures;
	char buffer[1024];
	struct ps_text text = PS_TEXT_INIT(buffer);

	ps_report_json_aio(&figures->aio, &text);
	fprintf(to, "\"alive\": %zu, \"dead\": %zu, \"pinned_bytes\": %" PRIu64, sum->alive,
		sum->dead, figures->pinned);
	fprintf(to, ", \"pinned_peak_bytes\": %" PRIu64 ", \"locked_bytes\": %" PRIu64,
		figures->peak, figures->locked);
	fprintf(to, ", \"registered_bytes\": %" PRIu64 ", \"huge_bytes\": %" PRIu64,
		figures->registered, figures->huge);
	fprintf(to, ", \"foreign_bytes\": %" PRIu64 ", \"retained_bytes\": %" PRIu64,
		figures->foreign, figures->retained);
	fprintf(to, ", \"live_blocks\": %" PRIu64 ", \"refusals\": %" PRIu64 ", \"aio\": %s",
		figures->blocks, figures->refusals, buffer);
}

static void write_job(FILE *to, const struct ps_job *job)
{
	char buffer[512];
	struct ps_text text = PS_TEXT_INIT(buffer);

	ps_text_add_json(&text, job->name);
	fprintf(to, "{\"job\": %s, ", buffer);
	write_sum(to, &job->sum);
	putc('}', to);
}

void ps_json_write(FILE *to, const struct ps_jobs *jobs, bool ranges)
{
	const char *separator = "";

	fputs("{\"schema\": 1, \"processes\": [", to);
	for (size_t i = 0; i < jobs->count; i++) {
		const struct ps_job *job = &jobs->job[i];

		for (size_t j = 0; j < job->count; j++) {
			fprintf(to, "%s\n", separator);
			write_holder(to, &jobs->holders->holder[job->first + j], ranges);
			separator = ",";
		}
	}
	fputs("],\n\"jobs\": [", to);
	separator = "";
	for (size_t i = 0; i < jobs->count; i++) {
		if (!*jobs->job[i].name)
			continue;
		fputs(separator, to);
		write_job(to, &jobs->job[i]);
		separator = ",\n";
	}
	fputs("],\n\"total\": {", to);
	write_sum(to, &jobs->total);
	fputs("}}\n", to);
}
