/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors that are closed, become another file's, or are changed, while contexts know them; and
 * programs that close all that they do not know, as daemons do. CASES: reuse flags closing raw
 */
#include <sys/syscall.h>

#include "behaviour.h"

enum { BLOCK = 4096, SIZE = 65536 };

static char *memory;

/* Reads and writes at what any file takes: the data are those of the file that the descriptor is now. */
static void use(const char *what, io_context_t context, int fd, const char *name, unsigned seed)
{
	struct iocb iocb;
	bool refused, good = true;

	watch(what);
	for (int i = 0; i < 4; i++) {
		uint64_t at = (uint64_t)i * 2 * BLOCK;

		memset(memory, 0xee, BLOCK);
		io_prep_pread(&iocb, fd, memory, BLOCK, (long long)at);
		good = serve(context, &iocb, &refused) == BLOCK &&
		       holds_at(memory, BLOCK, at, seed) && good;
		fill_at(memory, BLOCK, at + BLOCK, seed + 1);
		io_prep_pwrite(&iocb, fd, memory, BLOCK, (long long)at + BLOCK);
		good = serve(context, &iocb, &refused) == BLOCK &&
		       file_holds(name, BLOCK, at + BLOCK, seed + 1) &&
		       file_holds(name, BLOCK, at, seed) && good;
	}
	check(good, "%s: the file that the descriptor is now is read and written", what);
}

/*
 * What this file makes of a request that is aligned to nothing: it tells what the shim believes of the
 * file. What is not repaired is refused as without the shim, what is to be repaired must be; but a file
 * that became direct in a way that nobody saw may be taken for what it was.
 */
static void misaligned(const char *what, io_context_t context, int fd, unsigned seed, bool seen)
{
	const char *repair = getenv("PINSHIM_AIO_REPAIR");
	struct iocb iocb;
	char name[160];
	bool refused;

	if (!repair)
		return;
	snprintf(name, sizeof(name), "%s, misaligned", what);
	watch(name);
	io_prep_pread(&iocb, fd, memory + 1, 1000, 7);
	if (!strcmp(repair, "0"))
		outcome(name, context, &iocb);
	else if (seen)
		check(serve(context, &iocb, &refused) == 1000 &&
			      holds_at(memory + 1, 1000, 7, seed),
		      "%s: is read", name);
}

static int raw_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

static int raw_dup2(int from, int to)
{
	return (int)syscall(SYS_dup3, from, to, 0);
}

static int stream_close(int fd)
{
	return fclose(fdopen(fd, "r+"));
}

/* Every way in which a number can come to be another file, between files of all ways. */
static void reuse(void)
{
	static const struct {
		const char *name;
		int (*close)(int);
		int (*dup)(int, int);
		bool seen;
	} kinds[] = { { "closed and opened", close, NULL, true },
		      { "dup2 over it", NULL, dup2, true },
		      { "closed by system call and opened", raw_close, NULL, false },
		      { "dup3 over it by system call", NULL, raw_dup2, false },
		      { "closed with a stream", stream_close, NULL, false } };

	for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
		for (int i = 0; i < 4; i++) {
			const struct way *first = &ways[i % 2], *second = &ways[i / 2];
			io_context_t context = context_for(8);
			char what[120];
			int fd = file_with("first", SIZE, 1, first->flags), other;

			snprintf(what, sizeof(what), "%s, then %s", first->name, second->name);
			use(what, context, fd, "first", 1);
			make_file("second", SIZE, 5);
			if (kinds[kind].close) {
				kinds[kind].close(fd);
				other = open_file("second", O_RDWR | second->flags);
				need(other == fd, "the same number");
			} else {
				other = open_file("second", O_RDWR | second->flags);
				kinds[kind].dup(other, fd);
				close(other);
			}
			snprintf(what, sizeof(what), "%s, then %s, %s", first->name, second->name,
				 kinds[kind].name);
			use(what, context, fd, "second", 5);
			misaligned(what, context, fd, 5, kinds[kind].seen);
			check(file_holds("first", BLOCK, 0, 1) &&
				      file_holds("first", BLOCK, BLOCK, 2),
			      "%s: the file that it was is left alone", what);
			close(fd);
		}
	}
}

