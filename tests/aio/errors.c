/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests that are refused, and requests that fail: which, with what, and what becomes of the others
 * of the batch.
 */
#include "behaviour.h"

#define BLOCK 4096

static void descriptors(const struct way *way, io_context_t context)
{
	char *memory = buffer(BLOCK);
	int fd = file_with("file", 65536, 1, way->flags), closed = dup(fd);
	int readable = open_file("file", O_RDONLY | way->flags);
	int writable = open_file("file", O_WRONLY | way->flags);
	int path = open_file("file", O_PATH);
	struct iovec part = { memory, BLOCK };
	struct iocb iocb;

	close(closed);
	io_prep_pread(&iocb, -1, memory, BLOCK, 0);
	outcome_of(way, "PREAD of descriptor -1", context, &iocb);
	io_prep_pread(&iocb, 1 << 20, memory, BLOCK, 0);
	outcome_of(way, "PREAD of descriptor 2^20", context, &iocb);
	io_prep_pread(&iocb, closed, memory, BLOCK, 0);
	outcome_of(way, "PREAD of a closed descriptor", context, &iocb);
	io_prep_fsync(&iocb, closed);
	outcome_of(way, "FSYNC of a closed descriptor", context, &iocb);
	io_prep_poll(&iocb, closed, POLLIN);
	outcome_of(way, "POLL of a closed descriptor", context, &iocb);
	io_prep_pread(&iocb, path, memory, BLOCK, 0);
	outcome_of(way, "PREAD of O_PATH", context, &iocb);
	io_prep_pwrite(&iocb, readable, memory, BLOCK, 0);
	outcome_of(way, "PWRITE of O_RDONLY", context, &iocb);
	io_prep_pwritev(&iocb, readable, &part, 1, 0);
	outcome_of(way, "PWRITEV of O_RDONLY", context, &iocb);
	io_prep_pread(&iocb, writable, memory, BLOCK, 0);
	outcome_of(way, "PREAD of O_WRONLY", context, &iocb);
	io_prep_preadv(&iocb, writable, &part, 1, 0);
	outcome_of(way, "PREADV of O_WRONLY", context, &iocb);
	check(untouched(memory, BLOCK) && file_holds("file", 65536, 0, 1),
	      "%s: refused requests transfer nothing", way->name);
	io_prep_pread(&iocb, readable, memory, BLOCK, 0);
	check(outcome_of(way, "PREAD of O_RDONLY", context, &iocb) == BLOCK &&
		      holds_at(memory, BLOCK, 0, 1),
	      "%s: O_RDONLY can be read", way->name);
	fill_at(memory, BLOCK, 0, 2);
	io_prep_pwrite(&iocb, writable, memory, BLOCK, 0);
	check(outcome_of(way, "PWRITE of O_WRONLY", context, &iocb) == BLOCK &&
		      file_holds("file", BLOCK, 0, 2),
	      "%s: O_WRONLY can be written", way->name);
	close(fd);
	close(readable);
	close(writable);
	close(path);
	free(memory);
}

/* A batch with this request at this place: what is taken, and what the others come to. */
static void batch_with(const struct way *way, io_context_t context, const char *what,
		       struct iocb *bad, int place)
{
	enum { REQUESTS = 6 };
	struct iocb iocb[REQUESTS], *list[REQUESTS];
	struct io_event event[REQUESTS];
	char *memory = buffer((size_t)REQUESTS * BLOCK);
	int fd = file_with("batch", (size_t)REQUESTS * BLOCK, 3, way->flags), taken;
	bool good = true;

	for (int i = 0; i < REQUESTS; i++) {
		io_prep_pread(&iocb[i], fd, memory + (size_t)i * BLOCK, BLOCK,
			      (long long)i * BLOCK);
		list[i] = i == place ? bad : &iocb[i];
	}
	watch(what);
	taken = io_submit(context, REQUESTS, list);
	say("%s, a batch with %s at %d: %d\n", way->name, what, place, taken);
	if (taken > 0)
		good = reap(context, taken, event) == taken;
	for (int i = 0; i < taken; i++)
		good = event[i].res == BLOCK && event[i].obj >= iocb &&
		       event[i].obj < iocb + taken && good;
	for (int i = 0; i < REQUESTS; i++) {
		char *at = memory + (size_t)i * BLOCK;

		good = (i < taken ? holds_at(at, BLOCK, (uint64_t)i * BLOCK, 3)
				  : untouched(at, BLOCK)) &&
		       good;
	}
	check(good && taken == (place > 0 ? place : taken) && (place || taken < 0) &&
		      io_getevents(context, 0, REQUESTS, event, &(struct timespec){ 0 }) == 0,
	      "%s: a batch with %s at %d: those before are served, those behind are not started",
	      way->name, what, place);
	close(fd);
	free(memory);
}

