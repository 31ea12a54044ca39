/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Direct I/O that is aligned to nothing, which only the shim makes work: every result, and every byte of
 * the file and of the memory, is what pread(2) and pwrite(2) make of a buffered file. With
 * BEHAVIOUR_BUFFERED the files are buffered ones, for which all this holds without the shim, too.
 * CASES: grid random ends neighbours ways faults
 */
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "behaviour.h"

enum { GUARD = 64, MOST = 5 * 1024 * 1024, PARTS = 7 };

/* The file, and what it has to be. */
static struct {
	int fd;
	int looking; /* the same file, buffered */
	char *expected;
	long size;
} file;

/*
 * One context for what a ring may serve. A write behind the end of a file makes a context go on with the
 * kernel's AIO for good, and so do some of the cases that use context.
 */
static io_context_t inside, context;
static int direct = O_DIRECT;
static char *memory, *scratch;

static void new_file(long size, int flags)
{
	make_file("repair", (size_t)size, 1);
	if (file.expected) {
		close(file.fd);
		close(file.looking);
	} else {
		file.expected = calloc(1, 4 * (size_t)MOST);
	}
	need(file.expected != NULL, "memory");
	memset(file.expected, 0, 4 * (size_t)MOST);
	fill_at(file.expected, (size_t)size, 0, 1);
	file.size = size;
	file.fd = open_file("repair", flags | direct);
	file.looking = open_file("repair", O_RDONLY);
}

/* Are these bytes of the file, and its size, as they should be? */
static bool file_is_right(long from, long to)
{
	struct stat status;
	long got = 0;

	from = from < 0 ? 0 : from;
	to = to > file.size ? file.size : to;
	if (to > from)
		got = pread(file.looking, scratch, (size_t)(to - from), from);
	return fstat(file.looking, &status) == 0 && status.st_size == file.size &&
	       (to <= from ||
		(got == to - from && !memcmp(scratch, file.expected + from, (size_t)got)));
}

/* One request. The memory begins misalign bytes behind a multiple of 4096. */
struct request {
	struct iocb iocb;
	struct iovec part[PARTS];
	bool write, vector;
	long misalign, length, offset;
	unsigned seed;
};

static void prepare(struct request *request, char *at)
{
	int parts = request->vector ? PARTS : 1;
	long done = 0;

	/* Parts of about the same length, of which one is empty. */
	for (int i = 0; i < parts; i++) {
		long length = i == parts - 1 ? request->length - done
			      : i == 2       ? 0
					     : request->length / parts;

		request->part[i] = (struct iovec){ at + done, (size_t)length };
		done += length;
	}
	if (request->write)
		fill_at(at, (size_t)request->length, (uint64_t)request->offset, request->seed);
	if (request->vector)
		(request->write ? io_prep_pwritev : io_prep_preadv)(
			&request->iocb, file.fd, request->part, parts, request->offset);
	else
		(request->write ? io_prep_pwrite : io_prep_pread)(
			&request->iocb, file.fd, at, (size_t)request->length, request->offset);
}

static void apply(const struct request *request)
{
	if (!request->write)
		return;
	fill_at(file.expected + request->offset, (size_t)request->length, (uint64_t)request->offset,
		request->seed);
	if (request->length && request->offset + request->length > file.size)
		file.size = request->offset + request->length;
}

static void describe(const struct request *request, const char *wrong, long value)
{
	say("# %s%s, memory at +%ld, %ld bytes at %ld, file of %ld: %s %ld\n",
	    request->write ? "write" : "read", request->vector ? " of a vector" : "",
	    request->misalign, request->length, request->offset, file.size, wrong, value);
}

