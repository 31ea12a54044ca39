/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinshim stat: what every process of the node has pinned, from the tables in /dev/shm.
 */
#include <ctype.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pinshim_table.h"
#include "table.h"
#include "text.h"
#include "tool.h"
#include "view.h"

#define WATCH_MILLISECONDS 2000u
#define WATCH_LEAST 50u
#define WATCH_MOST (24u * 3600 * 1000)

static const char usage[] =
	"usage: pinshim stat [OPTION]... [PID]...\n\n"
	"Shows the processes that pinned memory through pinshim, or only those named.\n\n"
	"  -j, --json             one JSON object instead of a table: see pinshim-stats(5)\n"
	"      --prometheus       the text format of Prometheus\n"
	"  -r, --ranges           also every pinned range\n"
	"  -s, --sort=COLUMN      the largest of this column first: program, pid, state,\n"
	"                         backend, rank, pinned, peak, locked, registered, huge,\n"
	"                         blocks, refused or aio\n"
	"      --reverse          the other way round\n"
	"  -w, --watch[=SECONDS]  again every 2 or so many seconds, on a terminal in place\n"
	"  -n, --times=N          with --watch: only so many times\n"
	"  -o, --output=FILE      into this file, which is replaced as a whole\n"
	"      --reap             remove the tables of dead processes afterwards\n"
	"      --directory=DIR    where the tables are, instead of " PINSHIM_TABLE_DIRECTORY "\n"
	"  -h, --help             this text\n\n"
	"Exit status: 0, or 1 if a table could not be read or a PID has none, or 2 for wrong usage.\n";

static int wrong(const char *what, const char *why)
{
	fprintf(stderr, "pinshim stat: %s%s\n", what, why);
	return PS_EXIT_USAGE;
}

/* A whole number from 1 on, in digits alone. */
static bool parse_number(const char *string, uint64_t most, uint64_t *value)
{
	const char *end;

	return ps_text_parse_size(string, &end, value) == 0 && *end == '\0' &&
	       isdigit((unsigned char)end[-1]) && *value >= 1 && *value <= most;
}

/* Seconds, with up to three digits after a point. */
static bool parse_seconds(const char *string, unsigned *milliseconds)
{
	unsigned unit = 1000;
	uint64_t sum = 0;
	bool fraction = false;

	if (!isdigit((unsigned char)*string))
		return false;
	for (; *string; string++) {
		if (*string == '.' && !fraction) {
			fraction = true;
			continue;
		}
		if (!isdigit((unsigned char)*string) || sum > WATCH_MOST || unit == 1)
			return false;
		if (fraction)
			unit /= 10;
		sum = fraction ? sum + (uint64_t)(*string - '0') * unit
			       : sum * 10 + (uint64_t)(*string - '0') * 1000;
	}
	*milliseconds = (unsigned)sum;
	return sum >= WATCH_LEAST && sum <= WATCH_MOST;
}

/* Reads which processes to show, each once, into memory of its own. An exit status. */
static int parse_pids(int count, char **string, pid_t **to, size_t *pids)
{
	pid_t *pid = malloc(((size_t)count + 1) * sizeof(*pid));
	uint64_t value;

	*to = pid;
	*pids = 0;
	if (!pid) {
		fputs("pinshim stat: there is no memory for the process ids\n", stderr);
		return PS_EXIT_INCOMPLETE;
	}
	for (int i = 0; i < count; i++) {
		size_t known = 0;

		if (!parse_number(string[i], INT32_MAX, &value))
			return wrong(string[i], " is not a process id");
		while (known < *pids && pid[known] != (pid_t)value)
			known++;
		if (known == *pids)
			pid[(*pids)++] = (pid_t)value;
	}
	return PS_EXIT_OK;
}

static int show(struct ps_view *view)
{
	const int status = view->milliseconds ? ps_watch(view) : ps_view_show(view);
	int removed;

	if (!view->reap)
		return status;
	removed = ps_table_reap(view->search.directory, 0);
	fprintf(stderr, "pinshim stat: removed %d table%s of dead processes\n", removed,
		removed == 1 ? "" : "s");
	return status;
}

