/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pinshim command: finds the subcommand.
 */
#include <stdio.h>
#include <string.h>

#include "tool.h"

#ifndef PINSHIM_VERSION
#define PINSHIM_VERSION "0.1"
#endif

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *does;
} command[] = {
	{ "doctor", ps_tool_doctor, "say what will and what will not work here and for a program" },
	{ "io", ps_tool_io, "measure reading and writing through libpinshim-aio" },
	{ "run", ps_tool_run, "run a program with the library preloaded" },
	{ "stat", ps_tool_stat, "show the pinned memory of every process of this node" },
};

#define COMMANDS (sizeof(command) / sizeof(command[0]))

static void usage(FILE *to)
{
	fputs("usage: pinshim COMMAND [OPTION]... [ARGUMENT]...\n\n", to);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-8s %s\n", command[i].name, command[i].does);
	fputs("\npinshim COMMAND --help says more; so does man pinshim.\n", to);
}

/* A full disk must not look like success. */
static int finish(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	perror("pinshim: standard output");
	return PS_EXIT_INCOMPLETE;
}

/* Runs a command, which is called by its full name in getopt's messages. */
static int run(size_t number, int argc, char **argv)
{
	static char name[32];

	snprintf(name, sizeof(name), "pinshim %s", command[number].name);
	argv[0] = name;
	return finish(command[number].run(argc, argv));
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		usage(stdout);
		return finish(PS_EXIT_OK);
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		puts("pinshim " PINSHIM_VERSION);
		return finish(PS_EXIT_OK);
	}
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(name, command[i].name))
			return run(i, argc - 1, argv + 1);
	if (*name)
		fprintf(stderr, "pinshim: there is no command %s\n", name);
	usage(stderr);
	return PS_EXIT_USAGE;
}
