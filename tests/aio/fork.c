/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts and fork(): a child has none of its parent's, which goes on undisturbed, and makes its own.
 */
#include <sched.h>
#include <spawn.h>

#include "behaviour.h"

enum { REQUESTS = 16, BLOCK = 64 * 1024 };

static struct iocb iocb[REQUESTS];
static char *memory;

static void submit_reads(io_context_t context, int fd)
{
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	need(submit_blocks(context, fd, iocb, memory, BLOCK, REQUESTS, -1) == REQUESTS,
	     "io_submit");
}

static bool reap_reads(io_context_t context)
{
	struct io_event event[REQUESTS];
	bool good = reap(context, REQUESTS, event) == REQUESTS;

	for (int i = 0; i < REQUESTS && good; i++)
		good = event[i].res == BLOCK;
	return good && holds_at(memory, (size_t)REQUESTS * BLOCK, 0, 1);
}

/* Everything with a context of the parent. */
static void child_has_none(const char *what, io_context_t context, int fd)
{
	struct io_event event;
	struct iocb one, *list = &one;
	char name[200];

	io_prep_pread(&one, fd, memory, BLOCK, 0);
#define NONE(call)                                                                                 \
	(snprintf(name, sizeof(name), "%s, " #call, what), watch(name), gives(name, call))
	NONE(io_submit(context, 1, &list));
	NONE(io_submit(context, 0, &list));
	NONE(io_getevents(context, 1, 1, &event, &(struct timespec){ 1, 0 }));
	NONE(io_getevents(context, 0, 1, &event, NULL));
	NONE(io_getevents(context, 1, 1, &event, NULL));
	NONE(io_pgetevents(context, 1, 1, &event, NULL, NULL));
	NONE(io_cancel(context, &iocb[0], &event));
	NONE(io_destroy(context));
#undef NONE
}

/* A child's own context, that may have the id of one of the parent's. */
static bool child_has_own(int fd)
{
	io_context_t own = context_for(REQUESTS);
	bool good = true;

	for (int round = 0; round < 3; round++) {
		submit_reads(own, fd);
		good = reap_reads(own) && good;
	}
	return good;
}

/* What the child does, and how it ends. */
enum { ENDS, USES, HAS_OWN, WAYS };

static void one_child(const struct way *way, io_context_t context, int fd, int does, bool in_flight,
		      bool by_exit)
{
	static const char *const names[WAYS] = { "nothing", "use the parent's context",
						 "use a context of its own" };
	char what[120];
	int status;
	pid_t pid;

	snprintf(what, sizeof(what), "%s: a child that does %s and ends with %s, %s", way->name,
		 names[does], by_exit ? "exit" : "_exit",
		 in_flight ? "reads in flight" : "nothing in flight");
	watch(what);
	if (in_flight)
		submit_reads(context, fd);
	pid = fork_watched();
	if (pid == 0) {
		bool good = true;

		if (does == USES)
			child_has_none(what, context, fd);
		if (does == HAS_OWN)
			good = child_has_own(fd);
		if (by_exit)
			exit(good ? 0 : 1);
		_exit(good ? 0 : 1);
	}
	status = child_ends(pid);
	if (in_flight)
		status += reap_reads(context) ? 0 : 1000;
	submit_reads(context, fd);
	status += reap_reads(context) ? 0 : 2000;
	if (!check(status == 0, "%s: both have what they should", what))
		say("# status %d\n", status);
}

/* The kernel copies what a ring has registered, at once, instead of sharing it until somebody writes. */
static void not_copied(const struct way *way, io_context_t context, int fd)
{
	const size_t size = 8 * MIB;
	char *large = buffer(size);
	long own = -1;
	int ends[2];

	watch("what a fork copies");
	memset(large, 1, size);
	need(pipe(ends) == 0, "pipe");
	for (int round = 0; round < 2; round++) {
		struct io_event event[REQUESTS];
		pid_t pid;

		need(submit_blocks(context, fd, iocb, large, BLOCK, REQUESTS, -1) == REQUESTS &&
			     reap(context, REQUESTS, event) == REQUESTS,
		     "reads");
		pid = fork_watched();
		if (pid == 0) {
			/* What no other process has: of a child that has just begun, what the fork copied. */
			own = proc_bytes("/proc/self/smaps_rollup", "Private_Dirty:");
			_exit(write(ends[1], &own, sizeof(own)) == sizeof(own) ? 0 : 1);
		}
		need(child_ends(pid) == 0 && read(ends[0], &own, sizeof(own)) == sizeof(own),
		     "a child that counts");
		/* Its stack it has for itself in any case. */
		check(own > 0 && (size_t)own < size / 4,
		      "%s: fork %d copies no memory that was read into", way->name, round);
	}
	close(ends[0]);
	close(ends[1]);
	free(large);
}

/* A context of the parent's that is unused, and one that is used, at the same time as the child's. */
static void ids(const struct way *way, int fd)
{
	io_context_t unused = context_for(REQUESTS), used = context_for(REQUESTS);
	bool good = true;
	pid_t pid;

	watch("many children");
	submit_reads(used, fd);
	for (int i = 0; i < 4; i++) {
		submit_reads(unused, fd);
		pid = fork_watched();
		if (pid == 0) {
			io_context_t own[4];

			good = true;
			for (int j = 0; j < 4; j++)
				own[j] = context_for(REQUESTS);
			for (int j = 0; j < 4; j++) {
				submit_reads(own[j], fd);
				good = reap_reads(own[j]) && good;
			}
			_exit(good ? 0 : 1);
		}
		good = reap_reads(unused) && good;
		good = child_ends(pid) == 0 && good;
	}
	check(good, "%s: four children with four contexts each beside the parent's I/O", way->name);
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	good = reap(used, REQUESTS, (struct io_event[REQUESTS]){ 0 }) == REQUESTS;
	check(good, "%s: what was in flight all the time is there", way->name);
}

/* A daemon: the parent ends, the child goes on, and its child again. */
static void daemons(const struct way *way, int fd)
{
	io_context_t context = context_for(REQUESTS);
	int ends[2];
	char good = 0;
	pid_t pid;

	watch("a daemon");
	need(pipe(ends) == 0, "pipe");
	submit_reads(context, fd);
	pid = fork_watched();
	if (pid == 0) {
		if (fork_watched() == 0) {
			good = child_has_own(fd) ? 'g' : 'b';
			need(write(ends[1], &good, 1) == 1, "write");
			exit(0);
		}
		exit(0);
	}
	close(ends[1]);
	check(child_ends(pid) == 0 && read(ends[0], &good, 1) == 1 && good == 'g' &&
		      reap_reads(context),
	      "%s: a daemon has contexts of its own", way->name);
	close(ends[0]);
}

/* The exit status of a child that shares memory. */
static int vforked(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		_exit(3);
	return child_ends(pid);
}

/* Children that share memory, and programs that are run: none of them touches what is the parent's. */
static void spawned(const struct way *way, int fd)
{
	io_context_t context = context_for(REQUESTS);
	char program[] = "true", *arguments[] = { program, NULL }, *none[] = { NULL };
	bool good = true;
	pid_t pid;

	watch("spawned");
	for (int i = 0; i < 2; i++) {
		submit_reads(context, fd);
		need(posix_spawnp(&pid, "true", NULL, NULL, arguments, none) == 0, "posix_spawn");
		good = child_ends(pid) == 0 && reap_reads(context) && good;
		submit_reads(context, fd);
		good = vforked() == 3 && reap_reads(context) && good;
		submit_reads(context, fd);
		pid = fork_watched();
		if (pid == 0) {
			execvp("true", arguments);
			_exit(9);
		}
		good = child_ends(pid) == 0 && reap_reads(context) && good;
	}
	check(good, "%s: posix_spawn, vfork and exec disturb nothing", way->name);
}

/* A child gets what a parent writes afterwards to memory that was read to: its own copy. */
static void copies(const struct way *way, int fd)
{
	io_context_t context = context_for(REQUESTS);
	bool good = true;
	int to_child[2];
	char byte;
	pid_t pid;

	watch("copies");
	for (int i = 0; i < 2; i++) {
		need(pipe(to_child) == 0, "pipe");
		submit_reads(context, fd);
		good = reap_reads(context) && good;
		pid = fork_watched();
		if (pid == 0) {
			bool held;

			need(read(to_child[0], &byte, 1) == 1, "read");
			held = holds_at(memory, (size_t)REQUESTS * BLOCK, 0, 1);
			/* And reads over it. */
			_exit(held && child_has_own(fd) ? 0 : 1);
		}
		memset(memory, 0x77, (size_t)REQUESTS * BLOCK);
		submit_reads(context, fd);
		need(write(to_child[1], "x", 1) == 1, "write");
		good = reap_reads(context) && good;
		good = child_ends(pid) == 0 && good;
		good = holds_at(memory, (size_t)REQUESTS * BLOCK, 0, 1) && good;
		close(to_child[0]);
		close(to_child[1]);
	}
	check(good, "%s: parent and child each read to memory of their own", way->name);
}

/* Forks while another thread does I/O. */
static atomic_bool stop;
static atomic_int rounds;
static int busy_fd;

static void *busy(void *result)
{
	io_context_t context = context_for(8);
	char *block = buffer(8 * (size_t)BLOCK);
	struct iocb own[8], *list[8];
	struct io_event event[8];
	bool good = true;

	while (!atomic_load(&stop)) {
		memset(block, 0xee, 8 * (size_t)BLOCK);
		for (int i = 0; i < 8; i++) {
			io_prep_pread(&own[i], busy_fd, block + (size_t)i * BLOCK, BLOCK,
				      (long long)i * BLOCK);
			list[i] = &own[i];
		}
		good = io_submit(context, 8, list) == 8 && reap(context, 8, event) == 8 &&
		       holds_at(block, 8 * (size_t)BLOCK, 0, 1) && good;
		atomic_fetch_add(&rounds, 1);
	}
	io_destroy(context);
	*(bool *)result = good;
	return NULL;
}

static void beside_threads(const struct way *way, int fd)
{
	bool result[2], good = true;
	pthread_t thread[2];

	watch("fork beside threads");
	busy_fd = fd;
	atomic_store(&stop, false);
	for (int i = 0; i < 2; i++)
		thread[i] = start(busy, &result[i]);
	for (int i = 0; i < 8; i++) {
		int before = atomic_load(&rounds);
		pid_t pid;

		while (atomic_load(&rounds) < before + 2)
			sched_yield();
		pid = fork_watched();
		if (pid == 0) {
			good = child_has_own(fd);
			if (i % 2)
				exit(good ? 0 : 1);
			_exit(good ? 0 : 1);
		}
		good = child_ends(pid) == 0 && good;
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	check(good, "%s: children forked beside threads that do I/O have contexts of their own",
	      way->name);
	check(result[0] && result[1], "%s: and the threads' data are right", way->name);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer((size_t)REQUESTS * BLOCK);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("fork", (size_t)REQUESTS * BLOCK, 1, way->flags);
		io_context_t context = context_for(REQUESTS);

		for (int does = 0; does < WAYS; does++)
			for (int i = 0; i < 4; i++)
				one_child(way, context, fd, does, i & 1, i & 2);
		one_child(way, context_for(REQUESTS), fd, USES, true, false);
		not_copied(way, context, fd);
		ids(way, fd);
		daemons(way, fd);
		spawned(way, fd);
		copies(way, fd);
		close(fd);
	}
	FOR_EACH_WAY(way)
	{
		int fd = file_with("fork", (size_t)REQUESTS * BLOCK, 1, way->flags);

		beside_threads(way, fd);
		close(fd);
	}
	return check_end();
}
