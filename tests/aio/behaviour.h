/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_BEHAVIOUR_H
#define TEST_BEHAVIOUR_H
/*
 * Programs that show how asynchronous I/O behaves: cases of their own, and lines "NAME: what a call
 * gave", which behaviour.bash compares with what the same program prints without the shim. So they
 * print nothing that two runs do not share. Usage: PROGRAM DIRECTORY [CASES]
 *
 * With BEHAVIOUR_THREADED in the environment the process has a second thread, which sleeps, from the
 * start.
 */
#include <errno.h>
#include <libaio.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "../preload/check.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define SECOND 1000000000L

/* How files are opened: a ring serves the first kind only. */
static const struct way {
	const char *name;
	int flags;
} ways[] __attribute__((unused)) = { { "direct", O_DIRECT }, { "buffered", 0 } };

#define FOR_EACH_WAY(way) for (const struct way *way = ways; way < ways + 2; way++)

/* What is said if it hangs. */
static char watched[240];
static size_t watched_length;
/* What is being done. */
static char doing[200];

static void watch_ends(int number)
{
	(void)number;
	/* No formatting in a signal handler. */
	if (write(STDOUT_FILENO, watched, watched_length) < 0)
		_exit(99);
	_exit(98);
}

/* Names what is done next, so that a hang is a failure with a name. */
static inline void watch(const char *name)
{
	alarm(0);
	snprintf(doing, sizeof(doing), "%s", name);
	watched_length = (size_t)snprintf(watched, sizeof(watched), "not ok - %s: hangs\n", doing);
	alarm(20);
}

static inline void *sleep_for_good(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* Stops the program where it makes no sense to go on. */
static inline void need(bool good, const char *what)
{
	if (!good) {
		say("not ok - %s: %s: %s\n", doing, what, strerror(errno));
		_exit(97);
	}
}

/* A thread that gets no signal: those are for the main thread. */
static inline pthread_t start(void *(*function)(void *), void *argument)
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	need(pthread_create(&thread, NULL, function, argument) == 0, "pthread_create");
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return thread;
}

static inline void begin(int argc, char **argv)
{
	signal(SIGALRM, watch_ends);
	watch("start");
	need(argc > 1 && chdir(argv[1]) == 0, "directory");
	if (getenv("BEHAVIOUR_THREADED"))
		start(sleep_for_good, NULL);
}