/* Does one request alone, and compares everything. */
static bool one(struct request *request)
{
	char *at = memory + 4096 + request->misalign;
	size_t room = (size_t)request->length + GUARD;
	long expected = request->length, result;
	bool refused;

	memset(at - GUARD, 0xee, room + GUARD);
	prepare(request, at);
	if (!request->write) {
		expected = file.size > request->offset ? file.size - request->offset : 0;
		expected = expected > request->length ? request->length : expected;
	}
	result = serve(request->write && request->offset + request->length > file.size ? context
										       : inside,
		       &request->iocb, &refused);
	if (refused || result != expected) {
		describe(request, refused ? "refused with" : "resulted in", result);
		return false;
	}
	apply(request);
	if (!file_is_right(request->offset - 8192, request->offset + request->length + 8192)) {
		describe(request, "the file is wrong, its size is", file_size("repair"));
		return false;
	}
	if (!untouched(at - GUARD, GUARD) || !untouched(at + request->length, GUARD)) {
		describe(request, "memory around was written", 0);
		return false;
	}
	if (request->write ? !holds_at(at, (size_t)request->length, (uint64_t)request->offset,
				       request->seed)
			   : memcmp(at, file.expected + request->offset, (size_t)expected) != 0) {
		describe(request, "the memory is wrong", 0);
		return false;
	}
	if (!request->write && !untouched(at + expected, (size_t)(request->length - expected))) {
		describe(request, "memory behind what was read was written", 0);
		return false;
	}
	return true;
}

static const long misaligns[] = { 0, 1, 64, 511, 512 };
static const long lengths[] = { 1, 511, 512, 513, 4095, 4096, 4097, 20000 };
static const long offsets[] = { 0, 1, 511, 512, 4095, 4096, 5000, 39000, 40000, 40959, 40960 };

enum {
	MISALIGNS = sizeof(misaligns) / sizeof(*misaligns),
	LENGTHS = sizeof(lengths) / sizeof(*lengths),
	OFFSETS = sizeof(offsets) / sizeof(*offsets),
	COMBINATIONS = MISALIGNS * LENGTHS * OFFSETS
};

/* Every combination. The file is made to end again within what comes next. */
static void grid(int flags, const char *name, bool may_read)
{
	bool good = true;

	watch(name);
	new_file(40000, flags);
	for (int i = 0; i < 4 * COMBINATIONS; i++) {
		int way = i / COMBINATIONS, number = i % COMBINATIONS;
		struct request request = { .write = way & 1,
					   .vector = way & 2,
					   .misalign = misaligns[number % MISALIGNS],
					   .length = lengths[number / MISALIGNS % LENGTHS],
					   .offset = offsets[number / MISALIGNS / LENGTHS],
					   .seed = 2 + (unsigned)i };

		if (file.size > 50000) {
			need(truncate("repair", 40000) == 0, "truncate");
			memset(file.expected + 40000, 0, (size_t)file.size - 40000);
			file.size = 40000;
		}
		if (request.write || may_read)
			good = one(&request) && good;
	}
	check(good && file_is_right(0, file.size),
	      "%s: every combination of memory, length and offset", name);
}

static void random_requests(int flags, const char *name, int count)
{
	uint32_t random = 4711;
	bool good = true;

	watch(name);
	new_file(1000003, flags);
	for (int i = 0; i < count; i++) {
		struct request request = { .write = next_number(&random) % 2,
					   .vector = next_number(&random) % 3 == 0,
					   .misalign = (long)(next_number(&random) % 1024),
					   .seed = (unsigned)i };
		/* Of all magnitudes alike. */
		unsigned magnitude = next_number(&random) % 22;

		request.length = 1 + (long)(next_number(&random) % (1u << magnitude << 1));
		request.length = request.length > 4 * (long)MIB ? 4 * (long)MIB : request.length;
		request.offset = (long)(next_number(&random) % (unsigned)(file.size + 5000));
		if (next_number(&random) % 4 == 0)
			request.offset &= ~511L;
		if (next_number(&random) % 4 == 0)
			request.length = (request.length + 511) & ~511L;
		if (request.offset + request.length > 8 * (long)MIB)
			request.offset = 8 * (long)MIB - request.length;
		good = one(&request) && good;
	}
	check(good && file_is_right(0, file.size), "%s: %d requests of any size, up to 4 MiB", name,
	      count);
}

