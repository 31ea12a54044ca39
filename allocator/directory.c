/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The directory that tables lie in: finding them by process, and removing those of dead processes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "os.h"
#include "pinshim_table_reader.h"
#include "syscall.h"
#include "table.h"
#include "text.h"

#define PATH_BYTES 512

/* What getdents64(2) writes. */
struct entry {
	uint64_t inode;
	int64_t offset;
	uint16_t length;
	uint8_t type;
	char name[];
};

/* Digits without sign, space or leading zero. */
static bool parse_digits(const char *digits, const char **next, uint64_t *value)
{
	*value = 0;
	if (*digits < '1' || *digits > '9')
		return false;
	for (; *digits >= '0' && *digits <= '9'; digits++)
		if (__builtin_mul_overflow(*value, 10u, value) ||
		    __builtin_add_overflow(*value, (uint64_t)(*digits - '0'), value))
			return false;
	*next = digits;
	return true;
}

/* suffix: what follows the start time. */
static bool parse_name(const char *name, const char *suffix, pid_t *pid, uint64_t *start_time)
{
	uint64_t number, time;

	if (strncmp(name, PINSHIM_TABLE_PREFIX, sizeof(PINSHIM_TABLE_PREFIX) - 1) != 0)
		return false;
	name += sizeof(PINSHIM_TABLE_PREFIX) - 1;
	if (!parse_digits(name, &name, &number) || *name++ != '.' || number > INT32_MAX ||
	    !parse_digits(name, &name, &time) || strcmp(name, suffix) != 0)
		return false;
	if (pid)
		*pid = (pid_t)number;
	if (start_time)
		*start_time = time;
	return true;
}

bool pinshim_reader_parse_name(const char *name, pid_t *pid, uint64_t *start_time)
{
	return parse_name(name, "", pid, start_time);
}

/* Calls found for the names with this suffix among the entries of one getdents64(2). */
static int each_entry(const char *directory, const char *suffix, const char *entries, size_t length,
		      int (*found)(const char *path, pid_t pid, void *context), void *context)
{
	char path[PATH_BYTES];
	pid_t pid;
	int rc = 0;

	while (length > 0 && rc == 0) {
		const struct entry *entry = (const struct entry *)entries;
		struct ps_text text = PS_TEXT_INIT(path);

		entries += entry->length;
		length -= entry->length;
		if (!parse_name(entry->name, suffix, &pid, NULL))
			continue;
		ps_text_add(&text, "%s/%s", directory, entry->name);
		rc = text.cut ? -ENAMETOOLONG : found(path, pid, context);
	}
	return rc;
}

/* Room that any entry fits into: a name has at most 255 bytes. */
#define ENTRY_BYTES 280

/* Reads entries until there are no more, and then closes *fd and makes it -1, or the buffer is full. */
static ssize_t read_entries(int *fd, char *entries, size_t size)
{
	size_t have = 0;

	while (size - have >= ENTRY_BYTES) {
		ssize_t length = ps_os_getdents(*fd, entries + have, size - have);

		if (length < 0)
			return length;
		if (length == 0) {
			ps_os_close(*fd);
			*fd = -1;
			break;
		}
		have += (size_t)length;
	}
	return (ssize_t)have;
}

/* A process may have one descriptor left: unless there are very many entries, found() has it. */
static int each(const char *directory, const char *suffix,
		int (*found)(const char *path, pid_t pid, void *context), void *context)
{
	char entries[4096] __attribute__((aligned(8)));
	ssize_t length;
	int fd, rc = 0;

	if (!directory)
		directory = PINSHIM_TABLE_DIRECTORY;
	fd = ps_os_open(directory, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	while (rc == 0 && fd >= 0) {
		length = read_entries(&fd, entries, sizeof(entries));
		rc = length < 0 ? (int)length
				: each_entry(directory, suffix, entries, (size_t)length, found,
					     context);
	}
	if (fd >= 0)
		ps_os_close(fd);
	return rc;
}

int pinshim_reader_each(const char *directory,
			int (*found)(const char *path, pid_t pid, void *context), void *context)
{
	return each(directory, "", found, context);
}

/* The table of one process that is looked for. */
struct search {
	pid_t pid;
	bool alive;       /* what was found is of a living process */
	uint64_t started; /* and began then */
	char path[PATH_BYTES];
};

static int match(const char *path, pid_t pid, void *context)
{
	struct search *search = context;
	uint64_t started = 0;
	bool alive;

	if (pid != search->pid)
		return 0;
	pinshim_reader_parse_name(strrchr(path, '/') + 1, NULL, &started);
	alive = pinshim_reader_process_alive(pid, started);
	if (search->path[0] && (search->alive || (!alive && started < search->started)))
		return 0;
	search->alive = alive;
	search->started = started;
	memcpy(search->path, path, strlen(path) + 1); /* found in a buffer of this size */
	return 0;
}

int pinshim_reader_open_pid(const char *directory, pid_t pid, struct pinshim_reader **reader)
{
	struct search search = { .pid = pid };
	int rc = pinshim_reader_each(directory, match, &search);

	if (rc < 0)
		return rc;
	if (!search.path[0])
		return -ENOENT;
	return pinshim_reader_open(search.path, reader);
}

/*
 * More dead tables than this are not worth their memory, however young: a pool of workers that are
 * ended by signals leaves one each.
 */
#define YOUNG_MAX 64

/* The dead that are removed. */
struct reaping {
	const char *suffix; /* of the names */
	time_t before;      /* last written */
	int removed;
	int young; /* dead, but written since */
};

/*
 * Has anybody a writable mapping of the file? A read lease is refused then. This finds writers whose
 * process ids mean nothing here: containers may share /dev/shm and not the process ids.
 */
static bool is_being_written(const char *path)
{
	int fd = ps_os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	long rc;

	if (fd < 0)
		return false;
	rc = ps_syscall3(SYS_fcntl, fd, F_SETLEASE, F_RDLCK);
	ps_os_close(fd);
	return rc == -EAGAIN;
}

static int reap_one(const char *path, pid_t pid, void *context)
{
	struct reaping *reaping = context;
	uint64_t started = 0;
	struct stat status;

	parse_name(strrchr(path, '/') + 1, reaping->suffix, NULL, &started);
	if (pinshim_reader_process_alive(pid, started))
		return 0;
	if (ps_syscall4(SYS_newfstatat, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (!S_ISREG(status.st_mode) || status.st_uid != (uid_t)ps_syscall0(SYS_geteuid) ||
	    is_being_written(path))
		return 0;
	if (status.st_mtime > reaping->before) {
		reaping->young++;
		return 0;
	}
	if (ps_os_unlink(path) == 0)
		reaping->removed++;
	return 0;
}

int ps_table_reap(const char *directory, unsigned older_than)
{
	struct reaping reaping = { .suffix = "" };
	struct timespec now = { 0, 0 };

	ps_syscall2(SYS_clock_gettime, CLOCK_REALTIME, &now);
	reaping.before = now.tv_sec - (time_t)older_than;
	each(directory, reaping.suffix, reap_one, &reaping);
	if (reaping.young > YOUNG_MAX) {
		reaping.before = now.tv_sec;
		each(directory, reaping.suffix, reap_one, &reaping);
	}
	/* Of a process that was killed while it made its table. */
	reaping.suffix = PS_TABLE_TEMPORARY;
	each(directory, reaping.suffix, reap_one, &reaping);
	return reaping.removed;
}
