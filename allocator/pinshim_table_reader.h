/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PINSHIM_TABLE_READER_H
#define PINSHIM_TABLE_READER_H
/*
 * Reading tables (pinshim_table.h), of this process or another, without locks and without trusting
 * them: a file in /dev/shm may be truncated, of another version, being written, left by a killed
 * writer, or hostile. Nothing here crashes on any content; each function says what it found.
 *
 * A reader keeps a descriptor open and copies with pread(2); the file is never mapped, because a
 * mapping of a file that somebody shortens raises SIGBUS. No function takes a lock, allocates with
 * malloc, or touches errno. One reader serves one thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "pinshim_table.h"

struct pinshim_reader; /* one open table */

/*
 * Opens the table at path (a regular file owned by the caller, or by anyone if the caller is root;
 * links are not followed). 0 and *reader; -ENOENT none; -EPROTO not a pinshim table, or shorter
 * than it says, or of a process that its owner cannot have written it for; -EPROTONOSUPPORT another
 * version; -EPERM not the caller's; -ENOMEM; other -errno of open, fstat or mmap.
 */
int pinshim_reader_open(const char *path, struct pinshim_reader **reader);

/* The table of a process, by id, in directory (NULL: PINSHIM_TABLE_DIRECTORY). Errors as above. */
int pinshim_reader_open_pid(const char *directory, pid_t pid, struct pinshim_reader **reader);
void pinshim_reader_close(struct pinshim_reader *reader);

/*
 * The header as it was at the last refresh, or at open; its strings end, its other content is as the
 * writer left it. The counters are single words: each is right, together they are not of one moment.
 */
const struct pinshim_table *pinshim_reader_table(const struct pinshim_reader *reader);

/* Whether the process that wrote it still runs (process id and start time; a zombie does not). */
bool pinshim_reader_alive(const struct pinshim_reader *reader);

/*
 * Takes a consistent copy of the ranges into the reader: sorted by base, disjoint, valid until the
 * next refresh; and copies the header. The ranges are not read again when the generation has not
 * changed. 0; 1 when the writer was in the middle of a change and did not finish within some
 * milliseconds (killed, stopped, or changing without pause): the copy then has the ranges whose record
 * is whole, and may miss some; -EPROTO when the file no longer is a table, and -ENOMEM, after both of
 * which there are no ranges.
 */
int pinshim_reader_refresh(struct pinshim_reader *reader);

/* The ranges of the last refresh. None before the first. */
const struct pinshim_range *pinshim_reader_ranges(const struct pinshim_reader *reader,
						  size_t *count);

/* The generation the last refresh copied. */
uint64_t pinshim_reader_generation(const struct pinshim_reader *reader);

/*
 * Is every byte of [address, address+length) in ranges of the last refresh that have all of flags?
 * Adjacent ranges count together. length 0 asks about one byte.
 */
bool pinshim_reader_covers(const struct pinshim_reader *reader, uint64_t address, uint64_t length,
			   uint32_t flags);

/* Whether a process with this id and start time runs; a zombie does not. true if that cannot be told. */
bool pinshim_reader_process_alive(pid_t pid, uint64_t start_time);

/*
 * Whether what a file owned by this user says of a process may be believed: root's may, and another's
 * if the process runs as that user. true if that cannot be told: it is gone, for example.
 */
bool pinshim_reader_may_speak_for(uid_t owner, pid_t pid);

/*
 * Whether name is a table's, "pinshim.PID.STARTTIME", and whose; pid and start_time may be NULL.
 */
bool pinshim_reader_parse_name(const char *name, pid_t *pid, uint64_t *start_time);

/*
 * Calls found(path, pid, context) for each file in directory (NULL: PINSHIM_TABLE_DIRECTORY) that is
 * named like a table, until it returns non-zero; returns that, 0, or -errno.
 */
int pinshim_reader_each(const char *directory,
			int (*found)(const char *path, pid_t pid, void *context), void *context);

#endif
