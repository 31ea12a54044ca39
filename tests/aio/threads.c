/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts and threads: one submits and another reaps, in every order of things, and many do both.
 * The cases in which a process begins with one thread are in processes of their own.
 */
#include <dlfcn.h>
#include <threads.h>
#include <time.h>

#include "behaviour.h"

enum { REQUESTS = 32, BLOCK = 16384 };

static io_context_t context;
static struct iocb iocb[REQUESTS];
static char *memory;

static void submit_reads(int fd, int count)
{
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	need(submit_blocks(context, fd, iocb, memory, BLOCK, count, -1) == count, "io_submit");
}

static bool reap_reads(int count)
{
	struct io_event event[REQUESTS];
	bool good = reap(context, count, event) == count, seen[REQUESTS] = { false };

	for (int i = 0; i < count && good; i++) {
		long number = event[i].obj - iocb;

		good = number >= 0 && number < count && !seen[number] && event[i].res == BLOCK;
		seen[number] = good;
	}
	return good && holds_at(memory, (size_t)count * BLOCK, 0, 1);
}

/* --- Handed over, by a process that had one thread when it submitted. --- */

static int handed_fd, handed_buffered;
static char handed_name[120];

/* The other thread: reaps what the first submitted, and goes on with both kinds of files. */
static void take_over(void)
{
	bool good;

	watch(handed_name);
	check(reap_reads(REQUESTS),
	      "%s: another thread gets the events of one that sleeps for good", handed_name);
	submit_reads(handed_fd, REQUESTS);
	good = reap_reads(REQUESTS);
	submit_reads(handed_buffered, REQUESTS);
	good = reap_reads(REQUESTS) && good;
	submit_reads(handed_fd, REQUESTS);
	good = reap_reads(REQUESTS) && good;
	check(good, "%s: and goes on with the context", handed_name);
	check(io_destroy(context) == 0, "%s: and ends it", handed_name);
	_exit(check_end());
}

static void *take_over_pthread(void *unused)
{
	take_over();
	return unused;
}

static int take_over_c11(void *unused)
{
	(void)unused;
	take_over();
	return 0;
}

static void take_over_timer(union sigval unused)
{
	(void)unused;
	take_over();
}

/* What makes the other thread. */
static void by_pthread(void)
{
	pthread_t thread;

	need(pthread_create(&thread, NULL, take_over_pthread, NULL) == 0, "pthread_create");
}

static void by_c11(void)
{
	thrd_t thread;

	need(thrd_create(&thread, take_over_c11, NULL) == thrd_success, "thrd_create");
}

static void by_timer(void)
{
	struct sigevent how = { .sigev_notify = SIGEV_THREAD,
				.sigev_notify_function = take_over_timer };
	struct itimerspec soon = { { 0, 0 }, { 0, 1000000 } };
	timer_t timer;

	need(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0, "timer_create");
	need(timer_settime(timer, 0, &soon, NULL) == 0, "timer_settime");
}

static const struct {
	const char *name;
	void (*make)(void);
} makers[] = { { "pthread_create", by_pthread },
	       { "thrd_create", by_c11 },
	       { "SIGEV_THREAD", by_timer } };

enum { MAKERS = sizeof(makers) / sizeof(*makers) };

/* When requests are submitted: before the other thread is there, or after. */
static void hand_over(int maker, bool direct, bool used, bool before)
{
	snprintf(handed_name, sizeof(handed_name), "%s, %s, %s context, %s",
		 direct ? "direct" : "buffered", makers[maker].name, used ? "used" : "new",
		 before ? "submitted before" : "submitted after");
	watch(handed_name);
	handed_fd = file_with("threads", (size_t)REQUESTS * BLOCK, 1, direct ? O_DIRECT : 0);
	handed_buffered = open_file("threads", O_RDONLY);
	context = context_for(REQUESTS);
	if (used) {
		submit_reads(handed_fd, 4);
		need(reap_reads(4), "reads");
	}
	if (before)
		submit_reads(handed_fd, REQUESTS);
	makers[maker].make();
	if (!before)
		submit_reads(handed_fd, REQUESTS);
	for (;;)
		pause();
}

