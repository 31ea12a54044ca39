/* SPDX-License-Identifier: BSD-2-Clause */
#include "trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "counters.h"
#include "lock.h"
#include "log.h"
#include "names.h"
#include "os.h"
#include "syscall.h"
#include "text.h"

#define REFUSAL_NANOSECONDS UINT64_C(10000000)
#define ARRAY_END "\n]\n"

uint64_t ps_trace_file_most = PS_TRACE_FILE_MOST;

static struct {
	struct ps_lock lock;
	uint64_t mask; /* the holder's signal mask before */
	bool forked;   /* a child of a process that had the same setting */
	bool made;     /* there is a file */
	dev_t device;  /* of the file */
	ino_t inode;
	uint64_t end;  /* where the array's end is, and the next event goes */
	uint64_t lost; /* events that are not in the file */
	struct {
		uint64_t until; /* refusals are only counted till then */
		uint64_t count; /* of those that were not written */
	} refusal[PS_LIMITS];
	char path[4096];
	char buffer[4096]; /* what is to be written */
} trace;

/* With all signals blocked: a handler may be refused memory, too. */
static void lock_trace(void)
{
	(void)ps_table();
	ps_lock_quietly(&trace.lock, &trace.mask);
}

static void unlock_trace(void)
{
	ps_unlock_quietly(&trace.lock, trace.mask);
}

/* Does a pattern have the process's id in it? */
static bool has_process_id(const char *pattern)
{
	for (; *pattern != '\0'; pattern++)
		if (*pattern == '%' && *++pattern == 'p')
			return true;
	return false;
}

/*
 * The file's path, from the root on, for the program may change its directory; with the process's id
 * at the end where a child would else write to the same file as its parent.
 */
static int find_path(void)
{
	struct ps_text path = PS_TEXT_INIT(trace.path);

	if (ps_config.trace[0] != '/' &&
	    ps_syscall2(SYS_getcwd, trace.path, sizeof(trace.path)) > 0) {
		path.length = strlen(trace.path);
		ps_text_add(&path, "/");
	}
	ps_text_add_pattern(&path, ps_config.trace);
	if (trace.forked && !has_process_id(ps_config.trace))
		ps_text_add(&path, ".%d", ps_os_getpid());
	return path.cut ? -ENAMETOOLONG : 0;
}

