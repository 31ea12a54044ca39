/* SPDX-License-Identifier: BSD-2-Clause */
#include "program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "script.h"

#define SCRIPTS_MAX 5 /* scripts run by scripts, as the kernel allows them */

/* Could execvp(3) run this file? 0, -ENOENT or -EACCES. */
static int check_file(const char *path)
{
	struct stat status;

	if (stat(path, &status) < 0)
		return errno == EACCES ? -EACCES : -ENOENT;
	return S_ISREG(status.st_mode) && access(path, X_OK) == 0 ? 0 : -EACCES;
}

/* Finds the file as execvp(3) does. 0; else -ENOENT or -EACCES, and the path is the name. */
static int find_file(const char *name, struct ps_text *path)
{
	const char *list = getenv("PATH");
	int rc = -ENOENT;

	ps_text_add(path, "%s", name);
	if (strchr(name, '/') || !*name)
		return check_file(name);
	if (!list)
		list = "/bin:/usr/bin";
	for (;; list++) {
		size_t length = strcspn(list, ":");
		int one;

		path->length = 0;
		ps_text_add(path, "%.*s%s%s", (int)length, list, length ? "/" : "", name);
		one = check_file(path->buffer);
		if (one == 0)
			return 0;
		if (one == -EACCES)
			rc = one;
		list += length;
		if (!*list)
			break;
	}
	path->length = 0;
	ps_text_add(path, "%s", name);
	return rc;
}

/* Why the kernel starts it in secure mode; NULL if it does not. */
static const char *find_secure(const char *path)
{
	struct statvfs file_system;
	struct stat status;

	if (stat(path, &status) < 0)
		return NULL;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
	    (statvfs(path, &file_system) == 0 && (file_system.f_flag & ST_NOSUID)))
		return NULL;
	if ((status.st_mode & S_ISUID) && status.st_uid != getuid())
		return "it is set-user-ID";
	if ((status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
	    status.st_gid != getgid())
		return "it is set-group-ID";
	if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
		return "it has file capabilities";
	return NULL;
}

/* What is not ELF may be a script; then *name becomes what runs it. 0, 1 for a script, or -errno. */
static int open_file(struct ps_program *program, const char *name, char *next, size_t size)
{
	char path[PATH_MAX];
	struct ps_text text = PS_TEXT_INIT(path);
	int rc = find_file(name, &text);

	if (rc == 0)
		rc = text.cut ? -ENAMETOOLONG : ps_object_open(&program->object, path);
	if (rc == 0)
		return 0;
	memcpy(program->object.path, path, sizeof(path));
	if (rc != -ENOEXEC)
		return rc;
	rc = ps_script_runner(path, next, size);
	return rc < 0 ? rc : 1;
}

int ps_program_open(struct ps_program *program, const char *name)
{
	char next[PATH_MAX];

	*program = (struct ps_program){ .script = "" };
	for (unsigned i = 0; i <= SCRIPTS_MAX; i++) {
		int rc = open_file(program, name, next, sizeof(next));

		if (rc < 0)
			return rc;
		if (rc == 0) {
			program->secure = find_secure(program->object.path);
			ps_elf_interpreter(&program->object.elf, program->interpreter,
					   sizeof(program->interpreter));
			return 0;
		}
		if (i == 0)
			memcpy(program->script, program->object.path, sizeof(program->script));
		name = next;
	}
	return -ELOOP;
}

void ps_program_close(struct ps_program *program)
{
	for (size_t i = 0; i < PS_TRAITS; i++)
		free(program->shown[i]);
	for (size_t i = 0; i < program->libraries; i++)
		free(program->library[i]);
	free(program->library);
	free(program->missing);
	free(program->runtime);
	ps_object_close(&program->object);
}

bool ps_program_obstacle(const struct ps_program *program, struct ps_text *what,
			 struct ps_text *remedy)
{
	const char *path = program->object.path;

	if (!program->object.elf.native) {
		ps_text_add(what, "%s is built for another architecture (ELF machine %u)", path,
			    program->object.elf.machine);
		ps_text_add(remedy, "use a build for this one, or a libpinshim.so for that one");
	} else if (!program->interpreter[0]) {
		ps_text_add(what, "%s is static: no library can be preloaded into it", path);
		ps_text_add(remedy, "use a build of it that is linked dynamically");
	} else if (strstr(ps_base_name(program->interpreter), "musl")) {
		ps_text_add(what, "%s uses another C library (%s)", path, program->interpreter);
		ps_text_add(remedy, "use a build of it for glibc");
	} else if (program->secure) {
		ps_text_add(what, "LD_PRELOAD is ignored for %s, as %s", path, program->secure);
		ps_text_add(remedy, "run a copy of it without that, or as the user that it "
				    "becomes");
	} else {
		return false;
	}
	return true;
}
