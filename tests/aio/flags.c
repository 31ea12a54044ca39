/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a request can ask for beside its transfer: RWF flags and an I/O priority.
 */
#include "behaviour.h"

#define BLOCK 4096
#define IOCB_FLAG_IOPRIO 2
#define PRIORITY(class, level) ((short)((class) << 13 | (level)))

#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif

static char *memory;

static void each_flag(const struct way *way, io_context_t context, int fd)
{
	static const struct {
		const char *name;
		int flag;
	} flags[] = { { "RWF_HIPRI", 0x1 },      { "RWF_DSYNC", 0x2 },
		      { "RWF_SYNC", 0x4 },       { "RWF_APPEND", 0x10 },
		      { "RWF_NOAPPEND", 0x20 },  { "RWF_ATOMIC", 0x40 },
		      { "RWF_DONTCACHE", 0x80 }, { "0x8000", 0x8000 },
		      { "0x80000000", INT_MIN }, { "RWF_DSYNC|0x8000", 0x8002 } };
	struct iocb iocb;

	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		char what[80];
		long result;

		memset(memory, 0xee, BLOCK);
		snprintf(what, sizeof(what), "PREAD with %s", flags[i].name);
		io_prep_pread(&iocb, fd, memory, BLOCK, BLOCK);
		iocb.aio_rw_flags = (unsigned)flags[i].flag;
		result = outcome_of(way, what, context, &iocb);
		check(result == BLOCK ? holds_at(memory, BLOCK, BLOCK, 1)
				      : untouched(memory, BLOCK),
		      "%s: %s reads, or fails and reads nothing", way->name, what);
		snprintf(what, sizeof(what), "PWRITE with %s", flags[i].name);
		fill_at(memory, BLOCK, 0, 1);
		io_prep_pwrite(&iocb, fd, memory, BLOCK, 0);
		iocb.aio_rw_flags = (unsigned)flags[i].flag;
		outcome_of(way, what, context, &iocb);
		snprintf(what, sizeof(what), "size after PWRITE with %s", flags[i].name);
		gives(what, file_size("flags"));
	}
	io_prep_pwritev2(&iocb, fd, &(struct iovec){ memory, BLOCK }, 1, 0, 0x2);
	outcome_of(way, "PWRITEV2 with RWF_DSYNC", context, &iocb);
	check(file_holds("flags", 65536, 0, 1), "%s: and what was there is as it was", way->name);
}

/* RWF_NOWAIT may answer EAGAIN where it would wait; what it says must be true. */
static void nowait(const struct way *way, io_context_t context, int fd)
{
	bool refused, good = true;
	int count = 0;

	watch("RWF_NOWAIT");
	for (int i = 0; i < 16; i++) {
		struct iocb iocb;
		long result;

		memset(memory, 0xee, BLOCK);
		io_prep_pread(&iocb, fd, memory, BLOCK, (long long)i * BLOCK);
		iocb.aio_rw_flags = 0x8;
		result = serve(context, &iocb, &refused);
		good = !refused && (result == BLOCK || result == -EAGAIN) &&
		       (result == BLOCK ? holds_at(memory, BLOCK, (uint64_t)i * BLOCK, 1)
					: untouched(memory, BLOCK)) &&
		       good;
		count += result == BLOCK;
	}
	check(good, "%s: reads with RWF_NOWAIT read or say EAGAIN", way->name);
	check(count > 0, "%s: and read what is there to be read", way->name);
	for (int i = 0; i < 16; i++) {
		struct iocb iocb;
		long result;

		fill_at(memory, BLOCK, (uint64_t)i * BLOCK, 1);
		io_prep_pwrite(&iocb, fd, memory, BLOCK, (long long)i * BLOCK);
		iocb.aio_rw_flags = 0x8;
		result = serve(context, &iocb, &refused);
		good = (refused ? result == -EOPNOTSUPP || result == -EAGAIN
				: result == BLOCK || result == -EAGAIN || result == -EOPNOTSUPP) &&
		       good;
	}
	check(good && file_holds("flags", 65536, 0, 1), "%s: writes likewise", way->name);
}