/* A new file in the place of what has its name; what is no file (/dev/null) is written into. */
static int create_file(void)
{
	struct stat status;

	if (ps_os_stat(trace.path, &status) == 0 && !S_ISREG(status.st_mode))
		return ps_os_open(trace.path, O_WRONLY | O_NOCTTY | O_NONBLOCK, 0);
	ps_os_unlink(trace.path);
	return ps_os_open(trace.path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
}

/* Microseconds, as the format wants them. */
static void add_time(struct ps_text *text, const char *name, uint64_t nanoseconds)
{
	ps_text_add(text, "\"%s\":%lu.%03lu,", name, nanoseconds / 1000, nanoseconds % 1000);
}

/* What all events begin with. */
static void begin_event(struct ps_text *text, const char *name, char phase, uint64_t when)
{
	ps_text_add(text, "{\"name\":\"%s\",\"ph\":\"%c\",", name, phase);
	add_time(text, "ts", when);
	ps_text_add(text, "\"pid\":%d,\"tid\":%d,", ps_process->pid, ps_os_gettid());
}

/* The first event: how viewers call the process, and what its times are of the wall clock. */
static void add_process(struct ps_text *text)
{
	const struct pinshim_table *table = ps_table();
	char name[128];
	struct ps_text named = PS_TEXT_INIT(name);
	const uint64_t now = ps_os_now();

	ps_text_add(&named, "%s", ps_text_program());
	if (table->rank[0] != '\0')
		ps_text_add(&named, " (rank %s)", table->rank);
	begin_event(text, "process_name", 'M', now);
	ps_text_add(text, "\"args\":{\"name\":");
	ps_text_add_json(text, name);
	ps_text_add(text, ",\"monotonic_ns\":%lu,\"realtime_ns\":%lu}}", now, ps_os_wall_clock());
}

/* Makes the file at the first event. Its descriptor or -errno. */
static int make_file(void)
{
	struct ps_text text = PS_TEXT_INIT(trace.buffer);
	struct stat status;
	int rc = find_path();
	int fd = rc < 0 ? rc : create_file();

	if (fd < 0)
		return fd;
	ps_text_add(&text, "[\n");
	add_process(&text);
	trace.end = text.length;
	rc = ps_os_fstat(fd, &status);
	if (rc == 0)
		rc = ps_os_write_all(fd, text.buffer, text.length);
	if (rc < 0) {
		ps_os_close(fd);
		return rc;
	}
	trace.device = status.st_dev;
	trace.inode = status.st_ino;
	trace.made = true;
	return fd;
}

/* The descriptor of the file; -errno, -ESTALE where the path leads to another one. */
static int open_file(void)
{
	struct stat status;
	int fd, rc;

	if (!trace.made)
		return make_file();
	fd = ps_os_open(trace.path, O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	rc = ps_os_fstat(fd, &status);
	if (rc == 0 && (status.st_dev != trace.device || status.st_ino != trace.inode))
		rc = -ESTALE;
	if (rc == 0)
		return fd;
	ps_os_close(fd);
	return rc;
}

static int write_at(int fd, uint64_t offset, const struct ps_text *text)
{
	const long rc = ps_syscall3(SYS_lseek, fd, offset, SEEK_SET);

	return rc < 0 ? (int)rc : ps_os_write_all(fd, text->buffer, text->length);
}

/* How many were left out, until now. */
static void add_lost(struct ps_text *text)
{
	begin_event(text, "lost", 'i', ps_os_now());
	ps_text_add(text, "\"s\":\"p\",\"args\":{\"events\":%lu}}", trace.lost);
}

static void say_full(void)
{
	ps_log_once(
		PS_LOG_WARN,
		"the trace %s (PINSHIM_TRACE) is full: what is pinned from now on is only counted "
		"in it",
		trace.path);
}

/* After a write that failed: what there is of it goes, and the array ends again. */
static void restore_end(int fd)
{
	static char array_end[] = ARRAY_END;
	const struct ps_text end = { array_end, sizeof(array_end), strlen(array_end), false };

	(void)write_at(fd, trace.end, &end);
	ps_syscall2(SYS_ftruncate, fd, trace.end + end.length);
}

/*
 * Puts an event in the place of the array's end. Where the file is full, the number of those lost is
 * written there, and again in the same place at the next.
 */
static int put_event(int fd, const struct ps_text *event)
{
	struct ps_text text = PS_TEXT_INIT(trace.buffer);
	const bool full = trace.end + sizeof(trace.buffer) > ps_trace_file_most;
	size_t length;
	int rc;

	trace.lost += full;
	if (trace.lost > 0) {
		ps_text_add(&text, ",\n");
		add_lost(&text);
	}
	if (!full)
		ps_text_add(&text, ",\n%s", event->buffer);
	length = text.length;
	ps_text_add(&text, ARRAY_END);
	rc = write_at(fd, trace.end, &text);
	if (rc < 0) {
		trace.lost += !full;
		restore_end(fd);
	} else if (full) {
		say_full();
	} else {
		trace.end += length;
		trace.lost = 0;
	}
	return rc;
}

/* Writes an event. Lock held. */
static void write_event(const struct ps_text *event)
{
	int fd = open_file();
	int rc = fd;

	if (fd < 0) {
		trace.lost++;
	} else {
		rc = put_event(fd, event);
		ps_os_close(fd);
	}
	if (rc < 0)
		ps_log_once(PS_LOG_WARN,
			    "writing the trace %s (PINSHIM_TRACE) failed: %s: what is pinned "
			    "meanwhile is only counted in it: %s",
			    trace.path, strerrordesc_np(-rc),
			    rc == -ESTALE
				    ? "each process needs a file of its own: use %p in its name"
				    : "see that it can be written");
}

static const char *memory_of(uint32_t flags)
{
	if (flags & PINSHIM_RANGE_FOREIGN)
		return "foreign";
	return flags & PINSHIM_RANGE_HEAP_CUDA ? "cuda_heap" : "malloc_heap";
}

/* What is pinned now, as a graph below the events. */
static void add_gauges(struct ps_text *text)
{
	const struct pinshim_table *table = ps_table();

	ps_text_add(text, ",\n");
	begin_event(text, "pinned", 'C', ps_os_now());
	ps_text_add(text, "\"args\":{\"locked_bytes\":%lu,\"foreign_bytes\":%lu}}",
		    ps_count_get(&table->locked_bytes), ps_count_get(&table->foreign_bytes));
}

void ps_trace_file_span(const struct ps_trace_span *span)
{
	char buffer[768];
	struct ps_text text = PS_TEXT_INIT(buffer);

	begin_event(&text, span->name, 'X', span->began);
	add_time(&text, "dur", span->took);
	ps_text_add(&text, "\"args\":{\"address\":\"0x%lx\",\"bytes\":%lu,\"memory\":\"%s\"",
		    span->address, span->bytes, memory_of(span->flags));
	if (span->huge_bytes != UINT64_MAX)
		ps_text_add(&text, ",\"huge_bytes\":%lu", span->huge_bytes);
	if (span->error != 0)
		ps_text_add(&text, ",\"error\":%d", span->error);
	ps_text_add(&text, "}}");
	add_gauges(&text);
	lock_trace();
	write_event(&text);
	unlock_trace();
}

static void write_refusal(const struct ps_refusal *why, uint64_t now, uint64_t count)
{
	char buffer[1024];
	struct ps_text text = PS_TEXT_INIT(buffer);

	begin_event(&text, "refuse", 'i', now);
	ps_text_add(&text, "\"s\":\"t\",\"args\":{\"limit\":\"%s\",\"asked_bytes\":%lu,",
		    pinshim_limit_name(why->limit), why->asked);
	ps_text_add(&text, "\"allowed_bytes\":%lu,\"used_bytes\":%lu,\"where\":", why->allowed,
		    why->used);
	ps_text_add_json(&text, why->where);
	ps_text_add(&text, ",\"error\":%d,\"refusals\":%lu}}", why->error, count);
	write_event(&text);
}

void ps_trace_file_refusal(const struct ps_refusal *why)
{
	const uint64_t now = ps_os_now();

	lock_trace();
	trace.refusal[why->limit].count++;
	if (now >= trace.refusal[why->limit].until) {
		trace.refusal[why->limit].until = now + REFUSAL_NANOSECONDS;
		write_refusal(why, now, trace.refusal[why->limit].count);
		trace.refusal[why->limit].count = 0;
	}
	unlock_trace();
}

void ps_trace_file_fork_child(void)
{
	memset(&trace, 0, offsetof(__typeof__(trace), path));
	trace.forked = true;
}
