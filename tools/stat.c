/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinshim stat: what every process of the node has pinned, from the tables in /dev/shm.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counters.h"
#include "names.h"
#include "pinshim_table_reader.h"
#include "report.h"
#include "tool.h"

/* What was asked for, and the sums. */
struct view {
	const char *directory; /* NULL: PINSHIM_TABLE_DIRECTORY */
	bool json;
	bool ranges;
	unsigned shown;
	unsigned dead;   /* of the shown; not in the sums */
	bool incomplete; /* something could not be read */
	uint64_t pinned, peak, locked, registered, huge, blocks, refused;
};

static const char usage[] =
	"usage: pinshim stat [--json] [--ranges] [--reap] [PID...]\n\n"
	"Shows the processes that pinned memory through pinshim, or only those named.\n\n"
	"  -j, --json       one JSON object instead of a table\n"
	"  -r, --ranges     also every pinned range\n"
	"      --reap       remove the tables of dead processes afterwards\n"
	"      --directory=DIRECTORY\n"
	"                   where the tables are, instead of " PINSHIM_TABLE_DIRECTORY "\n"
	"  -h, --help       this text\n\n"
	"Exit status: 0, or 1 if a table could not be read or a PID has none, or 2 for wrong usage.\n";

static const char *error_text(int error)
{
	switch (error) {
	case -ENOENT:
		return "no table: it pinned nothing through pinshim, or has ended";
	case -EPROTO:
		return "not a table of pinshim, or damaged";
	case -EPROTONOSUPPORT:
		return "of another version of pinshim";
	case -EPERM:
	case -EACCES:
		return "of another user: only root may read it";
	default:
		return strerrordesc_np(-error);
	}
}

static uint64_t live_blocks(const struct pinshim_table *table)
{
	struct pinshim_entry sum;
	uint64_t served = 0, freed = 0;

	for (unsigned i = 0; i < PINSHIM_ENTRIES; i++) {
		ps_count_sum(table, i, &sum);
		served += sum.served;
		freed += sum.freed;
	}
	return served > freed ? served - freed : 0;
}

static uint64_t refused(const struct pinshim_table *table)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PINSHIM_LIMITS_MAX; i++)
		sum += table->refused[i];
	return sum;
}

static const char *human(uint64_t bytes, char *buffer, size_t size)
{
	struct ps_text text = { buffer, size, 0, false };

	ps_text_add_bytes(&text, bytes);
	return buffer;
}

static void print_bytes(uint64_t bytes)
{
	char buffer[32];

	printf(" %11s", human(bytes, buffer, sizeof(buffer)));
}

/* The file's strings come from another process: nothing of them may steer a terminal. */
static void print_string(const char *string, int width)
{
	char clean[sizeof(((struct pinshim_table *)0)->program)];
	size_t i;

	for (i = 0; i < sizeof(clean) - 1 && string[i]; i++)
		clean[i] = isprint((unsigned char)string[i]) ? string[i] : '?';
	clean[i] = '\0';
	printf("%-*s", width, *clean ? clean : "-");
}

static void print_row(uint64_t pinned, uint64_t peak, uint64_t locked, uint64_t registered,
		      uint64_t huge, uint64_t blocks, uint64_t refusals)
{
	print_bytes(pinned);
	print_bytes(peak);
	print_bytes(locked);
	print_bytes(registered);
	print_bytes(huge);
	printf(" %9" PRIu64 " %9" PRIu64 "\n", blocks, refusals);
}

static void print_heading(void)
{
	printf("%-20s %8s %-5s %-7s %11s %11s %11s %11s %11s %9s %9s\n", "PROGRAM", "PID", "STATE",
	       "BACKEND", "PINNED", "PEAK", "LOCKED", "REGISTERED", "HUGE", "BLOCKS", "REFUSED");
}

