/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writers that are killed with SIGKILL in the middle: what an event said is in the file. Each program
 * that is killed is a process of its own from the start.
 */
#include "behaviour.h"

enum { BLOCKS = 512, BLOCK = 8192, DEPTH = 32 };

/* Shared with the one that is killed: how often each block was said to be written. */
static struct acknowledged {
	atomic_uint times[BLOCKS];
	atomic_uint total;
} * acknowledged;

static void share(bool fresh)
{
	int fd = open_file("acknowledged", O_RDWR | O_CREAT | (fresh ? O_TRUNC : 0));

	need(ftruncate(fd, sizeof(*acknowledged)) == 0, "ftruncate");
	acknowledged = mmap(NULL, sizeof(*acknowledged), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	need(acknowledged != MAP_FAILED, "mmap");
	close(fd);
}

/*
 * Writes the blocks over and over, in some order, each time with the number of times in it; one block is
 * in flight once at most. With misalign, blocks are a little shorter than the distance between them.
 */
static void write_without_end(int fd, long misalign)
{
	io_context_t context = context_for(DEPTH);
	char *memory = buffer(DEPTH * (size_t)BLOCK + 4096);
	struct iocb iocb[DEPTH];
	unsigned next = 0, times[BLOCKS] = { 0 };
	struct io_event event[DEPTH];
	int in_flight = 0, slots[DEPTH];

	for (int i = 0; i < DEPTH; i++)
		slots[i] = i;
	for (;;) {
		while (in_flight < DEPTH) {
			int slot = slots[in_flight];
			unsigned block = next++ * 37 % BLOCKS;
			char *at = memory + (size_t)slot * BLOCK + misalign;

			fill_at(at, BLOCK - 64, (uint64_t)block * BLOCK, ++times[block]);
			io_prep_pwrite(&iocb[slot], fd, at, misalign ? BLOCK - 64 : BLOCK,
				       (long long)block * BLOCK);
			iocb[slot].data = (void *)(uintptr_t)block;
			need(submit(context, &iocb[slot]) == 1, "io_submit");
			in_flight++;
		}
		int got = io_getevents(context, 1, DEPTH, event, NULL);

		need(got > 0, "io_getevents");
		for (int i = 0; i < got; i++) {
			uintptr_t block = (uintptr_t)event[i].data;

			need((long)event[i].res >= BLOCK - 64, "a write");
			atomic_store(&acknowledged->times[block], times[block]);
			atomic_fetch_add(&acknowledged->total, 1);
			slots[--in_flight] = (int)(event[i].obj - iocb);
		}
	}
}

/* A block has what was acknowledged last, or what was written next. */
static bool is_written(int fd, unsigned block)
{
	unsigned times = atomic_load(&acknowledged->times[block]);
	char memory[BLOCK];

	if (times == 0)
		return true;
	if (pread(fd, memory, BLOCK - 64, (off_t)block * BLOCK) != BLOCK - 64)
		return false;
	for (int part = 0; part < BLOCK - 64; part += 512) {
		size_t length = part + 512 <= BLOCK - 64 ? 512 : (BLOCK - 64) % 512;
		uint64_t offset = (uint64_t)block * BLOCK + (unsigned)part;

		if (!holds_at(memory + part, length, offset, times) &&
		    !holds_at(memory + part, length, offset, times + 1))
			return false;
	}
	return true;
}

static void killed(const char *program, const char *kind, bool preallocated, unsigned after)
{
	int fd;
	bool good = true;
	pid_t pid;

	watch(kind);
	make_file("killed", preallocated ? BLOCKS * (size_t)BLOCK : 0, 0);
	fd = open_file("killed", O_RDONLY);
	need(fsync(fd) == 0, "fsync");
	share(true);
	pid = fork_watched();
	if (pid == 0) {
		execl("/proc/self/exe", program, ".", "writer", kind, (char *)NULL);
		_exit(99);
	}
	while (atomic_load(&acknowledged->total) < after)
		sched_yield();
	kill(pid, SIGKILL);
	check(child_ends(pid) == -SIGKILL, "%s: a writer was killed after %u writes", kind, after);
	for (unsigned block = 0; block < BLOCKS; block++)
		good = is_written(fd, block) && good;
	check(good, "%s: what was said to be written is", kind);
	munmap(acknowledged, sizeof(*acknowledged));
	close(fd);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	if (argc > 3) {
		bool direct = strstr(argv[3], "direct") != NULL;

		share(false);
		write_without_end(open_file("killed", O_WRONLY | (direct ? O_DIRECT : 0)),
				  strstr(argv[3], "misaligned") ? 3 : 0);
	}
	for (unsigned after = 1; after < 3000; after = after * 6 + 1) {
		killed(argv[0], "direct", true, after);
		killed(argv[0], "direct, new", false, after);
		killed(argv[0], "buffered", true, after);
		if (argc > 2) {
			killed(argv[0], "direct, misaligned", true, after);
			killed(argv[0], "direct, misaligned, new", false, after);
		}
	}
	return check_end();
}
