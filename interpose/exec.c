/* SPDX-License-Identifier: BSD-2-Clause */
#include "exec.h"

#include <alloca.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

#define PUBLIC __attribute__((visibility("default")))

/* May a file be executed, by the ids that the kernel goes by? access(2) goes by the real ones. */
static bool may_execute(const char *path)
{
	return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
}

/* Is there a program of this name in a directory of PATH, as execvp() looks for it? */
static bool in_path(const char *name)
{
	const char *path = getenv("PATH");
	char file[PATH_MAX];

	if (path == NULL)
		path = "/bin:/usr/bin";
	for (size_t length; *path != '\0'; path += length + (path[length] == ':')) {
		struct ps_text text = PS_TEXT_INIT(file);

		length = strcspn(path, ":");
		ps_text_add(&text, "%.*s%s%s", (int)length, path, length > 0 ? "/" : "", name);
		if (!text.cut && may_execute(file))
			return true;
	}
	return false;
}

PUBLIC int execve(const char *path, char *const argv[], char *const envp[])
{
	const bool did = ps_exec_before(may_execute(path));

	return ps_exec_after(did, ps_exec_next_execve(path, argv, envp));
}

PUBLIC int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

PUBLIC int execvpe(const char *file, char *const argv[], char *const envp[])
{
	const bool is_path = strchr(file, '/') != NULL;
	const bool did = ps_exec_before(is_path ? may_execute(file) : in_path(file));

	return ps_exec_after(did, ps_exec_next_execvpe(file, argv, envp));
}

PUBLIC int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

PUBLIC int fexecve(int fd, char *const argv[], char *const envp[])
{
	const bool did = ps_exec_before(fcntl(fd, F_GETFD) >= 0);

	return ps_exec_after(did, ps_exec_next_fexecve(fd, argv, envp));
}

PUBLIC int execveat(int fd, const char *path, char *const argv[], char *const envp[], int flags)
{
	const bool did = ps_exec_before(
		faccessat(fd, path, X_OK, AT_EACCESS | (flags & AT_SYMLINK_NOFOLLOW)) == 0 ||
		(flags & AT_EMPTY_PATH && *path == '\0'));

	return ps_exec_after(did, ps_exec_next_execveat(fd, path, argv, envp, flags));
}

/* The arguments of an execl call, the first and the NULL among them, counted. */
static size_t count_arguments(va_list arguments)
{
	size_t count = 1;

	while (va_arg(arguments, char *) != NULL)
		count++;
	return count + 1;
}

static void copy_arguments(char **argv, const char *first, size_t count, va_list arguments)
{
	argv[0] = (char *)first;
	for (size_t i = 1; i < count; i++)
		argv[i] = va_arg(arguments, char *);
}

/* argv of a call whose last named parameter is `first`, on the caller's stack as execl needs it. */
#define COLLECT(argv, first)                                                                       \
	do {                                                                                       \
		va_list arguments;                                                                 \
		size_t count;                                                                      \
		va_start(arguments, first);                                                        \
		count = count_arguments(arguments);                                                \
		va_end(arguments);                                                                 \
		(argv) = alloca((count + 1) * sizeof(char *));                                     \
		va_start(arguments, first);                                                        \
		copy_arguments((argv), first, count, arguments);                                   \
		va_end(arguments);                                                                 \
	} while (0)

PUBLIC int execl(const char *path, const char *first, ...)
{
	char **argv;

	/* cppcheck-suppress allocaCalled */
	COLLECT(argv, first);
	return execve(path, argv, environ);
}

PUBLIC int execlp(const char *file, const char *first, ...)
{
	char **argv;

	/* cppcheck-suppress allocaCalled */
	COLLECT(argv, first);
	return execvpe(file, argv, environ);
}

/* As execl, with the environment after the NULL. */
PUBLIC int execle(const char *path, const char *first, ...)
{
	va_list rest;
	char *const *envp;
	char **argv;

	/* cppcheck-suppress allocaCalled */
	COLLECT(argv, first);
	va_start(rest, first);
	while (va_arg(rest, char *) != NULL)
		;
	envp = va_arg(rest, char *const *);
	va_end(rest);
	return execve(path, argv, envp);
}
