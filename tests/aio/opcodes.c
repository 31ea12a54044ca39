/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every opcode, on direct and on buffered files, with the data compared to pread(2) and pwrite(2).
 */
#include "behaviour.h"

#define SIZE (2 * MIB)

/* Reads with the request and with pread(2) alike. */
static void one_read(const struct way *way, io_context_t context, int fd, size_t bytes, off_t at)
{
	static char *got, *expected;
	struct iocb iocb;
	char what[80];
	long result;

	if (!got) {
		got = buffer(5 * MIB);
		expected = buffer(5 * MIB);
	}
	memset(got, 0xee, bytes + 4096);
	memset(expected, 0xee, bytes + 4096);
	snprintf(what, sizeof(what), "PREAD of %zu bytes at %ld", bytes, (long)at);
	io_prep_pread(&iocb, fd, got, bytes, at);
	result = outcome_of(way, what, context, &iocb);
	check(result == pread(fd, expected, bytes, at) && !memcmp(got, expected, bytes + 4096),
	      "%s, %s: as pread(2)", way->name, what);
}

static void reads(const struct way *way, io_context_t context)
{
	static const size_t lengths[] = { 0, 512, 4096, 65536, 1024 * 1024, 4 * 1024 * 1024 };
	static const off_t offsets[] = { 0,           512,  4096,       1024 * 1024 + 512,
					 SIZE - 4096, SIZE, SIZE + 4096 };
	int fd = file_with("reads", SIZE, 1, way->flags);

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		for (size_t j = 0; j < sizeof(offsets) / sizeof(*offsets); j++)
			one_read(way, context, fd, lengths[i], offsets[j]);
	close(fd);
	/* The file ends within a block, and has a hole. */
	need(truncate("reads", 4096 * 5 + 700) == 0 && truncate("reads", MIB) == 0 &&
		     truncate("reads", MIB - 300) == 0,
	     "truncate");
	fd = open_file("reads", O_RDONLY | way->flags);
	one_read(way, context, fd, 8192, 4096 * 5);
	one_read(way, context, fd, 65536, 8192);
	one_read(way, context, fd, 8192, MIB - 4096);
	one_read(way, context, fd, MIB, 512 * 1024);
	close(fd);
}

static void writes(const struct way *way, io_context_t context)
{
	static const size_t lengths[] = { 0, 512, 65536, 3 * 1024 * 1024 };
	static const off_t offsets[] = { 0, 1024 * 1024 + 512, SIZE - 4096, SIZE, SIZE + 65536 };
	char *memory = buffer(4 * MIB);
	bool good = true;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		for (size_t j = 0; j < sizeof(offsets) / sizeof(*offsets); j++) {
			size_t length = lengths[i];
			off_t at = offsets[j];
			int fd = file_with("writes", SIZE, 2, way->flags);
			struct iocb iocb;
			char what[80];
			long end = length && at + (off_t)length > (off_t)SIZE ? at + (long)length
									      : (long)SIZE;

			snprintf(what, sizeof(what), "PWRITE of %zu bytes at %ld", length,
				 (long)at);
			fill_at(memory, length, (uint64_t)at, 3);
			io_prep_pwrite(&iocb, fd, memory, length, at);
			good = outcome_of(way, what, context, &iocb) == (long)length &&
			       file_size("writes") == end &&
			       file_holds("writes", length, (uint64_t)at, 3) && good;
			if (at < (off_t)SIZE) /* what is before and after */
				good = file_holds("writes", (size_t)at, 0, 2) && good;
			if (at + length <= SIZE)
				good = file_holds("writes", SIZE - (size_t)at - length,
						  (uint64_t)at + length, 2) &&
				       good;
			close(fd);
		}
	}
	check(good, "%s: PWRITE writes what pwrite(2) would, and nothing else", way->name);
	free(memory);
}

/* Cuts memory into parts of several lengths, an empty one among them. */
static int cut(struct iovec *part, char *memory, size_t bytes)
{
	static const size_t lengths[] = { 4096, 512, 0, 65536, 8192, 1024 };
	int parts = 0;

	for (size_t done = 0; done < bytes; parts++) {
		size_t length = lengths[parts % 6];

		part[parts].iov_base = memory + done;
		part[parts].iov_len = length < bytes - done ? length : bytes - done;
		done += part[parts].iov_len;
	}
	return parts;
}

