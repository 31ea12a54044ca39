/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Direct I/O that is aligned to less than the file system takes, and is not repaired.
 */
#include "behaviour.h"

enum { SIZE = 65536 };

static const long misaligns[] = { 0, 1, 4, 64, 511, 512 };
static const long lengths[] = { 0, 1, 512, 1000, 4096 };
static const long offsets[] = { 0, 1, 100, 512, SIZE - 512, SIZE, SIZE + 100 };

enum {
	MISALIGNS = sizeof(misaligns) / sizeof(*misaligns),
	LENGTHS = sizeof(lengths) / sizeof(*lengths),
	OFFSETS = sizeof(offsets) / sizeof(*offsets)
};

/* Every combination has a number. */
static void one(const struct way *way, io_context_t context, int fd, char *memory, int number)
{
	static void (*const single[2])(struct iocb *, int, void *, size_t,
				       long long) = { io_prep_pread, io_prep_pwrite };
	static void (*const vector[2])(struct iocb *, int, const struct iovec *, int,
				       long long) = { io_prep_preadv, io_prep_pwritev };
	int kind = number % 4, place = number / 4 % MISALIGNS;
	long length = lengths[number / 4 / MISALIGNS % LENGTHS];
	long offset = offsets[number / 4 / MISALIGNS / LENGTHS];
	char *at = memory + misaligns[place], what[120];
	struct iovec part[2] = { { at, (size_t)(length / 2) },
				 { at + length / 2, (size_t)(length - length / 2) } };
	struct iocb iocb;

	fill_at(at, (size_t)length, (uint64_t)offset, 1);
	if (kind < 2)
		single[kind](&iocb, fd, at, (size_t)length, offset);
	else
		vector[kind - 2](&iocb, fd, part, 2, offset);
	snprintf(what, sizeof(what), "opcode %d, memory at +%ld, %ld bytes at %ld",
		 iocb.aio_lio_opcode, misaligns[place], length, offset);
	outcome_of(way, what, context, &iocb);
	need(truncate("misaligned", SIZE) == 0, "truncate");
}

int main(int argc, char **argv)
{
	char *memory;

	begin(argc, argv);
	memory = buffer(SIZE);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("misaligned", SIZE, 1, way->flags);
		io_context_t context = context_for(8);

		for (int number = 0; number < 4 * MISALIGNS * LENGTHS * OFFSETS; number++)
			one(way, context, fd, memory, number);
		check(file_holds("misaligned", SIZE, 0, 1), "%s: the file is as it was", way->name);
		close(fd);
	}
	return check_end();
}
