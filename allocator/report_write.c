/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing this process's report. No lock, no malloc: other destructors may be running, other threads
 * may hold any lock, and after _exit() nobody will release them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "chunk.h"
#include "counters.h"
#include "log.h"
#include "os.h"
#include "report.h"
#include "syscall.h"
#include "table.h"

#define BUFFER_BYTES ((size_t)64 << 10)

/* To a terminal, a pipe, /dev/null: these are written to and never replaced. */
static int write_into(const char *path, const char *content, size_t length)
{
	int fd = ps_os_open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK, 0);
	int rc;

	if (fd < 0)
		return fd;
	rc = ps_os_write_all(fd, content, length);
	ps_os_close(fd);
	return rc;
}

/* Under a temporary name first, so that nobody reads half a report. */
static int write_and_rename(const char *path, const char *content, size_t length)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
	char buffer[4096];
	struct ps_text temporary = PS_TEXT_INIT(buffer);
	int fd, rc;

	ps_text_add(&temporary, "%s.%d.tmp", path, ps_os_getpid());
	if (temporary.cut)
		return -ENAMETOOLONG;
	fd = ps_os_open(buffer, flags, 0644);
	if (fd == -EEXIST && ps_os_unlink(buffer) == 0)
		fd = ps_os_open(buffer, flags, 0644);
	if (fd < 0)
		return fd;
	rc = ps_os_write_all(fd, content, length);
	ps_os_close(fd);
	if (rc == 0)
		rc = (int)ps_syscall5(SYS_renameat2, AT_FDCWD, buffer, AT_FDCWD, path, 0);
	if (rc < 0)
		ps_os_unlink(buffer);
	return rc;
}

int ps_report_put(const char *path, const char *content, size_t length)
{
	struct stat status;

	if (ps_os_stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
		return write_into(path, content, length);
	return write_and_rename(path, content, length);
}

static int write_file(const char *pattern, const struct ps_text *text)
{
	char buffer[4096];
	struct ps_text path = PS_TEXT_INIT(buffer);
	int rc = ps_text_add_pattern(&path, pattern);

	if (rc == 0 && path.cut)
		rc = -ENAMETOOLONG;
	if (rc == 0)
		rc = ps_report_put(buffer, text->buffer, text->length);
	if (rc < 0)
		ps_log_once(PS_LOG_WARN, "writing the report to %s (PINSHIM_STATS) failed: %s",
			    buffer, strerrordesc_np(-rc));
	return rc;
}

/* Is there anything that whoever started the process may want to know? */
static bool is_worth_saying(const struct pinshim_table *table)
{
	struct pinshim_aio aio;

	if (ps_count_get(&table->pinned_peak_bytes) > 0)
		return true;
	ps_count_aio_sum(table, &aio);
	return ps_report_has_aio(&aio);
}

int ps_report_write(const char *stats)
{
	const struct pinshim_table *table = ps_table();
	bool to_stderr = strcmp(stats, "stderr") == 0;
	struct ps_text text = { NULL, BUFFER_BYTES, 0, false };
	void *memory;
	int rc;

	if (strcmp(stats, "off") == 0 || (to_stderr && !is_worth_saying(table)))
		return 0;
	rc = ps_os_mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0, &memory);
	if (rc < 0) {
		ps_log_once(PS_LOG_WARN, "no memory for the report: %s", strerrordesc_np(-rc));
		return rc;
	}
	text.buffer = memory;
	ps_table_identify();
	ps_chunk_count_huge();
	if (to_stderr) {
		ps_report_text(table, &text);
		rc = ps_log_raw(text.buffer, text.length) ? 0 : -EBADF;
	} else {
		ps_report_json(table, &text);
		rc = write_file(stats, &text);
	}
	ps_os_munmap(memory, BUFFER_BYTES);
	return rc;
}
