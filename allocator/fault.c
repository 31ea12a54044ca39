/* SPDX-License-Identifier: BSD-2-Clause */
#ifdef PS_FAULT_INJECTION
#include "fault.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "text.h"

static struct {
	atomic_uint reached; /* since ps_fault_clear() */
	atomic_uint origin;  /* reached when the fault was set */
	atomic_uint first;   /* 0: no fault is set */
	atomic_uint last;
	atomic_int error;
} faults[PS_OS_CALLS];

static const char *const call_names[PS_OS_CALLS] = {
	[PS_OS_MMAP] = "mmap",
	[PS_OS_MUNMAP] = "munmap",
	[PS_OS_MPROTECT] = "mprotect",
	[PS_OS_MADVISE] = "madvise",
	[PS_OS_POPULATE] = "populate",
	[PS_OS_MLOCK] = "mlock",
	[PS_OS_MUNLOCK] = "munlock",
	[PS_OS_CLONE] = "clone",
	[PS_OS_OPEN] = "open",
	[PS_OS_READ] = "read",
	[PS_OS_WRITE] = "write",
	[PS_OS_FALLOCATE] = "fallocate",
	[PS_OS_FSTAT] = "fstat",
	[PS_OS_UNLINK] = "unlink",
	[PS_OS_GETDENTS] = "getdents",
	[PS_OS_GETRLIMIT] = "getrlimit",
	[PS_OS_PAGEMAP_SCAN] = "pagemap_scan",
	[PS_OS_READLINK] = "readlink",
	[PS_OS_IO_SETUP] = "io_setup",
	[PS_OS_IO_SUBMIT] = "io_submit",
	[PS_OS_IO_GETEVENTS] = "io_getevents",
	[PS_OS_IO_URING_SETUP] = "io_uring_setup",
	[PS_OS_IO_URING_ENTER] = "io_uring_enter",
	[PS_OS_IO_URING_REGISTER] = "io_uring_register",
	[PS_OS_STATX] = "statx",
	[PS_OS_PREADV] = "preadv",
	[PS_OS_PWRITEV] = "pwritev",
	[PS_OS_FSYNC] = "fsync",
};

static const struct {
	const char *name;
	int error;
} error_names[] = {
	{ "EACCES", EACCES },         { "EAGAIN", EAGAIN }, { "EBADF", EBADF },
	{ "EEXIST", EEXIST },         { "EFAULT", EFAULT }, { "EINTR", EINTR },
	{ "EINVAL", EINVAL },         { "EIO", EIO },       { "EMFILE", EMFILE },
	{ "ENFILE", ENFILE },         { "ENOENT", ENOENT }, { "ENOMEM", ENOMEM },
	{ "ENOSPC", ENOSPC },         { "ENOSYS", ENOSYS }, { "ENOTTY", ENOTTY },
	{ "EOPNOTSUPP", EOPNOTSUPP }, { "EPERM", EPERM },   { "EROFS", EROFS },
};

void ps_fault_set(enum ps_os_call call, unsigned first, unsigned last, int error)
{
	atomic_store(&faults[call].first, 0);
	atomic_store(&faults[call].origin, atomic_load(&faults[call].reached));
	atomic_store(&faults[call].last, last);
	atomic_store(&faults[call].error, error);
	atomic_store(&faults[call].first, first);
}

void ps_fault_clear(void)
{
	for (int call = 0; call < PS_OS_CALLS; call++) {
		atomic_store(&faults[call].first, 0);
		atomic_store(&faults[call].reached, 0);
	}
}

unsigned ps_fault_reached(enum ps_os_call call)
{
	return atomic_load(&faults[call].reached);
}

int ps_fault(enum ps_os_call call)
{
	unsigned number = atomic_fetch_add(&faults[call].reached, 1) + 1;
	unsigned first = atomic_load(&faults[call].first);

	if (first == 0)
		return 0;
	number -= atomic_load(&faults[call].origin);
	if (number < first || number > atomic_load(&faults[call].last))
		return 0;
	return atomic_load(&faults[call].error);
}

static int find_call(const char *name, size_t length)
{
	for (int call = 0; call < PS_OS_CALLS; call++) {
		if (strlen(call_names[call]) == length &&
		    memcmp(call_names[call], name, length) == 0)
			return call;
	}
	return -1;
}

static int find_error(const char *name, size_t length)
{
	for (size_t i = 0; i < sizeof(error_names) / sizeof(error_names[0]); i++) {
		if (strlen(error_names[i].name) == length &&
		    memcmp(error_names[i].name, name, length) == 0)
			return error_names[i].error;
	}
	return 0;
}

/* Reads FIRST, FIRST-LAST or FIRST- up to the colon. Returns what follows it, or NULL. */
static const char *read_turns(const char *text, unsigned *first, unsigned *last)
{
	uint64_t from, to;

	if (ps_text_parse_size(text, &text, &from) < 0)
		return NULL;
	to = from;
	if (*text == '-' && *++text == ':')
		to = UINT_MAX;
	else if (*text != ':' && ps_text_parse_size(text, &text, &to) < 0)
		return NULL;
	if (*text != ':' || from < 1 || to < from || to > UINT_MAX)
		return NULL;
	*first = (unsigned)from;
	*last = (unsigned)to;
	return text + 1;
}

/* Sets one CALL:FIRST[-LAST]:ERRNO. Returns what follows it, or NULL. */
static const char *set_one(const char *text)
{
	size_t length = strcspn(text, ":");
	int call = find_call(text, length);
	unsigned first, last;
	int error;

	if (call < 0 || text[length] != ':')
		return NULL;
	text = read_turns(text + length + 1, &first, &last);
	if (text == NULL)
		return NULL;
	length = strcspn(text, ",");
	error = find_error(text, length);
	if (error == 0)
		return NULL;
	ps_fault_set((enum ps_os_call)call, first, last, error);
	return text + length;
}

void ps_fault_from_environment(void)
{
	const char *value = getenv("PINSHIM_FAULT");
	const char *next = value;

	while (next != NULL && *next != '\0') {
		next = set_one(next);
		if (next == NULL || (*next == ',' && *++next == '\0'))
			ps_log_abort(
				"PINSHIM_FAULT=%s: not understood: use CALL:FIRST[-LAST]:ERRNO, "
				"separated by commas (mlock:2-:ENOMEM,open:1:EACCES)",
				value);
	}
}
#else
/* ISO C forbids an empty translation unit. */
typedef int ps_fault_none;
#endif
