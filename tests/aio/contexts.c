/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Making and ending contexts, and what is none.
 */
#include <sys/resource.h>

#include "behaviour.h"

#define BLOCK 4096

static char *memory;

static void making(void)
{
	io_context_t context = NULL;

	watch("io_setup");
	gives("io_setup of 0", io_setup(0, &context));
	say("and the context is %s\n", context ? "set" : "NULL");
	gives("io_setup of -1", io_setup(-1, &context));
	gives("io_setup of INT_MIN", io_setup(INT_MIN, &context));
	gives("io_setup of INT_MAX", io_setup(INT_MAX, &context));
	gives("io_setup of 100 million", io_setup(100000000, &context));
	say("and the context is %s\n", context ? "set" : "NULL");
	gives("io_setup into NULL", io_setup(8, NULL));
	context = (io_context_t)8;
	gives("io_setup into a context that is not NULL", io_setup(8, &context));
	gives("io_setup of 0 into a context that is not NULL", io_setup(0, &context));
	check(context == (io_context_t)8, "io_setup that fails leaves the context alone");
	context = (io_context_t)8;
	gives("io_queue_init into a context that is not NULL", io_queue_init(8, &context));
	io_queue_release(context);
	context = NULL;
	gives("io_queue_init of 0", io_queue_init(0, &context));
	gives("io_queue_init of -1", io_queue_init(-1, &context));
	gives("io_destroy of NULL", io_destroy(NULL));
	gives("io_queue_release of NULL", io_queue_release(NULL));
}