static void vectors(const struct way *way, io_context_t context)
{
	static const size_t lengths[] = { 512, 8192, 512 * 1024 };
	struct iovec part[1100];
	char *memory = buffer(MIB), *expected = buffer(MIB);
	int fd = file_with("vectors", SIZE, 4, way->flags), parts;
	struct iocb iocb;

	for (size_t i = 0; i < 3; i++) {
		char what[80];

		snprintf(what, sizeof(what), "PREADV of %zu bytes", lengths[i]);
		memset(memory, 0xee, MIB);
		memset(expected, 0xee, MIB);
		need(pread(fd, expected, lengths[i], 4096) == (ssize_t)lengths[i], "pread");
		parts = cut(part, memory, lengths[i]);
		io_prep_preadv(&iocb, fd, part, parts, 4096);
		check(outcome_of(way, what, context, &iocb) == (long)lengths[i] &&
			      !memcmp(memory, expected, MIB),
		      "%s: %s in %d parts: as pread(2)", way->name, what, parts);
		snprintf(what, sizeof(what), "PWRITEV of %zu bytes", lengths[i]);
		fill_at(memory, lengths[i], 8192, 5);
		parts = cut(part, memory, lengths[i]);
		io_prep_pwritev(&iocb, fd, part, parts, 8192);
		check(outcome_of(way, what, context, &iocb) == (long)lengths[i] &&
			      file_holds("vectors", lengths[i], 8192, 5) &&
			      file_holds("vectors", 8192, 0, 4) &&
			      file_holds("vectors", MIB, MIB, 4) &&
			      file_size("vectors") == (long)SIZE,
		      "%s: %s in %d parts writes what pwrite(2) would", way->name, what, parts);
		fill_at(memory, SIZE / 2, 0, 4);
		need(pwrite(fd, memory, SIZE / 2, 0) == (ssize_t)SIZE / 2, "pwrite");
	}
	for (int i = 0; i < 1100; i++) {
		part[i].iov_base = memory + (size_t)i % 16 * 512;
		part[i].iov_len = 512;
	}
	io_prep_preadv(&iocb, fd, part, 0, 0);
	outcome_of(way, "PREADV of no parts", context, &iocb);
	io_prep_preadv(&iocb, fd, NULL, 0, 0);
	outcome_of(way, "PREADV of no parts, nowhere", context, &iocb);
	io_prep_preadv(&iocb, fd, part, 1024, 0);
	outcome_of(way, "PREADV of 1024 parts", context, &iocb);
	io_prep_preadv(&iocb, fd, part, 1025, 0);
	outcome_of(way, "PREADV of 1025 parts", context, &iocb);
	io_prep_preadv(&iocb, fd, part, -1, 0);
	outcome_of(way, "PREADV of -1 parts", context, &iocb);
	part[1].iov_len = (size_t)-1;
	io_prep_preadv(&iocb, fd, part, 2, 0);
	outcome_of(way, "PREADV with a part that is too long", context, &iocb);
	part[1].iov_len = 512;
	io_prep_pwritev(&iocb, fd, part, 0, 0);
	outcome_of(way, "PWRITEV of no parts", context, &iocb);
	io_prep_preadv(&iocb, fd, part, 2, SIZE - 512);
	outcome_of(way, "PREADV at the end", context, &iocb);
	io_prep_preadv2(&iocb, fd, part, 2, 0, 0);
	outcome_of(way, "PREADV2", context, &iocb);
	io_prep_pwritev2(&iocb, fd, part, 2, 0, 0);
	outcome_of(way, "PWRITEV2", context, &iocb);
	close(fd);
	free(memory);
	free(expected);
}

