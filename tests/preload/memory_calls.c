/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory_calls: the program's own mlock, madvise, munmap and the like on memory that pinshim pinned.
 *
 * Every case is one that also holds without the shim, and the names tell the results, so the output
 * is the same line by line with and without it; memory_calls.sh compares. What only the shim promises
 * (a chunk stays locked, the table no longer claims) is asked in addition where a block is pinned.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>

#include "pinshim.h"

#include "check.h"

#define PAGE ((size_t)4096)
#define BLOCK ((size_t)1 << 20)

/* The result of a call as the manual page names it: "0", or the error. */
static const char *said(long result)
{
	return result == -1 ? strerrorname_np(errno) : result ? "?" : "0";
}

/* Is it pinned, where pinning is to be had? */
static bool still_pinned(const void *pointer, size_t length, bool was)
{
	return !was || (pinshim_is_pinned(pointer, length) && is_locked(pointer, length));
}

static bool accessible(const void *pointer)
{
	bool result;
	int ends[2];

	if (pipe(ends))
		return false;
	result = write(ends[1], pointer, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return result;
}

static bool all(const char *bytes, size_t length, char value)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

/* A block of the heap, filled with x. *pinned: whether it is pinned, which it may not be. */
static char *heap_block(size_t size, bool *pinned)
{
	void *block;

	if (posix_memalign(&block, PAGE, size))
		exit(98);
	memset(block, 'x', size);
	*pinned = pinshim_is_pinned(block, size);
	return block;
}

/* The program's own memory, filled with x and pinned where it is. */
static char *own_memory(size_t size, bool *pinned)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		exit(98);
	memset(memory, 'x', size);
	*pinned = pinshim_pin(memory, size) == 0;
	return memory;
}

/* Memory that is not pinned. */
static char *plain_memory(size_t size)
{
	bool pinned;
	char *memory = own_memory(size, &pinned);

	if (pinned)
		pinshim_unpin(memory, size);
	return memory;
}

static int a_file(size_t size, char value)
{
	int fd = memfd_create("memory_calls", MFD_CLOEXEC);
	char *content = malloc(size);

	memset(content, value, size);
	if (fd < 0 || write(fd, content, size) != (ssize_t)size)
		exit(98);
	free(content);
	return fd;
}

static bool file_is(int fd, size_t size, char value)
{
	char *content = malloc(size);
	bool result = pread(fd, content, size, 0) == (ssize_t)size && all(content, size, value);

	free(content);
	return result;
}

/* Runs what() in a child; its exit status, or 128 and the signal. */
static int in_child(int (*what)(char *block), char *block)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(what(block));
	if (waitpid(child, &status, 0) != child)
		return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void heap_locks(void)
{
	bool pinned;
	char *block = heap_block(BLOCK, &pinned);
	long r;

	errno = 1234;
	r = mlock(block, BLOCK);
	check(r == 0, "heap: mlock: %s", said(r));
	r = munlock(block, BLOCK);
	check(r == 0, "heap: munlock: %s", said(r));
	check(still_pinned(block, BLOCK, pinned), "heap: munlock leaves a pinned block pinned");
	r = mlock(block + 100, 3 * PAGE);
	check(r == 0, "heap: mlock of part, not on a page: %s", said(r));
	r = munlock(block + 100, 3 * PAGE);
	check(r == 0, "heap: munlock of part, not on a page: %s", said(r));
	r = munlock(block + 100, 0);
	check(r == 0, "heap: munlock of no bytes within a page: %s", said(r));
	r = mlock(block, 0);
	check(r == 0, "heap: mlock of no bytes: %s", said(r));
	r = mlock2(block, BLOCK, MLOCK_ONFAULT);
	check(r == 0, "heap: mlock2 with MLOCK_ONFAULT: %s", said(r));
	r = munlock(block, BLOCK);
	check(r == 0 && errno == 1234, "heap: success leaves errno alone");
	check(still_pinned(block, BLOCK, pinned), "heap: still pinned after all of these");
	r = mlock2(block, BLOCK, 8);
	check(r == -1, "heap: mlock2 with an unknown flag: %s", said(r));
	r = mlock(block, (size_t)-1 - (uintptr_t)block - PAGE);
	check(r == -1 || r == 0, "heap: mlock of nearly everything: returns");
	free(block);
}

static void heap_munlockall(void)
{
	bool pinned, own_pinned;
	char *block = heap_block(BLOCK, &pinned), *plain = plain_memory(BLOCK);
	char *own = own_memory(BLOCK, &own_pinned);
	long r;

	check(mlock(plain, BLOCK) == 0 && is_locked(plain, BLOCK), "munlockall: memory is locked");
	r = munlockall();
	check(r == 0, "munlockall: %s", said(r));
	check(!is_locked(plain, PAGE), "munlockall: and then it is not");
	check(still_pinned(block, BLOCK, pinned), "munlockall: a pinned block stays pinned");
	check(still_pinned(own, BLOCK, own_pinned), "munlockall: so does what the program pinned");
	munmap(plain, BLOCK);
	munmap(own, BLOCK);
	free(block);
}

