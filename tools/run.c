/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinshim run: starts a program with the libraries preloaded and the settings that its options stand
 * for. It becomes the program, so signals and the exit status are the program's own.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"
#include "program.h"
#include "settings.h"
#include "tool.h"

/* Exit statuses beside those of the program: as env(1)'s, and as the libraries' own. */
enum {
	EXIT_BAD_SETTING = 78,
	EXIT_NO_LIBRARY = 125,
	EXIT_CANNOT_RUN = 126,
	EXIT_NOT_FOUND = 127,
};

enum { CHECK = 256 };

/* The value of LD_PRELOAD at most: what is in it already may be long. */
#define PRELOAD_BYTES (64 << 10)

static void usage(FILE *to)
{
	fputs("usage: pinshim run [OPTION]... [--] PROGRAM [ARGUMENT]...\n\n"
	      "Runs the program with libpinshim.so preloaded. See pinshim(7) for the settings.\n\n",
	      to);
	ps_settings_usage(to);
	fputs("  --check                          only say what would be done, for a shell\n"
	      "  -h, --help                       this text\n\n"
	      "Exit status: the program's; 2 for wrong usage, 78 for a bad PINSHIM_ variable, 125\n"
	      "where a library is not found, 126 where the program cannot be run, 127 where it is\n"
	      "not found.\n",
	      to);
}

static int wrong(const char *why)
{
	fprintf(stderr, "pinshim run: %s\n", why);
	return PS_EXIT_USAGE;
}

/* Reads the options. true to go on; else *status is the exit status. */
static bool read_options(int argc, char **argv, struct ps_settings *settings, bool *check,
			 int *status)
{
	struct option option[PS_SETTINGS_MAX + 4] = {
		{ "check", no_argument, NULL, CHECK },
		{ "help", no_argument, NULL, 'h' },
	};

	ps_settings_options(option);
	for (int c; (c = getopt_long(argc, argv, "+h", option, NULL)) != -1;) {
		if (ps_settings_take(settings, c, optarg))
			continue;
		*status = c == 'h' ? PS_EXIT_OK : PS_EXIT_USAGE;
		if (c != CHECK) {
			usage(c == 'h' ? stdout : stderr);
			return false;
		}
		*check = true;
	}
	if (optind < argc)
		return true;
	*status = wrong("no program to run: pinshim run --help says more");
	return false;
}

/* 0, or the exit status with a message. */
static int read_settings(const struct ps_settings *settings, struct ps_config *config)
{
	char line[1024];
	struct ps_text why = PS_TEXT_INIT(line);
	int rc = ps_settings_read(settings, config, &why);

	if (rc == 0)
		return 0;
	wrong(line);
	return rc == -EINVAL ? PS_EXIT_USAGE : EXIT_BAD_SETTING;
}

static int set_preload(const struct ps_settings *settings)
{
	static char value[PRELOAD_BYTES];
	char line[2 * PATH_MAX];
	struct ps_text why = PS_TEXT_INIT(line), preload = PS_TEXT_INIT(value);
	struct ps_preload libraries;

	if (ps_preload_find(&libraries, settings->directory, settings->aio, &why) < 0) {
		wrong(line);
		return EXIT_NO_LIBRARY;
	}
	ps_preload_value(&libraries, getenv("LD_PRELOAD"), &preload);
	if (preload.cut || setenv("LD_PRELOAD", value, 1) < 0) {
		wrong("LD_PRELOAD is too long");
		return EXIT_NO_LIBRARY;
	}
	return 0;
}

/*
 * Says where a preload would be of no effect, as nobody finds out otherwise. 0, or the exit status
 * that execvp() will come to: without a word, it says so itself.
 */
static int look_at_program(const char *name, const struct ps_config *config)
{
	struct ps_program program;
	int rc = ps_program_open(&program, name);
	char line[2 * PATH_MAX], then[256];
	struct ps_text what = PS_TEXT_INIT(line), remedy = PS_TEXT_INIT(then);

	if (rc == -ENOENT)
		return EXIT_NOT_FOUND;
	if (rc < 0)
		return EXIT_CANNOT_RUN;
	if (config->log >= PS_LOG_WARN && ps_program_obstacle(&program, &what, &remedy))
		fprintf(stderr, "pinshim run: nothing will be pinned: %s: %s\n", line, then);
	ps_program_close(&program);
	return 0;
}

/* What would be done, as a command for a shell, with the settings in force as comments. */
static void write_check(const struct ps_settings *settings, const struct ps_config *config,
			char **argv)
{
	char lines[8192];
	struct ps_text text = PS_TEXT_INIT(lines);

	fputs("env LD_PRELOAD=", stdout);
	ps_settings_quote(getenv("LD_PRELOAD"), stdout);
	ps_settings_write(settings, stdout);
	for (; *argv; argv++) {
		putchar(' ');
		ps_settings_quote(*argv, stdout);
	}
	putchar('\n');
	ps_config_print(config, &text);
	for (char *line = lines, *end; (end = strchr(line, '\n')); line = end + 1)
		printf("# %.*s\n", (int)(end - line), line);
}

int ps_tool_run(int argc, char **argv)
{
	struct ps_settings settings = { .directory = NULL };
	struct ps_config config;
	bool check = false;
	int status;

	if (!read_options(argc, argv, &settings, &check, &status))
		return status;
	status = read_settings(&settings, &config);
	if (status == 0)
		status = set_preload(&settings);
	if (status != 0)
		return status;
	argv += optind;
	status = look_at_program(*argv, &config);
	if (check && status == 0) {
		write_check(&settings, &config, argv);
		return PS_EXIT_OK;
	}
	if (check) {
		fprintf(stderr, "pinshim run: %s: %s\n", *argv,
			status == EXIT_NOT_FOUND ? "no such program" : "cannot be run");
		return status;
	}
	execvp(*argv, argv);
	status = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
	fprintf(stderr, "pinshim run: %s: %s\n", *argv, strerror(errno));
	return status;
}