/* A file's number becomes a pipe's, and the other way round. */
static void other_kinds(const struct way *way)
{
	int fd = file_with("first", SIZE, 1, way->flags), number, ends[2];
	io_context_t context = context_for(8);
	struct iocb iocb;

	use("before the pipe", context, fd, "first", 1);
	need(pipe(ends) == 0 && write(ends[1], "pipe", 4) == 4, "pipe");
	dup2(ends[0], fd);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	check(outcome_of(way, "PREAD of what became a pipe", context, &iocb) == 4 &&
		      !memcmp(memory, "pipe", 4),
	      "%s: a descriptor that became a pipe is read as one", way->name);
	close(fd);
	number = fd;
	fd = file_with("first", SIZE, 1, way->flags);
	need(fd == number, "the same number");
	use("after the pipe", context, fd, "first", 1);
	close(fd);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	outcome_of(way, "PREAD of what was closed after use", context, &iocb);
	fd = open_file("first", O_RDONLY | way->flags);
	need(fd == number, "the same number");
	io_prep_pwrite(&iocb, fd, memory, BLOCK, 0);
	outcome_of(way, "PWRITE of what was opened again for reading", context, &iocb);
	close(fd);
	close(ends[0]);
	close(ends[1]);
}

/* Requests in flight keep their file. */
static void in_flight(const struct way *way)
{
	enum { REQUESTS = 16 };
	io_context_t context = context_for(REQUESTS);
	struct iocb iocb[REQUESTS], *list[REQUESTS];
	struct io_event event[REQUESTS];
	char *block = buffer(REQUESTS * MIB / 4);
	int fd = file_with("large", REQUESTS * MIB / 4, 3, way->flags);
	bool good = true;

	watch("closed in flight");
	make_file("other", REQUESTS * MIB / 4, 4);
	for (int round = 0; round < 4; round++) {
		memset(block, 0xee, REQUESTS * MIB / 4);
		for (int i = 0; i < REQUESTS; i++) {
			io_prep_pread(&iocb[i], fd, block + (size_t)i * MIB / 4, MIB / 4,
				      (long long)((size_t)i * MIB / 4));
			list[i] = &iocb[i];
		}
		good = io_submit(context, REQUESTS, list) == REQUESTS && good;
		close(fd);
		need(open_file("other", O_RDWR | way->flags) == fd, "the same number");
		good = reap(context, REQUESTS, event) == REQUESTS &&
		       holds_at(block, REQUESTS * MIB / 4, 0, 3) && good;
		close(fd);
		need(open_file("large", O_RDWR | way->flags) == fd, "the same number");
	}
	check(good, "%s: a descriptor can be closed and used for another file with reads in flight",
	      way->name);
	close(fd);
	free(block);
}

/* fcntl(F_SETFL). */
static void flags(void)
{
	int fd = file_with("first", SIZE, 1, 0), status = fcntl(fd, F_GETFL);
	io_context_t context = context_for(8);
	struct iocb iocb;
	bool refused;

	use("opened buffered", context, fd, "first", 1);
	misaligned("opened buffered", context, fd, 1, false);
	need(fcntl(fd, F_SETFL, status | O_DIRECT) == 0, "F_SETFL");
	make_file("second", SIZE, 1);
	use("made direct", context, fd, "first", 1);
	misaligned("made direct", context, fd, 1, false);
	need(fcntl(fd, F_SETFL, status) == 0, "F_SETFL");
	use("made buffered again", context, fd, "first", 1);
	misaligned("made buffered again", context, fd, 1, false);
	close(fd);

	fd = file_with("first", SIZE, 1, O_DIRECT);
	status = fcntl(fd, F_GETFL);
	context = context_for(8);
	use("opened direct", context, fd, "first", 1);
	need(fcntl(fd, F_SETFL, status & ~O_DIRECT) == 0, "F_SETFL");
	misaligned("opened direct and made buffered", context, fd, 1, false);
	need(fcntl(fd, F_SETFL, status | O_APPEND) == 0, "F_SETFL");
	watch("made to append");
	fill_at(memory, BLOCK, SIZE, 1);
	io_prep_pwrite(&iocb, fd, memory, BLOCK, 0);
	check(serve(context, &iocb, &refused) == BLOCK && file_size("first") == SIZE + BLOCK &&
		      file_holds("first", BLOCK, SIZE, 1) && file_holds("first", BLOCK, 0, 1),
	      "a file that is made to append is appended to");
	close(fd);
}