static void in_own_process(char **argv, int number)
{
	char text[16];
	pid_t pid;

	snprintf(text, sizeof(text), "%d", number);
	watch("a process of its own");
	pid = fork_watched();
	if (pid == 0) {
		execl("/proc/self/exe", argv[0], ".", "own", text, (char *)NULL);
		_exit(99);
	}
	if (child_ends(pid) != 0)
		check(false, "a process of its own, number %d", number);
}

/* --- A thread waits before there is anything to wait for. --- */

struct waiter {
	pthread_t thread;
	io_context_t context;
	int wanted;
	int got;
	atomic_bool begun;
	struct io_event event[REQUESTS];
};

static void *wait_for(void *argument)
{
	struct waiter *waiter = argument;

	atomic_store(&waiter->begun, true);
	waiter->got = io_getevents(waiter->context, waiter->wanted, REQUESTS, waiter->event, NULL);
	return NULL;
}

static void begin_waiting(struct waiter *waiter, int wanted)
{
	memset(waiter, 0, sizeof(*waiter));
	waiter->context = context;
	waiter->wanted = wanted;
	waiter->thread = start(wait_for, waiter);
	while (!atomic_load(&waiter->begun))
		sched_yield();
	sleep_ms(10); /* most likely it sleeps now; both are right */
}

static void waiting_first(const struct way *way, int fd, int buffered, int used)
{
	static const char *const states[] = { "a new context", "a used context",
					      "a context used for buffered files" };
	struct waiter waiter;
	int ends[2];
	struct iocb poll;

	context = context_for(REQUESTS);
	watch("a thread that waits first");
	if (used) {
		submit_reads(used == 1 ? fd : buffered, 4);
		need(reap_reads(4), "reads");
	}
	begin_waiting(&waiter, 1);
	submit_reads(fd, 1);
	pthread_join(waiter.thread, NULL);
	check(waiter.got == 1 && waiter.event[0].obj == &iocb[0] && waiter.event[0].res == BLOCK,
	      "%s, %s: who waits first is woken by a read that is submitted then", way->name,
	      states[used]);
	begin_waiting(&waiter, 4);
	submit_reads(fd, 2);
	sleep_ms(5);
	submit_reads(fd, 2);
	pthread_join(waiter.thread, NULL);
	check(waiter.got == 4, "%s, %s: and by the last of several", way->name, states[used]);
	begin_waiting(&waiter, 3);
	submit_reads(fd, 2);
	submit_reads(buffered, 1);
	pthread_join(waiter.thread, NULL);
	check(waiter.got == 3, "%s, %s: and by one of a buffered file", way->name, states[used]);
	need(pipe(ends) == 0, "pipe");
	begin_waiting(&waiter, 3);
	submit_reads(fd, 2);
	io_prep_poll(&poll, ends[0], POLLIN);
	need(submit(context, &poll) == 1 && write(ends[1], "x", 1) == 1, "poll");
	pthread_join(waiter.thread, NULL);
	check(waiter.got == 3, "%s, %s: and by a poll", way->name, states[used]);
	close(ends[0]);
	close(ends[1]);
	check(io_getevents(context, 0, 1, waiter.event, NULL) == 0,
	      "%s, %s: and no event comes twice", way->name, states[used]);
}

/* Only a poll comes, to a thread that waits in a context that was used for direct I/O. */
static void waiting_for_another_kind(const struct way *way, int fd, int buffered)
{
	struct waiter waiter;

	context = context_for(REQUESTS);
	watch("a thread that waits for another kind");
	submit_reads(fd, 4);
	need(reap_reads(4), "reads");
	begin_waiting(&waiter, 1);
	submit_reads(buffered, 1);
	pthread_join(waiter.thread, NULL);
	check(waiter.got == 1 && waiter.event[0].res == BLOCK,
	      "%s: who waits where direct I/O was done is woken by a read of a buffered file",
	      way->name);
}