static void odd_places(const struct way *way, io_context_t context)
{
	int fd = file_with("odd", 65536, 6, way->flags);
	char *memory = buffer(65536);
	struct iocb iocb;

	io_prep_pread(&iocb, fd, memory, 4096, -4096);
	outcome_of(way, "PREAD at -4096", context, &iocb);
	io_prep_pwrite(&iocb, fd, memory, 4096, -4096);
	outcome_of(way, "PWRITE at -4096", context, &iocb);
	io_prep_pread(&iocb, fd, memory, 4096, INT64_MAX - 4095);
	outcome_of(way, "PREAD at the last offset", context, &iocb);
	io_prep_pread(&iocb, fd, memory, 4096, (INT64_MAX - 4095) & ~(off_t)4095);
	outcome_of(way, "PREAD at the last page", context, &iocb);
	io_prep_pread(&iocb, fd, memory, (size_t)-4096, 0);
	outcome_of(way, "PREAD of -4096 bytes", context, &iocb);
	io_prep_pread(&iocb, fd, NULL, 0, 0);
	outcome_of(way, "PREAD of nothing to nowhere", context, &iocb);
	check(file_holds("odd", 65536, 0, 6) && file_size("odd") == 65536,
	      "%s: requests at odd places change nothing", way->name);
	close(fd);
	free(memory);
}

static void syncs(const struct way *way, io_context_t context)
{
	int fd = file_with("syncs", 65536, 6, way->flags), other;
	struct iocb iocb;

	io_prep_fsync(&iocb, fd);
	check(outcome_of(way, "FSYNC", context, &iocb) == 0, "%s: FSYNC succeeds", way->name);
	io_prep_fdsync(&iocb, fd);
	check(outcome_of(way, "FDSYNC", context, &iocb) == 0, "%s: FDSYNC succeeds", way->name);
	check(io_fsync(context, &iocb, NULL, fd) == 1, "%s: io_fsync() submits", way->name);
	reap(context, 1, &(struct io_event){ 0 });
	check(io_fdsync(context, &iocb, NULL, fd) == 1, "%s: io_fdsync() submits", way->name);
	reap(context, 1, &(struct io_event){ 0 });
	other = open_file("syncs", O_RDONLY | way->flags);
	io_prep_fsync(&iocb, other);
	outcome_of(way, "FSYNC of what is open for reading", context, &iocb);
	close(other);
	io_prep_fsync(&iocb, fd);
	iocb.u.c.nbytes = 4096;
	outcome_of(way, "FSYNC with a length", context, &iocb);
	io_prep_fsync(&iocb, fd);
	iocb.u.c.offset = 4096;
	outcome_of(way, "FSYNC with an offset", context, &iocb);
	io_prep_fsync(&iocb, fd);
	iocb.u.c.buf = &iocb;
	outcome_of(way, "FSYNC with a buffer", context, &iocb);
	io_prep_fsync(&iocb, fd);
	iocb.aio_rw_flags = 2;
	outcome_of(way, "FSYNC with flags", context, &iocb);
	close(fd);
}

static void other_opcodes(const struct way *way, io_context_t context)
{
	static const short codes[] = { 4, 6, 9, 10, 255, -1, 0x7fff };
	int fd = file_with("others", 65536, 6, way->flags);
	char *memory = buffer(4096);
	struct iocb iocb;
	char what[80];

	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		io_prep_pread(&iocb, fd, memory, 4096, 0);
		iocb.aio_lio_opcode = codes[i];
		snprintf(what, sizeof(what), "opcode %d", codes[i]);
		outcome_of(way, what, context, &iocb);
		check(untouched(memory, 4096), "%s, %s: nothing is read", way->name, what);
	}
	/* And the context goes on. */
	io_prep_pread(&iocb, fd, memory, 4096, 4096);
	check(outcome_of(way, "PREAD after opcodes that are none", context, &iocb) == 4096 &&
		      holds_at(memory, 4096, 4096, 6),
	      "%s: the context goes on after opcodes that are none", way->name);
	close(fd);
	free(memory);
}

