/* SPDX-License-Identifier: BSD-2-Clause */
#include "holders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pinshim_table_reader.h"

/* One reading. */
struct reading {
	struct ps_holders *holders;
	const struct ps_search *search;
};

static const char *error_text(int error)
{
	switch (error) {
	case -ENOENT:
		return "no table: it pinned nothing through pinshim, or has ended";
	case -EPROTO:
		return "not a table of pinshim: damaged, or of a process of another user than its "
		       "owner: remove it";
	case -EPROTONOSUPPORT:
		return "of another version of pinshim";
	case -EPERM:
	case -EACCES:
		return "of another user: only root may read it";
	default:
		return strerrordesc_np(-error);
	}
}

static void complain(const struct reading *reading, const char *what, int error)
{
	const char *text = error_text(error);

	reading->holders->unread++;
	if (!reading->search->quiet)
		fprintf(stderr, "pinshim stat: %s: %s\n", what, text ? text : "unknown error");
}

/* A copy in memory of its own, NULL where there is none. */
static void *copy_of(const void *from, size_t bytes)
{
	void *copy = malloc(bytes);

	return copy ? memcpy(copy, from, bytes) : NULL;
}

static struct ps_holder *make_room(struct ps_holders *holders)
{
	struct ps_holder *more;
	size_t room = holders->room ? 2 * holders->room : 64;

	if (holders->count < holders->room)
		return &holders->holder[holders->count];
	more = realloc(holders->holder, room * sizeof(*more));
	if (!more)
		return NULL;
	holders->holder = more;
	holders->room = room;
	return &more[holders->count];
}

/*
 * Adds the process of a table that was opened. The ranges are read only if somebody wants to see
 * them, or to tell whether a writer that is at it will finish. 0 or -errno.
 */
static int add(struct reading *reading, struct pinshim_reader *reader)
{
	const struct pinshim_table *table = pinshim_reader_table(reader);
	struct ps_holder *holder = make_room(reading->holders);
	const struct pinshim_range *range;
	int rc = 0;

	if (!holder)
		return -ENOMEM;
	*holder = (struct ps_holder){ .alive = pinshim_reader_alive(reader) };
	if (reading->search->ranges || table->sequence & 1)
		rc = pinshim_reader_refresh(reader);
	if (rc < 0)
		return rc;
	holder->whole = rc == 0;
	holder->table = copy_of(table, sizeof(*table));
	range = pinshim_reader_ranges(reader, &holder->ranges);
	if (holder->ranges)
		holder->range = copy_of(range, holder->ranges * sizeof(*range));
	if (!holder->table || (holder->ranges && !holder->range)) {
		free(holder->table);
		return -ENOMEM;
	}
	ps_figures_of(holder->table, &holder->figures);
	reading->holders->count++;
	return 0;
}

/* What is called like one process's table and claims to be another's is nobody's. */
static bool is_named_right(const char *path, const struct pinshim_reader *reader)
{
	const struct pinshim_table *table = pinshim_reader_table(reader);
	uint64_t start_time;
	pid_t pid;

	return pinshim_reader_parse_name(strrchr(path, '/') + 1, &pid, &start_time) &&
	       table->pid == (uint32_t)pid && table->start_time == start_time;
}

static int add_path(const char *path, pid_t pid, void *context)
{
	struct reading *reading = context;
	struct pinshim_reader *reader;
	int rc = pinshim_reader_open(path, &reader);

	(void)pid;
	if (rc == -ENOENT || rc == -EACCES || rc == -EPERM)
		return 0; /* it ended just now, or is another user's */
	if (rc == 0) {
		rc = is_named_right(path, reader) ? add(reading, reader) : -EPROTO;
		pinshim_reader_close(reader);
	}
	if (rc < 0)
		complain(reading, path, rc);
	return 0;
}

static void add_pid(struct reading *reading, pid_t pid)
{
	struct pinshim_reader *reader;
	char what[32];
	int rc = pinshim_reader_open_pid(reading->search->directory, pid, &reader);

	if (rc == 0) {
		rc = pinshim_reader_table(reader)->pid == (uint32_t)pid ? add(reading, reader)
									: -EPROTO;
		pinshim_reader_close(reader);
	}
	snprintf(what, sizeof(what), "process %d", (int)pid);
	if (rc < 0)
		complain(reading, what, rc);
}

void ps_holders_read(struct ps_holders *holders, const struct ps_search *search)
{
	struct reading reading = { holders, search };
	int rc;

	ps_holders_free(holders);
	for (size_t i = 0; i < search->pids; i++)
		add_pid(&reading, search->pid[i]);
	if (search->pids)
		return;
	rc = pinshim_reader_each(search->directory, add_path, &reading);
	if (rc < 0)
		complain(&reading, search->directory ? search->directory : PINSHIM_TABLE_DIRECTORY,
			 rc);
}

void ps_holders_free(struct ps_holders *holders)
{
	for (size_t i = 0; i < holders->count; i++) {
		free(holders->holder[i].table);
		free(holders->holder[i].range);
	}
	free(holders->holder);
	*holders = (struct ps_holders){ .count = 0 };
}