static void append(const struct way *way, io_context_t context)
{
	bool refused, good = true;
	struct iocb iocb[8], *list[8];
	struct io_event event[8];
	int fd;

	watch("O_APPEND");
	make_file("append", 65536, 1);
	fd = open_file("append", O_RDWR | O_APPEND | way->flags);
	fill_at(memory, BLOCK, 65536, 1);
	io_prep_pwrite(&iocb[0], fd, memory, BLOCK, 0);
	good = serve(context, &iocb[0], &refused) == BLOCK;
	check(good && file_size("append") == 65536 + BLOCK &&
		      file_holds("append", 65536 + BLOCK, 0, 1),
	      "%s: a write of O_APPEND appends, whatever its offset", way->name);
	for (int i = 0; i < 8; i++) {
		fill_at(memory + (size_t)i * BLOCK, BLOCK, 65536 + BLOCK * (i + 1U), 1);
		io_prep_pwrite(&iocb[i], fd, memory + (size_t)i * BLOCK, BLOCK, 512 * i);
		list[i] = &iocb[i];
	}
	good = io_submit(context, 8, list) == 8 && reap(context, 8, event) == 8;
	check(good && file_size("append") == 65536 + 9 * BLOCK &&
		      file_holds("append", 65536 + 9 * BLOCK, 0, 1),
	      "%s: several append in their order", way->name);
	io_prep_pread(&iocb[0], fd, memory, BLOCK, 512);
	check(serve(context, &iocb[0], &refused) == BLOCK && holds_at(memory, BLOCK, 512, 1),
	      "%s: reads of O_APPEND are at their offset", way->name);
	close(fd);
	/* RWF_APPEND on a file that is not opened so. */
	fd = open_file("append", O_RDWR | way->flags);
	for (int i = 0; i < 4; i++) {
		fill_at(memory, BLOCK, 65536 + BLOCK * (9U + i), 1);
		io_prep_pwrite(&iocb[0], fd, memory, BLOCK, 0);
		iocb[0].aio_rw_flags = RWF_APPEND;
		good = serve(context, &iocb[0], &refused) == BLOCK && good;
	}
	check(good && file_size("append") == 65536 + 13 * BLOCK &&
		      file_holds("append", 65536 + 13 * BLOCK, 0, 1),
	      "%s: RWF_APPEND appends", way->name);
	close(fd);
}

static void synchronous(const struct way *way, io_context_t context)
{
	static const int flags[] = { O_SYNC, O_DSYNC };
	struct iocb iocb;

	for (int i = 0; i < 2; i++) {
		int fd;

		make_file("sync", 65536, 1);
		fd = open_file("sync", O_RDWR | flags[i] | way->flags);
		fill_at(memory, BLOCK, BLOCK, 2);
		io_prep_pwrite(&iocb, fd, memory, BLOCK, BLOCK);
		check(outcome_of(way, i ? "PWRITE of O_DSYNC" : "PWRITE of O_SYNC", context,
				 &iocb) == BLOCK &&
			      file_holds("sync", BLOCK, BLOCK, 2) &&
			      file_holds("sync", BLOCK, 0, 1),
		      "%s: a write of %s", way->name, i ? "O_DSYNC" : "O_SYNC");
		close(fd);
	}
}

static void priorities(const struct way *way, io_context_t context, int fd)
{
	static const struct {
		const char *name;
		short priority;
	} priorities[] = {
		{ "none", PRIORITY(0, 0) },
		{ "none, level 3", PRIORITY(0, 3) },
		{ "best effort, level 4", PRIORITY(2, 4) },
		{ "best effort, level 7", PRIORITY(2, 7) },
		{ "best effort, level 8", PRIORITY(2, 8) },
		{ "idle", PRIORITY(3, 0) },
		{ "real time", PRIORITY(1, 4) },
		{ "class 4", PRIORITY(4, 0) },
		{ "class 7", PRIORITY(7, 0) },
		{ "a hint", PRIORITY(2, 4 | 1 << 3) },
	};
	struct iocb iocb;

	for (size_t i = 0; i < sizeof(priorities) / sizeof(*priorities); i++) {
		char what[80];
		long result;

		snprintf(what, sizeof(what), "PREAD with priority %s", priorities[i].name);
		memset(memory, 0xee, BLOCK);
		io_prep_pread(&iocb, fd, memory, BLOCK, BLOCK);
		iocb.u.c.flags |= IOCB_FLAG_IOPRIO;
		iocb.aio_reqprio = priorities[i].priority;
		result = outcome_of(way, what, context, &iocb);
		check(result == BLOCK ? holds_at(memory, BLOCK, BLOCK, 1)
				      : untouched(memory, BLOCK),
		      "%s: %s reads, or is refused", way->name, what);
	}
}

static void priorities_of_fsync(const struct way *way, int fd)
{
	io_context_t context = context_for(4);
	struct iocb iocb;
	bool refused;

	watch("a read");
	io_prep_pread(&iocb, fd, memory, BLOCK, 0);
	check(serve(context, &iocb, &refused) == BLOCK, "%s: a read before fsyncs", way->name);
	for (int i = 0; i < 4; i++) {
		const int class = i < 2 ? 2 : 7;
		char what[80];

		if (i % 2)
			io_prep_fdsync(&iocb, fd);
		else
			io_prep_fsync(&iocb, fd);
		iocb.u.c.flags |= IOCB_FLAG_IOPRIO;
		iocb.aio_reqprio = PRIORITY(class, 4);
		snprintf(what, sizeof(what), "%s with priority class %d",
			 i % 2 ? "FDSYNC" : "FSYNC", class);
		outcome_of(way, what, context, &iocb);
	}
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer(65536);
	for (int first = 0; first < 2; first++) {
		FOR_EACH_WAY(way)
		{
			int fd = file_with("flags", 65536, 1, way->flags);
			io_context_t context = context_for(32);

			if (first)
				each_flag(way, context, fd);
			priorities(way, context, fd);
			priorities_of_fsync(way, fd);
			nowait(way, context, fd);
			append(way, context);
			synchronous(way, context);
			close(fd);
		}
	}
	return check_end();
}
