/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_BENCH_PROC_H
#define PS_BENCH_PROC_H
/*
 * What the kernel says about this process's memory. Reads with a buffer on the stack, since a
 * measured program must not allocate between its readings.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The number after "NAME:" in a file of /proc such as meminfo or self/status; -1 if it is not there. */
static inline long proc_value(const char *file, const char *name)
{
	char text[8192];
	size_t length = strlen(name), got = 0;
	ssize_t n;
	int fd = open(file, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	while (got < sizeof(text) - 1 && (n = read(fd, text + got, sizeof(text) - 1 - got)) > 0)
		got += (size_t)n;
	close(fd);
	text[got] = '\0';
	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			return atol(line + length + 1);
	}
	return -1;
}

static inline long locked_kib(void)
{
	return proc_value("/proc/self/status", "VmLck");
}

/* Makes every page of the range present. */
static inline void populate(char *start, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
	/* Linux 5.14. One page fault each takes a virtual machine up to ten times as long. */
	if (madvise(start, bytes, MADV_POPULATE_WRITE) == 0)
		return;
#endif
	for (size_t at = 0; at < bytes; at += 4096)
		((volatile char *)start)[at] = 1;
}

#endif