/* Everything that takes a context, with one that is none. memory is where the request reads to. */
static void none(const char *what, io_context_t context, int fd)
{
	struct io_event event;
	struct iocb iocb, *list[1] = { &iocb };
	char name[160];

	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
#define NONE(call)                                                                                 \
	(snprintf(name, sizeof(name), "%s: " #call, what), watch(name), gives(name, call))
	NONE(io_submit(context, 1, list));
	NONE(io_submit(context, 0, list));
	NONE(io_submit(context, -1, list));
	NONE(io_getevents(context, 0, 1, &event, NULL));
	NONE(io_getevents(context, 1, 1, &event, NULL));
	NONE(io_getevents(context, 2, 1, &event, NULL));
	NONE(io_getevents(context, 1, 1, &event, &(struct timespec){ 0 }));
	NONE(io_getevents(context, 1, 1, &event, &(struct timespec){ 1, 0 }));
	NONE(io_pgetevents(context, 1, 1, &event, NULL, NULL));
	NONE(io_cancel(context, &iocb, &event));
	NONE(io_destroy(context));
	NONE(io_queue_release(context));
#undef NONE
}

/* The addresses of contexts that are gone are made to be something, for libaio looks there itself. */
static void keep_mapped(io_context_t context)
{
	void *page = mmap(context, BLOCK, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	need(page == (void *)context, "mmap");
}

static void no_contexts(const struct way *way, int fd)
{
	io_context_t context = context_for(8);
	struct iocb iocb;
	char what[80];
	void *page;

	snprintf(what, sizeof(what), "%s, NULL", way->name);
	none(what, NULL, fd);
	page = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(page != MAP_FAILED, "mmap");
	snprintf(what, sizeof(what), "%s, memory of the program", way->name);
	none(what, page, fd);
	munmap(page, BLOCK);
	snprintf(what, sizeof(what), "%s, inside a context", way->name);
	none(what, (io_context_t)((char *)context + 64), fd);

	snprintf(what, sizeof(what), "%s, destroyed unused", way->name);
	gives("io_destroy", io_destroy(context));
	keep_mapped(context);
	none(what, context, fd);
	munmap(context, BLOCK);

	context = context_for(8);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	need(submit(context, &iocb) == 1 && reap(context, 1, &(struct io_event){ 0 }) == 1,
	     "a read");
	memset(memory, 0xee, BLOCK);
	snprintf(what, sizeof(what), "%s, destroyed", way->name);
	gives("io_destroy", io_destroy(context));
	keep_mapped(context);
	none(what, context, fd);
	munmap(context, BLOCK);
	check(untouched(memory, BLOCK), "%s: no request to what is no context is done", way->name);
}

static int entries(const char *directory)
{
	DIR *list = opendir(directory);
	int count = 0;

	while (list && readdir(list))
		count++;
	if (list)
		closedir(list);
	return count;
}

static int mappings(void)
{
	char text[4096];
	int fd = open_file("/proc/self/maps", O_RDONLY), count = 0;
	ssize_t got;

	while ((got = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < got; i++)
			count += text[i] == '\n';
	close(fd);
	return count;
}

/* One after another: nothing may be left of any. The kernel takes its time to end one (30 ms). */
static void again_and_again(const struct way *way, int fd)
{
	int descriptors = 0, maps = 0;
	struct io_event event;
	struct iocb iocb;
	bool good = true;

	watch("again and again");
	for (int round = 0; round < 12; round++) {
		io_context_t context = context_for(round * 5 + 1);

		io_prep_pread(&iocb, fd, memory, BLOCK, (long long)(round % 16) * BLOCK);
		good = submit(context, &iocb) == 1 && good;
		if (round % 2) /* else it is in flight when the context ends */
			good = reap(context, 1, &event) == 1 && event.res == BLOCK &&
			       holds_at(memory, BLOCK, (uint64_t)(round % 16) * BLOCK, 1) && good;
		good = io_destroy(context) == 0 && good;
		if (round == 5) {
			descriptors = entries("/proc/self/fd");
			maps = mappings();
		}
	}
	check(good, "%s: a dozen contexts, one after another", way->name);
	check(entries("/proc/self/fd") == descriptors, "%s: leave no descriptor", way->name);
	check(mappings() <= maps + 2, "%s: and no mapping", way->name);
}

/* Many at a time, used in turn, ended in another order. */
static void many_at_a_time(const struct way *way, int fd)
{
	enum { CONTEXTS = 100 };
	io_context_t context[CONTEXTS];
	struct iocb iocb[CONTEXTS];
	char *block = buffer(CONTEXTS * (size_t)BLOCK);
	struct io_event event;
	bool good = true;

	watch("many at a time");
	for (int i = 0; i < CONTEXTS; i++)
		context[i] = context_for(4);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < CONTEXTS; i++) {
			io_prep_pread(&iocb[i], fd, block + (size_t)i * BLOCK, BLOCK,
				      (long long)((i + round) % 16) * BLOCK);
			good = submit(context[i], &iocb[i]) == 1 && good;
		}
		for (int i = CONTEXTS - 1; i >= 0; i--)
			good = reap(context[i], 1, &event) == 1 && event.obj == &iocb[i] &&
			       event.res == BLOCK &&
			       holds_at(block + (size_t)i * BLOCK, BLOCK,
					(uint64_t)((i + round) % 16) * BLOCK, 1) &&
			       good;
	}
	check(good, "%s: a hundred contexts at a time, each with its own events", way->name);
	for (int i = 0; i < 4; i++)
		good = io_destroy(context[i * 7]) == 0 && good;
	for (int i = 1; i < CONTEXTS; i += 7) {
		memset(block, 0xee, BLOCK);
		io_prep_pread(&iocb[i], fd, block, BLOCK, BLOCK);
		good = submit(context[i], &iocb[i]) == 1 && reap(context[i], 1, &event) == 1 &&
		       holds_at(block, BLOCK, BLOCK, 1) && good;
	}
	check(good, "%s: when some have ended the others go on", way->name);
	free(block);
}

/*
 * A program may have few descriptors, and have used them all: contexts need none, as far as it knows.
 */
static void without_descriptors(const struct way *way, int fd)
{
	struct rlimit limit, before;
	io_context_t context;
	struct iocb iocb;
	bool good;
	int last;

	watch("without descriptors");
	getrlimit(RLIMIT_NOFILE, &before);
	limit = before;
	limit.rlim_cur = 64;
	setrlimit(RLIMIT_NOFILE, &limit);
	while (dup(fd) >= 0)
		;
	context = context_for(8);
	io_prep_pread(&iocb, fd, memory, BLOCK, BLOCK);
	good = submit(context, &iocb) == 1 && reap(context, 1, &(struct io_event){ 0 }) == 1 &&
	       holds_at(memory, BLOCK, BLOCK, 1);
	check(good, "%s: a context works where the limit on descriptors is used up", way->name);
	io_destroy(context);
	for (int i = fd + 1; i < 64; i++)
		close(i);
	setrlimit(RLIMIT_NOFILE, &before);
	/* It gets the numbers that it would have without us. */
	context = context_for(8);
	last = dup(fd);
	submit(context, &iocb);
	reap(context, 1, &(struct io_event){ 0 });
	check(last < 64 && dup(fd) == last + 1, "%s: numbers of descriptors are the program's",
	      way->name);
	io_destroy(context);
	close(last);
	close(last + 1);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer(BLOCK);
	making();
	FOR_EACH_WAY(way)
	{
		int fd = file_with("contexts", 16 * (size_t)BLOCK, 1, way->flags);

		no_contexts(way, fd);
		again_and_again(way, fd);
		many_at_a_time(way, fd);
		without_descriptors(way, fd);
		close(fd);
	}
	return check_end();
}
