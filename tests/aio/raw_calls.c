/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that use libaio for some calls and syscall(2) for others (MariaDB fetches what has completed
 * so), and programs that use syscall(2) for all: each call does what the function does.
 * CASES: misaligned, which holds only with the shim, and is run only if it is named
 */
#include <sys/syscall.h>

#include "behaviour.h"

enum { REQUESTS = 32, BLOCK = 4096 };

static char *memory;
static struct iocb iocb[REQUESTS];
static io_context_t context;

static long raw_getevents(long least, long most, struct io_event *event, struct timespec *timeout)
{
	return syscall(SYS_io_getevents, context, least, most, event, timeout);
}

static long raw_pgetevents(long least, long most, struct io_event *event, struct timespec *timeout)
{
	sigset_t none;
	const struct {
		const sigset_t *mask;
		size_t bytes;
	} set = { &none, 8 };

	sigemptyset(&none);
	return syscall(SYS_io_pgetevents, context, least, most, event, timeout, &set);
}

static void prepare(int fd, long skew)
{
	memset(memory, 0xee, (REQUESTS + 1) * BLOCK);
	for (int i = 0; i < REQUESTS; i++)
		io_prep_pread(&iocb[i], fd, memory + skew + i * BLOCK, BLOCK, skew + i * BLOCK);
}

static bool all_right(long events, const struct io_event *event, long skew)
{
	bool seen[REQUESTS] = { false };

	for (int i = 0; i < events; i++) {
		const long number = event[i].obj - iocb;

		if (number < 0 || number >= REQUESTS || seen[number] || event[i].res != BLOCK)
			return false;
		seen[number] = true;
	}
	return events == REQUESTS &&
	       holds_at(memory + skew, (size_t)REQUESTS * BLOCK, (uint64_t)skew, 1);
}

/* Submits with libaio's function or by a call, one half each, and fetches it in either way, twice each. */
static void reads(const char *way, int fd, long skew)
{
	static long (*const fetch[])(long least, long most, struct io_event *event,
				     struct timespec *timeout) = { raw_getevents, raw_pgetevents };
	struct iocb *list[REQUESTS];
	struct io_event event[REQUESTS];
	bool good = true;

	for (int round = 0; round < 4; round++) {
		long have = 0;

		watch("reads that are fetched by a system call");
		prepare(fd, skew);
		for (int i = 0; i < REQUESTS; i++)
			list[i] = &iocb[i];
		good = io_submit(context, REQUESTS / 2, list) == REQUESTS / 2 &&
		       syscall(SYS_io_submit, context, (long)REQUESTS / 2, list + REQUESTS / 2) ==
			       REQUESTS / 2 &&
		       good;
		while (have < REQUESTS) {
			long got = fetch[round % 2](1, REQUESTS - have, event + have, NULL);

			need(got > 0, "fetching");
			have += got;
		}
		good = all_right(have, event, skew) && good;
	}
	check(good, "%s: what libaio's function or a call submits, a call fetches", way);
}

static void errors(const char *way, int fd)
{
	struct io_event event[1];
	struct timespec at_once = { 0 };
	io_context_t none = NULL;

	watch("what is an error");
	prepare(fd, 0);
	errno = 0;
	check(raw_getevents(0, 1, event, &at_once) == 0 && errno == 0,
	      "%s: nothing is there, and that is no error", way);
	check(raw_getevents(2, 1, event, NULL) == -1 && errno == EINVAL,
	      "%s: an error is -1 and errno", way);
	check(syscall(SYS_io_getevents, none, 1L, 1L, event, NULL) == -1 && errno == EINVAL,
	      "%s: so it is for a context that there is none", way);
	check(syscall(SYS_io_cancel, context, &iocb[0], event) == -1 && errno == EINVAL,
	      "%s: and for a request that there is none", way);
}

static void *fetch_one(void *event)
{
	return (void *)raw_getevents(1, 1, event, NULL);
}

/* MariaDB's thread waits so, and ends when the context does. */
static void waits(const char *way, int fd)
{
	struct io_event event[1];
	void *result = NULL;
	pthread_t thread = start(fetch_one, event);
	struct iocb *one = &iocb[0];

	watch("a thread that waits by a system call");
	prepare(fd, 0);
	check(io_submit(context, 1, &one) == 1 && pthread_join(thread, &result) == 0 &&
		      (long)result == 1 && event[0].obj == one,
	      "%s: a thread that waits by a call gets what another submits", way);
	thread = start(fetch_one, event);
	check(syscall(SYS_io_destroy, context) == 0 && pthread_join(thread, &result) == 0 &&
		      (long)result == -1,
	      "%s: and ends when the context is destroyed by a call", way);
}

static void each_way(const struct way *way)
{
	const int fd = file_with("raw_calls", (REQUESTS + 1) * BLOCK, 1, way->flags);
	char name[40];

	context = context_for(REQUESTS);
	reads(way->name, fd, 0);
	errors(way->name, fd);
	waits(way->name, fd);
	snprintf(name, sizeof(name), "%s, all by calls", way->name);
	context = NULL;
	need(syscall(SYS_io_setup, (unsigned)REQUESTS, &context) == 0, "io_setup");
	reads(name, fd, 0);
	errors(name, fd);
	waits(name, fd);
	close(fd);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer((REQUESTS + 1) * BLOCK);
	if (argc > 2) {
		context = context_for(REQUESTS);
		reads("misaligned", file_with("raw_calls", (REQUESTS + 1) * BLOCK, 1, O_DIRECT),
		      100);
	} else {
		FOR_EACH_WAY(way)
		each_way(way);
	}
	return check_end();
}
