/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small file system that gets full: what was said to be written is there, and the rest is ENOSPC.
 */
#include <sys/statvfs.h>

#include "behaviour.h"

enum { REQUESTS = 16, BLOCK = 64 * 1024 };

static unsigned long free_blocks_now(void)
{
	struct statvfs status;

	need(statvfs(".", &status) == 0, "statvfs");
	return status.f_bavail;
}

/*
 * Are there about so many again? The kernel may let go of a file some time after its last request, and an
 * io_uring of one that it handed to a thread, with the next call.
 */
static bool free_blocks(io_context_t context, unsigned long before)
{
	struct timespec at_once = { 0 };
	struct io_event event;

	for (int i = 0; i < 200 && free_blocks_now() + 16 < before; i++) {
		need(io_getevents(context, 0, 1, &event, &at_once) == 0, "no more events");
		sync();
		sleep_ms(10);
	}
	return free_blocks_now() + 16 >= before;
}

/* Writes a new file until there is no space: behind its end, or into a hole. */
static void fill_up(const struct way *way, size_t misalign, bool hole, const char *what)
{
	io_context_t context = context_for(REQUESTS);
	char *memory = (char *)buffer((size_t)REQUESTS * BLOCK + 4096) + misalign;
	struct iocb iocb[REQUESTS], *list[REQUESTS];
	struct io_event event[REQUESTS];
	int errors = 0, wrong = 0, count = 0;
	long result[4096];
	bool good = true;
	unsigned long before;
	int fd;

	watch(what);
	before = free_blocks_now();
	need(before < 64 * MIB / 512, "a small file system");
	fd = open_file("space", O_RDWR | O_CREAT | way->flags);
	need(!hole || ftruncate(fd, 4096L * BLOCK) == 0, "ftruncate");
	while (errors == 0 && count + REQUESTS <= 4096) {
		for (int i = 0; i < REQUESTS; i++) {
			char *at = memory + (size_t)i * BLOCK;

			fill_at(at, BLOCK, (uint64_t)(count + i) * BLOCK, 5);
			io_prep_pwrite(&iocb[i], fd, at, BLOCK, (long long)(count + i) * BLOCK);
			list[i] = &iocb[i];
		}
		need(io_submit(context, REQUESTS, list) == REQUESTS &&
			     reap(context, REQUESTS, event) == REQUESTS,
		     "writes");
		for (int i = 0; i < REQUESTS; i++) {
			long got = (long)event[i].res;

			result[count + (event[i].obj - iocb)] = got;
			errors += got < 0;
			wrong += got != BLOCK && got != -ENOSPC && (got <= 0 || got > BLOCK);
		}
		count += REQUESTS;
	}
	check(errors > 0 && wrong == 0, "%s, %s: a full disk is ENOSPC, and nothing else",
	      way->name, what);
	for (int i = 0; i < count; i++)
		if (result[i] > 0)
			good = file_holds("space", (size_t)result[i], (uint64_t)i * BLOCK, 5) &&
			       good;
	check(good, "%s, %s: what was written is there", way->name, what);
	close(fd);
	unlink("space");
	check(free_blocks(context, before), "%s, %s: and its space comes back", way->name, what);
	/* A file that has its space already can be written. */
	fd = file_with("space", 4 * (size_t)BLOCK, 1, way->flags);
	for (int i = 0; i < 4; i++) {
		fill_at(memory, BLOCK, (uint64_t)i * BLOCK, 6);
		io_prep_pwrite(&iocb[0], fd, memory, BLOCK, (long long)i * BLOCK);
		good = submit(context, &iocb[0]) == 1 && reap(context, 1, event) == 1 &&
		       event[0].res == BLOCK && good;
	}
	check(good && file_holds("space", 4 * (size_t)BLOCK, 0, 6),
	      "%s, %s: and then there is room again", way->name, what);
	close(fd);
	unlink("space");
	free_blocks(context, before);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	FOR_EACH_WAY(way)
	{
		fill_up(way, 0, false, "aligned");
		fill_up(way, 0, true, "into a hole");
		if (argc > 2 || way->flags == 0) {
			fill_up(way, 24, false, "misaligned");
			fill_up(way, 24, true, "misaligned, into a hole");
		}
	}
	return check_end();
}