static void polls(const struct way *way, io_context_t context)
{
	int ends[2], fd = file_with("polls", 65536, 6, way->flags);
	struct timespec soon = { 0, 1000000 };
	struct io_event event;
	struct iocb iocb;

	need(pipe(ends) == 0, "pipe");
	watch("polls");
	io_prep_poll(&iocb, ends[1], POLLOUT);
	check(outcome_of(way, "POLL of a pipe that can be written", context, &iocb) == POLLOUT,
	      "%s: POLL says that a pipe can be written", way->name);
	io_prep_poll(&iocb, ends[0], POLLIN);
	gives("POLL of an empty pipe, submitted", submit(context, &iocb));
	gives("POLL of an empty pipe, events", io_getevents(context, 1, 1, &event, &soon));
	need(write(ends[1], "x", 1) == 1, "write");
	check(reap(context, 1, &event) == 1 && event.obj == &iocb && (event.res & POLLIN),
	      "%s: POLL says when a pipe can be read", way->name);
	gives("POLL of a pipe that was written", (long)event.res);
	io_prep_poll(&iocb, fd, POLLIN | POLLOUT);
	outcome_of(way, "POLL of a file", context, &iocb);
	io_prep_poll(&iocb, ends[0], 0);
	close(ends[1]);
	outcome_of(way, "POLL for nothing of a pipe that was hung up", context, &iocb);
	io_prep_poll(&iocb, fd, POLLIN);
	iocb.u.c.nbytes = 1;
	outcome_of(way, "POLL with a length", context, &iocb);
	io_prep_poll(&iocb, fd, 0x10001);
	outcome_of(way, "POLL with events that are none", context, &iocb);
	check(io_poll(context, &iocb, NULL, ends[0], POLLIN) == 1 && reap(context, 1, &event) == 1,
	      "%s: io_poll() submits", way->name);
	close(ends[0]);
	close(fd);
}

/* Many requests of all transferring kinds at a time, in every order. */
static void many(const struct way *way, io_context_t context)
{
	enum { REQUESTS = 64, BLOCK = 8192 };
	struct iocb iocb[REQUESTS], *list[REQUESTS];
	struct io_event event[REQUESTS];
	struct iovec part[REQUESTS][2];
	char *memory = buffer((size_t)REQUESTS * BLOCK);
	int fd = file_with("many", (size_t)REQUESTS * BLOCK, 7, way->flags);
	uint32_t random = 12345;
	bool good = true;

	watch("many");
	for (unsigned round = 0; round < 8; round++) {
		for (unsigned i = 0; i < REQUESTS; i++) {
			char *at = memory + (size_t)i * BLOCK;
			long long offset = (long long)i * BLOCK;
			bool write = (i + round) % 2;
			unsigned j = next_number(&random) % (i + 1);

			part[i][0] = (struct iovec){ at, 4096 };
			part[i][1] = (struct iovec){ at + 4096, BLOCK - 4096 };
			if (write)
				fill_at(at, BLOCK, (uint64_t)offset, round);
			else
				memset(at, 0xee, BLOCK);
			if (i % 4 < 2)
				(write ? io_prep_pwrite : io_prep_pread)(&iocb[i], fd, at, BLOCK,
									 offset);
			else
				(write ? io_prep_pwritev : io_prep_preadv)(&iocb[i], fd, part[i], 2,
									   offset);
			list[i] = list[j];
			list[j] = &iocb[i];
		}
		good = io_submit(context, REQUESTS, list) == REQUESTS &&
		       reap(context, REQUESTS, event) == REQUESTS && good;
		for (unsigned i = 0; i < REQUESTS; i++)
			good = event[i].res == BLOCK && event[i].res2 == 0 && good;
		/* What was read is what was written one round ago, or the file of before. */
		for (unsigned i = 0; i < REQUESTS; i++)
			good = holds_at(memory + (size_t)i * BLOCK, BLOCK, (uint64_t)i * BLOCK,
					(i + round) % 2 ? round
					: round         ? round - 1
							: 7) &&
			       good;
	}
	check(good, "%s: many requests of all kinds at a time transfer the right data", way->name);
	for (unsigned i = 0; i < REQUESTS; i++)
		good = file_holds("many", BLOCK, (uint64_t)i * BLOCK, i % 2 ? 6 : 7) && good;
	check(good, "%s: and the file has it", way->name);
	close(fd);
	free(memory);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	FOR_EACH_WAY(way)
	{
		/* A context of its own each, and one for all. */
		for (int shared = 0; shared < 2; shared++) {
			static void (*const all[])(const struct way *, io_context_t) = {
				reads, writes,        vectors, odd_places,
				syncs, other_opcodes, many,    polls
			};
			io_context_t context = context_for(64);

			if (shared && way->flags)
				break;
			for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
				all[i](way, context);
				if (!shared)
					context = context_for(64);
			}
		}
	}
	return check_end();
}
