/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * io_cancel(): of transfers, which the kernel cannot cancel, and of polls, which it can.
 */
#include "behaviour.h"

#define BLOCK 4096

static char *memory;

static void transfers(const struct way *way, io_context_t context, int fd)
{
	struct io_event event, untouched_event;
	struct iocb iocb, copy;

	memset(&event, 0x55, sizeof(event));
	untouched_event = event;
	io_prep_pread(&iocb, fd, memory, BLOCK, BLOCK);
	watch("cancel");
	gives("cancel a request that was never submitted", io_cancel(context, &iocb, &event));
	gives("cancel NULL", io_cancel(context, NULL, &event));
	need(submit(context, &iocb) == 1, "io_submit");
	/* It may be in flight, or done. */
	gives("cancel a read", io_cancel(context, &iocb, &event));
	gives("cancel a read, into NULL", io_cancel(context, &iocb, NULL));
	copy = iocb;
	gives("cancel a copy of the request", io_cancel(context, &copy, &event));
	iocb.key = 77;
	gives("cancel with another key", io_cancel(context, &iocb, &event));
	check(!memcmp(&event, &untouched_event, sizeof(event)), "%s: no event is stored",
	      way->name);
	check(reap(context, 1, &event) == 1 && event.obj == &iocb && event.res == BLOCK &&
		      holds_at(memory, BLOCK, BLOCK, 1),
	      "%s: a read that cannot be cancelled ends as if it had not been tried", way->name);
	gives("cancel a read whose event was fetched", io_cancel(context, &iocb, &event));
}

/* Large reads, of which some surely are in flight. */
static void in_flight(const struct way *way, io_context_t context, int fd)
{
	enum { READS = 16 };
	struct iocb iocb[READS], *list[READS];
	struct io_event event[READS];
	char *block = buffer(READS * MIB);
	bool good = true;

	watch("cancel in flight");
	for (int i = 0; i < READS; i++) {
		io_prep_pread(&iocb[i], fd, block + (size_t)i * MIB, MIB, i * (long long)MIB);
		list[i] = &iocb[i];
	}
	need(io_submit(context, READS, list) == READS, "io_submit");
	for (int i = READS - 1; i >= 0; i--)
		good = io_cancel(context, &iocb[i], &event[0]) == -EINVAL && good;
	check(good, "%s: reads in flight cannot be cancelled", way->name);
	good = reap(context, READS, event) == READS;
	for (int i = 0; i < READS; i++)
		good = event[i].res == MIB && good;
	check(good && holds_at(block, READS * MIB, 0, 1), "%s: and end as they should", way->name);
	free(block);
}

static void polls(const struct way *way, io_context_t context, int fd)
{
	struct io_event event, none;
	struct iocb iocb, other;
	int ends[2];

	watch("cancel a poll");
	need(pipe(ends) == 0, "pipe");
	memset(&event, 0x55, sizeof(event));
	none = event;
	io_prep_poll(&iocb, ends[0], POLLIN);
	iocb.data = &ends;
	need(submit(context, &iocb) == 1, "io_submit");
	io_prep_pread(&other, fd, memory, BLOCK, 0);
	need(submit(context, &other) == 1 && reap(context, 1, &none) == 1, "a read");
	none = event;
	iocb.key = 5;
	gives("cancel a poll with another key", io_cancel(context, &iocb, &event));
	iocb.key = 0;
	gives("cancel a poll", io_cancel(context, &iocb, &event));
	check(!memcmp(&event, &none, sizeof(event)), "%s: the event does not come from io_cancel()",
	      way->name);
	check(reap(context, 1, &event) == 1 && event.obj == &iocb && event.data == &ends,
	      "%s: but as others do", way->name);
	gives("the cancelled poll", (long)event.res);
	gives("cancel a poll twice", io_cancel(context, &iocb, &event));
	close(ends[0]);
	close(ends[1]);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer(BLOCK);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("cancel", 16 * MIB, 1, way->flags);
		io_context_t context = context_for(32);

		gives("cancel in an unused context",
		      io_cancel(context, &(struct iocb){ 0 }, &(struct io_event){ 0 }));
		transfers(way, context, fd);
		in_flight(way, context, fd);
		polls(way, context, fd);
		transfers(way, context, fd);
		in_flight(way, context, fd);
		close(fd);
	}
	return check_end();
}
