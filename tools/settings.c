/* SPDX-License-Identifier: BSD-2-Clause */
#include "settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_VALUE 512 /* of getopt_long(); the commands' own are below */

static const struct setting {
	const char *option;
	const char *variable; /* NULL: it is about the libraries */
	int argument;         /* as in struct option */
	const char *value;    /* where no argument is given */
	const char *form;     /* of the argument, in --help */
	const char *does;
} setting[] = {
	{ "aio", "PINSHIM_AIO", optional_argument, "auto", "[=auto|uring|libaio|off]",
	  "preload libpinshim-aio.so too; its engine" },
	{ "backend", "PINSHIM_BACKEND", required_argument, NULL, "=native|cuda|off",
	  "what serves CUDA's host memory" },
	{ "deepbind", "PINSHIM_DEEPBIND", required_argument, NULL, "=auto|strip|keep",
	  "whether dlopen() ignores RTLD_DEEPBIND" },
	{ "hugepages", "PINSHIM_HUGEPAGES", required_argument, NULL, "=thp|hugetlb|off",
	  "what the heap is backed with" },
	{ "library", NULL, required_argument, NULL, "=DIR", "where the libraries are" },
	{ "limit", "PINSHIM_LIMIT", required_argument, NULL, "=SIZE",
	  "the most that a process may pin: 8G, 50%" },
	{ "log", "PINSHIM_LOG", required_argument, NULL, "=error|warn|info|debug",
	  "what is said on standard error" },
	{ "malloc", "PINSHIM_MALLOC", required_argument, NULL, "=RANGES",
	  "sizes of malloc requests to serve: 64K-1M,16M-" },
	{ "no-repair", "PINSHIM_AIO_REPAIR", no_argument, "0", "",
	  "with --aio: let misaligned requests fail" },
	{ "node-limit", "PINSHIM_NODE_LIMIT", required_argument, NULL, "=SIZE",
	  "the most that all processes of the node may" },
	{ "on-fail", "PINSHIM_ON_FAIL", required_argument, NULL, "=error|fallback",
	  "what CUDA gets that cannot be pinned" },
	{ "reserve", "PINSHIM_RESERVE", required_argument, NULL, "=SIZE",
	  "what must stay available: 5%, 4G" },
	{ "retain", "PINSHIM_RETAIN", required_argument, NULL, "=SIZE",
	  "freed memory kept pinned for reuse" },
	{ "stats", "PINSHIM_STATS", required_argument, NULL, "=stderr|off|FILE",
	  "where the report goes at the end" },
	{ "threads", "PINSHIM_THREADS", required_argument, NULL, "=N",
	  "threads that bring a chunk into memory" },
	{ "trace", "PINSHIM_TRACE", required_argument, NULL, "=off|FILE",
	  "where a trace of pinning goes" },
};

#define SETTINGS (sizeof(setting) / sizeof(setting[0]))

_Static_assert(SETTINGS <= PS_SETTINGS_MAX, "struct ps_settings has room for every option");

void ps_settings_options(struct option *option)
{
	while (option->name)
		option++;
	for (size_t i = 0; i < SETTINGS; i++)
		*option++ = (struct option){ setting[i].option, setting[i].argument, NULL,
					     FIRST_VALUE + (int)i };
	*option = (struct option){ NULL, 0, NULL, 0 };
}

static bool is(size_t index, const char *option)
{
	return !strcmp(setting[index].option, option);
}

bool ps_settings_take(struct ps_settings *settings, int value, const char *argument)
{
	size_t index = (size_t)(value - FIRST_VALUE);

	if (value < FIRST_VALUE || index >= SETTINGS)
		return false;
	if (!argument)
		argument = setting[index].value;
	settings->given[index] = argument;
	settings->aio |= is(index, "aio");
	if (is(index, "library"))
		settings->directory = argument;
	else if (setenv(setting[index].variable, argument, 1) < 0)
		abort(); /* no memory for a few bytes */
	return true;
}

static const char *variable(const char *name)
{
	return getenv(name);
}

/* The option that set the variable which an error begins with; NULL where none did. */
static const struct setting *find_given(const struct ps_settings *settings, const char *error)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		size_t length = setting[i].variable ? strlen(setting[i].variable) : 0;

		if (settings->given[i] && length && error[length] == '=' &&
		    !strncmp(error, setting[i].variable, length))
			return &setting[i];
	}
	return NULL;
}

int ps_settings_read(const struct ps_settings *settings, struct ps_config *config,
		     struct ps_text *why)
{
	char line[512];
	struct ps_text error = PS_TEXT_INIT(line);
	const struct setting *given;

	for (size_t i = 0; i < SETTINGS; i++) {
		if (settings->given[i] && is(i, "no-repair") && !settings->aio) {
			ps_text_add(why, "--no-repair is for --aio");
			return -EINVAL;
		}
	}
	if (ps_config_read(config, variable, ps_config_ram(), ps_config_cores(), &error) == 0)
		return 0;
	given = find_given(settings, line);
	if (!given) {
		ps_text_add(why, "%s", line);
		return -EBADMSG;
	}
	ps_text_add(why, "--%s%s", given->option, line + strlen(given->variable));
	return -EINVAL;
}

void ps_settings_quote(const char *word, FILE *to)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789@%+=:,./_-";

	if (*word && word[strspn(word, plain)] == '\0') {
		fputs(word, to);
		return;
	}
	putc('\'', to);
	for (; *word; word++) {
		if (*word == '\'')
			fputs("'\\''", to);
		else
			putc(*word, to);
	}
	putc('\'', to);
}

void ps_settings_write(const struct ps_settings *settings, FILE *to)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		if (!settings->given[i] || !setting[i].variable)
			continue;
		fprintf(to, " %s=", setting[i].variable);
		ps_settings_quote(settings->given[i], to);
	}
}

void ps_settings_usage(FILE *to)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		char option[64];
		struct ps_text text = PS_TEXT_INIT(option);

		ps_text_add(&text, "--%s%s", setting[i].option, setting[i].form);
		fprintf(to, "  %-32s %s\n", option, setting[i].does);
	}
}