static void batches(const struct way *way, io_context_t context)
{
	char *memory = buffer(BLOCK);
	int readable;
	struct iocb bad;

	make_file("file", 65536, 1);
	readable = open_file("file", O_RDONLY | way->flags);
	for (int place = 0; place < 6; place += place ? 3 : 2) {
		io_prep_pread(&bad, -1, memory, BLOCK, 0);
		batch_with(way, context, "a bad descriptor", &bad, place);
		io_prep_pwrite(&bad, readable, memory, BLOCK, 0);
		batch_with(way, context, "a write of O_RDONLY", &bad, place);
		io_prep_pread(&bad, readable, memory, BLOCK, 0);
		bad.aio_lio_opcode = 77;
		batch_with(way, context, "a bad opcode", &bad, place);
		io_prep_pread(&bad, readable, memory, BLOCK, 0);
		bad.u.c.__pad3 = 1;
		batch_with(way, context, "a reserved field that is not 0", &bad, place);
		batch_with(way, context, "no request", NULL, place);
		batch_with(way, context, "a request where the kernel is",
			   (struct iocb *)(UINT64_MAX - 0x7effffff), place);
		io_prep_pread(&bad, readable, memory, (size_t)-1, 0);
		batch_with(way, context, "a length of -1", &bad, place);
		io_prep_pread(&bad, readable, memory, BLOCK, -1);
		batch_with(way, context, "an offset of -1", &bad, place);
		io_prep_preadv(&bad, readable, (void *)64, 1, 0);
		batch_with(way, context, "a vector at no address", &bad, place);
	}
	close(readable);
	free(memory);
}

static void counts(const struct way *way, io_context_t context)
{
	char *memory = buffer(2 * (size_t)BLOCK);
	int fd = file_with("file", 65536, 1, way->flags);
	struct iocb iocb, *list[2] = { &iocb, &iocb };
	struct io_event event[2];

	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	watch("counts");
	gives("submit 0", io_submit(context, 0, list));
	gives("submit 0 from NULL", io_submit(context, 0, NULL));
	gives("submit 1 from where the kernel is", io_submit(context, 1, (struct iocb **)-4096L));
	gives("submit -1", io_submit(context, -1, list));
	gives("submit LONG_MIN", io_submit(context, LONG_MIN, list));
	gives("submit 1 from NULL", io_submit(context, 1, NULL));
	check(untouched(memory, BLOCK), "%s: nothing was started", way->name);
	/* The same request twice is two. */
	watch("twice in a batch");
	check(io_submit(context, 2, list) == 2 && reap(context, 2, event) == 2 &&
		      event[0].obj == &iocb && event[1].obj == &iocb && event[0].res == BLOCK &&
		      event[1].res == BLOCK,
	      "%s: a request that is twice in a batch is done twice", way->name);
	watch("events for which there is no place");
	need(submit(context, &iocb) == 1, "io_submit");
	gives("an event to NULL", io_getevents(context, 1, 1, NULL, NULL));
	gives("an event to where the kernel is",
	      io_getevents(context, 1, 1, (struct io_event *)-4096L, NULL));
	check(reap(context, 1, event) == 1, "%s: it is there afterwards", way->name);
	close(fd);
	free(memory);
}

