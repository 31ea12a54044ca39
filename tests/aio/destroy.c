/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts that end with requests in flight: io_destroy() returns when the kernel is done with the
 * program's memory, what was to be written is written, and nobody waits for ever.
 */
#include "behaviour.h"

enum { REQUESTS = 24, BLOCK = 512 * 1024 };

static struct iocb iocb[REQUESTS];
static char *memory;

static void submit_all(io_context_t context, int fd, bool write, unsigned seed)
{
	struct iocb *list[REQUESTS];

	for (int i = 0; i < REQUESTS; i++) {
		char *at = memory + (size_t)i * BLOCK;

		if (write)
			fill_at(at, BLOCK, (uint64_t)i * BLOCK, seed);
		(write ? io_prep_pwrite : io_prep_pread)(&iocb[i], fd, at, BLOCK,
							 (long long)i * BLOCK);
		list[i] = &iocb[i];
	}
	need(io_submit(context, REQUESTS, list) == REQUESTS, "io_submit");
}

static void reading(const struct way *way, int fd, bool reaped)
{
	io_context_t context = context_for(REQUESTS);
	struct io_event event[REQUESTS];
	bool good = true;

	watch("io_destroy with reads in flight");
	memset(memory, 0x11, (size_t)REQUESTS * BLOCK);
	submit_all(context, fd, false, 0);
	if (reaped)
		reap(context, REQUESTS / 2, event);
	good = io_destroy(context) == 0;
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	for (int i = 0; i < 20 && good; i++) {
		good = untouched(memory, (size_t)REQUESTS * BLOCK);
		sleep_ms(1);
	}
	check(good, "%s: memory of %s reads in flight is not written after io_destroy()", way->name,
	      reaped ? "some" : "many");
	/* Nor when it is no longer there. */
	submit_all(context = context_for(REQUESTS), fd, false, 0);
	good = io_destroy(context) == 0 && munmap(memory, (size_t)REQUESTS * BLOCK) == 0;
	check(good && mmap(memory, (size_t)REQUESTS * BLOCK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == memory,
	      "%s: memory of reads in flight can be unmapped after io_destroy()", way->name);
}

static void writing(const struct way *way, const char *name, int fd, unsigned seed)
{
	io_context_t context = context_for(REQUESTS);

	watch("io_destroy with writes in flight");
	submit_all(context, fd, true, seed);
	check(io_destroy(context) == 0, "%s: io_destroy() with writes in flight succeeds",
	      way->name);
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	check(file_holds(name, (size_t)REQUESTS * BLOCK, 0, seed),
	      "%s: writes in flight at io_destroy() are done", way->name);
}

/* One thread waits for events, another ends the context. */
struct waiter {
	io_context_t context;
	atomic_int state; /* the thread's id, when it is about to wait */
	int result;
};

static void *wait_for_events(void *argument)
{
	struct waiter *waiter = argument;
	struct io_event event[4];

	atomic_store(&waiter->state, gettid());
	waiter->result = io_getevents(waiter->context, 1, 4, event, NULL);
	return NULL;
}

/*
 * Waits until the thread sleeps: libaio would look at a context that is gone if the thread came late.
 */
static void wait_until_asleep(struct waiter *waiter)
{
	char path[64], line[128] = "";
	int thread;

	while (!(thread = atomic_load(&waiter->state)))
		sched_yield();
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	while (!strstr(line, ") S")) {
		int fd = open_file(path, O_RDONLY);
		ssize_t got = read(fd, line, sizeof(line) - 1);

		line[got > 0 ? got : 0] = '\0';
		close(fd);
		sched_yield();
	}
}

static void with_waiter(const struct way *way, int fd, bool used)
{
	struct waiter waiter = { .context = context_for(8) };
	struct iocb one;
	pthread_t thread;

	watch("io_destroy while another thread waits");
	if (used) {
		io_prep_pread(&one, fd, memory, 4096, 0);
		need(submit(waiter.context, &one) == 1 &&
			     reap(waiter.context, 1, &(struct io_event){ 0 }) == 1,
		     "a read");
	}
	thread = start(wait_for_events, &waiter);
	wait_until_asleep(&waiter);
	gives("io_destroy while another thread waits", io_destroy(waiter.context));
	pthread_join(thread, NULL);
	say("%s, %s: the thread that waited got %d\n", way->name, used ? "used" : "unused",
	    waiter.result);
}

/* Again and again, with many that wait, some of them woken by what comes just before the end. */
static void with_waiters(const struct way *way, int fd)
{
	enum { ROUNDS = 10, WAITERS = 8 };
	bool good = true;

	watch("io_destroy while other threads wait");
	for (int round = 0; round < ROUNDS; round++) {
		io_context_t context = context_for(8);
		struct waiter waiter[WAITERS];
		pthread_t thread[WAITERS];
		struct iocb one[4];
		int woken = 0;

		for (int i = 0; i < WAITERS; i++) {
			waiter[i] = (struct waiter){ .context = context };
			thread[i] = start(wait_for_events, &waiter[i]);
			wait_until_asleep(&waiter[i]);
		}
		for (int i = 0; i < round % 4; i++) {
			io_prep_pread(&one[i], fd, memory, 4096, 4096LL * i);
			good = submit(context, &one[i]) == 1 && good;
		}
		good = io_destroy(context) == 0 && good;
		for (int i = 0; i < WAITERS; i++) {
			pthread_join(thread[i], NULL);
			good = (waiter[i].result == -EINVAL || waiter[i].result > 0) && good;
			woken += waiter[i].result > 0 ? waiter[i].result : 0;
		}
		good = woken <= round % 4 && good;
	}
	check(good, "%s: threads that wait for a context that ends get EINVAL, or an event",
	      way->name);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = mmap(NULL, (size_t)REQUESTS * BLOCK, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(memory != MAP_FAILED, "mmap");
	FOR_EACH_WAY(way)
	{
		int fd = file_with("destroy", (size_t)REQUESTS * BLOCK, 1, way->flags);

		reading(way, fd, false);
		reading(way, fd, true);
		writing(way, "destroy", fd, 2);
		close(fd);
		/* In a hole, where a write cannot be begun without waiting. */
		unlink("hole");
		fd = open_file("hole", O_RDWR | O_CREAT | way->flags);
		need(ftruncate(fd, (off_t)REQUESTS * BLOCK) == 0, "ftruncate");
		writing(way, "hole", fd, 3);
		close(fd);
	}
	/* The memory is the heap's from here on, if that serves malloc. */
	munmap(memory, (size_t)REQUESTS * BLOCK);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("destroy", (size_t)REQUESTS * BLOCK, 1, way->flags);

		memory = buffer((size_t)REQUESTS * BLOCK);
		writing(way, "destroy", fd, 4);
		with_waiter(way, fd, false);
		with_waiter(way, fd, true);
		with_waiters(way, fd);
		free(memory);
		close(fd);
	}
	return check_end();
}
