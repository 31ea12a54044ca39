/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CUDA host memory and forked children: they share it with their parent, as they do what CUDA itself
 * allocates, and nothing that a child does with the heap reaches a block of the parent's. Neither CUDA's
 * libraries nor a driver are there, so that the entry points are the shim's alone.
 *
 * A device is stood in for by a ring of io_uring that has the block registered: it pins pages as a
 * driver does (FOLL_LONGTERM of Documentation/core-api/pin_user_pages.rst).
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "../../interpose/pinshim.h"
#include "check.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define BLOCKS 40

/* Of blocks below 16 MiB, which come from an arena, and of larger ones, which are chunks of their own. */
static const size_t sizes[BLOCKS] = {
	[0] = 40 * MIB, [1] = 20 * MIB, [2] = 17 * MIB,  [3] = 8 * MIB,
	[4] = 3 * MIB,  [5] = MIB,      [6] = 100 << 10, [7] = 512,
};

static char *block[BLOCKS];

static size_t size_of(int i)
{
	return sizes[i] != 0 ? sizes[i] : (size_t)(i * 7001);
}

static int (*host_alloc)(void **block, size_t size, unsigned flags);
static int (*free_host)(void *block);

static void find_entry_points(void)
{
	*(void **)&host_alloc = dlsym(RTLD_DEFAULT, "cudaHostAlloc");
	*(void **)&free_host = dlsym(RTLD_DEFAULT, "cudaFreeHost");
	if (host_alloc == NULL || free_host == NULL) {
		say("not ok - the shim has the entry points\n");
		exit(1);
	}
}

static void release(void *memory)
{
	if (free_host(memory) != 0) {
		say("not ok - a block is freed\n");
		_exit(1);
	}
}

static char *get(size_t size, unsigned char seed)
{
	void *memory = NULL;

	if (host_alloc(&memory, size, 0) != 0 || !pinshim_is_pinned(memory, size)) {
		say("not ok - %zu bytes pinned\n", size);
		exit(1);
	}
	fill(memory, size, seed);
	return memory;
}

static bool all_filled(void)
{
	for (int i = 0; i < BLOCKS; i++)
		if (!filled(block[i], size_of(i), size_of(i), (unsigned char)i))
			return false;
	return true;
}

static int status_of(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return status;
}

/* Where a page is in memory; 0 where the kernel does not tell. */
static uint64_t frame(const char *address)
{
	const off_t at = (off_t)((uintptr_t)address / PAGE * 8);
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	if (fd < 0 || pread(fd, &entry, sizeof(entry), at) != sizeof(entry))
		entry = 0;
	close(fd);
	return entry & ((UINT64_C(1) << 55) - 1);
}

/* A ring that has the block registered, or -1. */
static int hold(char *memory, size_t length)
{
	struct io_uring_params parameters = { .flags = 0 };
	struct iovec whole = { memory, length };
	int ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);

	if (ring >= 0 &&
	    syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &whole, 1) != 0) {
		close(ring);
		ring = -1;
	}
	return ring;
}

/* Two processes that take turns: each waits for the other's byte. */
struct turns {
	int to_child[2], to_parent[2];
};

static pid_t forks(void)
{
	return fork();
}

