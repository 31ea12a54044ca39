/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose memory is whose after io_submit(): requests and vectors are the program's again at once,
 * and what an event says is what they were.
 */
#include "behaviour.h"

enum { REQUESTS = 32, BLOCK = 8192 };

static void reused(const struct way *way, io_context_t context, int fd, bool vectors, bool freed)
{
	char *memory = buffer((size_t)REQUESTS * BLOCK);
	struct io_event event[REQUESTS];
	struct iocb *iocb[REQUESTS], **list = malloc(sizeof(iocb));
	struct iovec *part[REQUESTS];
	bool good = true, seen[REQUESTS] = { false };

	watch("requests reused");
	for (int i = 0; i < REQUESTS; i++) {
		char *at = memory + (size_t)i * BLOCK;

		iocb[i] = malloc(sizeof(struct iocb));
		part[i] = malloc(2 * sizeof(struct iovec));
		part[i][0] = (struct iovec){ at, 4096 };
		part[i][1] = (struct iovec){ at + 4096, BLOCK - 4096 };
		if (vectors)
			io_prep_preadv(iocb[i], fd, part[i], 2, (long long)i * BLOCK);
		else
			io_prep_pread(iocb[i], fd, at, BLOCK, (long long)i * BLOCK);
		iocb[i]->data = (void *)(uintptr_t)(i * UINT64_C(0x0123456789abcdf) + 1);
		list[i] = iocb[i];
	}
	good = io_submit(context, REQUESTS, list) == REQUESTS;
	for (int i = 0; i < REQUESTS; i++) {
		memset(iocb[i], 0xff, sizeof(struct iocb));
		memset(part[i], 0xff, 2 * sizeof(struct iovec));
		if (freed) {
			free(iocb[i]);
			free(part[i]);
		}
	}
	memset(list, 0xff, sizeof(iocb));
	free(list);
	good = reap(context, REQUESTS, event) == REQUESTS && good;
	for (int i = 0; i < REQUESTS; i++) {
		int number = 0;

		while (number < REQUESTS && event[i].obj != iocb[number])
			number++;
		good = number < REQUESTS && !seen[number] && event[i].res == BLOCK &&
		       event[i].res2 == 0 &&
		       event[i].data ==
			       (void *)(uintptr_t)(number * UINT64_C(0x0123456789abcdf) + 1) &&
		       good;
		if (number < REQUESTS)
			seen[number] = true;
	}
	check(good && holds_at(memory, (size_t)REQUESTS * BLOCK, 0, 1),
	      "%s: requests%s %s right after io_submit(): every event is as it should", way->name,
	      vectors ? " with vectors" : "", freed ? "freed" : "overwritten");
	for (int i = 0; i < REQUESTS && !freed; i++) {
		free(iocb[i]);
		free(part[i]);
	}
	free(memory);
}

/* The same request submitted again while it is in flight, to read something else. */
static void submitted_again(const struct way *way, io_context_t context, int fd)
{
	char *memory = buffer((size_t)REQUESTS * BLOCK);
	struct io_event event[REQUESTS];
	bool seen[REQUESTS] = { false };
	struct iocb iocb;
	bool good = true;

	watch("submitted again");
	for (int i = 0; i < REQUESTS; i++) {
		io_prep_pread(&iocb, fd, memory + (size_t)i * BLOCK, BLOCK, (long long)i * BLOCK);
		iocb.data = (void *)(uintptr_t)i;
		good = submit(context, &iocb) == 1 && good;
	}
	good = reap(context, REQUESTS, event) == REQUESTS && good;
	for (int i = 0; i < REQUESTS; i++) {
		uintptr_t number = (uintptr_t)event[i].data;

		good = event[i].obj == &iocb && number < REQUESTS && !seen[number] && good;
		if (number < REQUESTS)
			seen[number] = true;
	}
	check(good && holds_at(memory, (size_t)REQUESTS * BLOCK, 0, 1),
	      "%s: one request used for all, again while it is in flight", way->name);
	free(memory);
}

/* All reads into one place, writes from one place: allowed, if seldom wise. */
static void one_place(const struct way *way, io_context_t context, int fd)
{
	char *memory = buffer(BLOCK);
	struct iocb iocb[REQUESTS], *list[REQUESTS];
	struct io_event event[REQUESTS];

	watch("one place");
	for (int i = 0; i < REQUESTS; i++) {
		io_prep_pread(&iocb[i], fd, memory, BLOCK, 0);
		list[i] = &iocb[i];
	}
	check(io_submit(context, REQUESTS, list) == REQUESTS &&
		      reap(context, REQUESTS, event) == REQUESTS && holds_at(memory, BLOCK, 0, 1),
	      "%s: many reads to one place", way->name);
	free(memory);
}

/* Memory that is shared, of a file, of a stack, or read-only where it is only read. */
static void kinds(const struct way *way, io_context_t context, int fd)
{
	int shared_fd = file_with("mapped", BLOCK, 3, 0),
	    constant_fd = file_with("constant", BLOCK, 4, 0);
	char *mapped = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
	char *shared = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *constant = mmap(NULL, BLOCK, PROT_READ, MAP_PRIVATE, constant_fd, 0);
	char stack[BLOCK] __attribute__((aligned(4096)));
	struct iocb iocb;

	need(mapped != MAP_FAILED && shared != MAP_FAILED && constant != MAP_FAILED, "mmap");
	io_prep_pread(&iocb, fd, shared, BLOCK, 0);
	check(outcome_of(way, "PREAD to shared memory", context, &iocb) == BLOCK &&
		      holds_at(shared, BLOCK, 0, 1),
	      "%s: a read to shared memory", way->name);
	io_prep_pread(&iocb, fd, stack, BLOCK, BLOCK);
	check(outcome_of(way, "PREAD to the stack", context, &iocb) == BLOCK &&
		      holds_at(stack, BLOCK, BLOCK, 1),
	      "%s: a read to the stack", way->name);
	io_prep_pread(&iocb, fd, mapped, BLOCK, 0);
	check(outcome_of(way, "PREAD to a mapped file", context, &iocb) == BLOCK &&
		      file_holds("mapped", BLOCK, 0, 1),
	      "%s: a read to a mapped file", way->name);
	io_prep_pwrite(&iocb, fd, constant, BLOCK, 0);
	check(outcome_of(way, "PWRITE from read-only memory", context, &iocb) == BLOCK &&
		      file_holds("memory", BLOCK, 0, 4),
	      "%s: a write from read-only memory", way->name);
	munmap(mapped, BLOCK);
	munmap(shared, BLOCK);
	munmap(constant, BLOCK);
	close(shared_fd);
	close(constant_fd);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	FOR_EACH_WAY(way)
	{
		int fd = file_with("memory", (size_t)REQUESTS * BLOCK, 1, way->flags);
		io_context_t context = context_for(REQUESTS);

		for (int i = 0; i < 4; i++)
			reused(way, context, fd, i & 1, i & 2);
		submitted_again(way, context, fd);
		one_place(way, context, fd);
		kinds(way, context, fd);
		close(fd);
	}
	return check_end();
}