/* A batch of appends is there in its order, and so are buffered writes when io_submit() returns. */
static void changed_flags(bool by_another)
{
	const char *who = by_another ? "by another descriptor" : "by itself";
	int fd = file_with("first", SIZE, 1, O_DIRECT), other = by_another ? dup(fd) : fd;
	struct iocb iocb[16], *list[16];
	io_context_t context = context_for(16);
	struct io_event event[16];
	int status = fcntl(other, F_GETFL);
	bool good = true;

	watch("flags that change");
	for (int round = 0; round < 20; round++) {
		need(ftruncate(fd, BLOCK) == 0, "ftruncate");
		need(fcntl(other, F_SETFL, status) == 0, "F_SETFL");
		good = submit_blocks(context, fd, iocb, memory, BLOCK, 1, -1) == 1 &&
		       reap(context, 1, event) == 1 && good;
		need(fcntl(other, F_SETFL, status | O_APPEND) == 0, "F_SETFL");
		for (int i = 1; i < 16; i++) {
			fill_at(memory + (size_t)i * BLOCK, BLOCK, (uint64_t)i * BLOCK, 1);
			io_prep_pwrite(&iocb[i], fd, memory + (size_t)i * BLOCK, BLOCK, 0);
			list[i] = &iocb[i];
		}
		good = io_submit(context, 15, list + 1) == 15 && reap(context, 15, event) == 15 &&
		       file_holds("first", (size_t)16 * BLOCK, 0, 1) && good;
	}
	check(good, "what was made to append %s appends in order", who);
	need(fcntl(other, F_SETFL, status & ~O_DIRECT) == 0, "F_SETFL");
	good = true;
	for (int round = 0; round < 50; round++) {
		fill_at(memory, SIZE, 0, (unsigned)round);
		io_prep_pwrite(&iocb[0], fd, memory, SIZE, 0);
		good = submit(context, &iocb[0]) == 1 &&
		       file_holds("first", SIZE, 0, (unsigned)round) &&
		       reap(context, 1, event) == 1 && good;
	}
	check(good, "what was made buffered %s is written when io_submit() returns", who);
	if (by_another)
		close(other);
	close(fd);
}

/* The size that was known is no longer the file's. */
static void resized(const struct way *way)
{
	int fd = file_with("first", SIZE, 1, way->flags);
	io_context_t context = context_for(8);
	struct iocb iocb[4], *list[4];
	struct io_event event[4];
	bool refused, good = true;

	use("before resizing", context, fd, "first", 1);
	need(truncate("first", BLOCK) == 0, "truncate");
	watch("truncated");
	for (int i = 0; i < 4; i++) {
		fill_at(memory + (size_t)i * BLOCK, BLOCK, (uint64_t)(i + 2) * BLOCK, 9);
		io_prep_pwrite(&iocb[i], fd, memory + (size_t)i * BLOCK, BLOCK,
			       (long long)(i + 2) * BLOCK);
		list[i] = &iocb[i];
	}
	good = io_submit(context, 4, list) == 4 && reap(context, 4, event) == 4;
	check(good && file_size("first") == 6L * BLOCK && file_holds("first", BLOCK, 0, 1) &&
		      file_holds("first", 4 * (size_t)BLOCK, 2 * (uint64_t)BLOCK, 9),
	      "%s: writes behind the end of a file that was truncated", way->name);
	need(truncate("first", 2L * BLOCK + 100) == 0, "truncate");
	io_prep_pread(&iocb[0], fd, memory, BLOCK, 2L * BLOCK);
	check(serve(context, &iocb[0], &refused) == 100, "%s: a read across its new end",
	      way->name);
	close(fd);
	unlink("first");
}

