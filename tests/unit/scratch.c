/* SPDX-License-Identifier: BSD-2-Clause */
#include "scratch.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os.h"
#include "table.h"

static char root[32];
char scratch[64];

void scratch_begin(void)
{
	snprintf(root, sizeof(root), "/tmp/pinshim-test.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	/* Tests that give up being root come in here too. */
	ck_assert_int_eq(chmod(root, 0711), 0);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

void scratch_end(void)
{
	nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void scratch_enter(void)
{
	snprintf(scratch, sizeof(scratch), "%s/XXXXXX", root);
	ck_assert_ptr_nonnull(mkdtemp(scratch));
	ps_table_directory = scratch;
}

const char *scratch_path(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", scratch, name);
	return path;
}

unsigned scratch_entries(void)
{
	DIR *directory = opendir(scratch);
	unsigned count = 0;

	ck_assert_ptr_nonnull(directory);
	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count - 2;
}

const char *scratch_table(void)
{
	char name[64];

	snprintf(name, sizeof(name), "pinshim.%d.%llu", (int)getpid(),
		 (unsigned long long)ps_os_start_time(getpid()));
	return scratch_path(name);
}

long scratch_read(const char *path, void *buffer, long size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long length;

	ck_assert_int_ge(fd, 0);
	length = read(fd, buffer, (size_t)size);
	close(fd);
	return length;
}

void scratch_write(const char *path, const void *buffer, long size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, buffer, (size_t)size), size);
	close(fd);
}

uint64_t scratch_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

int scratch_wait(int pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
