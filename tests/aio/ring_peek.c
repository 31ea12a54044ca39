/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that read the completions out of the kernel's own ring, to which a context's id points:
 * those that look at its magic number first (fio with userspace_reap), and those that do not (QEMU,
 * which has an eventfd for every request).
 */
#include <sys/eventfd.h>

#include "behaviour.h"

enum { REQUESTS = 32, BLOCK = 4096 };

#define MAGIC 0xa10a10a1u

struct ring {
	unsigned id;
	unsigned nr;
	unsigned head;
	unsigned tail;
	unsigned magic;
	unsigned compatible;
	unsigned incompatible;
	unsigned header_length;
	struct io_event event[];
};

static char *memory;
static struct iocb iocb[REQUESTS];

static bool submit_reads(io_context_t context, int fd, int resfd, int count)
{
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	return submit_blocks(context, fd, iocb, memory, BLOCK, count, resfd) == count;
}

/* Takes up to most events out of the ring. */
static int take(struct ring *ring, int most, struct io_event *event)
{
	unsigned head = ring->head;
	int taken = 0;

	while (taken < most && head != __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE)) {
		event[taken++] = ring->event[head];
		head = (head + 1) % ring->nr;
	}
	__atomic_store_n(&ring->head, head, __ATOMIC_RELEASE);
	return taken;
}

/* As fio does: from the ring if its magic number is right, else from the kernel. */
static int like_fio(io_context_t context, int least, int most, struct io_event *event)
{
	struct ring *ring = (struct ring *)context;
	int have = 0;

	while (have < least) {
		int got = ring->magic == MAGIC ? take(ring, most - have, event + have)
					       : io_getevents(context, least - have, most - have,
							      event + have, NULL);

		if (got < 0)
			return got;
		have += got;
	}
	return have;
}

/* As QEMU does: waits for the eventfd, and takes what is in the ring. */
static int like_qemu(io_context_t context, int resfd, int count, struct io_event *event)
{
	int have = 0;

	while (have < count) {
		uint64_t counted;

		if (read(resfd, &counted, sizeof(counted)) != sizeof(counted))
			return -errno;
		have += take((struct ring *)context, count - have, event + have);
	}
	return have;
}

static bool all_right(int count, const struct io_event *event, int events)
{
	bool good = events == count && holds_at(memory, (size_t)count * BLOCK, 0, 1);
	bool seen[REQUESTS] = { false };

	for (int i = 0; i < events; i++) {
		long number = event[i].obj - iocb;

		if (number < 0 || number >= count || seen[number] || event[i].res != BLOCK)
			return false;
		seen[number] = true;
	}
	return good;
}

int main(int argc, char **argv)
{
	struct io_event event[REQUESTS];

	begin(argc, argv);
	memory = buffer((size_t)REQUESTS * BLOCK);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("ring_peek", (size_t)REQUESTS * BLOCK, 1, way->flags);
		int resfd = eventfd(0, EFD_CLOEXEC);
		io_context_t fio = context_for(REQUESTS), qemu = context_for(REQUESTS), mixed;
		bool good = true;

		check(((struct ring *)qemu)->nr > REQUESTS && ((struct ring *)qemu)->head == 0 &&
			      ((struct ring *)qemu)->tail == 0,
		      "%s: a context's id points to its ring", way->name);
		for (int round = 1; round <= 100; round++) {
			int count = round % REQUESTS + 1;

			watch("like fio");
			good = submit_reads(fio, fd, -1, count) &&
			       all_right(count, event, like_fio(fio, count, REQUESTS, event)) &&
			       good;
			watch("like fio, part by part");
			good = submit_reads(fio, fd, -1, count) &&
			       like_fio(fio, count / 2, count / 2, event) == count / 2 &&
			       all_right(count, event,
					 count / 2 + like_fio(fio, count - count / 2, REQUESTS,
							      event + count / 2)) &&
			       good;
		}
		check(good, "%s: a reader of the ring that looks at the magic number, like fio",
		      way->name);
		good = true;
		for (int round = 1; round <= 100; round++) {
			int count = round % REQUESTS + 1;

			watch("like QEMU");
			good = submit_reads(qemu, fd, resfd, count) &&
			       all_right(count, event, like_qemu(qemu, resfd, count, event)) &&
			       good;
			if (round % 8 == 0) { /* and sometimes with io_getevents() */
				good = submit_reads(qemu, fd, resfd, count) &&
				       all_right(count, event, reap(qemu, count, event)) && good;
				good = read(resfd, &(uint64_t){ 0 }, 8) == 8 && good;
			}
		}
		check(good, "%s: a reader of the ring that does not, but has eventfds, like QEMU",
		      way->name);
		check(io_getevents(qemu, 0, 1, event, NULL) == 0 &&
			      io_getevents(fio, 0, 1, event, NULL) == 0,
		      "%s: what was taken out of the ring does not come again", way->name);

		/* Like fio for a while, then with eventfds. */
		watch("first like fio, then like QEMU");
		mixed = context_for(REQUESTS);
		good = submit_reads(mixed, fd, -1, 8) &&
		       all_right(8, event, like_fio(mixed, 8, REQUESTS, event));
		good = submit_reads(mixed, fd, resfd, 8) &&
		       all_right(8, event, like_qemu(mixed, resfd, 8, event)) && good;
		good = submit_reads(mixed, fd, -1, 8) &&
		       all_right(8, event, like_fio(mixed, 8, REQUESTS, event)) && good;
		check(good, "%s: first like fio, then like QEMU, then like fio", way->name);
		close(resfd);
		close(fd);
	}
	return check_end();
}
