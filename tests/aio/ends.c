/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that end with writes in flight, in every way: what io_submit() took is in the file. CASES
 * are names of endings.
 */
#include "behaviour.h"

enum { REQUESTS = 128, BLOCK = 8192 };

static char *memory;

/* What the file is before: a write can be begun at once only where blocks are there already. */
static const struct {
	const char *name;
	bool written, large;
} places[] = { { "over data", true, true },
	       { "into a hole", false, true },
	       { "behind the end", false, false } };

enum { PLACES = sizeof(places) / sizeof(*places) };

static void *end_process(void *status)
{
	_exit((int)(intptr_t)status);
	return NULL;
}

static void *sleep_then_end(void *status)
{
	sleep_ms(5);
	exit((int)(intptr_t)status);
	return NULL;
}

/* The ways to end, by number; 7 is what their status must be, where they have one. */
static const char *const endings[] = { "exit",
				       "_exit",
				       "exit by another thread",
				       "_exit by another thread",
				       "exec",
				       "SIGKILL",
				       "SIGTERM",
				       "abort",
				       "quick_exit" };

enum { ENDINGS = sizeof(endings) / sizeof(*endings) };

static void end(int ending)
{
	switch (ending) {
	case 0:
		exit(7);
	case 1:
		_exit(7);
	case 2:
		start(sleep_then_end, (void *)(intptr_t)7);
		pthread_exit(NULL);
	case 3:
		start(end_process, (void *)(intptr_t)7);
		for (;;)
			pause();
	case 4:
		execlp("sh", "sh", "-c", "exit 7", (char *)NULL);
		_exit(99);
	case 5:
		raise(SIGKILL);
		break;
	case 6:
		signal(SIGTERM, SIG_DFL);
		raise(SIGTERM);
		break;
	case 7:
		abort();
	default:
		quick_exit(7);
	}
}

static void submit_writes(int fd, unsigned seed)
{
	io_context_t context = context_for(REQUESTS);
	struct iocb iocb[REQUESTS], *list[REQUESTS];

	for (int i = 0; i < REQUESTS; i++) {
		char *at = memory + (size_t)i * BLOCK;

		fill_at(at, BLOCK, (uint64_t)i * BLOCK, seed);
		io_prep_pwrite(&iocb[i], fd, at, BLOCK, (long long)i * BLOCK);
		list[i] = &iocb[i];
	}
	/* In two batches, so that a context is used before. */
	need(io_submit(context, REQUESTS / 2, list) == REQUESTS / 2, "io_submit");
	need(io_submit(context, REQUESTS / 2, list + REQUESTS / 2) == REQUESTS / 2, "io_submit");
}

/* Whether all is written, and the status in *status. */
static bool one_end(const char *name, const struct way *way, int place, int ending, int *status)
{
	static unsigned seed = 10;
	int fd;
	pid_t pid;

	watch(name);
	seed++;
	make_file("ends", places[place].written ? (size_t)REQUESTS * BLOCK : 0, 1);
	if (places[place].large)
		need(truncate("ends", (off_t)REQUESTS * BLOCK) == 0, "truncate");
	fd = open_file("ends", O_RDWR | way->flags);
	need(fsync(fd) == 0, "fsync");
	pid = fork_watched();
	if (pid == 0) {
		submit_writes(fd, seed);
		end(ending);
		_exit(98);
	}
	*status = child_ends(pid);
	/* The kernel may be at it still. */
	for (int i = 0; i < 100 && !file_holds("ends", (size_t)REQUESTS * BLOCK, 0, seed); i++)
		sleep_ms(10);
	close(fd);
	return file_holds("ends", (size_t)REQUESTS * BLOCK, 0, seed);
}

static void one_case(const struct way *way, int place, int ending)
{
	/* exec(2) cancels what an io_uring has not begun, which it mostly has. */
	int rounds = ending == 4 && place == 1 ? 10 : 1, status = 0;
	bool good = true;
	char name[120];

	snprintf(name, sizeof(name), "%s, %s, %s", way->name, places[place].name, endings[ending]);
	for (int i = 0; i < rounds && good; i++)
		good = one_end(name, way, place, ending, &status);
	check(good, "%s: what was submitted is written", name);
	say("%s: ends with %d\n", name, status);
}

/*
 * Nobody can wait for writes when a signal ends the process. Those into a hole an io_uring begins
 * behind the process's back, and may not have begun; nobody was told that they are done, either.
 */
static bool is_tried(const struct way *way, int place, int ending)
{
	bool by_signal = ending >= 5 && ending <= 7;

	return (way->flags || place == 0) &&
	       !(by_signal && places[place].large && !places[place].written);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer((size_t)REQUESTS * BLOCK);
	FOR_EACH_WAY(way)
	{
		for (int ending = 0; ending < ENDINGS; ending++)
			for (int place = 0; place < PLACES; place++)
				if (is_tried(way, place, ending) &&
				    chosen(argc, argv, endings[ending]))
					one_case(way, place, ending);
	}
	return check_end();
}
