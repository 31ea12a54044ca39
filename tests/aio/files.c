/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors of every kind, and the ends of files: truncated under I/O, too large, no space.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "behaviour.h"

#define BLOCK 4096

static char *memory;

/* What each opcode gives. Lines say at least that there was data. */
static void every_opcode(const char *what, io_context_t context, int fd, bool may_read,
			 bool may_write)
{
	struct iovec part[2] = { { memory, 512 }, { memory + 512, 512 } };
	struct iocb iocb;
	char name[120];

#define CASE(opcode, prepare)                                                                      \
	(snprintf(name, sizeof(name), "%s: " opcode, what), watch(name), prepare,                  \
	 outcome(name, context, &iocb))
	if (may_write) {
		memset(memory, 0, BLOCK);
		CASE("PWRITE", io_prep_pwrite(&iocb, fd, memory, 1024, 0));
		CASE("PWRITEV", io_prep_pwritev(&iocb, fd, part, 2, 0));
		CASE("PWRITE at 4096", io_prep_pwrite(&iocb, fd, memory, 1024, 4096));
	}
	if (may_read) {
		CASE("PREAD", io_prep_pread(&iocb, fd, memory, 512, 0));
		CASE("PREADV", io_prep_preadv(&iocb, fd, part, 2, 0));
		CASE("PREAD at 4096", io_prep_pread(&iocb, fd, memory, 512, 4096));
	}
	CASE("PREAD of nothing", io_prep_pread(&iocb, fd, memory, 0, 0));
	CASE("FSYNC", io_prep_fsync(&iocb, fd));
	CASE("FDSYNC", io_prep_fdsync(&iocb, fd));
#undef CASE
}

/* What it is must not matter to the file that is used beside it. */
static void beside(const char *what, io_context_t context, int fd)
{
	struct iocb iocb;
	bool refused;

	watch(what);
	memset(memory, 0xee, BLOCK);
	io_prep_pread(&iocb, fd, memory, BLOCK, BLOCK);
	check(serve(context, &iocb, &refused) == BLOCK && holds_at(memory, BLOCK, BLOCK, 1),
	      "%s: a file beside it is read as ever", what);
}

static void kind(const char *name, int fd, bool may_read, bool may_write, int beside_fd)
{
	io_context_t context = context_for(8);
	char what[80];

	need(fd >= 0, name);
	snprintf(what, sizeof(what), "%s", name);
	every_opcode(what, context, fd, may_read, may_write);
	beside(what, context, beside_fd);
	/* And after the other way round. */
	snprintf(what, sizeof(what), "%s, after a file", name);
	every_opcode(what, context, fd, may_read, may_write);
	beside(what, context, beside_fd);
	close(fd);
}

static void kinds(int beside_fd)
{
	static const int flags[] = { 0, O_DIRECT };
	int ends[2], fd;

	for (int i = 0; i < 2; i++) {
		const char *direct = i ? ", O_DIRECT" : "";
		char name[80];

		snprintf(name, sizeof(name), "tmpfs%s", direct);
		fd = open("/dev/shm", O_TMPFILE | O_RDWR | flags[i], 0600);
		kind(name, fd, true, true, beside_fd);
		snprintf(name, sizeof(name), "a file that is open twice%s", direct);
		kind(name, file_with("twice", 65536, 1, flags[i]), true, true, beside_fd);
		snprintf(name, sizeof(name), "an unlinked file%s", direct);
		fd = file_with("unlinked", 65536, 1, flags[i]);
		unlink("unlinked");
		kind(name, fd, true, true, beside_fd);
		snprintf(name, sizeof(name), "an empty file%s", direct);
		kind(name, file_with("empty", 0, 1, flags[i]), true, true, beside_fd);
		snprintf(name, sizeof(name), "an unnamed file%s", direct);
		kind(name, open(".", O_TMPFILE | O_RDWR | flags[i], 0600), true, true, beside_fd);
		need(pipe2(ends, flags[i] | O_NONBLOCK) == 0, "pipe");
		snprintf(name, sizeof(name), "the reading end of an empty pipe%s", direct);
		kind(name, ends[0], true, true, beside_fd);
		snprintf(name, sizeof(name), "the writing end of a pipe without a reader%s",
			 direct);
		kind(name, ends[1], true, true, beside_fd);
	}
	kind("a directory", open(".", O_RDONLY | O_DIRECTORY), true, true, beside_fd);
	kind("/dev/null", open("/dev/null", O_RDWR), true, true, beside_fd);
	kind("/dev/zero", open("/dev/zero", O_RDWR), true, true, beside_fd);
	kind("/dev/full", open("/dev/full", O_RDWR), true, true, beside_fd);
	kind("/proc/self/comm", open("/proc/self/comm", O_RDONLY), true, true, beside_fd);
	kind("memfd", memfd_create("files", 0), true, true, beside_fd);
	kind("an eventfd", eventfd(1, EFD_NONBLOCK), true, true, beside_fd);
	kind("epoll", epoll_create1(0), true, true, beside_fd);
	kind("a timer", timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), true, true, beside_fd);
	kind("a socket that is not connected", socket(AF_UNIX, SOCK_STREAM, 0), true, true,
	     beside_fd);
	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
	need(write(ends[1], memory, 3000) == 3000, "write");
	kind("a socket with data", ends[0], true, true, beside_fd);
	close(ends[1]);
	need(pipe(ends) == 0 && write(ends[1], memory, 8192) == 8192, "pipe");
	kind("the reading end of a pipe with data", ends[0], true, false, beside_fd);
	close(ends[1]);
}