enum { REAP = 256, DIRECTORY, PROMETHEUS, REVERSE };

/* One option. PS_EXIT_OK to go on, or PS_EXIT_USAGE. */
static int read_option(struct ps_view *view, int option)
{
	uint64_t value;

	switch (option) {
	case 'j':
		view->format = PS_FORMAT_JSON;
		return PS_EXIT_OK;
	case PROMETHEUS:
		view->format = PS_FORMAT_PROMETHEUS;
		return PS_EXIT_OK;
	case 'r':
		view->search.ranges = true;
		return PS_EXIT_OK;
	case 's':
		view->order.column = ps_column_find(optarg);
		return view->order.column ? PS_EXIT_OK : wrong(optarg, " is no column to sort by");
	case REVERSE:
		view->order.reverse = true;
		return PS_EXIT_OK;
	case 'w':
		view->milliseconds = WATCH_MILLISECONDS;
		if (optarg && !parse_seconds(optarg, &view->milliseconds))
			return wrong(optarg, " is not a number of seconds from 0.05 to 86400");
		return PS_EXIT_OK;
	case 'n':
		if (!parse_number(optarg, ULONG_MAX, &value))
			return wrong(optarg, " is not a number of times");
		view->times = value;
		return PS_EXIT_OK;
	case 'o':
		view->output = optarg;
		return PS_EXIT_OK;
	case REAP:
		view->reap = true;
		return PS_EXIT_OK;
	case DIRECTORY:
		view->search.directory = optarg;
		return PS_EXIT_OK;
	default:
		fputs(usage, stderr);
		return PS_EXIT_USAGE;
	}
}

/* Options that do not go together. */
static int check_view(const struct ps_view *view, bool json_too)
{
	if (json_too)
		return wrong("--json and --prometheus", " exclude each other");
	if (view->format == PS_FORMAT_PROMETHEUS && view->search.ranges)
		return wrong("--ranges", ": Prometheus has no place for them");
	if (view->format == PS_FORMAT_PROMETHEUS && view->milliseconds && !view->output)
		return wrong("--prometheus with --watch",
			     " needs --output, for one text is one look");
	if (view->times && !view->milliseconds)
		return wrong("--times", " is for --watch");
	return PS_EXIT_OK;
}

/* Reads the options. true to go on; else *status is the exit status. */
static bool read_options(int argc, char **argv, struct ps_view *view, int *status)
{
	static const struct option option[] = {
		{ "directory", required_argument, NULL, DIRECTORY },
		{ "help", no_argument, NULL, 'h' },
		{ "json", no_argument, NULL, 'j' },
		{ "output", required_argument, NULL, 'o' },
		{ "prometheus", no_argument, NULL, PROMETHEUS },
		{ "ranges", no_argument, NULL, 'r' },
		{ "reap", no_argument, NULL, REAP },
		{ "reverse", no_argument, NULL, REVERSE },
		{ "sort", required_argument, NULL, 's' },
		{ "times", required_argument, NULL, 'n' },
		{ "watch", optional_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	bool json = false, prometheus = false;

	*status = PS_EXIT_OK;
	for (int c; (c = getopt_long(argc, argv, "hjn:o:rs:w::", option, NULL)) != -1;) {
		json |= c == 'j';
		prometheus |= c == PROMETHEUS;
		if (c == 'h') {
			fputs(usage, stdout);
			return false;
		}
		*status = read_option(view, c);
		if (*status != PS_EXIT_OK)
			return false;
	}
	*status = check_view(view, json && prometheus);
	return *status == PS_EXIT_OK;
}

int ps_tool_stat(int argc, char **argv)
{
	struct ps_view view = { .format = PS_FORMAT_LISTING };
	pid_t *pid;
	int status;

	if (!read_options(argc, argv, &view, &status))
		return status;
	status = parse_pids(argc - optind, argv + optind, &pid, &view.search.pids);
	view.search.pid = pid;
	if (status == PS_EXIT_OK)
		status = show(&view);
	free(pid);
	return status;
}
