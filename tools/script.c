/* SPDX-License-Identifier: BSD-2-Clause */
#include "script.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "loader.h"
#include "os.h"
#include "text.h"

#define LINE_BYTES 256 /* what the kernel reads of it */

static const char blanks[] = " \t";
static const char default_runner[] = "/bin/sh";

/* Cuts the next word off the text; empty at its end. */
static char *next_word(char **text)
{
	char *word = *text + strspn(*text, blanks);
	size_t length = strcspn(word, blanks);

	*text = word + length;
	if (**text)
		*(*text)++ = '\0';
	return word;
}

/*
 * The program in the argument of env: "python3", or after -S words of which some are options or
 * settings. NULL where there is none.
 */
static char *behind_env(char *argument)
{
	static const char long_option[] = "--split-string=";

	if (!strncmp(argument, "-S", 2))
		argument += 2;
	else if (!strncmp(argument, long_option, strlen(long_option)))
		argument += strlen(long_option);
	else if (*argument == '-')
		return NULL;
	for (;;) {
		char *word = next_word(&argument);

		if (!*word)
			return NULL;
		if (*word != '-' && !strchr(word, '='))
			return word;
	}
}

/* Of what follows #! on the line. NULL where it names none. */
static const char *runner(char *line)
{
	const char *program = next_word(&line);
	const char *behind;

	if (!*program)
		return NULL;
	line += strspn(line, blanks);
	if (strcmp(ps_base_name(program), "env") != 0 || !*line)
		return program;
	behind = behind_env(line);
	return behind ? behind : program;
}

int ps_script_runner(const char *path, char *program, size_t size)
{
	struct ps_text text = { program, size, 0, false };
	char line[LINE_BYTES];
	const char *name;
	bool has_line;
	ssize_t length = ps_os_read_file(path, line, sizeof(line));

	if (length < 0)
		return (int)length;
	has_line = !strncmp(line, "#!", 2);
	/* Text has no NUL, but behind its first line a script may have anything. */
	if (length == 0 || (!has_line && strlen(line) < (size_t)length))
		return -ENOEXEC;
	line[strcspn(line, "\n")] = '\0';
	name = has_line ? runner(line + 2) : default_runner;
	if (!name)
		return -ENOEXEC;
	ps_text_add(&text, "%s", name);
	return text.cut ? -ENAMETOOLONG : 0;
}