/* Are the cases of this name to be run? All of them are if none is named. */
static inline bool chosen(int argc, char **argv, const char *name)
{
	for (int i = 2; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc <= 2;
}

static inline void gives(const char *name, long value)
{
	say("%s: %ld\n", name, value);
}

/* Memory that direct I/O takes, large enough to come from the pinned heap if that serves malloc. */
static inline void *buffer(size_t bytes)
{
	void *memory = NULL;

	need(posix_memalign(&memory, 4096, bytes < 64 * KIB ? 64 * KIB : bytes) == 0, "memory");
	memset(memory, 0xee, bytes < 64 * KIB ? 64 * KIB : bytes);
	return memory;
}

/* What byte a file of this seed has at this offset: the same in no two blocks that are close. */
static inline unsigned char content(uint64_t offset, unsigned seed)
{
	return (unsigned char)(offset % 512 * 31 + (offset >> 9) * 7 + (offset >> 17) * 13 +
			       seed * 101);
}

/* The rest of the block of 512 bytes that has this offset, as a file of this seed has it. */
static inline const unsigned char *content_of_block(uint64_t offset, unsigned seed)
{
	static unsigned char all[256][512];
	static atomic_bool made;

	if (!atomic_load(&made)) {
		for (unsigned i = 0; i < 256; i++)
			for (unsigned j = 0; j < 512; j++)
				all[i][j] = (unsigned char)(i + j * 31);
		atomic_store(&made, true);
	}
	return all[content(offset - offset % 512, seed)] + offset % 512;
}

static inline void fill_at(void *memory, size_t bytes, uint64_t offset, unsigned seed)
{
	for (size_t done = 0, step; done < bytes; done += step) {
		step = 512 - (offset + done) % 512;
		step = step < bytes - done ? step : bytes - done;
		memcpy((char *)memory + done, content_of_block(offset + done, seed), step);
	}
}

static inline bool holds_at(const void *memory, size_t bytes, uint64_t offset, unsigned seed)
{
	for (size_t done = 0, step; done < bytes; done += step) {
		step = 512 - (offset + done) % 512;
		step = step < bytes - done ? step : bytes - done;
		if (memcmp((const char *)memory + done, content_of_block(offset + done, seed),
			   step) != 0)
			return false;
	}
	return true;
}

/* Is every byte as buffer() left it? */
static inline bool untouched(const void *memory, size_t bytes)
{
	const unsigned char *at = memory;

	return bytes == 0 || (at[0] == 0xee && !memcmp(at, at + 1, bytes - 1));
}

static inline void make_file(const char *name, size_t bytes, unsigned seed)
{
	/* Unlinked first: ext4 writes out a file that was truncated when it is closed. */
	int fd = unlink(name) && errno != ENOENT ? -1
						 : open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	char *memory = malloc(bytes + 1);

	need(fd >= 0 && memory, name);
	fill_at(memory, bytes, 0, seed);
	need(write(fd, memory, bytes) == (ssize_t)bytes, name);
	close(fd);
	free(memory);
}

static inline int open_file(const char *name, int flags)
{
	int fd = open(name, flags | O_CLOEXEC, 0600);

	need(fd >= 0, name);
	return fd;
}

/* A new file with this content, open for reading and writing. */
static inline int file_with(const char *name, size_t bytes, unsigned seed, int flags)
{
	make_file(name, bytes, seed);
	return open_file(name, O_RDWR | flags);
}

/* Does the file hold this? Asked with pread(2), through the page cache. */
static inline bool file_holds(const char *name, size_t bytes, uint64_t offset, unsigned seed)
{
	char *memory = malloc(bytes + 1);
	int fd = open_file(name, O_RDONLY);
	bool good;

	need(memory != NULL, "memory");
	good = pread(fd, memory, bytes, (off_t)offset) == (ssize_t)bytes &&
	       holds_at(memory, bytes, offset, seed);
	close(fd);
	free(memory);
	return good;
}

static inline long file_size(const char *name)
{
	struct stat status;

	return stat(name, &status) ? -1 : (long)status.st_size;
}

/* Mostly left to the end of the process, for io_destroy() takes 30 ms. */
static inline io_context_t context_for(int events)
{
	io_context_t context = NULL;
	int got;

	/* Others may be using all that the system has. */
	for (int tries = 0; (got = io_setup(events, &context)) == -EAGAIN && tries < 200; tries++)
		usleep(10000);
	need(got == 0, "io_setup");
	return context;
}

/* Waits for this many events, however they come. The last error, or how many came. */
static inline int reap(io_context_t context, int count, struct io_event *events)
{
	int have = 0, got;

	while (have < count) {
		got = io_getevents(context, 1, count - have, events + have, NULL);
		if (got < 0 && got != -EINTR)
			return got;
		have += got > 0 ? got : 0;
	}
	return have;
}

/* Submits one request: 1 or the error. */
static inline int submit(io_context_t context, struct iocb *iocb)
{
	return io_submit(context, 1, &iocb);
}

/*
 * Submits one request and waits for it. Its result, or what io_submit said; *refused tells which.
 * Whatever else the event says must be right.
 */
static inline long serve(io_context_t context, struct iocb *iocb, bool *refused)
{
	struct io_event event;
	int got;

	iocb->data = (char *)iocb + 1;
	memset(&event, 0x55, sizeof(event));
	got = submit(context, iocb);
	*refused = got != 1;
	if (*refused)
		return got;
	need(reap(context, 1, &event) == 1, "io_getevents");
	if (event.obj != iocb || event.data != (char *)iocb + 1 || event.res2 != 0)
		check(false, "%s: the event is that of the request", doing);
	return (long)event.res;
}

/* The same, with a line that says what came. */
static inline long outcome(const char *name, io_context_t context, struct iocb *iocb)
{
	bool refused;
	long result = serve(context, iocb, &refused);

	say("%s: %s %ld\n", name, refused ? "refused with" : "results in", result);
	return result;
}

/* outcome() with a name made of a way and more. */
static inline long outcome_of(const struct way *way, const char *what, io_context_t context,
			      struct iocb *iocb)
{
	char name[160];

	snprintf(name, sizeof(name), "%s, %s", way->name, what);
	watch(name);
	return outcome(name, context, iocb);
}

/* A child does not inherit the alarm of watch(). */
static inline pid_t fork_watched(void)
{
	pid_t pid = fork();

	if (pid == 0)
		alarm(20);
	return pid;
}

/* Waits for a child: its exit status, or minus the signal. */
static inline int child_ends(pid_t pid)
{
	int status = 0;

	need(pid > 0 && waitpid(pid, &status, 0) == pid, "child");
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Numbers that are the same in each run. */
static inline uint32_t next_number(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static inline void sleep_ms(long milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

/*
 * Reads the first count blocks of a file (64 at most) into memory, one request a block, which notify
 * resfd unless it is -1. What io_submit() returns.
 */
static inline int submit_blocks(io_context_t context, int fd, struct iocb *iocb, char *memory,
				size_t block, int count, int resfd)
{
	struct iocb *list[64];

	need(count <= 64, "few blocks");
	for (int i = 0; i < count; i++) {
		io_prep_pread(&iocb[i], fd, memory + (size_t)i * block, block,
			      (long long)i * (long long)block);
		if (resfd >= 0)
			io_set_eventfd(&iocb[i], resfd);
		list[i] = &iocb[i];
	}
	return io_submit(context, count, list);
}

/* Is this run under the shim with this engine? For what the shim is known to do otherwise. */
static inline bool may_have_ring(const char *engine)
{
	const char *set = getenv("PINSHIM_AIO");

	return set != NULL && strcmp(set, engine) == 0;
}

#endif