static const struct {
	uint32_t flag;
	const char *name;
} range_flag[] = {
	{ PINSHIM_RANGE_LOCKED, "locked" },       { PINSHIM_RANGE_REGISTERED, "registered" },
	{ PINSHIM_RANGE_HUGE, "huge" },           { PINSHIM_RANGE_FOREIGN, "foreign" },
	{ PINSHIM_RANGE_HEAP_CUDA, "cuda_heap" }, { PINSHIM_RANGE_HEAP_MALLOC, "malloc_heap" },
};

static void print_flags(uint32_t flags, const char *quote)
{
	const char *separator = "";

	for (size_t i = 0; i < sizeof(range_flag) / sizeof(range_flag[0]); i++) {
		if (!(flags & range_flag[i].flag))
			continue;
		printf("%s%s%s%s", separator, quote, range_flag[i].name, quote);
		separator = ",";
	}
}

static void text_ranges(const struct pinshim_reader *reader)
{
	char buffer[32];
	size_t count;
	const struct pinshim_range *range = pinshim_reader_ranges(reader, &count);

	for (size_t i = 0; i < count; i++) {
		printf("    0x%012" PRIx64 "-0x%012" PRIx64 " %11s  ", range[i].base,
		       range[i].base + range[i].length,
		       human(range[i].length, buffer, sizeof(buffer)));
		print_flags(range[i].flags, "");
		putchar('\n');
	}
}

static void json_ranges(const struct pinshim_reader *reader)
{
	size_t count;
	const struct pinshim_range *range = pinshim_reader_ranges(reader, &count);

	fputs(", \"ranges\": [", stdout);
	for (size_t i = 0; i < count; i++) {
		printf("%s{\"base\": %" PRIu64 ", \"length_bytes\": %" PRIu64 ", \"flags\": [",
		       i ? ", " : "", range[i].base, range[i].length);
		print_flags(range[i].flags, "\"");
		fputs("]}", stdout);
	}
	putchar(']');
}

static void show_json(struct view *view, const struct pinshim_reader *reader, bool alive,
		      bool whole)
{
	static char report[64 << 10];
	struct ps_text text = PS_TEXT_INIT(report);

	ps_report_json(pinshim_reader_table(reader), &text);
	text.buffer[text.length - 1] = '\0'; /* its newline */
	printf("%s\n{\"alive\": %s, \"whole\": %s, \"report\": %s", view->shown ? "," : "",
	       alive ? "true" : "false", whole ? "true" : "false", report);
	if (view->ranges)
		json_ranges(reader);
	putchar('}');
}

static void show_text(struct view *view, const struct pinshim_reader *reader, bool alive)
{
	const struct pinshim_table *table = pinshim_reader_table(reader);

	if (!view->shown)
		print_heading();
	print_string(table->program, 20);
	printf(" %8" PRIu32 " %-5s ", table->pid, alive ? "alive" : "dead");
	print_string(table->backend, 7);
	print_row(table->pinned_bytes, table->pinned_peak_bytes, table->locked_bytes,
		  table->registered_bytes, table->huge_bytes, live_blocks(table), refused(table));
	if (view->ranges)
		text_ranges(reader);
}

static void add_up(struct view *view, const struct pinshim_table *table, bool alive)
{
	view->shown++;
	if (!alive) {
		view->dead++; /* it holds nothing any more */
		return;
	}
	view->pinned += table->pinned_bytes;
	view->peak += table->pinned_peak_bytes;
	view->locked += table->locked_bytes;
	view->registered += table->registered_bytes;
	view->huge += table->huge_bytes;
	view->blocks += live_blocks(table);
	view->refused += refused(table);
}

static void complain(struct view *view, const char *what, int error)
{
	fprintf(stderr, "pinshim stat: %s: %s\n", what, error_text(error));
	view->incomplete = true;
}

static void show(struct view *view, struct pinshim_reader *reader, const char *what)
{
	int rc = pinshim_reader_refresh(reader);
	bool alive = pinshim_reader_alive(reader);

	if (rc < 0) {
		complain(view, what, rc);
		return;
	}
	if (view->json)
		show_json(view, reader, alive, rc == 0);
	else
		show_text(view, reader, alive);
	add_up(view, pinshim_reader_table(reader), alive);
}

