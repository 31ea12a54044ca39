/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A block device, or a file on one, that takes blocks of 4096 bytes only. Usage: device DIRECTORY device
 * PATH, the path of a device that may be overwritten; or device DIRECTORY file.
 */
#include <sys/ioctl.h>

#include "behaviour.h"

enum { BLOCK = 4096, USED = 1024 * 1024 };

static char *memory, *expected;
static long size; /* of the device or file */

static void transfers(const struct way *way, int fd)
{
	io_context_t context = context_for(32);
	struct iocb iocb[16], *list[16];
	struct io_event event[16];
	bool good = true, refused;

	for (int round = 0; round < 3; round++) {
		watch("transfers");
		for (int i = 0; i < 16; i++) {
			fill_at(memory + (size_t)i * 16384, 16384, (uint64_t)i * 16384,
				(unsigned)round + 1);
			io_prep_pwrite(&iocb[i], fd, memory + (size_t)i * 16384, 16384,
				       i * 16384LL);
			list[i] = &iocb[i];
		}
		good = io_submit(context, 16, list) == 16 && reap(context, 16, event) == 16 && good;
		memset(memory, 0xee, 16 * 16384);
		for (int i = 0; i < 16; i++)
			io_prep_pread(&iocb[i], fd, memory + (size_t)i * 16384, 16384, i * 16384LL);
		good = io_submit(context, 16, list) == 16 && reap(context, 16, event) == 16 &&
		       holds_at(memory, 16 * 16384, 0, (unsigned)round + 1) && good;
		good = pread(fd, expected, 16 * 16384, 0) == 16 * 16384 &&
		       !memcmp(memory, expected, 16 * 16384) && good;
	}
	check(good, "%s: what is written is read", way->name);
	io_prep_fsync(&iocb[0], fd);
	outcome_of(way, "FSYNC", context, &iocb[0]);
	io_prep_pread(&iocb[0], fd, memory, 16384, size - BLOCK);
	outcome_of(way, "PREAD across the end", context, &iocb[0]);
	io_prep_pread(&iocb[0], fd, memory, 16384, size);
	outcome_of(way, "PREAD at the end", context, &iocb[0]);
	io_prep_pread(&iocb[0], fd, memory, BLOCK, 65536);
	good = serve(context, &iocb[0], &refused) == BLOCK && holds_at(memory, BLOCK, 65536, 3);
	check(good, "%s: and goes on", way->name);
}

/* What is a multiple of 512, not of 4096: refused where it is direct and not repaired. */
static void misaligned(const struct way *way, int fd)
{
	static const struct {
		const char *name;
		long memory, length, offset;
	} cases[] = { { "memory", 512, 4096, 0 },
		      { "length", 0, 512, 4096 },
		      { "offset", 0, 4096, 512 },
		      { "all", 512, 1536, 2560 },
		      { "all by odd numbers", 3, 5001, 777 },
		      { "a large one", 64, 200001, 99 } };
	bool repair = !getenv("PINSHIM_AIO_REPAIR") ||
		      strcmp(getenv("PINSHIM_AIO_REPAIR"), "0") != 0;
	io_context_t context = context_for(8);
	bool good = true, refused;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *at = memory + cases[i].memory;
		struct iocb iocb;
		char what[80];

		watch(cases[i].name);
		io_prep_pread(&iocb, fd, at, (size_t)cases[i].length, cases[i].offset);
		if (!repair) {
			snprintf(what, sizeof(what), "PREAD, misaligned: %s", cases[i].name);
			outcome_of(way, what, context, &iocb);
			continue;
		}
		good = serve(context, &iocb, &refused) == cases[i].length &&
		       holds_at(at, (size_t)cases[i].length, (uint64_t)cases[i].offset, 3) && good;
		fill_at(at, (size_t)cases[i].length, (uint64_t)cases[i].offset, 9);
		io_prep_pwrite(&iocb, fd, at, (size_t)cases[i].length, cases[i].offset);
		good = serve(context, &iocb, &refused) == cases[i].length && good;
		good = pread(fd, expected, USED / 2, 0) == USED / 2 && good;
		good = holds_at(expected, (size_t)cases[i].offset, 0, 3) &&
		       holds_at(expected + cases[i].offset, (size_t)cases[i].length,
				(uint64_t)cases[i].offset, 9) &&
		       good;
		fill_at(at, (size_t)cases[i].length, (uint64_t)cases[i].offset, 3);
		good = serve(context, &iocb, &refused) == cases[i].length && good;
		good = pread(fd, expected, 65536 * 2, 0) == 65536 * 2 &&
		       holds_at(expected, 65536 * 2, 0, 3) && good;
	}
	if (repair) {
		struct iocb iocb;

		/* To the last byte. */
		fill_at(memory + 1, 777, (uint64_t)size - 777, 3);
		io_prep_pwrite(&iocb, fd, memory + 1, 777, size - 777);
		good = serve(context, &iocb, &refused) == 777 && good;
		memset(memory, 0xee, BLOCK);
		io_prep_pread(&iocb, fd, memory + 1, 2000, size - 777);
		good = serve(context, &iocb, &refused) == 777 &&
		       holds_at(memory + 1, 777, (uint64_t)size - 777, 3) && good;
		check(good, "%s: requests that are aligned to less are repaired", way->name);
	}
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer(USED);
	expected = buffer(USED);
	FOR_EACH_WAY(way)
	{
		int fd;

		if (argc > 3) {
			fd = open_file(argv[3], O_RDWR | way->flags);
			size = lseek(fd, 0, SEEK_END);
		} else {
			fd = file_with("device", USED, 1, way->flags);
			size = USED;
		}
		transfers(way, fd);
		if (way->flags)
			misaligned(way, fd);
		close(fd);
	}
	return check_end();
}