static void several_waiters(const struct way *way, int fd)
{
	enum { WAITERS = 6 };
	static struct waiter waiter[WAITERS];
	bool seen[REQUESTS] = { false }, good = true;
	int total = 0;

	context = context_for(REQUESTS);
	watch("several threads that wait");
	for (int i = 0; i < WAITERS; i++)
		begin_waiting(&waiter[i], 1);
	for (int i = 0; i < WAITERS; i++) {
		struct iocb *one = &iocb[i];

		io_prep_pread(one, fd, memory + (size_t)i * BLOCK, BLOCK, (long long)i * BLOCK);
		need(io_submit(context, 1, &one) == 1, "io_submit");
	}
	/* One may get several; then others need one each. */
	for (int i = 0, more = WAITERS; i < WAITERS; i++) {
		while (pthread_tryjoin_np(waiter[i].thread, NULL) == EBUSY) {
			struct iocb *one = &iocb[more];

			sleep_ms(20);
			if (more < REQUESTS &&
			    pthread_tryjoin_np(waiter[i].thread, NULL) == EBUSY) {
				io_prep_pread(one, fd, memory + (size_t)more * BLOCK, BLOCK,
					      (long long)more * BLOCK);
				need(io_submit(context, 1, &one) == 1, "io_submit");
				more++;
			} else {
				break;
			}
		}
		total += waiter[i].got > 0 ? waiter[i].got : 0;
	}
	for (int i = 0; i < WAITERS; i++) {
		for (int j = 0; j < waiter[i].got; j++) {
			long number = waiter[i].event[j].obj - iocb;

			good = number >= 0 && number < REQUESTS && !seen[number] && good;
			seen[number] = true;
		}
		good = waiter[i].got >= 1 && good;
	}
	check(good && total >= WAITERS, "%s: several threads that wait each get events, each once",
	      way->name);
}

/* --- Many submit and many reap. --- */

struct crowd {
	io_context_t context;
	int fd[2]; /* requests go to either in turn */
	int each;
	atomic_long submitted, reaped, sum;
	atomic_bool bad;
};

struct request {
	struct iocb iocb;
	long number;
	char *memory;
};

enum { SUBMITTERS = 3, REAPERS = 3 };

static void *submitter(void *argument)
{
	struct crowd *crowd = argument;

	for (int i = 0; i < crowd->each; i++) {
		struct request *request = calloc(1, sizeof(*request));
		struct iocb *one = &request->iocb;
		int got;

		request->memory = buffer(BLOCK);
		request->number = atomic_fetch_add(&crowd->submitted, 1);
		io_prep_pread(one, crowd->fd[i % 2], request->memory, BLOCK,
			      (request->number % REQUESTS) * BLOCK);
		one->data = request;
		while ((got = io_submit(crowd->context, 1, &one)) == -EAGAIN)
			sched_yield();
		if (got != 1)
			atomic_store(&crowd->bad, true);
	}
	return NULL;
}

static void *reaper(void *argument)
{
	struct crowd *crowd = argument;
	long all = (long)crowd->each * SUBMITTERS;

	while (atomic_load(&crowd->reaped) < all) {
		struct io_event event[8];
		int got = io_getevents(crowd->context, 1, 8, event,
				       &(struct timespec){ 0, 10000000 });

		if (got < 0)
			atomic_store(&crowd->bad, true);
		for (int i = 0; i < got; i++) {
			struct request *request = event[i].data;

			if (event[i].obj != &request->iocb || event[i].res != BLOCK ||
			    !holds_at(request->memory, BLOCK,
				      (uint64_t)(request->number % REQUESTS) * BLOCK, 1))
				atomic_store(&crowd->bad, true);
			atomic_fetch_add(&crowd->sum, request->number);
			free(request->memory);
			free(request);
		}
		if (got > 0)
			atomic_fetch_add(&crowd->reaped, got);
	}
	return NULL;
}

