/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is pinned, given back and pinned again at the same address, with I/O on it each time: an
 * io_uring that still held the old pages would read and write those. All data are compared. Without
 * libpinshim.so the memory is ordinary. CASES: heap foreign threads fork calls
 */
#include "behaviour.h"
#include "pinshim.h"

enum { REQUESTS = 16 };

static char *block_new(size_t bytes)
{
	void *block = pinshim_present() ? pinshim_alloc(bytes, 4096) : buffer(bytes);

	need(block != NULL, "pinshim_alloc");
	return block;
}

static void block_free(void *block)
{
	if (pinshim_present())
		need(pinshim_free(block) == 0, "pinshim_free");
	else
		free(block);
}

/* Begins writes of the block, or reads to it, all of it in as many parts as there are requests. */
struct transfer {
	io_context_t context;
	struct iocb iocb[REQUESTS];
};

static void begin_transfer(struct transfer *transfer, bool write, int fd, char *block, size_t bytes)
{
	struct iocb *list[REQUESTS];
	size_t part = bytes / REQUESTS;

	for (int i = 0; i < REQUESTS; i++) {
		(write ? io_prep_pwrite : io_prep_pread)(&transfer->iocb[i], fd,
							 block + (size_t)i * part, part,
							 i * (long long)part);
		list[i] = &transfer->iocb[i];
	}
	need(io_submit(transfer->context, REQUESTS, list) == REQUESTS, "io_submit");
}

static bool end_transfer(struct transfer *transfer, size_t bytes)
{
	struct io_event event[REQUESTS];
	bool good = reap(transfer->context, REQUESTS, event) == REQUESTS;

	for (int i = 0; i < REQUESTS; i++)
		good = event[i].res == bytes / REQUESTS && good;
	return good;
}

/* Writes what the block is filled with, compares the file, and reads it back over something else. */
static bool there_and_back(io_context_t context, const char *name, int fd, char *block,
			   size_t bytes, unsigned seed)
{
	struct transfer transfer = { .context = context };
	bool good;

	fill_at(block, bytes, 0, seed);
	begin_transfer(&transfer, true, fd, block, bytes);
	good = end_transfer(&transfer, bytes) && file_holds(name, bytes, 0, seed);
	memset(block, 0x5a, bytes);
	begin_transfer(&transfer, false, fd, block, bytes);
	return end_transfer(&transfer, bytes) && holds_at(block, bytes, 0, seed) && good;
}

/* Blocks of the heap, with other I/O in flight all the time, in several contexts in turn. */
static void heap(const struct way *way, size_t bytes, int rounds)
{
	enum { CONTEXTS = 3, OLD = 64 };
	int fd = file_with("stale", bytes, 1, way->flags),
	    kept_fd = file_with("kept", MIB, 2, way->flags);
	struct transfer kept = { .context = context_for(REQUESTS) };
	char *kept_block = block_new(MIB), *old[OLD] = { NULL };
	io_context_t context[CONTEXTS];
	int again = 0, count = 0;
	bool good = true;

	watch("blocks of the heap");
	for (int i = 0; i < CONTEXTS; i++)
		context[i] = context_for(REQUESTS);
	for (int round = 0; round < rounds; round++) {
		char *block;

		memset(kept_block, 0xee, MIB);
		begin_transfer(&kept, false, kept_fd, kept_block, MIB);
		block = block_new(bytes);
		for (int i = 0; i < count; i++)
			again += old[i] == block;
		if (count < OLD)
			old[count++] = block;
		for (int i = 0; i < CONTEXTS; i++)
			if (round % 4 != i) /* one does not see each block */
				good = there_and_back(context[i], "stale", fd, block, bytes,
						      (unsigned)(round * CONTEXTS + i + 3)) &&
				       good;
		good = end_transfer(&kept, MIB) && holds_at(kept_block, MIB, 0, 2) && good;
		block_free(block);
		pinshim_trim(0);
	}
	check(good, "%s: blocks of %zu KiB that come and go while there is other I/O", way->name,
	      bytes / KIB);
	if (!check(again > 0 || !pinshim_present(), "%s: and have addresses that others had before",
		   way->name))
		say("# %d of %d\n", again, rounds);
	block_free(kept_block);
	close(fd);
	close(kept_fd);
}

