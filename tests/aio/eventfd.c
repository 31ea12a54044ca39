/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IOCB_FLAG_RESFD: an eventfd counts completions; then their events are there.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "behaviour.h"

enum { REQUESTS = 32, BLOCK = 4096 };

static char *memory;
static struct iocb iocb[REQUESTS];

static bool submit_reads(io_context_t context, int fd, int resfd, int count)
{
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	return submit_blocks(context, fd, iocb, memory, BLOCK, count, resfd) == count;
}

/* Waits until the eventfd has counted this many. */
static bool counts(int resfd, uint64_t expected)
{
	uint64_t total = 0, got;

	while (total < expected && read(resfd, &got, sizeof(got)) == sizeof(got))
		total += got;
	return total == expected;
}

static void counting(const struct way *way, io_context_t context, int fd, const char *state)
{
	struct io_event event[REQUESTS];
	int resfd = eventfd(0, EFD_CLOEXEC), epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ready = { .events = EPOLLIN };
	bool good;

	watch("an eventfd that is read");
	need(resfd >= 0 && epoll >= 0, "eventfd");
	good = submit_reads(context, fd, resfd, REQUESTS) && counts(resfd, REQUESTS);
	check(good, "%s, %s: an eventfd counts every completion", way->name, state);
	good = io_getevents(context, 0, REQUESTS, event, &(struct timespec){ 0 }) == REQUESTS;
	check(good && holds_at(memory, (size_t)REQUESTS * BLOCK, 0, 1),
	      "%s, %s: and then all events are there without waiting", way->name, state);
	watch("an eventfd in epoll");
	epoll_ctl(epoll, EPOLL_CTL_ADD, resfd, &ready);
	good = submit_reads(context, fd, resfd, 1) && epoll_wait(epoll, &ready, 1, -1) == 1 &&
	       counts(resfd, 1) &&
	       io_getevents(context, 0, REQUESTS, event, &(struct timespec){ 0 }) == 1;
	check(good, "%s, %s: epoll says when a read is done", way->name, state);
	watch("events that are fetched before the eventfd is read");
	good = submit_reads(context, fd, resfd, 4) && reap(context, 4, event) == 4 &&
	       counts(resfd, 4);
	check(good, "%s, %s: it counts, too, when the events are fetched first", way->name, state);
	close(epoll);
	close(resfd);
}

/* With other requests that have none: nothing is lost on either side. */
static void mixed(const struct way *way, int fd)
{
	io_context_t context = context_for(REQUESTS);
	struct io_event event[REQUESTS];
	int resfd = eventfd(0, EFD_CLOEXEC);
	struct iocb one;
	bool good;

	watch("some with an eventfd and some without");
	good = submit_reads(context, fd, -1, 8);
	io_prep_pread(&one, fd, memory + 8 * BLOCK, BLOCK, 8 * BLOCK);
	io_set_eventfd(&one, resfd);
	good = submit(context, &one) == 1 && counts(resfd, 1) && good;
	good = reap(context, 9, event) == 9 && holds_at(memory, 9 * (size_t)BLOCK, 0, 1) && good;
	check(good, "%s: requests without an eventfd before one that has it", way->name);
	good = submit_reads(context, fd, -1, 8) && reap(context, 8, event) == 8;
	check(good && holds_at(memory, 8 * (size_t)BLOCK, 0, 1), "%s: and after it", way->name);
	check(io_getevents(context, 0, 1, event, NULL) == 0, "%s: each once", way->name);
	close(resfd);
}

static void others(const struct way *way, io_context_t context, int fd)
{
	int resfd = eventfd(0, EFD_CLOEXEC), semaphore = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
	struct io_event event;
	struct iocb one;
	uint64_t got;
	int ends[2];

	need(pipe(ends) == 0, "pipe");
	io_prep_fsync(&one, fd);
	io_set_eventfd(&one, resfd);
	check(outcome_of(way, "FSYNC with an eventfd", context, &one) == 0 && counts(resfd, 1),
	      "%s: FSYNC is counted by an eventfd", way->name);
	io_prep_poll(&one, ends[1], POLLOUT);
	one.u.c.flags = 1;
	one.u.c.resfd = (unsigned)resfd;
	outcome_of(way, "POLL with an eventfd", context, &one);
	check(counts(resfd, 1), "%s: POLL is counted by an eventfd", way->name);
	io_prep_pwrite(&one, fd, memory, BLOCK, 0);
	fill_at(memory, BLOCK, 0, 1);
	io_set_eventfd(&one, resfd);
	check(outcome_of(way, "PWRITE with an eventfd", context, &one) == BLOCK && counts(resfd, 1),
	      "%s: PWRITE is counted by an eventfd", way->name);
	io_prep_pread(&one, fd, NULL, BLOCK, 0);
	io_set_eventfd(&one, resfd);
	check(outcome_of(way, "PREAD to NULL with an eventfd", context, &one) == -EFAULT &&
		      counts(resfd, 1),
	      "%s: what fails is counted by an eventfd", way->name);
	io_prep_pread(&one, -1, memory, BLOCK, 0);
	io_set_eventfd(&one, resfd);
	outcome_of(way, "PREAD of no file with an eventfd", context, &one);
	io_prep_pread(&one, fd, memory, BLOCK, 0);
	io_set_eventfd(&one, -1);
	outcome_of(way, "PREAD with eventfd -1", context, &one);
	io_set_eventfd(&one, ends[1]);
	outcome_of(way, "PREAD with a pipe for an eventfd", context, &one);
	io_set_eventfd(&one, fd);
	outcome_of(way, "PREAD with a file for an eventfd", context, &one);
	watch("an eventfd that is a semaphore");
	io_set_eventfd(&one, semaphore);
	need(submit(context, &one) == 1 && reap(context, 1, &event) == 1, "a read");
	check(read(semaphore, &got, sizeof(got)) == sizeof(got) && got == 1 &&
		      read(semaphore, &got, sizeof(got)) < 0,
	      "%s: an eventfd that does not wait and counts down", way->name);
	watch("an eventfd that is closed in flight");
	io_set_eventfd(&one, resfd);
	need(submit(context, &one) == 1, "io_submit");
	close(resfd);
	check(reap(context, 1, &event) == 1 && event.res == BLOCK,
	      "%s: an eventfd can be closed while a request has it", way->name);
	close(semaphore);
	close(ends[0]);
	close(ends[1]);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer((size_t)REQUESTS * BLOCK);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("eventfd", (size_t)REQUESTS * BLOCK, 1, way->flags);
		io_context_t context = context_for(REQUESTS);

		counting(way, context, fd, "at first");
		others(way, context, fd);
		mixed(way, fd);
		others(way, context_for(8), fd);
		context = context_for(REQUESTS);
		need(submit_reads(context, fd, -1, 8) &&
			     reap(context, 8, (struct io_event[8]){ 0 }) == 8,
		     "reads");
		counting(way, context, fd, "after reads without");
		close(fd);
	}
	return check_end();
}