/* New files, as DeepSpeed writes them, and files that get holes. */
static void ends(void)
{
	static const long sizes[] = { 1, 511, 513, 4095, 4097, 1000003, 4 * 1024 * 1024 + 1 };
	struct request request = { .write = true, .seed = 7 };
	bool good = true;

	watch("new files");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		new_file(0, O_WRONLY);
		request.length = sizes[i];
		request.misalign = (long)i % 2 * 16;
		request.offset = 0;
		good = one(&request) && file_is_right(0, file.size) && good;
		new_file(0, O_RDWR);
		request.offset = 100003;
		good = one(&request) && file_is_right(0, file.size) && good;
	}
	check(good, "new files end where they should, and have holes where nothing was written");
	watch("a file written in blocks");
	new_file(0, O_WRONLY);
	for (long at = 0; at < 1000003; at += 131072) {
		request.offset = at;
		request.misalign = 16;
		request.length = at + 131072 > 1000003 ? 1000003 - at : 131072;
		good = one(&request) && good;
	}
	check(good && file.size == 1000003 && file_is_right(0, file.size),
	      "a file written block by block ends where it should");
	new_file(10000, O_WRONLY);
	request.offset = 0;
	request.length = 0;
	good = one(&request) && good;
	check(good, "a write of nothing to a misaligned place");
}

/* Writes that share blocks, all in flight together. */
static long cuts[4096];

static int cut_at_random(long length, uint32_t *random, long mean)
{
	int count = 0;

	for (long at = 0; at < length && count < 4000;) {
		cuts[count++] = at;
		at += 1 + (long)(next_number(random) % (unsigned)(2 * mean));
	}
	cuts[count] = length;
	return count;
}

static void write_pieces(io_context_t own, int fd, int first, int step, int count, unsigned seed,
			 atomic_bool *bad)
{
	enum { DEPTH = 32 };
	struct iocb iocb[DEPTH], *list[DEPTH];
	struct io_event event[DEPTH];

	for (int i = first; i < count; i += step * DEPTH) {
		int pieces = 0;

		for (int j = i; j < count && pieces < DEPTH; j += step) {
			long length = cuts[j + 1] - cuts[j];
			char *piece = malloc((size_t)length);

			fill_at(piece, (size_t)length, (uint64_t)cuts[j], seed);
			io_prep_pwrite(&iocb[pieces], fd, piece, (size_t)length, cuts[j]);
			list[pieces] = &iocb[pieces];
			pieces++;
		}
		for (int done = 0; done < pieces;) {
			int got = io_submit(own, pieces - done, list + done);

			if (got <= 0 && got != -EAGAIN)
				atomic_store(bad, true);
			if (got <= 0)
				break;
			done += got;
		}
		if (reap(own, pieces, event) != pieces)
			atomic_store(bad, true);
		for (int j = 0; j < pieces; j++) {
			if ((long)event[j].res != (long)event[j].obj->u.c.nbytes)
				atomic_store(bad, true);
			free(event[j].obj->u.c.buf);
		}
	}
}

enum { WRITERS = 4 };

struct writer {
	int number, count;
	unsigned seed;
	atomic_bool *bad;
};

static void *write_in_thread(void *argument)
{
	struct writer *writer = argument;
	int fd = open_file("repair", O_WRONLY | direct);

	write_pieces(context_for(64), fd, writer->number, WRITERS, writer->count, writer->seed,
		     writer->bad);
	close(fd);
	return NULL;
}

static void neighbours(const char *what, bool threads, bool processes, long mean, long old_size)
{
	const long length = (mean < 1000 ? 64 : 512) * 1024 + 77;
	uint32_t random = (uint32_t)mean * 7 + 1;
	pid_t pid[WRITERS];
	pthread_t thread[WRITERS];
	struct writer writer[WRITERS];
	int count = cut_at_random(length, &random, mean), status = 0;
	atomic_bool bad = false;

	watch(what);
	new_file(old_size, O_RDWR);
	if (!threads && !processes)
		write_pieces(old_size ? inside : context, file.fd, 0, 1, count, 9, &bad);
	for (int i = 0; i < WRITERS && (threads || processes); i++) {
		writer[i] = (struct writer){ i, count, 9, &bad };
		if (threads) {
			thread[i] = start(write_in_thread, &writer[i]);
			continue;
		}
		pid[i] = fork_watched();
		if (pid[i] == 0) {
			write_in_thread(&writer[i]);
			_exit(atomic_load(&bad));
		}
	}
	for (int i = 0; i < WRITERS && (threads || processes); i++)
		status |= threads ? pthread_join(thread[i], NULL) : child_ends(pid[i]);
	fill_at(file.expected, (size_t)length, 0, 9);
	file.size = length > old_size ? length : old_size;
	check(!atomic_load(&bad) && status == 0 && file_is_right(0, file.size),
	      "%s, pieces of about %ld bytes, %s: no write undoes another", what, mean,
	      old_size ? "over a file" : "in a new file");
}

