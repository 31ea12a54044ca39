/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests that stay in flight until they are let go: a control group lets no byte of a device
 * through. DIRECTORY is on that device. In the environment are HELD_GROUP, the directory of the group,
 * and HELD_DEVICE, the device's number as MAJOR:MINOR.
 */
#include <sys/epoll.h>
#include <time.h>

#include "behaviour.h"
#include "pinshim.h"

enum { REQUESTS = 8, BLOCK = 4096 };

static struct iocb iocb[REQUESTS];
static char *memory;
static int held;  /* a file on the device */
static int other; /* one on memory, with the same content */

/* Between processes. */
static struct shared {
	atomic_bool released;
	atomic_bool by_child; /* of release_later() */
} * shared;

static void limit(const char *bytes)
{
	static const char *const directions[] = { "read", "write" };

	for (int i = 0; i < 2; i++) {
		char path[PATH_MAX], text[64];
		int fd;

		snprintf(path, sizeof(path), "%s/blkio.throttle.%s_bps_device",
			 getenv("HELD_GROUP"), directions[i]);
		snprintf(text, sizeof(text), "%s %s", getenv("HELD_DEVICE"), bytes);
		fd = open_file(path, O_WRONLY);
		need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "the control group");
		close(fd);
	}
}

static void hold(void)
{
	atomic_store(&shared->released, false);
	atomic_store(&shared->by_child, false);
	limit("1");
}

static void release(void)
{
	atomic_store(&shared->released, true);
	limit("0");
}

/* For calls that wait. */
static pid_t release_later(void)
{
	pid_t pid = fork_watched();

	if (pid == 0) {
		sleep_ms(150);
		atomic_store(&shared->by_child, true);
		release();
		_exit(0);
	}
	return pid;
}

static void submit_reads(io_context_t context, int fd, int count)
{
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	need(submit_blocks(context, fd, iocb, memory, BLOCK, count, -1) == count, "io_submit");
}

static bool reap_reads(io_context_t context, int count)
{
	struct io_event event[REQUESTS];
	bool good = reap(context, count, event) == count;

	for (int i = 0; i < count && good; i++)
		good = event[i].res == BLOCK;
	return good && holds_at(memory, (size_t)count * BLOCK, 0, 1);
}

static io_context_t used_context(void)
{
	io_context_t context = context_for(REQUESTS);

	submit_reads(context, held, 2);
	need(reap_reads(context, 2), "reads");
	return context;
}

static void waiting(void)
{
	io_context_t context = used_context();
	struct io_event event[REQUESTS];

	watch("waiting for what is held");
	hold();
	submit_reads(context, held, 2);
	gives("at least 1 of 8, 20 ms",
	      io_getevents(context, 1, 8, event, &(struct timespec){ 0, 20000000 }));
	gives("at least 1 of 8, no time",
	      io_getevents(context, 1, 8, event, &(struct timespec){ 0 }));
	gives("at least 0 of 8", io_getevents(context, 0, 8, event, NULL));
	gives("pgetevents, 1 ms",
	      io_pgetevents(context, 1, 8, event, &(struct timespec){ 0, 1000000 }, NULL));
	gives("cancel", io_cancel(context, &iocb[0], event));
	check(untouched(memory, 2 * (size_t)BLOCK), "what is held is not there");
	release();
	check(reap_reads(context, 2), "and comes when it is let go");
	check(io_getevents(context, 0, 8, event, &(struct timespec){ 0 }) == 0, "once");
}

static atomic_int caught;

static void handler(int number)
{
	(void)number;
	atomic_fetch_add(&caught, 1);
}

static void signalled(void)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec time = { { 0, 20000000 }, { 0, 20000000 } }, never = { 0 };
	io_context_t context = used_context();
	struct io_event event[REQUESTS];
	timer_t timer;
	int got;

	watch("a signal while something is held");
	sigaction(SIGUSR1, &action, NULL);
	hold();
	submit_reads(context, held, 2);
	need(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0, "timer_create");
	timer_settime(timer, 0, &time, NULL);
	got = io_getevents(context, 1, 8, event, NULL);
	timer_settime(timer, 0, &never, NULL);
	check(got == -EINTR && atomic_load(&caught) > 0, "a signal ends a wait for what is held");
	release();
	check(reap_reads(context, 2), "and nothing is lost");
	timer_delete(timer);
}

/* The program waits for something else when a request completes. */
static void interrupted(void)
{
	io_context_t context = used_context();
	int epoll = epoll_create1(EPOLL_CLOEXEC), got;
	struct epoll_event event;
	pid_t pid;

	watch("waiting for something else");
	hold();
	submit_reads(context, held, 2);
	pid = release_later();
	got = epoll_wait(epoll, &event, 1, 300);
	/* Rings that several threads use do, which is why they have to be asked for. */
	check((got == 0 && atomic_load(&shared->released)) ||
		      (may_have_ring("uring") && getenv("BEHAVIOUR_THREADED") && got == -1 &&
		       errno == EINTR),
	      "a completion does not interrupt other calls that wait");
	child_ends(pid);
	check(reap_reads(context, 2), "and is there after them");
	close(epoll);
}