static void pipes(int beside_fd)
{
	static const int flags[] = { 0, O_DIRECT };

	for (int i = 0; i < 2; i++) {
		io_context_t context = context_for(8);
		struct iocb iocb;
		bool refused;
		int ends[2];

		need(pipe2(ends, flags[i]) == 0, "pipe");
		beside("a pipe", context, beside_fd);
		fill_at(memory, BLOCK, 0, 7);
		io_prep_pwrite(&iocb, ends[1], memory, BLOCK, 12345);
		check(serve(context, &iocb, &refused) == BLOCK, "a pipe%s is written",
		      i ? ", O_DIRECT," : "");
		memset(memory, 0xee, BLOCK);
		io_prep_pread(&iocb, ends[0], memory, BLOCK, 999);
		check(serve(context, &iocb, &refused) == BLOCK && holds_at(memory, BLOCK, 0, 7),
		      "and read%s", i ? ", O_DIRECT" : "");
		close(ends[0]);
		close(ends[1]);
	}
}

static void tmpfs(void)
{
	static const int flags[] = { 0, O_DIRECT };

	for (int i = 0; i < 2; i++) {
		int fd = open("/dev/shm", O_TMPFILE | O_RDWR | flags[i], 0600);
		io_context_t context = context_for(8);
		char *copy = malloc(BLOCK);
		struct iocb iocb;
		bool refused, good;

		watch("tmpfs");
		fill_at(memory, 65536, 0, 4);
		io_prep_pwrite(&iocb, fd, memory, 65536, 0);
		good = serve(context, &iocb, &refused) == 65536;
		for (int j = 0; j < 16; j++) {
			long long at = j * 3700 + 13;

			memset(memory, 0xee, BLOCK);
			io_prep_pread(&iocb, fd, memory + j, (size_t)BLOCK - 100, at);
			good = serve(context, &iocb, &refused) == BLOCK - 100 &&
			       pread(fd, copy, BLOCK - 100, at) == BLOCK - 100 &&
			       !memcmp(copy, memory + j, BLOCK - 100) && good;
		}
		check(good, "a file of tmpfs%s, at any alignment", i ? ", O_DIRECT" : "");
		free(copy);
		close(fd);
	}
}

/* The file's end moves while requests are in flight: each result is what was true at some time. */
struct truncating {
	atomic_bool stop;
	const char *name;
};

static void *truncate_again_and_again(void *argument)
{
	struct truncating *job = argument;

	while (!atomic_load(&job->stop)) {
		need(truncate(job->name, 3 * BLOCK + 100) == 0, "truncate");
		need(truncate(job->name, 256 * 1024) == 0, "truncate");
		need(truncate(job->name, 0) == 0, "truncate");
		need(truncate(job->name, 512 * 1024) == 0, "truncate");
	}
	return NULL;
}