/* The other things that a request can have, on requests that are repaired. */
static void ways_of_asking(void)
{
	int resfd = eventfd(0, EFD_CLOEXEC);
	char *at = memory + 4096 + 3;
	struct iocb iocb;
	struct io_event event;
	uint64_t counted = 0;
	bool refused;

	watch("ways of asking");
	context = context_for(8);
	new_file(100001, O_RDWR);
	io_prep_pread(&iocb, file.fd, at, 1001, 7);
	io_set_eventfd(&iocb, resfd);
	need(submit(context, &iocb) == 1, "io_submit");
	check(read(resfd, &counted, sizeof(counted)) == sizeof(counted) && counted == 1 &&
		      io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == 1001 &&
		      !memcmp(at, file.expected + 7, 1001),
	      "a repaired read is counted by an eventfd");
	fill_at(at, 1001, 50001, 3);
	io_prep_pwrite(&iocb, file.fd, at, 1001, 50001);
	iocb.aio_rw_flags = 0x2; /* RWF_DSYNC */
	check(serve(context, &iocb, &refused) == 1001 && file_holds("repair", 1001, 50001, 3),
	      "a repaired write with RWF_DSYNC");
	fill_at(at, 1001, 100001, 3);
	io_prep_pwrite(&iocb, file.fd, at, 1001, 0);
	iocb.aio_rw_flags = 0x10; /* RWF_APPEND */
	check(serve(context, &iocb, &refused) == 1001 && file_size("repair") == 101002 &&
		      file_holds("repair", 1001, 100001, 3),
	      "a repaired write with RWF_APPEND");
	new_file(100001, O_RDWR | O_APPEND);
	io_prep_pwrite(&iocb, file.fd, at, 1001, 0);
	check(serve(context, &iocb, &refused) == 1001 && file_size("repair") == 101002 &&
		      file_holds("repair", 1001, 100001, 3) && file_holds("repair", 1001, 0, 1),
	      "a repaired write of O_APPEND");
	close(resfd);
	watch("requests that end before they are done");
	new_file(100001, O_RDWR);
	for (int i = 0; i < 8; i++) {
		io_context_t own = context_for(8);
		struct iocb *list = malloc(sizeof(*list));
		struct iovec *part = malloc(2 * sizeof(*part));

		part[0] = (struct iovec){ at, 1000 };
		part[1] = (struct iovec){ at + 1000, 999 };
		if (i & 1)
			io_prep_preadv(list, file.fd, part, 2, 13);
		else
			io_prep_pread(list, file.fd, at, 1999, 13);
		memset(at, 0xee, 1999);
		need(io_submit(own, 1, &list) == 1, "io_submit");
		memset(list, 0xff, sizeof(*list));
		memset(part, 0xff, 2 * sizeof(*part));
		free(list);
		free(part);
		if (i & 2) {
			io_destroy(own);
			memset(at, 0xee, 1999);
			sleep_ms(5);
			refused = !untouched(at, 1999);
		} else {
			refused = reap(own, 1, &event) != 1 || event.res != 1999 ||
				  memcmp(at, file.expected + 13, 1999) != 0;
			io_destroy(own);
		}
		if (refused || i >= 6)
			check(!refused, "requests and vectors freed at once%s",
			      i & 2 ? ", contexts ended with them in flight" : "");
	}
}