/* A full context. */
static void full(void)
{
	enum { MOST = 4096 };
	io_context_t context = used_context();
	struct iocb *list = calloc(MOST, sizeof(*list)), *one;
	struct io_event *event = calloc(MOST, sizeof(*event));
	char *block = buffer(MIB);
	int taken = 0, got = 1;

	watch("a context full of what is held");
	hold();
	while (taken < MOST) {
		one = &list[taken];
		io_prep_pread(one, held, block + (size_t)(taken % 16) * BLOCK, BLOCK,
			      (long long)(taken % REQUESTS) * BLOCK);
		got = io_submit(context, 1, &one);
		if (got != 1)
			break;
		taken++;
	}
	check(got == -EAGAIN && taken >= REQUESTS, "a context full of what is held answers EAGAIN");
	release();
	check(reap(context, taken, event) == taken, "and all of it comes");
	one = &list[0];
	check(io_submit(context, 1, &one) == 1 && reap(context, 1, event) == 1,
	      "and then there is room");
	free(list);
	free(event);
	free(block);
}

/* Requests that are served before io_submit() returns, beside one that is held. */
static void beside(void)
{
	io_context_t context = used_context();
	struct io_event event[REQUESTS];
	pid_t pid;

	watch("beside what is held");
	hold();
	submit_reads(context, held, 1);
	pid = release_later();
	io_prep_pread(&iocb[1], other, memory + BLOCK, BLOCK, BLOCK);
	need(submit(context, &iocb[1]) == 1, "io_submit");
	check(!atomic_load(&shared->released),
	      "io_submit() for another file does not wait for what is held");
	memset(event, 0, sizeof(event));
	check(io_getevents(context, 1, 8, event, NULL) == 1 && event[0].obj == &iocb[1] &&
		      event[0].res == BLOCK && !atomic_load(&shared->released),
	      "nor does its event");
	check(reap(context, 1, event) == 1 && event[0].obj == &iocb[0] &&
		      holds_at(memory, BLOCK, 0, 1),
	      "which comes later");
	child_ends(pid);
}

/* A thread that is made, or ends, while requests are held. */
static void *let_go_and_reap(void *context)
{
	release();
	return reap_reads(context, 2) ? context : NULL;
}

static void *submit_and_end(void *context)
{
	submit_reads(context, held, 2);
	return NULL;
}

static void threads(void)
{
	io_context_t context = used_context();
	pthread_t thread;
	void *result;
	pid_t pid;

	watch("a thread that is made while something is held");
	hold();
	submit_reads(context, held, 2);
	pid = release_later();
	thread = start(let_go_and_reap, context);
	/* A ring that only its thread can enter is emptied first: a limit of the shim's. */
	check((!getenv("BEHAVIOUR_THREADED") &&
	       (may_have_ring("auto") || may_have_ring("uring"))) ||
		      !atomic_load(&shared->by_child),
	      "pthread_create() does not wait for what is held");
	pthread_join(thread, &result);
	check(result == context, "and the thread gets the events");
	child_ends(pid);
	watch("a thread that ends while something is held");
	hold();
	thread = start(submit_and_end, context);
	pthread_join(thread, NULL);
	release();
	check(reap_reads(context, 2), "what a thread submitted comes after it has ended");
}

static void ended(void)
{
	io_context_t context = used_context();
	bool good;
	pid_t pid;

	watch("io_destroy while something is held");
	hold();
	submit_reads(context, held, REQUESTS);
	pid = release_later();
	gives("io_destroy", io_destroy(context));
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	child_ends(pid);
	good = true;
	for (int i = 0; i < 30 && good; i++) {
		good = untouched(memory, (size_t)REQUESTS * BLOCK);
		sleep_ms(1);
	}
	check(good,
	      "memory is not written after io_destroy(), which was called while requests were held");
}

static void forked(void)
{
	io_context_t context = used_context();
	pid_t pid;

	watch("fork while something is held");
	hold();
	submit_reads(context, held, 2);
	pid = fork_watched();
	if (pid == 0) {
		io_context_t own = context_for(REQUESTS);

		submit_reads(own, other, 2);
		exit(reap_reads(own, 2) ? 0 : 1);
	}
	check(child_ends(pid) == 0 && !atomic_load(&shared->released),
	      "a child ends without waiting for what is its parent's");
	release();
	check(reap_reads(context, 2), "which gets it");
}

static void closed(void)
{
	io_context_t context = used_context();
	int fd;

	watch("a descriptor that is closed while requests are held");
	fd = open_file("held", O_RDONLY | O_DIRECT);
	hold();
	submit_reads(context, fd, 2);
	close(fd);
	release();
	check(reap_reads(context, 2), "a descriptor can be closed while its requests are held");
}

