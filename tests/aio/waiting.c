/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What io_getevents() returns, and when: how many events were asked for, how many there are, and how
 * long it may take.
 */
#include <time.h>

#include "behaviour.h"

#define BLOCK 4096

enum { MOST = 32 };

static char *memory;
static struct iocb iocb[MOST];

/* Submits reads of the first count blocks. */
static bool begin_reads(io_context_t context, int fd, int count)
{
	struct iocb *list[MOST];

	for (int i = 0; i < count; i++) {
		io_prep_pread(&iocb[i], fd, memory + (size_t)i * BLOCK, BLOCK,
			      (long long)i * BLOCK);
		list[i] = &iocb[i];
	}
	return io_submit(context, count, list) == count;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* With nothing in flight. */
static void nothing(const struct way *way, io_context_t context)
{
	struct io_event event[MOST];
	double before;

	watch("nothing in flight");
	gives("at least 0 of 0", io_getevents(context, 0, 0, event, NULL));
	gives("at least 0 of 8", io_getevents(context, 0, 8, event, NULL));
	gives("at least 0 of 0 into NULL", io_getevents(context, 0, 0, NULL, NULL));
	gives("at least 0 of 8, no time",
	      io_getevents(context, 0, 8, event, &(struct timespec){ 0 }));
	gives("at least 1 of 8, no time",
	      io_getevents(context, 1, 8, event, &(struct timespec){ 0 }));
	before = now();
	gives("at least 1 of 8, 20 ms",
	      io_getevents(context, 1, 8, event, &(struct timespec){ 0, 20000000 }));
	check(now() - before >= 0.019, "%s: the time that was given is waited for", way->name);
	gives("at least 1 of 8, 1 ns",
	      io_getevents(context, 1, 8, event, &(struct timespec){ 0, 1 }));
	before = now();
	gives("at least 0 of 8, 20 s",
	      io_getevents(context, 0, 8, event, &(struct timespec){ 20, 0 }));
	check(now() - before < 10, "%s: who wants no event does not wait", way->name);
}

static void bad_numbers(const struct way *way, io_context_t context, int fd)
{
	struct io_event event[MOST];

	watch("numbers that make no sense");
	/* One event is there, so that libaio itself does not answer. */
	need(begin_reads(context, fd, 1), "io_submit");
	gives("at least 2 of 1", io_getevents(context, 2, 1, event, NULL));
	gives("at least -1 of 1", io_getevents(context, -1, 1, event, NULL));
	gives("at least 0 of -1", io_getevents(context, 0, -1, event, NULL));
	gives("at least -2 of -1", io_getevents(context, -2, -1, event, NULL));
	gives("at least 1 of 0", io_getevents(context, 1, 0, event, NULL));
	gives("pgetevents: at least 2 of 1", io_pgetevents(context, 2, 1, event, NULL, NULL));
	gives("pgetevents: at least -1 of 1", io_pgetevents(context, -1, 1, event, NULL, NULL));
	check(reap(context, 1, event) == 1 && event[0].res == BLOCK,
	      "%s: no event is lost to a call that is refused", way->name);
}

/* More is there than is asked for. */
static void some_of_many(const struct way *way, io_context_t context, int fd)
{
	struct io_event event[MOST + 1];
	bool seen[MOST] = { false }, good = true;

	watch("some of many");
	need(begin_reads(context, fd, MOST), "io_submit");
	good = io_getevents(context, 1, 1, event, NULL) == 1;
	good = io_getevents(context, 3, 3, event + 1, NULL) == 3 && good;
	good = io_pgetevents(context, 4, 4, event + 4, NULL, NULL) == 4 && good;
	memset(&event[8], 0x55, sizeof(event[8]));
	good = reap(context, MOST - 8, event + 8) == MOST - 8 && good;
	check(good, "%s: as many events as were asked for come", way->name);
	for (int i = 0; i < MOST; i++) {
		long number = event[i].obj - iocb;

		good = number >= 0 && number < MOST && !seen[number] && event[i].res == BLOCK &&
		       good;
		if (number >= 0 && number < MOST)
			seen[number] = true;
	}
	check(good, "%s: each once, those that were not asked for later", way->name);
	check(io_getevents(context, 0, MOST, event, &(struct timespec){ 0 }) == 0,
	      "%s: and then there is none", way->name);
	if (way->flags == 0) {
		need(begin_reads(context, fd, 4), "io_submit");
		good = reap(context, 4, event) == 4;
		for (int i = 0; i < 4; i++)
			good = event[i].obj == &iocb[i] && good;
		check(good, "buffered: events come in the order of their requests");
	}
}

/* Fewer come than are asked for: what there is when the time is over. */
static void fewer(const struct way *way, io_context_t context, int fd)
{
	struct io_event event[MOST];
	double before = now();
	int have;

	watch("fewer");
	need(begin_reads(context, fd, 3), "io_submit");
	have = io_getevents(context, 8, 8, event, &(struct timespec){ 0, 150000000 });
	check(have == 3 && now() - before >= 0.149,
	      "%s: at least 8 of 8, 3 in flight: 3 when the time is over", way->name);
	if (have < 3)
		reap(context, 3 - have, event);
	before = now();
	need(begin_reads(context, fd, 3), "io_submit");
	have = io_getevents(context, 3, 8, event, &(struct timespec){ 20, 0 });
	check(have == 3 && now() - before < 10, "%s: at least 3 of 8, 3 in flight: at once",
	      way->name);
	need(begin_reads(context, fd, 8), "io_submit");
	have = io_getevents(context, 8, MOST, event, NULL);
	check(have == 8, "%s: at least 8 of 32, without end: 8", way->name);
	/* Polling, as DeepSpeed does. */
	need(begin_reads(context, fd, 8), "io_submit");
	for (have = 0; have < 8;) {
		int got = io_getevents(context, 0, 8 - have, event, &(struct timespec){ 0 });

		if (got < 0)
			break;
		have += got;
	}
	check(have == 8, "%s: who asks again and again without waiting gets all", way->name);
	need(begin_reads(context, fd, 8), "io_submit");
	for (have = 0; have < 8;) {
		int got = io_getevents(context, 0, 8 - have, event, NULL);

		if (got < 0)
			break;
		have += got;
	}
	check(have == 8, "%s: the same with a time that is not limited", way->name);
}

/* What does not complete before it is made to. */
static void waits(const struct way *way, io_context_t context, int fd)
{
	struct io_event event[MOST];
	struct iocb poll;
	int ends[2];

	watch("a request that takes its time");
	need(pipe(ends) == 0, "pipe");
	io_prep_poll(&poll, ends[0], POLLIN);
	gives("the poll", submit(context, &poll));
	need(begin_reads(context, fd, 2), "io_submit");
	gives("at least 3 of 3, 50 ms",
	      io_getevents(context, 3, 3, event, &(struct timespec){ 0, 50000000 }));
	gives("at least 1 of 1, 1 ms",
	      io_getevents(context, 1, 1, event, &(struct timespec){ 0, 1000000 }));
	gives("at least 0 of 1", io_getevents(context, 0, 1, event, NULL));
	need(write(ends[1], "x", 1) == 1, "write");
	check(io_getevents(context, 1, 3, event, NULL) == 1 && event[0].obj == &poll,
	      "%s: and then it is there", way->name);
	close(ends[0]);
	close(ends[1]);
}

static void times(const struct way *way, io_context_t context, int fd)
{
	struct io_event event[MOST];

	watch("times");
	need(begin_reads(context, fd, 4), "io_submit");
	gives("at least 1 of 1, 2^62 s",
	      io_getevents(context, 1, 1, event, &(struct timespec){ (time_t)1 << 62, 0 }));
	gives("at least 1 of 1, LONG_MAX s",
	      io_getevents(context, 1, 1, event, &(struct timespec){ LONG_MAX, 999999999 }));
	gives("pgetevents: at least 1 of 1, LONG_MAX s",
	      io_pgetevents(context, 1, 1, event, &(struct timespec){ LONG_MAX, 999999999 }, NULL));
	check(reap(context, 1, event) == 1, "%s: times without end", way->name);
	need(begin_reads(context, fd, 1), "io_submit");
	gives("at least 1 of 1, 2000000000 ns",
	      io_getevents(context, 1, 1, event, &(struct timespec){ 0, 2000000000 }));
}

/* What the kernel's AIO has done when io_submit() returns: anything buffered, and what makes a file longer. */
static void at_once(const struct way *way, bool append)
{
	struct iocb *list[MOST];
	struct io_event event[MOST];
	int fd = file_with("at_once", 4 * (size_t)BLOCK, 1, way->flags | (append ? O_APPEND : 0)),
	    got;
	io_context_t context = context_for(MOST);
	bool good = true;

	watch("at once");
	if (!append && way->flags == 0) {
		/* Not in the page cache. */
		need(fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0,
		     "fadvise");
		need(begin_reads(context, fd, 4), "io_submit");
		got = io_getevents(context, 0, MOST, event, NULL);
		gives("events of buffered reads, at once", got);
		for (int i = 0; i < got; i++)
			good = event[i].obj == &iocb[i] && good;
		check(good, "buffered: in their order");
	}
	for (int i = 0; i < 16; i++) {
		fill_at(memory + (size_t)i * BLOCK, BLOCK, (uint64_t)(4 + i) * BLOCK, 1);
		io_prep_pwrite(&iocb[i], fd, memory + (size_t)i * BLOCK, BLOCK,
			       append ? 0 : (4LL + i) * BLOCK);
		list[i] = &iocb[i];
	}
	need(io_submit(context, 16, list) == 16, "io_submit");
	say("%s%s, size after submission: %ld\n", way->name, append ? ", O_APPEND" : "",
	    file_size("at_once"));
	check(file_holds("at_once", 20 * (size_t)BLOCK, 0, 1),
	      "%s%s: what makes a file longer is written at once", way->name,
	      append ? ", O_APPEND" : "");
	got = io_getevents(context, 0, MOST, event, NULL);
	gives("events, at once", got);
	for (int i = 0; i < got; i++)
		good = event[i].obj == &iocb[i] && good;
	check(good, "%s%s: and has its events in order", way->name, append ? ", O_APPEND" : "");
	close(fd);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer(MOST * (size_t)BLOCK);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("waiting", MOST * (size_t)BLOCK, 1, way->flags);
		io_context_t context = context_for(MOST);

		nothing(way, context); /* before the first request */
		bad_numbers(way, context, fd);
		nothing(way, context);
		some_of_many(way, context, fd);
		fewer(way, context, fd);
		times(way, context, fd);
		waits(way, context, fd);
		at_once(way, false);
		at_once(way, true);
		nothing(way, context);
		some_of_many(way, context, fd);
		close(fd);
	}
	return check_end();
}
