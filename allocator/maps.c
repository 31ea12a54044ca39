/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "maps.h"
#include "os.h"

/* "base-end rwxp offset major:minor inode" and the beginning of the path; the rest is not needed. */
#define LINE 128

static uint64_t number(const char **text, unsigned radix)
{
	uint64_t value = 0;

	for (;; (*text)++) {
		unsigned digit = (unsigned)**text - '0';

		if (digit > 9)
			digit = (unsigned)**text - 'a' + 10;
		if (digit >= radix)
			return value;
		value = value * radix + digit;
	}
}

static void parse(const char *line, struct ps_mapping *mapping)
{
	static const char sysv[] = "/SYSV";

	mapping->base = number(&line, 16);
	line += *line == '-';
	mapping->end = number(&line, 16);
	line += *line == ' ';
	mapping->protection = 0;
	for (; *line && *line != ' '; line++)
		mapping->protection |= *line == 'r'   ? PROT_READ
				       : *line == 'w' ? PROT_WRITE
				       : *line == 'x' ? PROT_EXEC
						      : 0;
	line += *line == ' ';
	mapping->offset = number(&line, 16);
	line += *line == ' ';
	while (*line && *line != ' ')
		line++;
	line += *line == ' ';
	mapping->inode = number(&line, 10);
	while (*line == ' ')
		line++;
	mapping->shm = strncmp(line, sysv, sizeof(sysv) - 1) == 0;
}

int ps_maps_each(int (*visit)(const struct ps_mapping *mapping, void *context), void *context)
{
	struct ps_mapping mapping;
	char buffer[4096], line[LINE];
	size_t used = 0;
	ssize_t got;
	int result = 0, fd;

	fd = ps_os_open("/proc/self/maps", O_RDONLY, 0);
	if (fd < 0)
		return fd;
	while (!result && (got = ps_os_read(fd, buffer, sizeof(buffer))) != 0) {
		if (got < 0)
			result = (int)got;
		for (ssize_t i = 0; i < got && !result; i++) {
			if (buffer[i] != '\n') {
				if (used < LINE - 1)
					line[used++] = buffer[i];
				continue;
			}
			line[used] = '\0';
			used = 0;
			parse(line, &mapping);
			result = visit(&mapping, context);
		}
	}
	ps_os_close(fd);
	return result;
}

struct wanted {
	uintptr_t at; /* everything below is as wanted */
	uintptr_t end;
	int protection;
};

/* 1: found a byte that is not as wanted. 2: all of them are. */
static int look(const struct ps_mapping *mapping, void *context)
{
	struct wanted *wanted = context;

	if (mapping->end <= wanted->at)
		return 0;
	if (mapping->base > wanted->at ||
	    (mapping->protection & wanted->protection) != wanted->protection)
		return 1;
	wanted->at = mapping->end;
	return wanted->at >= wanted->end ? 2 : 0;
}

bool ps_maps_allow(const void *address, size_t length, int protection)
{
	struct wanted wanted = { (uintptr_t)address, (uintptr_t)address + length, protection };
	int result = ps_maps_each(look, &wanted);

	return result == 2 || result < 0;
}