/* After everything was closed by close_all: contexts go on, with files that are opened anew. */
static void closing(const char *what, void (*close_all)(void), bool kept)
{
	FOR_EACH_WAY(way)
	{
		int fd = file_with("first", SIZE, 1, way->flags);
		io_context_t used = context_for(8), unused = context_for(8), busy = context_for(8);
		struct iocb iocb[8], *list[8];
		struct io_event event[8];
		char *block = buffer(2 * MIB), name[160];
		int large = file_with("large", 2 * MIB, 3, way->flags);
		bool good;

		snprintf(name, sizeof(name), "%s, %s", way->name, what);
		use(name, used, fd, "first", 1);
		watch(name);
		for (int i = 0; i < 8; i++) {
			io_prep_pread(&iocb[i], large, block + (size_t)i * MIB / 4, MIB / 4,
				      (long long)((size_t)i * MIB / 4));
			list[i] = &iocb[i];
		}
		need(io_submit(busy, 8, list) == 8, "io_submit");
		/* What a ring has in flight is lost with its descriptor: a limit of the shim's. */
		good = !kept && reap(busy, 8, event) == 8;
		close_all();
		watch(name);
		good = (good || reap(busy, 8, event) == 8) && holds_at(block, 2 * MIB, 0, 3);
		check(good, "%s: requests in flight complete", name);
		fd = file_with("second", SIZE, 5, way->flags);
		check(fd == 3, "%s: the next file has the lowest number", name);
		use(name, used, fd, "second", 5);
		make_file("second", SIZE, 5);
		close(fd);
		fd = open_file("second", O_RDWR | way->flags);
		use(name, unused, fd, "second", 5);
		/* Nothing of the program's may be closed when a context ends. */
		good = io_destroy(used) == 0 && io_destroy(busy) == 0;
		for (int i = 3; i < 1100; i++)
			if (i != fd)
				good = (dup2(fd, i) == i || errno == EBADF || errno == EBUSY) &&
				       good;
		good = io_destroy(unused) == 0 && good;
		for (int i = 3; i < 900; i++)
			good = fcntl(i, F_GETFD) >= 0 && good;
		check(good, "%s: contexts end, and close nothing of the program's", name);
		for (int i = 3; i < 1100; i++)
			close(i);
		free(block);
	}
}

static void by_close(void)
{
	for (int i = 3; i < 1200; i++)
		close(i);
}

static void by_range(void)
{
	need(close_range(3, ~0U, 0) == 0, "close_range");
}

static void by_closefrom(void)
{
	closefrom(3);
}

static void by_list(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int list[2048], count = 0;
	struct dirent *entry;

	while ((entry = readdir(directory)) && count < 2048)
		if (atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(directory))
			list[count++] = atoi(entry->d_name);
	closedir(directory);
	while (count > 0)
		close(list[--count]);
}

static void by_raw_close(void)
{
	for (int i = 3; i < 1200; i++)
		raw_close(i);
}

static void by_raw_range(void)
{
	need(syscall(SYS_close_range, 3, ~0U, 0) == 0, "close_range");
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer(SIZE);
	if (chosen(argc, argv, "reuse")) {
		reuse();
		FOR_EACH_WAY(way)
		{
			other_kinds(way);
			in_flight(way);
			resized(way);
		}
	}
	if (chosen(argc, argv, "flags")) {
		flags();
		changed_flags(false);
		changed_flags(true);
	}
	if (chosen(argc, argv, "closing")) {
		closing("close 3 to 1199", by_close, true);
		closing("close_range", by_range, true);
		closing("closefrom", by_closefrom, true);
		closing("all of /proc/self/fd", by_list, true);
	}
	if (chosen(argc, argv, "raw")) {
		const bool no_ring = !may_have_ring("auto") && !may_have_ring("uring");

		closing("close 3 to 1199 by system call", by_raw_close, no_ring);
		closing("close_range by system call", by_raw_range, no_ring);
	}
	return check_end();
}
