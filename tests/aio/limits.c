/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * EAGAIN: of io_submit() when a context is full, and of io_setup() at the limit of the system
 * (/proc/sys/fs/aio-max-nr).
 */
#include "behaviour.h"

#define BLOCK 4096

enum { MOST = 8192 };

static char *memory;
static struct iocb iocb[MOST];

/*
 * Fills a context of this many events with requests, batch by batch. How full it gets is the
 * kernel's business (it rounds up); that it gets full, and then EAGAIN comes, is not.
 */
static void full(const struct way *way, int fd, int events, int batch)
{
	io_context_t context = context_for(events);
	struct io_event *event = calloc(MOST, sizeof(*event));
	struct iocb *list[MOST];
	int taken = 0, got, count;
	bool good;

	watch("full");
	for (int i = 0; i < MOST; i++) {
		io_prep_pread(&iocb[i], fd, memory + (size_t)(i % 16) * BLOCK, BLOCK,
			      (long long)(i % 16) * BLOCK);
		list[i] = &iocb[i];
	}
	do {
		count = batch < MOST - taken ? batch : MOST - taken;
		got = io_submit(context, count, list + taken);
		taken += got > 0 ? got : 0;
	} while (got == count && taken < MOST);
	check(taken >= events && taken < MOST,
	      "%s: a context for %d has room for as many, in batches of %d, and gets full",
	      way->name, events, batch);
	got = io_submit(context, 1, list + taken);
	check(got == -EAGAIN, "%s: a full context (%d, %d) answers EAGAIN", way->name, events,
	      batch);
	/* A request that is refused anyway. */
	list[MOST - 1] = NULL;
	got = io_submit(context, 1, list + MOST - 1);
	say("%s, no request to a full context: %d\n", way->name, got);
	gives("nothing to a full context", io_submit(context, 0, list));
	good = reap(context, taken, event) == taken;
	for (int i = 0; i < taken; i++)
		good = event[i].res == BLOCK && good;
	check(good && io_getevents(context, 0, MOST, event, NULL) == 0,
	      "%s: all that were taken (%d, %d) are served, once", way->name, events, batch);
	good = true;
	for (int round = 0; round < 3; round++) {
		count = io_submit(context, events, list);
		good = count == events && reap(context, count, event) == count && good;
	}
	check(good, "%s: and then there is room again (%d, %d)", way->name, events, batch);
	free(event);
}

/* A full context, from which some are taken: as many can be submitted again. */
static void nearly_full(const struct way *way, int fd)
{
	io_context_t context = context_for(16);
	struct iocb *list[MOST];
	struct io_event event[64];
	int taken = 0, got, total;
	bool good = true;

	watch("nearly full");
	for (int i = 0; i < MOST; i++) {
		io_prep_pread(&iocb[i], fd, memory + (size_t)(i % 16) * BLOCK, BLOCK,
			      (long long)(i % 16) * BLOCK);
		list[i] = &iocb[i];
	}
	while (taken < MOST && io_submit(context, 1, list + taken) == 1)
		taken++;
	for (total = taken; total < 2000 && good;) {
		good = reap(context, 16, event) == 16;
		taken -= 16;
		/* The kernel keeps places in stock, by processor, so it may not see all of them. */
		while (total < MOST && (got = io_submit(context, 1, list + total)) == 1) {
			taken++;
			total++;
		}
		good = got == -EAGAIN && taken >= 16 && good;
	}
	check(good && total >= 2000, "%s: a context that is always full goes on", way->name);
	while (taken > 0 && (got = io_getevents(context, 1, 64, event, NULL)) > 0)
		taken -= got;
	check(taken == 0, "%s: and every event comes", way->name);
}

/* Contexts until the system has no more; other processes may be using some, and give some back. */
static void system_limit(const struct way *way, int fd)
{
	enum { CONTEXTS = 1024, EVENTS = 8192 };
	static io_context_t context[CONTEXTS];
	FILE *file = fopen("/proc/sys/fs/aio-max-nr", "re");
	unsigned long most = 0;
	struct iocb one;
	int made = 0, got = 0;

	watch("aio-max-nr");
	need(file && fscanf(file, "%lu", &most) == 1, "aio-max-nr");
	fclose(file);
	if (most > (unsigned long)CONTEXTS * EVENTS / 2) {
		say("# aio-max-nr is %lu: not tried\n", most);
		return;
	}
	while (made < CONTEXTS && (got = io_setup(EVENTS, &context[made])) == 0)
		made++;
	check(got == -EAGAIN && context[made] == NULL, "%s: io_setup at aio-max-nr: EAGAIN",
	      way->name);
	check((unsigned long)made <= most / EVENTS, "%s: and not later than without us", way->name);
	/* Others may have been faster. */
	io_prep_pread(&one, fd, memory, BLOCK, BLOCK);
	check(made == 0 || (submit(context[0], &one) == 1 &&
			    reap(context[0], 1, &(struct io_event){ 0 }) == 1 &&
			    holds_at(memory, BLOCK, BLOCK, 1)),
	      "%s: contexts that were made work", way->name);
	while (made > 0)
		io_destroy(context[--made]);
	context[0] = NULL;
	for (int tries = 0; tries < 100 && (got = io_setup(EVENTS, &context[0])) == -EAGAIN;
	     tries++)
		sleep_ms(5); /* the kernel counts down later */
	check(got == 0, "%s: and when they are gone one can be made again", way->name);
	io_destroy(context[0]);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer(16 * (size_t)BLOCK);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("limits", 16 * (size_t)BLOCK, 1, way->flags);

		full(way, fd, 1, 1);
		full(way, fd, 8, 3);
		full(way, fd, 128, 128);
		full(way, fd, 1000, 64);
		nearly_full(way, fd);
		if (way->flags)
			system_limit(way, fd);
		close(fd);
	}
	return check_end();
}