static void faults(void)
{
	char *place = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0);
	struct rlimit limit, before;
	struct iocb iocb;
	struct iovec part[2];
	bool refused;
	long result;

	watch("faults");
	context = context_for(8);
	need(place != MAP_FAILED, "mmap");
	new_file(100001, O_RDWR);
	mprotect(place + 4 * 4096, 2 * 4096, PROT_NONE);
	mprotect(place + 6 * 4096, 4096, PROT_READ);
	io_prep_pread(&iocb, file.fd, place + 4 * 4096 + 1, 1000, 3);
	check(serve(context, &iocb, &refused) == -EFAULT, "a repaired read to no memory: EFAULT");
	io_prep_pread(&iocb, file.fd, NULL, 1000, 3);
	check(serve(context, &iocb, &refused) == -EFAULT, "a repaired read to NULL: EFAULT");
	io_prep_pread(&iocb, file.fd, place + 6 * 4096 + 1, 1000, 3);
	check(serve(context, &iocb, &refused) == -EFAULT,
	      "a repaired read to read-only memory: EFAULT");
	io_prep_pwrite(&iocb, file.fd, place + 4 * 4096 + 1, 1000, 3);
	check(serve(context, &iocb, &refused) == -EFAULT,
	      "a repaired write from no memory: EFAULT");
	part[0] = (struct iovec){ place + 1, 700 };
	part[1] = (struct iovec){ place + 4 * 4096, 700 };
	io_prep_pwritev(&iocb, file.fd, part, 2, 50000);
	memset(place, 0x33, 4096);
	result = serve(context, &iocb, &refused);
	check(result == -EFAULT || (result > 0 && result <= 700),
	      "a repaired vector that ends in no memory: EFAULT, or short");
	if (result > 0 && result <= 700)
		memset(file.expected + 50000, 0x33, (size_t)result);
	io_prep_preadv(&iocb, file.fd, (struct iovec *)(place + 4 * 4096), 2, 50000);
	check(serve(context, &iocb, &refused) == -EFAULT && refused,
	      "a vector at no memory: refused");
	io_prep_pread(&iocb, file.fd, place + 1, 1000, -1);
	check(serve(context, &iocb, &refused) == -EINVAL, "a misaligned negative offset: EINVAL");
	io_prep_pread(&iocb, -1, place + 1, 1000, 1);
	check(serve(context, &iocb, &refused) == -EBADF && refused,
	      "a misaligned read of no file: EBADF");
	io_prep_pread(&iocb, file.fd, place + 1, 1000, 100001);
	check(serve(context, &iocb, &refused) == 0, "a repaired read at the end: 0");
	io_prep_pread(&iocb, file.fd, place + 1, 1000, 1L << 40);
	check(serve(context, &iocb, &refused) == 0, "a repaired read far behind the end: 0");
	check(file_is_right(0, file.size), "none of that changes the file");
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	limit = before;
	limit.rlim_cur = 120000;
	setrlimit(RLIMIT_FSIZE, &limit);
	io_prep_pwrite(&iocb, file.fd, memory + 1, 1000, 119500);
	check(serve(context, &iocb, &refused) == 500 && file_size("repair") == 120000,
	      "a repaired write across the largest size of files is short");
	io_prep_pwrite(&iocb, file.fd, memory + 1, 1000, 120000);
	check(serve(context, &iocb, &refused) == -EFBIG && file_size("repair") == 120000,
	      "a repaired write behind it: EFBIG");
	setrlimit(RLIMIT_FSIZE, &before);
	munmap(place, 8 * 4096);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	if (getenv("BEHAVIOUR_BUFFERED"))
		direct = 0;
	memory = buffer(MOST);
	scratch = buffer(4 * (size_t)MOST);
	inside = context_for(64);
	context = context_for(64);
	if (chosen(argc, argv, "grid")) {
		grid(O_RDWR, "O_RDWR", true);
		grid(O_WRONLY, "O_WRONLY", false);
	}
	if (chosen(argc, argv, "random")) {
		random_requests(O_RDWR, "O_RDWR", 300);
		random_requests(O_RDWR | O_DSYNC, "O_DSYNC", 40);
	}
	if (chosen(argc, argv, "ends"))
		ends();
	if (chosen(argc, argv, "neighbours"))
		for (long mean = 100; mean < 100000; mean *= 9) {
			neighbours("one thread", false, false, mean, 600000);
			neighbours("one thread", false, false, mean, 0);
			neighbours("processes", false, true, mean, 600000);
			neighbours("processes", false, true, mean, 0);
		}
	if (chosen(argc, argv, "ways"))
		ways_of_asking();
	if (chosen(argc, argv, "faults"))
		faults();
	if (chosen(argc, argv, "neighbours"))
		for (long mean = 100; mean < 100000; mean *= 9) {
			neighbours("threads", true, false, mean, 600000);
			neighbours("threads", true, false, mean, 0);
		}
	return check_end();
}