static void crowds(const char *name, int fd, int other)
{
	struct crowd crowd = { .context = context_for(64), .fd = { fd, other }, .each = 150 };
	pthread_t thread[SUBMITTERS + REAPERS];
	long all = (long)crowd.each * SUBMITTERS;

	watch(name);
	for (int i = 0; i < SUBMITTERS + REAPERS; i++)
		thread[i] = start(i < SUBMITTERS ? submitter : reaper, &crowd);
	for (int i = 0; i < SUBMITTERS + REAPERS; i++)
		pthread_join(thread[i], NULL);
	check(!atomic_load(&crowd.bad) && atomic_load(&crowd.reaped) == all &&
		      atomic_load(&crowd.sum) == all * (all - 1) / 2,
	      "%s: three threads submit and three reap: each event once, all data right", name);
}

/* --- Threads that come and go. --- */

static int job_fd;

static void *submit_and_end(void *unused)
{
	submit_reads(job_fd, REQUESTS);
	return unused;
}

static void *make_context(void *unused)
{
	context = context_for(REQUESTS);
	return unused;
}

static void *use_own_context(void *result)
{
	io_context_t own = context_for(16);
	char *block = buffer(16 * (size_t)BLOCK);
	struct iocb own_iocb[16], *list[16];
	struct io_event event[16];
	bool good = true;

	for (int round = 0; round < 20; round++) {
		memset(block, 0xee, 16 * (size_t)BLOCK);
		for (int i = 0; i < 16; i++) {
			io_prep_pread(&own_iocb[i], job_fd, block + (size_t)i * BLOCK, BLOCK,
				      (long long)i * BLOCK);
			list[i] = &own_iocb[i];
		}
		good = io_submit(own, 16, list) == 16 && reap(own, 16, event) == 16 &&
		       holds_at(block, 16 * (size_t)BLOCK, 0, 1) && good;
	}
	io_destroy(own);
	free(block);
	*(bool *)result = good;
	return NULL;
}

static void coming_and_going(const struct way *way, int fd)
{
	pthread_t thread[4];
	bool good = true, result[4];

	job_fd = fd;
	watch("threads that come and go");
	pthread_join(start(make_context, NULL), NULL);
	submit_reads(fd, REQUESTS);
	check(reap_reads(REQUESTS), "%s: a context made by a thread that is gone", way->name);
	for (int round = 0; round < 5; round++) {
		pthread_join(start(submit_and_end, NULL), NULL);
		good = reap_reads(REQUESTS) && good;
	}
	check(good, "%s: requests of threads that are gone", way->name);
	for (int i = 0; i < 4; i++)
		thread[i] = start(use_own_context, &result[i]);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		good = result[i] && good;
	}
	check(good, "%s: four threads with a context each", way->name);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer((size_t)REQUESTS * BLOCK);
	if (argc == 4) {
		int number = atoi(argv[3]);

		hand_over(number / 8, number & 1, number & 2, number & 4);
	}
	for (int number = 0; number < 8 * MAKERS; number++)
		in_own_process(argv, number);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("ways", (size_t)REQUESTS * BLOCK, 1, way->flags);
		int buffered = open_file("ways", O_RDONLY);
		char name[80];

		for (int used = 0; used < 3; used++)
			waiting_first(way, fd, buffered, used);
		waiting_for_another_kind(way, fd, buffered);
		several_waiters(way, fd);
		crowds(way->name, fd, fd);
		snprintf(name, sizeof(name), "%s and buffered", way->name);
		crowds(name, fd, buffered);
		coming_and_going(way, fd);
		close(fd);
		close(buffered);
	}
	return check_end();
}
