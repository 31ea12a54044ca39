/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * No call of the program that waits may return EINTR because of asynchronous I/O: no signal handler
 * ran. The kernel interrupts a thread that has used an io_uring, when a request of a shared one
 * completes, and when one is closed.
 */
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include "behaviour.h"

enum { REQUESTS = 8, BLOCK = 256 * 1024 };

static char *memory;
static struct iocb iocb[REQUESTS];
static io_context_t other; /* in which nothing is ever in flight */

static int wait_in_epoll(void)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC), got;
	struct epoll_event event;

	got = epoll_wait(epoll, &event, 1, 20);
	got = got < 0 ? -errno : got;
	close(epoll);
	return got;
}

static int wait_in_getevents(void)
{
	struct io_event event;

	return io_getevents(other, 1, 1, &event, &(struct timespec){ 0, 20000000 });
}

static int wait_in_poll(void)
{
	int ends[2], got;

	need(pipe(ends) == 0, "pipe");
	got = poll(&(struct pollfd){ ends[0], POLLIN, 0 }, 1, 20);
	got = got < 0 ? -errno : got;
	close(ends[0]);
	close(ends[1]);
	return got;
}

static int wait_in_nanosleep(void)
{
	struct timespec time = { 0, 20000000 };

	return nanosleep(&time, NULL) ? -errno : 0;
}

static int wait_in_semaphore(void)
{
	struct timespec time;
	sem_t semaphore;

	sem_init(&semaphore, 0, 0);
	clock_gettime(CLOCK_REALTIME, &time);
	time.tv_nsec += 20000000;
	time.tv_sec += time.tv_nsec / SECOND;
	time.tv_nsec %= SECOND;
	return sem_timedwait(&semaphore, &time) ? (errno == ETIMEDOUT ? 0 : -errno) : 1;
}

static int wait_in_read(void)
{
	const struct itimerspec soon = { .it_value.tv_nsec = 20000000 };
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	uint64_t count;
	ssize_t got;

	need(timer >= 0 && timerfd_settime(timer, 0, &soon, NULL) == 0, "timerfd");
	got = read(timer, &count, sizeof(count));
	got = got < 0 ? -errno : 0;
	close(timer);
	return (int)got;
}

static void submit_reads(io_context_t context, int fd)
{
	need(submit_blocks(context, fd, iocb, memory, BLOCK, REQUESTS, -1) == REQUESTS,
	     "io_submit");
}

/*
 * What a wait may come to with requests in flight: epoll_wait is interrupted where io_uring needs a thread
 * for one, which is a limit of the shim's.
 */
static bool is_right(size_t wait, int got)
{
	return got == 0 ||
	       (got == -EINTR && wait == 0 && (may_have_ring("auto") || may_have_ring("uring")));
}

/* Those that have to wait are done by threads, which somebody has to make. */
static void several_fsyncs(const struct way *way, int fd)
{
	struct iocb *list[REQUESTS];
	struct io_event event[REQUESTS];
	bool good = true;
	int wait = 0;

	watch("several fsyncs");
	for (int round = 0; round < 4; round++) {
		io_context_t context = context_for(REQUESTS);

		submit_reads(context, fd);
		reap(context, REQUESTS, event);
		need(pwrite(fd, memory, BLOCK, 0) == BLOCK, "pwrite");
		for (int i = 0; i < REQUESTS; i++) {
			(i % 2 ? io_prep_fdsync : io_prep_fsync)(&iocb[i], fd);
			list[i] = &iocb[i];
		}
		good = io_submit(context, REQUESTS, list) == REQUESTS && good;
		wait = wait == 0 ? wait_in_epoll() : wait;
		good = reap(context, REQUESTS, event) == REQUESTS && good;
		for (int i = 0; i < REQUESTS; i++)
			good = event[i].res == 0 && good;
	}
	check(good, "%s: several fsyncs at a time", way->name);
	/* Rings that several threads use interrupt in any case. */
	check(wait == 0 || (may_have_ring("uring") && getenv("BEHAVIOUR_THREADED")),
	      "%s: epoll_wait with several fsyncs in flight is not interrupted", way->name);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*wait)(void);
	} waits[] = { { "epoll_wait", wait_in_epoll },
		      { "io_getevents of another context", wait_in_getevents },
		      { "poll", wait_in_poll },
		      { "nanosleep", wait_in_nanosleep },
		      { "sem_timedwait", wait_in_semaphore },
		      { "read", wait_in_read } };
	struct io_event event[REQUESTS];

	begin(argc, argv);
	memory = buffer((size_t)REQUESTS * BLOCK);
	other = context_for(8);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("interrupts", (size_t)REQUESTS * BLOCK, 1, way->flags), buffered;
		io_context_t context;

		for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
			watch(waits[i].name);
			context = context_for(REQUESTS);
			submit_reads(context, fd);
			check(is_right(i, waits[i].wait()),
			      "%s: %s with requests in flight is not interrupted", way->name,
			      waits[i].name);
			reap(context, REQUESTS, event);
			check(waits[i].wait() == 0, "%s: nor after they were reaped", way->name);
			submit_reads(context, fd);
			reap(context, REQUESTS, event);
			check(waits[i].wait() == 0, "%s: nor the next time", way->name);
			submit_reads(context, fd);
			io_destroy(context);
			check(waits[i].wait() == 0, "%s: nor after the context ended", way->name);
			/* A context that goes over to buffered files. */
			context = context_for(2 * REQUESTS);
			submit_reads(context, fd);
			buffered = open_file("interrupts", O_RDONLY);
			submit_reads(context, buffered);
			close(buffered);
			check(is_right(i, waits[i].wait()),
			      "%s: nor when a context is used for other files", way->name);
			reap(context, REQUESTS, event);
			reap(context, REQUESTS, event);
			io_destroy(context);
			check(waits[i].wait() == 0, "%s: nor after that one ended", way->name);
		}
		several_fsyncs(way, fd);
		close(fd);
	}
	return check_end();
}