static void fields(const struct way *way, io_context_t context)
{
	char *memory = buffer(BLOCK);
	int fd = file_with("file", 65536, 1, way->flags);
	struct iocb iocb;

	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	iocb.u.c.__pad3 = 1;
	outcome_of(way, "reserved field 1", context, &iocb);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	iocb.u.c.__pad3 = LLONG_MIN;
	outcome_of(way, "reserved field 2^63", context, &iocb);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	iocb.u.c.flags = 1u << 31;
	outcome_of(way, "aio_flags 2^31", context, &iocb);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	iocb.u.c.flags = 4;
	outcome_of(way, "aio_flags 4", context, &iocb);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	iocb.u.c.resfd = 12345;
	outcome_of(way, "aio_resfd without its flag", context, &iocb);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	iocb.aio_reqprio = 12345;
	outcome_of(way, "aio_reqprio without its flag", context, &iocb);
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	iocb.key = 0xdeadbeef;
	outcome_of(way, "aio_key of any value", context, &iocb);
	check(iocb.key == 0, "%s: aio_key is written", way->name);
	iocb.key = 0xdeadbeef;
	iocb.aio_lio_opcode = 77;
	outcome_of(way, "a bad opcode", context, &iocb);
	say("%s, aio_key of a refused request: %s\n", way->name,
	    iocb.key == 0 ? "written" : "kept");
	close(fd);
	free(memory);
}

/* Memory that is not there, or not writable. */
static void addresses(const struct way *way, io_context_t context)
{
	char *memory = mmap(NULL, 8 * (size_t)BLOCK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = file_with("file", 65536, 1, way->flags);
	struct iocb iocb;
	struct iovec part[2];

	need(memory != MAP_FAILED, "mmap");
	mprotect(memory + 4 * BLOCK, 2 * (size_t)BLOCK, PROT_NONE);
	mprotect(memory + 6 * BLOCK, BLOCK, PROT_READ);
	io_prep_pread(&iocb, fd, memory + 4 * BLOCK, BLOCK, 0);
	outcome_of(way, "PREAD to no memory", context, &iocb);
	io_prep_pread(&iocb, fd, NULL, BLOCK, 0);
	outcome_of(way, "PREAD to NULL", context, &iocb);
	io_prep_pwrite(&iocb, fd, memory + 4 * BLOCK, BLOCK, 0);
	outcome_of(way, "PWRITE from no memory", context, &iocb);
	io_prep_pread(&iocb, fd, memory + 6 * BLOCK, BLOCK, 0);
	outcome_of(way, "PREAD to memory that cannot be written", context, &iocb);
	io_prep_pread(&iocb, fd, memory + 2 * BLOCK, 4 * (size_t)BLOCK, 0);
	outcome_of(way, "PREAD to memory that ends", context, &iocb);
	io_prep_pwrite(&iocb, fd, memory + 2 * BLOCK, 4 * (size_t)BLOCK, 0);
	outcome_of(way, "PWRITE from memory that ends", context, &iocb);
	io_prep_pread(&iocb, fd, (void *)(uintptr_t)-BLOCK, BLOCK, 0);
	outcome_of(way, "PREAD to the kernel's memory", context, &iocb);
	io_prep_pread(&iocb, fd, (void *)((uintptr_t)1 << 52), BLOCK, 0);
	outcome_of(way, "PREAD to no possible address", context, &iocb);
	part[0] = (struct iovec){ memory, BLOCK };
	part[1] = (struct iovec){ memory + 4 * BLOCK, BLOCK };
	io_prep_preadv(&iocb, fd, part, 2, 0);
	outcome_of(way, "PREADV to memory that ends", context, &iocb);
	part[1].iov_base = (void *)(uintptr_t)-BLOCK;
	io_prep_preadv(&iocb, fd, part, 2, 0);
	outcome_of(way, "PREADV to the kernel's memory", context, &iocb);
	io_prep_preadv(&iocb, fd, (void *)(memory + 4 * BLOCK), 2, 0);
	outcome_of(way, "PREADV with a vector at no address", context, &iocb);
	io_prep_preadv(&iocb, fd, NULL, 2, 0);
	outcome_of(way, "PREADV with a vector at NULL", context, &iocb);
	io_prep_pread(&iocb, fd, memory, BLOCK, 32768);
	check(outcome_of(way, "PREAD after all that", context, &iocb) == BLOCK &&
		      holds_at(memory, BLOCK, 32768, 1),
	      "%s: the context goes on after faults", way->name);
	munmap(memory, 8 * (size_t)BLOCK);
	close(fd);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	FOR_EACH_WAY(way)
	{
		static void (*const all[])(const struct way *,
					   io_context_t) = { descriptors, batches, counts, fields,
							     addresses };
		io_context_t shared = context_for(32);

		for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
			io_context_t context = context_for(32);

			all[i](way, context);
			all[i](way, shared);
		}
	}
	return check_end();
}