static int show_path(const char *path, pid_t pid, void *context)
{
	struct view *view = context;
	struct pinshim_reader *reader;
	int rc = pinshim_reader_open(path, &reader);

	(void)pid;
	if (rc == -ENOENT || rc == -EACCES || rc == -EPERM)
		return 0; /* it ended just now, or is another user's */
	if (rc < 0) {
		complain(view, path, rc);
		return 0;
	}
	show(view, reader, path);
	pinshim_reader_close(reader);
	return 0;
}

static void show_pid(struct view *view, pid_t pid)
{
	struct pinshim_reader *reader;
	char what[32];
	int rc = pinshim_reader_open_pid(view->directory, pid, &reader);

	snprintf(what, sizeof(what), "process %d", (int)pid);
	if (rc < 0) {
		complain(view, what, rc);
		return;
	}
	show(view, reader, what);
	pinshim_reader_close(reader);
}

static bool parse_pid(const char *string, pid_t *pid)
{
	uint64_t value;

	if (ps_text_parse_size(string, NULL, &value) < 0 || value < 1 || value > INT32_MAX ||
	    !isdigit((unsigned char)string[strlen(string) - 1]))
		return false;
	*pid = (pid_t)value;
	return true;
}

static void show_all(struct view *view, int pids, char **pid)
{
	pid_t number;
	int rc;

	if (view->json)
		fputs("{\"schema\": 1, \"processes\": [", stdout);
	if (pids == 0) {
		rc = pinshim_reader_each(view->directory, show_path, view);
		if (rc < 0)
			complain(view, view->directory ? view->directory : PINSHIM_TABLE_DIRECTORY,
				 rc);
	}
	for (int i = 0; i < pids; i++)
		if (parse_pid(pid[i], &number))
			show_pid(view, number);
	if (view->json) {
		fputs("]}\n", stdout);
	} else if (view->shown - view->dead > 1) {
		printf("%-20s %8u %-5s %-7s", "total", view->shown - view->dead, "alive", "");
		print_row(view->pinned, view->peak, view->locked, view->registered, view->huge,
			  view->blocks, view->refused);
	} else if (!view->shown && !view->incomplete) {
		puts("no process has memory pinned through pinshim");
	}
}

/* Reads the options. The index of the first argument, or -1 with the exit status in *status. */
static int read_options(int argc, char **argv, struct view *view, bool *reap, int *status)
{
	enum { REAP = 256, DIRECTORY };
	static const struct option option[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "ranges", no_argument, NULL, 'r' },
		{ "reap", no_argument, NULL, REAP },
		{ "directory", required_argument, NULL, DIRECTORY },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	pid_t pid;

	for (int c; (c = getopt_long(argc, argv, "jrh", option, NULL)) != -1;) {
		switch (c) {
		case 'j':
			view->json = true;
			break;
		case 'r':
			view->ranges = true;
			break;
		case REAP:
			*reap = true;
			break;
		case DIRECTORY:
			view->directory = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			*status = PS_EXIT_OK;
			return -1;
		default:
			fputs(usage, stderr);
			*status = PS_EXIT_USAGE;
			return -1;
		}
	}
	for (int i = optind; i < argc; i++) {
		if (parse_pid(argv[i], &pid))
			continue;
		fprintf(stderr, "pinshim stat: %s is not a process id\n", argv[i]);
		*status = PS_EXIT_USAGE;
		return -1;
	}
	return optind;
}

int ps_tool_stat(int argc, char **argv)
{
	struct view view = { .directory = NULL };
	bool reap = false;
	int status = PS_EXIT_OK;
	int first = read_options(argc, argv, &view, &reap, &status);

	if (first < 0)
		return status;
	show_all(&view, argc - first, argv + first);
	if (reap) {
		int removed = ps_table_reap(view.directory, 0);

		fprintf(stderr, "pinshim stat: removed %d table%s of dead processes\n", removed,
			removed == 1 ? "" : "s");
	}
	return view.incomplete ? PS_EXIT_INCOMPLETE : PS_EXIT_OK;
}
