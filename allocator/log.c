/* SPDX-License-Identifier: BSD-2-Clause */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "os.h"
#include "text.h"

#define STDERR 2

enum ps_log_level ps_log_level = PS_LOG_WARN;

/* What descriptor 2 was at start; nothing has the numbers 0 and 0, which stand for closed. */
static struct {
	bool started;
	dev_t device;
	ino_t inode;
} at_start;

void ps_log_start(void)
{
	struct stat status;

	if (ps_os_fstat(STDERR, &status) == 0) {
		at_start.device = status.st_dev;
		at_start.inode = status.st_ino;
	}
	at_start.started = true;
}

static bool may_write(void)
{
	struct stat status;
	int flags;

	if (ps_os_fstat(STDERR, &status) < 0)
		return false;
	if (!at_start.started)
		return true;
	if (status.st_dev == at_start.device && status.st_ino == at_start.inode)
		return true;
	if (S_ISFIFO(status.st_mode) || ps_os_is_terminal(STDERR))
		return true;
	flags = ps_os_file_flags(STDERR);
	return flags >= 0 && (flags & O_APPEND) != 0;
}

static void __attribute__((format(printf, 1, 0))) say(const char *format, va_list arguments)
{
	char line[1024];
	static const char cut[] = "...";
	/* One byte less, for the line's end. */
	struct ps_text text = { line, sizeof(line) - 1, 0, false };

	ps_text_add(&text, "pinshim[%d]: ", ps_os_getpid());
	ps_text_vadd(&text, format, arguments);
	/* A value from the environment or a file's name must not break the line or the terminal. */
	for (size_t i = 0; i < text.length; i++) {
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	}
	if (text.cut)
		memcpy(line + text.length - strlen(cut), cut, strlen(cut));
	line[text.length++] = '\n';
	(void)ps_os_write_all(STDERR, line, text.length);
}

void ps_log(enum ps_log_level level, const char *format, ...)
{
	va_list arguments;

	if (level > ps_log_level || !may_write())
		return;
	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
}

bool ps_log_raw(const char *text, size_t length)
{
	if (!may_write())
		return false;
	(void)ps_os_write_all(STDERR, text, length);
	return true;
}

void ps_log_abort(const char *format, ...)
{
	va_list arguments;

	if (may_write()) {
		va_start(arguments, format);
		say(format, arguments);
		va_end(arguments);
	}
	abort();
}