/* Runs no handler of pthread_atfork: the child has to notice by itself. */
static pid_t clones(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Each process keeps its own side, so that neither waits for one that has ended. */
static pid_t begin_turns(struct turns *turns, pid_t (*begin)(void))
{
	pid_t child;

	if (pipe(turns->to_child) != 0 || pipe(turns->to_parent) != 0)
		exit(98);
	child = begin();
	close(turns->to_child[child != 0 ? 0 : 1]);
	close(turns->to_parent[child != 0 ? 1 : 0]);
	return child;
}

static void end_turns(const struct turns *turns)
{
	close(turns->to_child[1]);
	close(turns->to_parent[0]);
}

static void give(const int *side)
{
	if (write(side[1], "", 1) != 1)
		_exit(97);
}

static void await(const int *side)
{
	char byte;

	if (read(side[0], &byte, 1) != 1)
		_exit(96);
}

static void both_see_what_is_written(void)
{
	volatile char *large = block[0], *small = block[5];
	struct turns turns;
	pid_t child;
	char was[2];

	was[0] = large[7];
	was[1] = small[7];
	child = begin_turns(&turns, forks);
	if (child == 0) {
		bool good = all_filled();

		large[7] = 'c';
		small[7] = 'c';
		give(turns.to_parent);
		await(turns.to_child);
		_exit(!good || large[7] != 'p' || small[7] != 'p');
	}
	await(turns.to_parent);
	check(large[7] == 'c' && small[7] == 'c', "the parent sees what a child writes");
	large[7] = 'p';
	small[7] = 'p';
	give(turns.to_child);
	end_turns(&turns);
	check(status_of(child) == 0, "a child has the contents, and sees what the parent writes");
	large[7] = was[0];
	small[7] = was[1];
}

static void pages_stay(void)
{
	const uint64_t before[2] = { frame(block[0] + 9 * MIB), frame(block[5]) };
	struct turns turns;
	pid_t child;

	if (before[0] == 0) {
		say("skip - pages stay where a device has them: the kernel does not say where they are\n");
		return;
	}
	child = begin_turns(&turns, forks);
	if (child == 0) {
		await(turns.to_child);
		_exit(0);
	}
	block[0][9 * MIB] ^= 1;
	block[5][0] ^= 1;
	check(frame(block[0] + 9 * MIB) == before[0] && frame(block[5]) == before[1],
	      "pages stay where a device has them when the parent writes after a fork");
	block[0][9 * MIB] ^= 1;
	block[5][0] ^= 1;
	give(turns.to_child);
	end_turns(&turns);
	status_of(child);
}

/* The memory keeps its pages, which a device has, and its object, which children share. */
static void set_on_a_block_and_freed(size_t size)
{
	char *set = get(size, 1), *later;
	const uint64_t before = frame(set);
	bool stays;
	pid_t child;

	check(mprotect(set, size, PROT_READ) == 0 && madvise(set, size, MADV_DONTFORK) == 0 &&
		      pinshim_is_pinned(set, size),
	      "%zu: a block is made read-only and kept from children", size);
	release(set);
	later = get(size, 2);
	stays = later == set && frame(later) == before;
	child = fork();
	if (child == 0) {
		later[0] ^= 1;
		_exit(0);
	}
	check(status_of(child) == 0 && (later[0] ^= 1, filled(later, size, size, 2)),
	      "%zu: freed, the next one is shared with children", size);
	/* Of a larger one the whole chunk may have gone, and the device's hold on it before. */
	check(stays || size > MIB, "%zu: and its pages are those that a device has", size);
	release(later);
}

static void nothing_is_copied(void)
{
	int ring = hold(block[0], size_of(0)), results[2];
	long own = -1;
	pid_t child;

	if (ring < 0) {
		say("skip - a fork copies nothing that a device has: no io_uring here\n");
		return;
	}
	if (pipe(results) != 0)
		exit(98);
	child = fork();
	if (child == 0) {
		own = proc_bytes("/proc/self/smaps_rollup", "Private_Dirty:");
		_exit(write(results[1], &own, sizeof(own)) != sizeof(own));
	}
	if (status_of(child) != 0 || read(results[0], &own, sizeof(own)) != sizeof(own))
		own = -1;
	/* Its stack, and what it writes to of the libraries', it has for itself in any case. */
	check(own > 0 && (size_t)own < size_of(0) / 4,
	      "a fork copies nothing that a device has (%ld)", own);
	close(ring);
}

/* What the child gets must not be what is free in the parent's chunks: the parent uses that, too. */
static void child_uses_the_heap(void)
{
	char *own[BLOCKS];
	bool good = true;

	for (int i = 0; i < BLOCKS; i += 2)
		own[i] = get(size_of(i), 200);
	good &= all_filled();
	for (int i = 0; i < BLOCKS; i += 2)
		release(block[i]);
	for (int i = 1; i < BLOCKS; i += 2)
		own[i] = get(size_of(i), 200);
	pinshim_trim(0);
	for (int i = 1; i < BLOCKS; i += 2)
		good &= filled(block[i], size_of(i), size_of(i), (unsigned char)i);
	for (int i = 0; i < BLOCKS; i++) {
		good &= filled(own[i], size_of(i), size_of(i), 200);
		release(own[i]);
	}
	for (int i = 1; i < BLOCKS; i += 2)
		release(block[i]);
	pinshim_trim(0);
	_exit(!good);
}

static void child_leaves_the_parents_alone(const char *who, pid_t (*begin)(void))
{
	pid_t child;

	/* Kept for reuse: by the parent, and nobody else. */
	release(get(size_of(0), 1));
	child = begin();
	if (child == 0)
		child_uses_the_heap();
	check(status_of(child) == 0, "%s frees what it inherited, allocates and trims", who);
	check(all_filled(), "%s changes no block of the parent's", who);
}

/* In place it would reach into what was free behind the block, which the parent uses by then. */
static void child_grows_blocks(const char *who, pid_t (*begin)(void))
{
	char *grows[8], *behind[8];
	struct turns turns;
	bool good = true;
	pid_t child;

	for (int i = 0; i < 8; i++) {
		grows[i] = get(MIB, 1);
		behind[i] = get(MIB, 2);
	}
	for (int i = 0; i < 8; i++)
		release(behind[i]);
	child = begin_turns(&turns, begin);
	if (child == 0) {
		await(turns.to_child);
		for (int i = 0; i < 8; i++) {
			grows[i] = realloc(grows[i], 3 * MIB / 2);
			good &= filled(grows[i], MIB, MIB, 1);
			memset(grows[i] + MIB, 'c', MIB / 2);
		}
		_exit(!good);
	}
	for (int i = 0; i < 8; i++)
		behind[i] = get(MIB, 3);
	give(turns.to_child);
	end_turns(&turns);
	check(status_of(child) == 0, "%s makes blocks longer", who);
	for (int i = 0; i < 8; i++) {
		good &= filled(behind[i], MIB, MIB, 3) && filled(grows[i], MIB, MIB, 1);
		release(behind[i]);
		release(grows[i]);
	}
	check(good, "where %s makes blocks longer the parent's are not changed", who);
}

/* The child's own calls on what it inherited: they reach no block beside it, and take no page away. */
static void child_calls_the_kernel(const char *who, pid_t (*begin)(void))
{
	const pid_t child = begin();

	if (child == 0) {
		char *moved = mremap(block[5], MIB, 2 * MIB, MREMAP_MAYMOVE), *again;
		bool good = moved != MAP_FAILED && moved != block[5] &&
			    filled(moved, MIB, MIB, 5) && moved[MIB] == 0;

		if (good)
			memset(moved + MIB, 'c', MIB);
		good &= madvise(block[4], MIB, MADV_REMOVE) == -1 && errno == EINVAL;
		good &= mremap(block[4], 0, 8 * MIB, MREMAP_MAYMOVE) == MAP_FAILED &&
			errno == EINVAL;
		again = mremap(block[3], MIB, MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
		good &= again == MAP_FAILED && errno == EINVAL;
		good &= munmap(block[0], 2 * MIB) == 0;
		_exit(!good);
	}
	check(status_of(child) == 0, "%s moves, grows and unmaps, and may not punch holes", who);
	check(all_filled(), "%s that does that changes no block of the parent's", who);
}

static bool frees_in_handlers;

static void free_in_a_handler(void)
{
	if (frees_in_handlers)
		for (int i = 4; i < 8; i++)
			free(block[i]);
}

static bool forks_in_handlers;
static int status_of_inner = -1;

static void fork_in_a_handler(void)
{
	pid_t child;

	if (!forks_in_handlers)
		return;
	forks_in_handlers = false;
	child = fork();
	if (child == 0)
		_exit(!all_filled());
	status_of_inner = status_of(child);
}

/* Between the shim's two handlers: its locks are this thread's own then. */
static void forked_in_a_handler_of_fork(void)
{
	pid_t child;

	forks_in_handlers = true;
	child = fork();
	if (child == 0)
		child_uses_the_heap();
	check(status_of_inner == 0 && status_of(child) == 0,
	      "children forked in a handler of fork, and after it, have what they should");
	release(get(MIB, 1));
	check(all_filled(), "and the parent goes on with its heap");
}

/* Before the shim's own handlers are there, so that these run between them, in a child before them. */
static void register_early(void)
{
	pthread_atfork(fork_in_a_handler, NULL, free_in_a_handler);
}

__attribute__((section(".preinit_array"), used)) static void (*const early)(void) = register_early;

/* There the heap cannot be entered: what waits for that must not be written to. */
static void child_frees_in_a_handler_of_fork(void)
{
	pid_t child;

	frees_in_handlers = true;
	child = fork();
	if (child == 0)
		_exit(0);
	frees_in_handlers = false;
	check(status_of(child) == 0, "a child frees what it inherited in its handler of fork");
	check(all_filled(), "a child that does that changes no block of the parent's");
}

/* The parent goes on meanwhile: what it frees and allocates again is no business of the child's. */
static void parent_goes_on(void)
{
	struct turns turns;
	pid_t child;

	child = begin_turns(&turns, forks);
	if (child == 0) {
		await(turns.to_child);
		child_uses_the_heap();
	}
	for (int turn = 0; turn < 3; turn++)
		for (int i = 0; i < BLOCKS; i += 3) {
			release(block[i]);
			block[i] = get(size_of(i), (unsigned char)i);
		}
	give(turns.to_child);
	end_turns(&turns);
	/* It reads some of what the parent has used again by now, so that its data may be any. */
	check(WIFEXITED(status_of(child)),
	      "a child that began before the parent's blocks ends by itself");
	check(all_filled(), "a child that began before the parent's blocks changes none of them");
}

/* What the parent unmaps a child keeps. */
static void child_outlives_a_block(void)
{
	char *large = get(30 * MIB, 9);
	struct turns turns;
	pid_t child;

	child = begin_turns(&turns, forks);
	if (child == 0) {
		await(turns.to_child);
		_exit(!filled(large, 30 * MIB, 30 * MIB, 9));
	}
	release(large);
	pinshim_trim(0);
	give(turns.to_child);
	end_turns(&turns);
	check(status_of(child) == 0, "what the parent has freed and unmapped a child still has");
}

int main(void)
{
	pid_t child;

	/* What fails may hang. */
	alarm(60);
	find_entry_points();
	for (int i = 0; i < BLOCKS; i++)
		block[i] = get(size_of(i), (unsigned char)i);
	both_see_what_is_written();
	pages_stay();
	set_on_a_block_and_freed(MIB);
	set_on_a_block_and_freed(24 * MIB);
	nothing_is_copied();
	child_leaves_the_parents_alone("a child", forks);
	child_leaves_the_parents_alone("a child of a raw clone()", clones);
	child = fork();
	if (child == 0) {
		child_leaves_the_parents_alone("a grandchild", forks);
		_exit(check_end());
	}
	check(status_of(child) == 0, "a grandchild's cases hold");
	child_grows_blocks("a child", forks);
	child_grows_blocks("a child of a raw clone()", clones);
	child_calls_the_kernel("a child", forks);
	child_calls_the_kernel("a child of a raw clone()", clones);
	child_frees_in_a_handler_of_fork();
	forked_in_a_handler_of_fork();
	child_outlives_a_block();
	parent_goes_on();
	for (int i = 0; i < BLOCKS; i++)
		release(block[i]);
	return check_end();
}