/* The program's own memory, pinned where it is: unmapped and mapped again, with and without unpinning. */
static void foreign(const struct way *way)
{
	const size_t bytes = 2 * MIB;
	int fd = file_with("stale", bytes, 1, way->flags);
	io_context_t context = context_for(REQUESTS);
	char *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	     *block;
	bool good = true;

	watch("memory that is pinned where it is");
	for (int round = 0; round < 6; round++) {
		pinshim_pin(place, bytes);
		good = there_and_back(context, "stale", fd, place, bytes, (unsigned)round + 2) &&
		       good;
		if (round % 3 == 0)
			pinshim_unpin(place, bytes);
		if (round % 3 == 1) {
			/* Other pages at this address, in one step. */
			block = mmap(place, bytes, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			need(block == place, "mmap");
		} else {
			munmap(place, bytes);
			block = mmap(place, bytes, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
			need(block == place, "mmap");
		}
		good = there_and_back(context, "stale", fd, block, bytes, (unsigned)round + 90) &&
		       good;
	}
	check(good, "%s: memory that is pinned where it is, unmapped and mapped again", way->name);
	munmap(place, bytes);
	close(fd);
}

/* Threads with contexts of their own, and blocks that others had before. */
struct job {
	const struct way *way;
	int number;
	bool good;
	io_context_t shared; /* by two, where it is not NULL */
	pthread_mutex_t *turn;
};

static void *come_and_go(void *argument)
{
	struct job *job = argument;
	io_context_t context = job->shared ? job->shared : context_for(REQUESTS);
	const size_t bytes = 3 * MIB;
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "thread%d", job->number);
	fd = file_with(name, bytes, 1, job->way->flags);
	job->good = true;
	for (int round = 0; round < 4; round++) {
		char *block = block_new(bytes);
		bool good;

		if (job->shared) /* events are anybody's: one at a time */
			pthread_mutex_lock(job->turn);
		good = there_and_back(context, name, fd, block, bytes,
				      (unsigned)(round + job->number * 10));
		if (job->shared)
			pthread_mutex_unlock(job->turn);
		job->good = good && job->good;
		block_free(block);
		pinshim_trim(0);
	}
	close(fd);
	return NULL;
}

static void threads(const struct way *way)
{
	enum { THREADS = 5 };
	pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
	io_context_t shared = context_for(REQUESTS);
	struct job job[THREADS];
	pthread_t thread[THREADS];
	bool good = true;

	watch("threads");
	for (int i = 0; i < THREADS; i++) {
		job[i] = (struct job){ way, i, false, i < 2 ? shared : NULL, &turn };
		thread[i] = start(come_and_go, &job[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		good = job[i].good && good;
	}
	check(good, "%s: threads whose blocks come and go, on contexts of their own and on one",
	      way->name);
}

/* A child has the contents but not the locks; what it and its parent write goes to other pages. */
static void forked(const struct way *way)
{
	const size_t bytes = 4 * MIB;
	int fd = file_with("parent", bytes, 1, way->flags),
	    child_fd = file_with("child", bytes, 1, way->flags);
	io_context_t context = context_for(REQUESTS);
	char *block = block_new(bytes);
	bool good = true;

	watch("fork");
	for (int round = 0; round < 2; round++) {
		struct transfer transfer = { .context = context };
		pid_t pid;

		good = there_and_back(context, "parent", fd, block, bytes, 5) && good;
		begin_transfer(&transfer, false, fd, block, bytes);
		pid = fork_watched();
		if (pid == 0) {
			io_context_t own = context_for(REQUESTS);
			char *other;

			good = there_and_back(own, "child", child_fd, block, bytes, 6);
			other = block_new(bytes);
			good = there_and_back(own, "child", child_fd, other, bytes, 7) && good;
			block_free(block);
			pinshim_trim(0);
			block = block_new(bytes);
			good = there_and_back(own, "child", child_fd, block, bytes, 8) && good;
			good = there_and_back(own, "child", child_fd, other, bytes, 9) && good;
			_exit(good ? 0 : 1);
		}
		good = end_transfer(&transfer, bytes) && holds_at(block, bytes, 0, 5) && good;
		/* What the parent writes now, while a child shares its pages, is what its I/O sees. */
		good = there_and_back(context, "parent", fd, block, bytes, 10U + (unsigned)round) &&
		       good;
		if (!check(child_ends(pid) == 0,
			   "%s: a child's I/O on memory that it inherited, freed and got",
			   way->name))
			good = false;
		good = there_and_back(context, "parent", fd, block, bytes, 20U + (unsigned)round) &&
		       good;
		block_free(block);
		pinshim_trim(0);
		block = block_new(bytes);
		good = there_and_back(context, "parent", fd, block, bytes, 30U + (unsigned)round) &&
		       good;
	}
	check(good, "%s: the parent's I/O before, beside and after", way->name);
	block_free(block);
	close(fd);
	close(child_fd);
}

/* What the program may do to the pages of a block in use. */
static void calls(const struct way *way)
{
	static const struct {
		const char *name;
		int advice;
	} advices[] = { { "MADV_DONTNEED", MADV_DONTNEED },
			{ "MADV_FREE", MADV_FREE },
			{ "MADV_NOHUGEPAGE", MADV_NOHUGEPAGE },
			{ "MADV_DONTFORK", MADV_DONTFORK },
			{ "MADV_DONTNEED_LOCKED", 24 } };
	const size_t bytes = 4 * MIB;
	int fd = file_with("stale", bytes, 1, way->flags);
	io_context_t context = context_for(REQUESTS);

	for (size_t i = 0; i < sizeof(advices) / sizeof(*advices); i++) {
		char *block = block_new(bytes);
		bool good;

		watch(advices[i].name);
		good = there_and_back(context, "stale", fd, block, bytes, 3);
		madvise(block, bytes, advices[i].advice);
		good = there_and_back(context, "stale", fd, block, bytes, 4) && good;
		madvise(block + MIB, MIB, advices[i].advice);
		good = there_and_back(context, "stale", fd, block, bytes, 5) && good;
		check(good, "%s: a block after %s", way->name, advices[i].name);
		madvise(block, bytes, MADV_DOFORK);
		block_free(block);
	}
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = { "mlock and munlock", "munlockall",
						     "mprotect" };
		char *block = block_new(bytes);
		bool good = there_and_back(context, "stale", fd, block, bytes, 6);

		if (i == 0)
			mlock(block, bytes), munlock(block, bytes);
		else if (i == 1)
			munlockall();
		else
			mprotect(block, bytes, PROT_READ),
				mprotect(block, bytes, PROT_READ | PROT_WRITE);
		good = there_and_back(context, "stale", fd, block, bytes, 7) && good;
		check(good, "%s: a block after %s", way->name, names[i]);
		block_free(block);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	FOR_EACH_WAY(way)
	{
		if (chosen(argc, argv, "heap")) {
			heap(way, MIB, 8);
			heap(way, 4 * MIB, 6);
			heap(way, 36 * MIB, 3);
		}
		if (chosen(argc, argv, "foreign"))
			foreign(way);
		if (chosen(argc, argv, "calls"))
			calls(way);
		if (chosen(argc, argv, "fork"))
			forked(way);
	}
	FOR_EACH_WAY(way)
	{
		if (chosen(argc, argv, "threads"))
			threads(way);
	}
	return check_end();
}