/* Processes that end while writes are held: the writes are in the file when they are let go. */
static void ends(void)
{
	static const char *const names[] = { "exit", "_exit", "SIGKILL", "exec" };

	for (int i = 0; i < 4; i++) {
		pid_t pid, releaser;
		int submitted[2], fd;
		char byte;

		watch(names[i]);
		make_file("ends", (size_t)REQUESTS * BLOCK, 1);
		need(pipe(submitted) == 0, "pipe");
		fd = open_file("ends", O_RDWR | O_DIRECT);
		need(fsync(fd) == 0, "fsync");
		hold();
		pid = fork_watched();
		if (pid == 0) {
			io_context_t context = context_for(REQUESTS);
			struct iocb *list[REQUESTS];

			fill_at(memory, (size_t)REQUESTS * BLOCK, 0, 20U + (unsigned)i);
			for (int j = 0; j < REQUESTS; j++) {
				io_prep_pwrite(&iocb[j], fd, memory + (size_t)j * BLOCK, BLOCK,
					       (long long)j * BLOCK);
				list[j] = &iocb[j];
			}
			need(io_submit(context, REQUESTS, list) == REQUESTS, "io_submit");
			need(write(submitted[1], "x", 1) == 1, "write");
			if (i == 0)
				exit(0);
			if (i == 1)
				_exit(0);
			if (i == 3)
				execlp("true", "true", (char *)NULL);
			pause();
		}
		need(read(submitted[0], &byte, 1) == 1, "read");
		if (i == 2)
			kill(pid, SIGKILL);
		releaser = release_later();
		check(child_ends(pid) == (i == 2 ? -SIGKILL : 0),
		      "%s with writes held ends as it should", names[i]);
		child_ends(releaser);
		/* The kernel may be at it still. */
		for (int j = 0;
		     j < 100 && !file_holds("ends", (size_t)REQUESTS * BLOCK, 0, 20U + (unsigned)i);
		     j++)
			sleep_ms(10);
		check(file_holds("ends", (size_t)REQUESTS * BLOCK, 0, 20U + (unsigned)i),
		      "%s with writes held: they are in the file", names[i]);
		close(submitted[0]);
		close(submitted[1]);
		close(fd);
	}
}

static char *block_new(void)
{
	char *block = pinshim_present() ? pinshim_alloc(3 * MIB, 4096) : buffer(3 * MIB);

	need(block != NULL, "pinshim_alloc");
	return block;
}

static void block_free(char *block)
{
	if (pinshim_present())
		pinshim_free(block);
	else
		free(block);
	pinshim_trim(0);
}

/* Writes the block while reads are held, that were submitted before it was there, and reads it back. */
static bool there_and_back(io_context_t context, char *block, unsigned seed)
{
	struct io_event event[3];
	struct iocb one;
	bool good;

	fill_at(block, BLOCK, 0, seed);
	io_prep_pwrite(&one, held, block, BLOCK, 16 * BLOCK);
	need(submit(context, &one) == 1, "io_submit");
	release();
	good = reap(context, 3, event) == 3 && holds_at(memory, 2 * (size_t)BLOCK, 0, 1);
	memset(block, 0x11, BLOCK);
	io_prep_pread(&one, held, block, BLOCK, 16 * BLOCK);
	need(submit(context, &one) == 1, "io_submit");
	return reap(context, 1, event) == 1 && holds_at(block, BLOCK, 0, seed) && good;
}

/* Memory that is unpinned and pinned again while a request on other memory is held. */
static void stale(void)
{
	io_context_t context = used_context();
	char *block = block_new();
	bool good = true;

	watch("memory that comes and goes while something is held");
	for (unsigned i = 0; i < 8; i++) {
		hold();
		submit_reads(context, held, 2);
		if (i % 2) {
			block_free(block);
			block = block_new();
		}
		good = there_and_back(context, block, 30 + i) && good;
	}
	block_free(block);
	check(good, "memory that comes and goes while requests on other memory are held");
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	need(getenv("HELD_GROUP") && getenv("HELD_DEVICE"), "environment");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	need(shared != MAP_FAILED, "mmap");
	memory = buffer((size_t)REQUESTS * BLOCK);
	held = file_with("held", 32 * (size_t)BLOCK, 1, O_DIRECT);
	need(fsync(held) == 0, "fsync");
	other = memfd_create("other", 0);
	fill_at(memory, (size_t)REQUESTS * BLOCK, 0, 1);
	need(other >= 0 && write(other, memory, (size_t)REQUESTS * BLOCK) > 0, "memfd");
	waiting();
	signalled();
	interrupted();
	full();
	ended();
	forked();
	closed();
	ends();
	stale();
	beside();
	threads();
	return check_end();
}
