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

/*
 * Calls visit() for each line of a file, of which it gets the first LINE - 1 characters, until it returns
 * non-zero. Returns that, 0, or -errno where the file cannot be read.
 */
static int each_line(const char *path, int (*visit)(const char *line, void *context), void *context)
{
	char buffer[4096], line[LINE];
	size_t used = 0;
	ssize_t got;
	int result = 0, fd;

	fd = ps_os_open(path, O_RDONLY, 0);
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
			result = visit(line, context);
		}
	}
	ps_os_close(fd);
	return result;
}

struct visitor {
	int (*visit)(const struct ps_mapping *mapping, void *context);
	void *context;
};

static int visit_mapping(const char *line, void *context)
{
	const struct visitor *visitor = context;
	struct ps_mapping mapping;

	parse(line, &mapping);
	return visitor->visit(&mapping, visitor->context);
}

int ps_maps_each(int (*visit)(const struct ps_mapping *mapping, void *context), void *context)
{
	struct visitor visitor = { visit, context };

	return each_line("/proc/self/maps", visit_mapping, &visitor);
}

struct counted {
	uintptr_t base, end;
	bool inside; /* the mapping that lines are about lies in [base, end) */
	int64_t bytes;
};

/* A line of smaps: the mapping, as in maps, or "Name:  123 kB" of it. */
static int count_huge(const char *line, void *context)
{
	static const char *const names[] = { "AnonHugePages:", "ShmemPmdMapped:", "Shared_Hugetlb:",
					     "Private_Hugetlb:" };
	struct counted *counted = context;
	struct ps_mapping mapping;

	if (*line < 'A' || *line > 'Z') {
		parse(line, &mapping);
		counted->inside = mapping.base >= counted->base && mapping.end <= counted->end;
		return mapping.base >= counted->end;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && counted->inside; i++) {
		const char *value = line + strlen(names[i]);

		if (strncmp(line, names[i], strlen(names[i])) != 0)
			continue;
		while (*value == ' ')
			value++;
		counted->bytes += (int64_t)number(&value, 10) << 10;
	}
	return 0;
}

int64_t ps_maps_huge_bytes(const void *address, size_t length)
{
	struct counted counted = { (uintptr_t)address, (uintptr_t)address + length, false, 0 };
	const int r = each_line("/proc/self/smaps", count_huge, &counted);

	return r < 0 ? r : counted.bytes;
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