static void truncated(const struct way *way)
{
	enum { REQUESTS = 16, EACH = 32768 };
	struct truncating job = { .name = "truncated" };
	io_context_t context = context_for(REQUESTS);
	struct iocb iocb[REQUESTS], *list[REQUESTS];
	struct io_event event[REQUESTS];
	int fd = file_with("truncated", (size_t)REQUESTS * EACH, 1, way->flags);
	pthread_t thread = start(truncate_again_and_again, &job);
	char *block = buffer((size_t)REQUESTS * EACH);
	bool good = true;

	watch("truncated");
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < REQUESTS; i++) {
			char *at = block + (size_t)i * EACH;
			bool write = (i + round) % 4 == 0;

			memset(at, 0xee, EACH);
			if (write)
				fill_at(at, EACH, (uint64_t)i * EACH, 1);
			(write ? io_prep_pwrite : io_prep_pread)(&iocb[i], fd, at, EACH,
								 (long long)i * EACH);
			list[i] = &iocb[i];
		}
		good = io_submit(context, REQUESTS, list) == REQUESTS &&
		       reap(context, REQUESTS, event) == REQUESTS && good;
		for (int i = 0; i < REQUESTS && good; i++) {
			long number = event[i].obj - iocb, result = (long)event[i].res;
			char *at = block + number * EACH;

			if (event[i].obj->aio_lio_opcode == IO_CMD_PWRITE) {
				good = result == EACH;
				continue;
			}
			good = result >= 0 && result <= EACH;
			for (long j = 0; j < result && good; j++)
				good = at[j] == 0 ||
				       (unsigned char)at[j] ==
					       content((uint64_t)(number * EACH + j), 1);
		}
	}
	atomic_store(&job.stop, true);
	pthread_join(thread, NULL);
	check(good, "%s: a file that is truncated under I/O: what is read is or was there",
	      way->name);
	close(fd);
	free(block);
}

static void too_large(const struct way *way)
{
	struct rlimit limit = { 64 * 1024, RLIM_INFINITY }, before;
	int fd = file_with("large", BLOCK, 1, way->flags);
	io_context_t context = context_for(8);
	struct iocb iocb;

	getrlimit(RLIMIT_FSIZE, &before);
	signal(SIGXFSZ, SIG_IGN);
	limit.rlim_max = before.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	outcome_of(way, "PREAD of a file that may not become larger than 64 KiB", context, &iocb);
	io_prep_pwrite(&iocb, fd, memory, 8 * BLOCK, 60 * 1024);
	outcome_of(way, "PWRITE across the limit", context, &iocb);
	gives("size", file_size("large"));
	io_prep_pwrite(&iocb, fd, memory, BLOCK, 64 * 1024);
	outcome_of(way, "PWRITE at the limit", context, &iocb);
	io_prep_pwrite(&iocb, fd, memory, BLOCK, 128 * 1024);
	outcome_of(way, "PWRITE behind the limit", context, &iocb);
	gives("size", file_size("large"));
	setrlimit(RLIMIT_FSIZE, &before);
	/* A file that is larger than the limit that comes then. */
	need(truncate("large", 256 * 1024) == 0, "truncate");
	setrlimit(RLIMIT_FSIZE, &limit);
	io_prep_pwrite(&iocb, fd, memory, BLOCK, 128 * 1024);
	outcome_of(way, "PWRITE within the file but behind the limit", context, &iocb);
	io_prep_pwrite(&iocb, fd, memory, 8 * BLOCK, 60 * 1024);
	outcome_of(way, "PWRITE within the file, across the limit", context, &iocb);
	gives("size", file_size("large"));
	setrlimit(RLIMIT_FSIZE, &before);
	io_prep_pwrite(&iocb, fd, memory, BLOCK, 1LL << 60);
	outcome_of(way, "PWRITE at 2^60", context, &iocb);
	io_prep_pread(&iocb, fd, memory, BLOCK, 1LL << 60);
	outcome_of(way, "PREAD at 2^60", context, &iocb);
	gives("size", file_size("large"));
	io_prep_pread(&iocb, fd, memory, BLOCK, 128 * 1024);
	outcome_of(way, "PREAD after all that", context, &iocb);
	close(fd);
}

int main(int argc, char **argv)
{
	int fd;

	begin(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	memory = buffer(65536);
	make_file("beside", 65536, 1);
	fd = open_file("beside", O_RDONLY | O_DIRECT);
	if (chosen(argc, argv, "kinds"))
		kinds(fd);
	if (chosen(argc, argv, "ends")) {
		pipes(fd);
		tmpfs();
		FOR_EACH_WAY(way)
		{
			truncated(way);
			too_large(way);
		}
	}
	return check_end();
}
