/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * make_table DIRECTORY PID [NAME=VALUE]...
 *
 * Writes a table as a process would have, for tests of what reads them. It is that of the living
 * process PID unless start_time says otherwise. NAME is a string or a number of struct
 * pinshim_table, aio.MEMBER, refused (by limit 1), served or freed (blocks of malloc) or ranges (how
 * many, of 2 MiB each).
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pinshim_table.h"

#define HUGE_PAGE (UINT64_C(2) << 20)

static struct pinshim_table table = {
	.magic = PINSHIM_TABLE_MAGIC,
	.version = PINSHIM_TABLE_VERSION,
	.header_bytes = sizeof(table),
	.program = "made",
	.backend = "native",
	.ranges_offset = sizeof(table),
};

#define STRING(member)                                                                             \
	{                                                                                          \
#member, offsetof(struct pinshim_table, member), sizeof(table.member)              \
	}
#define NUMBER(member)                                                                             \
	{                                                                                          \
#member, offsetof(struct pinshim_table, member), 0                                 \
	}
#define AIO(member)                                                                                \
	{                                                                                          \
		"aio." #member, offsetof(struct pinshim_table, stripe[3].aio.member), 0            \
	}

static const struct field {
	const char *name;
	size_t offset;
	size_t bytes; /* of a string; 0: a number of 64 bits */
} fields[] = {
	STRING(program),
	STRING(backend),
	STRING(rank),
	STRING(local_rank),
	STRING(job),
	NUMBER(start_time),
	NUMBER(sequence),
	NUMBER(pinned_bytes),
	NUMBER(pinned_peak_bytes),
	NUMBER(locked_bytes),
	NUMBER(registered_bytes),
	NUMBER(huge_bytes),
	NUMBER(foreign_bytes),
	NUMBER(pin_nanoseconds),
	AIO(submitted),
	AIO(direct),
	AIO(fixed),
	AIO(bounced),
	AIO(passed),
	AIO(repaired),
	AIO(failed),
	AIO(partial),
	AIO(bytes),
	AIO(contexts),
	AIO(rings),
	AIO(settled),
	AIO(dropped),
	{ "refused", offsetof(struct pinshim_table, refused[1]), 0 },
	{ "served", offsetof(struct pinshim_table, stripe[1].entry[0].served), 0 },
	{ "freed", offsetof(struct pinshim_table, stripe[1].entry[0].freed), 0 },
	{ "ranges", offsetof(struct pinshim_table, generation), 0 },
};

static void fail(const char *what)
{
	fprintf(stderr, "make_table: %s\n", what);
	exit(2);
}

static void set_field(const char *assignment)
{
	const size_t length = strcspn(assignment, "=");
	const char *value = assignment + length + 1;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		const struct field *field = &fields[i];
		char *to = (char *)&table + field->offset;
		uint64_t number;

		if (strlen(field->name) != length || strncmp(field->name, assignment, length) != 0)
			continue;
		number = strtoull(value, NULL, 10);
		if (field->bytes)
			snprintf(to, field->bytes, "%s", value);
		else
			memcpy(to, &number, sizeof(number));
		return;
	}
	fail(assignment);
}

/* Field 22 of /proc/PID/stat, 0 if there is no such process. */
static uint64_t start_time(const char *pid)
{
	char path[64], line[1024] = "";
	uint64_t value = 0;
	const char *end;
	FILE *from;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	from = fopen(path, "r");
	if (!from)
		return 0;
	if (fgets(line, sizeof(line), from)) {
		end = strrchr(line, ')');
		for (int i = 0; end && i < 20; i++)
			end = strchr(end + 1, ' ');
		if (end)
			value = strtoull(end, NULL, 10);
	}
	fclose(from);
	return value;
}

static void write_ranges(FILE *to)
{
	for (uint64_t i = 0; i < table.range_used; i++) {
		struct pinshim_range range = { .base = (UINT64_C(1) << 40) + i * 2 * HUGE_PAGE,
					       .length = HUGE_PAGE,
					       .flags = PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_HUGE,
					       .serial = (uint32_t)i };

		range.check = pinshim_range_check(&range);
		fwrite(&range, sizeof(range), 1, to);
	}
}

int main(int argc, char **argv)
{
	char path[4096];
	FILE *to;

	if (argc < 3)
		fail("usage: make_table DIRECTORY PID [NAME=VALUE]...");
	table.pid = (uint32_t)strtoul(argv[2], NULL, 10);
	table.start_time = start_time(argv[2]);
	for (int i = 3; i < argc; i++)
		set_field(argv[i]);
	table.range_used = table.range_capacity = (uint32_t)table.generation;
	snprintf(path, sizeof(path), "%s/pinshim.%" PRIu32 ".%" PRIu64, argv[1], table.pid,
		 table.start_time);
	to = fopen(path, "w");
	if (!to)
		fail(path);
	fwrite(&table, sizeof(table), 1, to);
	write_ranges(to);
	if (fclose(to) != 0)
		fail(path);
	return 0;
}