static void mlockall_flags(void)
{
	long r;

	r = mlockall(0);
	check(r == -1, "mlockall without a flag: %s", said(r));
	r = mlockall(MCL_ONFAULT);
	check(r == -1, "mlockall with MCL_ONFAULT alone: %s", said(r));
	r = mlockall(MCL_CURRENT | 1 << 12);
	check(r == -1, "mlockall with an unknown flag: %s", said(r));
}

/* Sets the soft limit of RLIMIT_MEMLOCK and returns what it was. */
static rlim_t memlock_limit(rlim_t bytes)
{
	struct rlimit limit;
	rlim_t was;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	was = limit.rlim_cur;
	limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
	setrlimit(RLIMIT_MEMLOCK, &limit);
	return was;
}

static void mlockall_limits(void)
{
	/* Address space alone counts against the limit, as mlockall(2) says. */
	char *much = mmap(NULL, 256 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *plain = plain_memory(4 * PAGE);
	bool locked;
	rlim_t was;
	long r;

	was = memlock_limit((rlim_t)200 << 20);
	r = mlockall(MCL_CURRENT);
	locked = is_locked(plain, 4 * PAGE);
	check(locked == (r == 0), "mlockall(MCL_CURRENT) of more than the limit: %s", said(r));
	munlockall();
	r = mlockall(MCL_CURRENT | MCL_FUTURE);
	check(is_locked(plain, 4 * PAGE) == (r == 0),
	      "mlockall(MCL_CURRENT | MCL_FUTURE) of more than the limit: %s", said(r));
	munlockall();
	memlock_limit(0);
	r = mlockall(MCL_CURRENT);
	check(is_locked(plain, 4 * PAGE) == (r == 0), "mlockall(MCL_CURRENT), limit 0: %s",
	      said(r));
	munlockall();
	r = mlockall(MCL_FUTURE);
	check(true, "mlockall(MCL_FUTURE), limit 0: %s", said(r));
	munlockall();
	memlock_limit(was);
	munmap(much, 256 << 20);
	munmap(plain, 4 * PAGE);
}

/* So that all of a small program is less than 8 MiB, which is what most users may lock. */
#define SMALL ((size_t)128 << 10)

static void mlockall_current(void)
{
	char *plain = plain_memory(SMALL), *none, *late;
	bool pinned;
	char *block = heap_block(SMALL, &pinned);
	long r;

	none = mmap(NULL, SMALL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	errno = 1234;
	r = mlockall(MCL_CURRENT);
	check(r == 0, "mlockall(MCL_CURRENT): %s", said(r));
	check(errno == 1234, "mlockall(MCL_CURRENT): success leaves errno alone");
	check(is_locked(plain, SMALL), "mlockall(MCL_CURRENT): locks what there is");
	check(is_locked(none, SMALL), "mlockall(MCL_CURRENT): marks what has no access");
	check(is_locked(&pinned, 1) && is_locked(said(0), 1),
	      "mlockall(MCL_CURRENT): locks stack and program");
	check(locked_bytes() < 512L << 20, "mlockall(MCL_CURRENT): charges for no more than that");
	late = plain_memory(SMALL);
	check(!is_locked(late, PAGE), "mlockall(MCL_CURRENT): but not what comes later");
	check(munlockall() == 0 && !is_locked(plain, PAGE) && !is_locked(none, PAGE),
	      "munlockall undoes it");
	check(still_pinned(block, SMALL, pinned), "munlockall after it leaves the heap pinned");

	check(mlockall(MCL_CURRENT | MCL_ONFAULT) == 0 && is_locked(plain, SMALL),
	      "mlockall(MCL_CURRENT | MCL_ONFAULT): locks what there is");
	check(munlockall() == 0 && !is_locked(plain, PAGE), "munlockall undoes that, too");
	munmap(plain, SMALL);
	munmap(none, SMALL);
	munmap(late, SMALL);
	free(block);
}

static int lock_all_in_child(char *block)
{
	if (is_locked(block, SMALL) || mlockall(MCL_CURRENT) || !is_locked(block, SMALL))
		return 1;
	return munlockall() || is_locked(block, 1) ? 2 : 0;
}

static void mlockall_inherited(void)
{
	bool pinned;
	char *block = heap_block(SMALL, &pinned);

	check(in_child(lock_all_in_child, block) == 0,
	      "mlockall(MCL_CURRENT): locks what a child inherited");
	free(block);
}

static void mlockall_future(void)
{
	bool pinned;
	char *block = heap_block(SMALL, &pinned), *late;

	check(mlockall(MCL_FUTURE) == 0, "mlockall(MCL_FUTURE): 0");
	late = plain_memory(SMALL);
	check(is_locked(late, SMALL), "mlockall(MCL_FUTURE): locks what comes later");
	munmap(late, SMALL);
	check(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall(MCL_CURRENT | MCL_FUTURE): 0");
	check(mlockall(MCL_CURRENT) == 0, "mlockall(MCL_CURRENT) after that: 0");
	late = plain_memory(SMALL);
	check(!is_locked(late, PAGE), "mlockall(MCL_CURRENT): ends MCL_FUTURE");
	check(still_pinned(block, SMALL, pinned), "mlockall leaves a pinned block pinned");
	check(munlockall() == 0 && still_pinned(block, SMALL, pinned), "munlockall does as well");
	munmap(late, SMALL);
	free(block);
}

static void heap_dontneed(void)
{
	bool pinned;
	char *block = heap_block(BLOCK, &pinned);
	long r;

	errno = 1234;
	r = madvise(block + PAGE, 3 * PAGE - 5, MADV_DONTNEED);
	check(r == 0 && errno == 1234, "heap: madvise(MADV_DONTNEED): %s", said(r));
	check(all(block + PAGE, 3 * PAGE, 0), "heap: and it reads as zeros, to the page's end");
	check(all(block, PAGE, 'x') && all(block + 4 * PAGE, BLOCK - 4 * PAGE, 'x'),
	      "heap: and what lies around it is untouched");
	check(still_pinned(block, BLOCK, pinned), "heap: and it is still pinned");
	memset(block, 'y', BLOCK);
	r = madvise(block, BLOCK, MADV_DONTNEED);
	check(r == 0 && all(block, BLOCK, 0), "heap: MADV_DONTNEED of all of it: %s", said(r));
	r = madvise(block + 1, PAGE, MADV_DONTNEED);
	check(r == -1, "heap: MADV_DONTNEED not on a page: %s", said(r));
	r = madvise(block, 0, MADV_DONTNEED);
	check(r == 0, "heap: MADV_DONTNEED of no bytes: %s", said(r));
	r = madvise(block, (size_t)-1, MADV_DONTNEED);
	check(r == -1, "heap: MADV_DONTNEED that wraps around: %s", said(r));
	r = madvise(block, (size_t)-1 - (uintptr_t)block - 2 * PAGE, 12345);
	check(r == -1, "heap: an unknown advice: %s", said(r));
	free(block);
}

static void heap_advice(void)
{
	static const struct {
		int advice;
		const char *name;
	} hints[] = {
		{ MADV_NORMAL, "MADV_NORMAL" },     { MADV_RANDOM, "MADV_RANDOM" },
		{ MADV_WILLNEED, "MADV_WILLNEED" }, { MADV_SEQUENTIAL, "MADV_SEQUENTIAL" },
		{ MADV_COLD, "MADV_COLD" },         { MADV_PAGEOUT, "MADV_PAGEOUT" },
		{ MADV_HUGEPAGE, "MADV_HUGEPAGE" }, { MADV_NOHUGEPAGE, "MADV_NOHUGEPAGE" },
		{ MADV_DONTDUMP, "MADV_DONTDUMP" }, { MADV_DODUMP, "MADV_DODUMP" },
	};
	bool pinned;
	char *block = heap_block(BLOCK, &pinned);
	long r;

	for (size_t i = 0; i < sizeof(hints) / sizeof(*hints); i++) {
		r = madvise(block, BLOCK, hints[i].advice);
		check(r == 0 && all(block, BLOCK, 'x'), "heap: %s: %s", hints[i].name, said(r));
	}
	r = madvise(block, BLOCK, MADV_FREE);
	for (size_t i = 0; i < BLOCK && r == 0; i += PAGE)
		r = all(block + i, PAGE, 'x') || all(block + i, PAGE, 0) ? 0 : 1;
	check(r == 0, "heap: MADV_FREE leaves old bytes or zeros: %s", said(r));
	memset(block, 'z', BLOCK);
	check(all(block, BLOCK, 'z'), "heap: and what is written after it stays");
	r = madvise(block, BLOCK, MADV_POPULATE_WRITE);
	check(r == 0 && all(block, BLOCK, 'z'), "heap: MADV_POPULATE_WRITE: %s", said(r));
	check(still_pinned(block, BLOCK, pinned), "heap: still pinned after all advice");
	free(block);
}

static int touch(char *block)
{
	signal(SIGSEGV, SIG_DFL);
	return *(volatile char *)block == 'x' ? 1 : 2;
}

static int lock_in_child(char *block)
{
	if (is_locked(block, PAGE) || mlock(block, 4 * PAGE) || !is_locked(block, 4 * PAGE))
		return 1;
	if (munlock(block, 4 * PAGE) || is_locked(block, PAGE))
		return 2;
	if (madvise(block, PAGE, MADV_DONTNEED) || !all(block, PAGE, 0) || block[PAGE] != 'x')
		return 3;
	if (munmap(block, PAGE) || accessible(block) || !accessible(block + PAGE))
		return 4;
	return 0;
}

static void heap_and_fork(void)
{
	bool pinned;
	char *block = heap_block(BLOCK, &pinned);

	check(in_child(lock_in_child, block) == 0, "a child locks and gives up inherited memory");
	check(all(block, BLOCK, 'x'), "and the parent's is untouched");
	check(madvise(block, BLOCK, MADV_DONTFORK) == 0 && in_child(touch, block) == 128 + SIGSEGV,
	      "heap: MADV_DONTFORK: a child has not got it");
	check(madvise(block, BLOCK, MADV_DOFORK) == 0 && in_child(touch, block) == 1,
	      "heap: MADV_DOFORK: it has");
	check(madvise(block, BLOCK, MADV_WIPEONFORK) == 0 && in_child(touch, block) == 2,
	      "heap: MADV_WIPEONFORK: it has zeros");
	check(madvise(block, BLOCK, MADV_KEEPONFORK) == 0 && in_child(touch, block) == 1,
	      "heap: MADV_KEEPONFORK: it has the contents");
	check(still_pinned(block, BLOCK, pinned), "heap: and it is still pinned");
	free(block);
}

/* Is nothing of it claimed, neither by the table nor by the kernel? */
static bool unclaimed(const char *address, size_t length)
{
	for (size_t i = 0; i < length; i += PAGE)
		if (pinshim_is_pinned(address + i, 1))
			return false;
	return !is_locked(address, 1);
}

static void heap_munmap(size_t size)
{
	const char *name = size > BLOCK ? "large block" : "block";
	bool pinned;
	char *block = heap_block(size, &pinned), *middle = block + size / 2;
	void *again;
	long r;

	r = munmap(middle + 1, PAGE);
	check(r == -1, "%s: munmap not on a page: %s", name, said(r));
	r = munmap(middle, 0);
	check(r == -1, "%s: munmap of no bytes: %s", name, said(r));
	check(still_pinned(block, size, pinned), "%s: and it is still pinned", name);
	errno = 1234;
	r = munmap(middle, 2 * PAGE - 1);
	check(r == 0 && errno == 1234, "%s: munmap in the middle: %s", name, said(r));
	check(!accessible(middle) && !accessible(middle + PAGE), "%s: there is nothing there",
	      name);
	check(all(block, size / 2, 'x') && all(middle + 2 * PAGE, size / 2 - 2 * PAGE, 'x'),
	      "%s: the rest is untouched", name);
	check(unclaimed(middle, 2 * PAGE), "%s: and what went is not claimed", name);
	again = mmap(middle, 2 * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	check(again == middle && all(middle, 2 * PAGE, 0), "%s: mmap puts memory there", name);
	memset(middle, 'y', 2 * PAGE);
	free(block);
	block = heap_block(size, &pinned);
	check(all(block, size, 'x'), "%s: freed, and the next one is whole", name);
	free(block);
}

/* What a ring buffer does: the same file twice, one after the other, where malloc gave memory. */
static void heap_ring(void)
{
	const size_t half = BLOCK / 2;
	bool pinned;
	char *ring = heap_block(BLOCK, &pinned);
	int fd = a_file(half, 'f');

	for (int i = 0; i < 2; i++)
		check(mmap(ring + (size_t)i * half, half, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_FIXED, fd, 0) == ring + (size_t)i * half,
		      "ring: half %d is mapped over a block", i + 1);
	check(all(ring, BLOCK, 'f'), "ring: both halves read as the file");
	ring[half + 5] = 'r';
	check(ring[5] == 'r', "ring: what is written to one is in the other");
	ring[5] = 'f';
	check(unclaimed(ring, BLOCK), "ring: it is not claimed");
	check(mlock(ring, half) == 0 && is_locked(ring, half) && munlock(ring, half) == 0 &&
		      !is_locked(ring, PAGE),
	      "ring: the program locks and unlocks it");
	check(madvise(ring, half, MADV_DONTNEED) == 0 && all(ring, half, 'f'),
	      "ring: MADV_DONTNEED means what it means for a file");
	check(munmap(ring, BLOCK) == 0 && !accessible(ring) && !accessible(ring + half),
	      "ring: and it is unmapped");
	close(fd);
}

/* A program may also free the block without a word. */
static void heap_freed_under_a_file(size_t size)
{
	bool pinned;
	char *block = heap_block(size, &pinned);
	int fd = a_file(4 * PAGE, 'f');

	check(mmap(block + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		   0) == block + 8 * PAGE,
	      "%zu: a file is mapped into a block", size);
	free(block);
	for (int i = 0; i < 4; i++) {
		block = heap_block(size, &pinned);
		if (i % 2)
			free(block);
	}
	check(file_is(fd, 4 * PAGE, 'f'), "%zu: freed, later blocks do not write to the file",
	      size);
	close(fd);
}

static int freed_with_a_hole(char *unused)
{
	bool pinned;
	char *block = heap_block(BLOCK, &pinned);

	(void)unused;
	if (munmap(block + 16 * PAGE, PAGE))
		return 1;
	free(block);
	for (int i = 0; i < 4; i++) {
		block = heap_block(BLOCK, &pinned);
		if (!all(block, BLOCK, 'x'))
			return 2;
	}
	return 0;
}

/* Later blocks can be written to and are inherited, whatever the program set on a block that it freed. */
static int written_after(int protection, size_t size, size_t cut_off)
{
	bool pinned;
	char *block = heap_block(size, &pinned);

	if (mprotect(block + size - 16 * PAGE, 8 * PAGE, protection) ||
	    !still_pinned(block, size, pinned))
		return 1;
	if (cut_off) {
		char *rest = realloc(block, size - cut_off);

		if (!all(rest, size - cut_off, 'x'))
			return 3;
	} else {
		free(block);
	}
	for (int i = 0; i < 4; i++) {
		char *later = heap_block(size, &pinned), *half = heap_block(size / 2, &pinned);

		if (!all(later, size, 'x') || !all(half, size / 2, 'x'))
			return 2;
		if (i % 2)
			free(later);
	}
	return 0;
}

static int written_after_none(char *size)
{
	return written_after(PROT_NONE, (size_t)size, 0);
}

static int written_after_read(char *size)
{
	return written_after(PROT_READ, (size_t)size, 0);
}

static int written_after_key(char *size)
{
	bool pinned;
	char *block = heap_block((size_t)size, &pinned);

	if (pkey_mprotect(block + PAGE, PAGE, PROT_NONE, -1))
		return 1;
	free(block);
	return all(heap_block((size_t)size, &pinned), (size_t)size, 'x') ? 0 : 2;
}

static int written_after_cut_off(char *size)
{
	return written_after(PROT_READ, (size_t)size, (size_t)size / 2);
}

static void heap_protected(size_t size)
{
	char *as_block = (char *)size;

	check(in_child(written_after_none, as_block) == 0,
	      "%zu: freed under PROT_NONE, later blocks are whole", size);
	check(in_child(written_after_read, as_block) == 0,
	      "%zu: freed under PROT_READ, later blocks are whole", size);
	check(in_child(written_after_key, as_block) == 0,
	      "%zu: freed after pkey_mprotect, later blocks are whole", size);
	check(in_child(written_after_cut_off, as_block) == 0,
	      "%zu: cut off under PROT_READ, later blocks are whole", size);
}

static void heap_advice_and_free(size_t size)
{
	static const struct {
		int advice;
		const char *name;
	} lasting[] = {
		{ MADV_DONTFORK, "MADV_DONTFORK" },
		{ MADV_WIPEONFORK, "MADV_WIPEONFORK" },
	};
	bool pinned;

	for (size_t i = 0; i < sizeof(lasting) / sizeof(*lasting); i++) {
		char *block = heap_block(size, &pinned), *later;

		check(madvise(block, size, lasting[i].advice) == 0 &&
			      still_pinned(block, size, pinned),
		      "%zu: %s: 0", size, lasting[i].name);
		free(block);
		later = heap_block(size, &pinned);
		check(in_child(touch, later) == 1, "%zu: freed after %s, a child has the next one",
		      size, lasting[i].name);
		free(later);
	}
}

/* What realloc cuts off a block is the heap's again, whatever the program has put there. */
static void heap_cut_off_under_a_file(size_t size)
{
	bool pinned;
	char *block = heap_block(size, &pinned), *later[8], *rest;
	int fd = a_file(size / 4, 'f');

	check(mmap(block + size / 2, size / 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		   0) == block + size / 2,
	      "%zu: a file is mapped into the end of a block", size);
	rest = realloc(block, size / 2);
	for (int i = 0; i < 8; i++)
		later[i] = heap_block(size / 4, &pinned);
	check(all(rest, size / 2, 'x') && file_is(fd, size / 4, 'f'),
	      "%zu: cut off by realloc, later blocks do not write to the file", size);
	for (int i = 0; i < 8; i++)
		free(later[i]);
	free(rest);
	close(fd);
}

static void heap_noreplace(void)
{
	bool pinned;
	char *block = heap_block(BLOCK, &pinned);
	void *result = mmap(block, PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_FIXED_NOREPLACE, -1, 0);

	check(result == MAP_FAILED, "heap: MAP_FIXED_NOREPLACE: %s", said(-1));
	check(all(block, BLOCK, 'x') && still_pinned(block, BLOCK, pinned),
	      "heap: and it is untouched");
	free(block);
}

static void heap_mremap(void)
{
	const size_t size = 64 * PAGE;
	bool pinned;
	char *block = heap_block(size, &pinned), *target, *moved;
	long r;

	r = (long)mremap(block + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
	check(r == -1, "heap: mremap not on a page: %s", said(r));
	r = (long)mremap(block, size, 0, MREMAP_MAYMOVE);
	check(r == -1, "heap: mremap to nothing: %s", said(r));
	r = (long)mremap(block, size, size, MREMAP_FIXED, block + size);
	check(r == -1, "heap: mremap with MREMAP_FIXED alone: %s", said(r));
	r = (long)mremap(block, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, block + PAGE);
	check(r == -1, "heap: mremap onto itself: %s", said(r));
	check(all(block, size, 'x') && still_pinned(block, size, pinned),
	      "heap: after these it is untouched");
	check(mremap(block, size, size, MREMAP_MAYMOVE) == block &&
		      still_pinned(block, size, pinned),
	      "heap: mremap to the same size");
	check(mremap(block, size, size / 2, 0) == block && all(block, size / 2, 'x') &&
		      !accessible(block + size / 2),
	      "heap: mremap shrinks it in place");
	moved = mremap(block, size / 2, 2 * size, MREMAP_MAYMOVE);
	check(moved != MAP_FAILED && moved != block && all(moved, size / 2, 'x') &&
		      all(moved + size / 2, 3 * size / 2, 0),
	      "heap: mremap moves it, and it grows");
	check(!accessible(block) && unclaimed(block, size), "heap: what it left is not claimed");
	munmap(moved, 2 * size);

	block = heap_block(size, &pinned);
	target = plain_memory(size);
	moved = mremap(block, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	check(moved == target && all(moved, size, 'x') && !accessible(block),
	      "heap: mremap moves it to where it is told");
	block = heap_block(size, &pinned);
	memset(target, 't', size);
	moved = mremap(target, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, block);
	check(moved == block && all(block, size, 't') && unclaimed(block, size),
	      "heap: mremap moves other memory over it");
	check(munmap(block, size) == 0 && !accessible(block), "heap: which is unmapped");
}

/* An old size of 0 makes a second mapping of shared memory, here where malloc gave a block. */
static void heap_under_a_second_mapping(size_t size)
{
	bool pinned;
	char *block = heap_block(size, &pinned), *shared;
	int fd = a_file(4 * PAGE, 'f');

	shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(mremap(shared, 0, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, block) == block &&
		      all(block, 4 * PAGE, 'f') && all(shared, 4 * PAGE, 'f'),
	      "%zu: mremap makes a second mapping of shared memory over a block", size);
	check(unclaimed(block, 4 * PAGE), "%zu: and it is not claimed", size);
	free(block);
	for (int i = 0; i < 4; i++) {
		block = heap_block(size, &pinned);
		if (i % 2)
			free(block);
	}
	check(all(shared, 4 * PAGE, 'f'), "%zu: freed, later blocks do not write to it", size);
	munmap(shared, 4 * PAGE);
	close(fd);
}

static bool writable(char *pointer)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	bool result = read(fd, pointer, 1) == 1;

	close(fd);
	return result;
}

/* Memory that is not to be written to, or to be touched, moves as any other and stays so. */
static void heap_mremap_protected(size_t size)
{
	bool pinned;
	char *block = heap_block(size, &pinned), *moved, *target;

	mprotect(block, size, PROT_READ);
	moved = mremap(block, size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	check(moved != MAP_FAILED && all(moved, size, 'x') && all(block, size, 0),
	      "%zu: mremap with MREMAP_DONTUNMAP of a read-only block leaves zeros", size);
	check(!writable(moved) && !writable(block) && unclaimed(block, size),
	      "%zu: both are read-only, and not claimed", size);
	munmap(moved, size);
	free(block);

	block = heap_block(size, &pinned);
	mprotect(block, size, PROT_READ);
	moved = mremap(block, size, 2 * size, MREMAP_MAYMOVE);
	check(moved != MAP_FAILED && all(moved, size, 'x') && !writable(moved) &&
		      !accessible(block),
	      "%zu: mremap moves a read-only block, and it is still read-only", size);
	munmap(moved, 2 * size);

	block = heap_block(size, &pinned);
	target = plain_memory(PAGE);
	mprotect(block + PAGE, PAGE, PROT_NONE);
	check(mremap(block + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target &&
		      !accessible(target) && !accessible(block + PAGE),
	      "%zu: mremap moves a page without access", size);
	mprotect(target, PAGE, PROT_READ | PROT_WRITE);
	check(all(target, PAGE, 'x'), "%zu: which has its contents", size);
	munmap(target, PAGE);
	free(block);
	block = heap_block(size, &pinned);
	check(all(block, size, 'x'), "%zu: freed after that, the next block is whole", size);
	free(block);
}

static void own_locks(void)
{
	bool pinned;
	char *own = own_memory(64 * PAGE, &pinned);
	long r;

	/* Two pages on either side that are not pinned. */
	if (pinned)
		pinshim_unpin(own, 2 * PAGE), pinshim_unpin(own + 62 * PAGE, 2 * PAGE);
	errno = 1234;
	r = mlock(own, 64 * PAGE);
	check(r == 0 && is_locked(own, 64 * PAGE), "own: mlock: %s", said(r));
	r = munlock(own, 64 * PAGE);
	check(r == 0 && errno == 1234, "own: munlock: %s", said(r));
	check(!is_locked(own, 1) && !is_locked(own + 62 * PAGE, 1),
	      "own: munlock unlocks what is not pinned");
	check(still_pinned(own + 2 * PAGE, 60 * PAGE, pinned), "own: and leaves the rest pinned");
	if (pinned)
		check(pinshim_unpin(own + 2 * PAGE, 60 * PAGE) == 0 && true, "own: unpin");
	else
		check(true, "own: unpin");
	check(!is_locked(own, 1) && !is_locked(own + 2 * PAGE, 1), "own: then nothing is locked");
	munmap(own, 64 * PAGE);
}

static void own_advice(void)
{
	bool pinned;
	char *own = own_memory(16 * PAGE, &pinned), *mapped;
	int fd = a_file(4 * PAGE, 'f');
	long r;

	errno = 1234;
	r = madvise(own + PAGE, 2 * PAGE, MADV_DONTNEED);
	check(r == 0 && errno == 1234 && all(own + PAGE, 2 * PAGE, 0) && own[0] == 'x',
	      "own: MADV_DONTNEED: %s", said(r));
	check(still_pinned(own, 16 * PAGE, pinned), "own: and it is still pinned");
	r = madvise(own, 16 * PAGE, MADV_FREE);
	check(r == 0, "own: MADV_FREE: %s", said(r));
	r = madvise(own, 16 * PAGE, MADV_COLD);
	check(r == 0, "own: MADV_COLD: %s", said(r));
	r = madvise(own, 16 * PAGE, MADV_PAGEOUT);
	check(r == 0, "own: MADV_PAGEOUT: %s", said(r));
	check(still_pinned(own, 16 * PAGE, pinned), "own: and it is still pinned");
	munmap(own + 8 * PAGE, PAGE);
	memset(own, 'x', 8 * PAGE);
	r = madvise(own, 16 * PAGE, MADV_DONTNEED);
	check(r == -1 && all(own, 8 * PAGE, 0), "own: MADV_DONTNEED across a hole: %s", said(r));
	munmap(own, 16 * PAGE);

	mapped = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	memset(mapped, 'p', 4 * PAGE);
	pinned = pinshim_pin(mapped, 4 * PAGE) == 0;
	r = madvise(mapped, 4 * PAGE, MADV_DONTNEED);
	check(r == 0 && all(mapped, 4 * PAGE, 'f') && still_pinned(mapped, 4 * PAGE, pinned),
	      "own: MADV_DONTNEED of a private file mapping: the file again");
	r = madvise(mapped, 4 * PAGE, MADV_FREE);
	check(r == -1, "own: MADV_FREE of a private file mapping: %s", said(r));
	munmap(mapped, 4 * PAGE);
	mapped = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pinned = pinshim_pin(mapped, 4 * PAGE) == 0;
	r = madvise(mapped, 2 * PAGE, MADV_FREE);
	check(r == -1 && all(mapped, 2 * PAGE, 'f'), "own: MADV_FREE of shared memory: %s",
	      said(r));
	r = madvise(mapped, 2 * PAGE, MADV_REMOVE);
	check(r == 0 && all(mapped, 2 * PAGE, 0) && mapped[2 * PAGE] == 'f' &&
		      still_pinned(mapped, 4 * PAGE, pinned),
	      "own: MADV_REMOVE of shared memory: zeros");
	munmap(mapped, 4 * PAGE);
	close(fd);
}

static void own_mappings(void)
{
	bool pinned;
	char *own = own_memory(16 * PAGE, &pinned), *moved;
	long r;

	r = munmap(own + 1, PAGE);
	check(r == -1 && still_pinned(own, 16 * PAGE, pinned), "own: munmap not on a page: %s",
	      said(r));
	r = munmap(own + 12 * PAGE, 4 * PAGE);
	check(r == 0 && unclaimed(own + 12 * PAGE, 4 * PAGE), "own: munmap of the end: %s",
	      said(r));
	check(still_pinned(own, 12 * PAGE, pinned), "own: and the rest is still pinned");
	check(!pinned || pinshim_unpin(own, 16 * PAGE) == -EINVAL, "own: not all can be unpinned");
	moved = mmap(own + 8 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	check(moved == own + 8 * PAGE && all(moved, 4 * PAGE, 0) && unclaimed(moved, 4 * PAGE),
	      "own: mmap with MAP_FIXED over it");
	check(mremap(own, 8 * PAGE, 4 * PAGE, 0) == own && still_pinned(own, 4 * PAGE, pinned) &&
		      unclaimed(own + 4 * PAGE, 4 * PAGE),
	      "own: mremap shrinks it");
	check(mremap(own, 4 * PAGE, 4 * PAGE, 0) == own && still_pinned(own, 4 * PAGE, pinned),
	      "own: mremap to the same size");
	moved = mremap(own, 4 * PAGE, 512 * PAGE, MREMAP_MAYMOVE);
	check(moved != MAP_FAILED && all(moved, 4 * PAGE, 'x') && unclaimed(moved, 512 * PAGE) &&
		      unclaimed(own, 4 * PAGE),
	      "own: mremap moves it");
	munmap(moved, 512 * PAGE);
	munmap(own, 16 * PAGE);
}

static void own_shared_memory(void)
{
	int id = shmget(IPC_PRIVATE, 8 * PAGE, IPC_CREAT | 0600);
	char *at = shmat(id, NULL, 0), *own;
	bool pinned;
	long r;

	memset(at, 's', 8 * PAGE);
	pinned = pinshim_pin(at, 8 * PAGE) == 0;
	check(still_pinned(at, 8 * PAGE, pinned), "own: shared memory");
	r = shmdt(at + PAGE);
	check(r == -1 && still_pinned(at, 8 * PAGE, pinned), "own: shmdt within it: %s", said(r));
	r = shmdt(at);
	check(r == 0 && !accessible(at) && unclaimed(at, 8 * PAGE), "own: shmdt: %s", said(r));
	own = own_memory(16 * PAGE, &pinned);
	check(shmat(id, own, 0) == (void *)-1 && still_pinned(own, 16 * PAGE, pinned),
	      "own: shmat without SHM_REMAP");
	check(shmat(id, own + 4 * PAGE, SHM_REMAP) == own + 4 * PAGE && own[4 * PAGE] == 's' &&
		      unclaimed(own + 4 * PAGE, 8 * PAGE),
	      "own: shmat with SHM_REMAP over it");
	check(still_pinned(own, 4 * PAGE, pinned) &&
		      still_pinned(own + 12 * PAGE, 4 * PAGE, pinned),
	      "own: and the rest is still pinned");
	check(shmdt(own + 4 * PAGE) == 0 && !accessible(own + 4 * PAGE), "own: shmdt again");
	munmap(own, 16 * PAGE);

	own = heap_block(BLOCK, &pinned);
	check(shmat(id, own, SHM_REMAP) == own && own[0] == 's' && own[8 * PAGE] == 'x' &&
		      unclaimed(own, 8 * PAGE),
	      "heap: shmat with SHM_REMAP over it");
	check(shmdt(own) == 0 && !accessible(own) && accessible(own + 8 * PAGE), "heap: and shmdt");
	shmctl(id, IPC_RMID, NULL);
}

static void own_break(void)
{
	char *start = sbrk(0), *own;
	uintptr_t up = -(uintptr_t)start % PAGE;
	bool pinned;

	sbrk((intptr_t)(up + 8 * PAGE));
	own = start + up;
	memset(own, 'b', 8 * PAGE);
	pinned = pinshim_pin(own, 8 * PAGE) == 0;
	check(still_pinned(own, 8 * PAGE, pinned), "own: above the break");
	check(sbrk(-(intptr_t)(2 * PAGE)) == own + 8 * PAGE &&
		      still_pinned(own, 6 * PAGE, pinned) && unclaimed(own + 6 * PAGE, 2 * PAGE),
	      "own: sbrk takes the end away");
	check(brk(own + PAGE) == 0 && still_pinned(own, PAGE, pinned) &&
		      unclaimed(own + PAGE, 5 * PAGE),
	      "own: brk takes more away");
	check(brk(start) == 0 && sbrk(0) == start, "own: brk takes it all away");
}

static void everything_locked(void)
{
	mlockall_current();
	mlockall_inherited();
	mlockall_future();
}

/* No argument: all but mlockall, which few may; "all": that, too; "mlockall": that alone. */
int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	char *keep;

	if (!strcmp(what, "mlockall")) {
		everything_locked();
		return check_end();
	}
	/* The C library, too, has a mapping for each block, which goes when the block is freed. */
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	keep = malloc(2 * BLOCK); /* the heap exists before anything else is asked */
	heap_locks();
	heap_munlockall();
	mlockall_flags();
	mlockall_limits();
	heap_dontneed();
	heap_advice();
	heap_and_fork();
	heap_protected(BLOCK);
	heap_protected(40 * BLOCK);
	heap_advice_and_free(BLOCK);
	heap_advice_and_free(40 * BLOCK);
	heap_munmap(BLOCK);
	heap_munmap(40 * BLOCK);
	heap_ring();
	heap_freed_under_a_file(BLOCK);
	heap_freed_under_a_file(40 * BLOCK);
	check(in_child(freed_with_a_hole, NULL) == 0, "freed with a hole, later blocks are whole");
	heap_cut_off_under_a_file(BLOCK);
	heap_cut_off_under_a_file(40 * BLOCK);
	heap_noreplace();
	heap_mremap();
	heap_mremap_protected(64 * PAGE);
	heap_mremap_protected(20 * BLOCK);
	heap_under_a_second_mapping(BLOCK);
	heap_under_a_second_mapping(40 * BLOCK);
	own_locks();
	own_advice();
	own_mappings();
	own_shared_memory();
	own_break();
	if (!strcmp(what, "all"))
		everything_locked();
	free(keep);
	return check_end();
}
