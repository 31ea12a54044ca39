/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Populating a chunk from several threads: one thread zeroes memory at 10-20 GB/s, two at nearly
 * twice that (tests/bench/cold measures it), and 1 GiB is what a program waits for.
 *
 * The threads are made with clone(2) itself. pthread_create() would call the program's calloc from
 * under the allocator's locks. They have no thread-local storage of their own (they share their
 * maker's, and so may not touch errno or anything thread-local), a stack here, all signals blocked,
 * and do nothing but madvise(2), an addition for the budget, and exit(2).
 */
#include "populate.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "budget.h"
#include "config.h"
#include "fault.h"
#include "lock.h"
#include "os.h"
#include "syscall.h"
#include "window.h"

#define PAGE ((size_t)4096)
#define STACK_BYTES ((size_t)16 << 10)
#define THREADS_MAX 32
#define PIECE_MOST ((size_t)64 << 20)

/* What the threads of one ps_populate() share. */
struct job {
	char *start;         /* first byte */
	size_t length;       /* bytes */
	size_t piece;        /* bytes taken at a time */
	atomic_size_t taken; /* bytes that somebody populates or has populated */
	atomic_int error;    /* first -errno, or 0 */
	bool collapse;       /* into huge pages, as ps_populate() says */
	bool tell;           /* the budget of what was populated */
	atomic_size_t told;  /* bytes of it */
	atomic_int
		gone[THREADS_MAX]; /* thread id until the kernel clears it (CLONE_CHILD_CLEARTID) */
};

/*
 * One page of each granule first, since the kernel refuses a granule without any; then huge pages in their
 * place. Collapsing what is populated would copy every page. A call ends at the first granule for which
 * there is no huge page; then they are asked for one by one. -EINVAL: the kernel does not know the advice,
 * or the setting forbids it.
 */
static void collapse(char *start, size_t length)
{
	int r;

	for (size_t at = 0; at < length; at += PS_GRANULE)
		if (ps_os_populate(start + at, PAGE) < 0)
			return;
	r = ps_os_madvise(start, length, MADV_COLLAPSE);
	if (r == 0 || r == -EINVAL || length == PS_GRANULE)
		return;
	for (size_t at = 0; at < length; at += PS_GRANULE)
		(void)ps_os_madvise(start + at, PS_GRANULE, MADV_COLLAPSE);
}

/* Takes pieces until there are none, or one failed. */
static void work(struct job *job)
{
	while (atomic_load_explicit(&job->error, memory_order_relaxed) == 0) {
		size_t at = atomic_fetch_add_explicit(&job->taken, job->piece,
						      memory_order_relaxed);
		size_t length;
		int r;

		if (at >= job->length)
			return;
		length = job->length - at < job->piece ? job->length - at : job->piece;
		if (job->collapse)
			collapse(job->start + at, length);
		r = ps_os_populate(job->start + at, length);
		if (r < 0) {
			atomic_store_explicit(&job->error, r, memory_order_relaxed);
		} else if (job->tell) {
			ps_budget_arrived(length);
			atomic_fetch_add_explicit(&job->told, length, memory_order_relaxed);
		}
	}
}

static int thread_main(void *argument)
{
	work(argument);
	return 0;
}

/*
 * Starts one thread on the given stack. 0 or -errno. The C library's clone() only sets up the stack
 * and calls the function; it allocates nothing.
 */
static int start_thread(struct job *job, char *stack, atomic_int *gone)
{
	const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			  CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	const int saved = errno;
	int r = -ps_fault(PS_OS_CLONE);

	if (r < 0)
		return r;
	r = clone(thread_main, stack + STACK_BYTES, flags, job, (pid_t *)gone, NULL, (pid_t *)gone);
	if (r < 0) {
		r = -errno;
		atomic_store(gone, 0);
	}
	errno = saved;
	return r < 0 ? r : 0;
}

static void wait_gone(atomic_int *gone)
{
	int id;

	while ((id = atomic_load_explicit(gone, memory_order_acquire)) != 0)
		ps_syscall4(SYS_futex, gone, FUTEX_WAIT, id, NULL);
}

static unsigned threads_wanted(size_t length)
{
	size_t pieces = length / (PS_POPULATE_PARALLEL / 4);
	unsigned wanted = ps_config.threads;

#if defined(__SANITIZE_THREAD__)
	return 1; /* its run time keeps a state per thread, and these threads have none */
#endif
	if (length < PS_POPULATE_PARALLEL)
		return 1;
	if (wanted > THREADS_MAX)
		wanted = THREADS_MAX;
	return wanted < pieces ? wanted : (unsigned)pieces;
}

/* Runs the job in `threads` threads, the caller being one; fewer where they cannot be had. */
static void run_parallel(struct job *job, unsigned threads)
{
	const size_t stacks_bytes = (threads - 1) * STACK_BYTES;
	uint64_t mask;
	void *stacks;

	if (ps_os_mmap(NULL, stacks_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0, &stacks) < 0) {
		work(job);
		return;
	}
	mask = ps_signals_block();
	for (unsigned i = 0; i + 1 < threads; i++)
		if (start_thread(job, (char *)stacks + i * STACK_BYTES, &job->gone[i]) < 0)
			break;
	ps_signals_restore(mask);
	work(job);
	for (unsigned i = 0; i + 1 < threads; i++)
		wait_gone(&job->gone[i]);
	ps_os_munmap(stacks, stacks_bytes);
}

int ps_populate(void *address, size_t length, bool collapse, size_t *arrived)
{
	const unsigned threads = threads_wanted(length);
	struct job job = {
		.start = address, .length = length, .collapse = collapse, .tell = arrived != NULL
	};

	/* Several pieces a thread, so that none waits long for the slowest. */
	job.piece = (length / (threads * (size_t)8) + PS_GRANULE - 1) & ~(PS_GRANULE - 1);
	if (job.piece > PIECE_MOST)
		job.piece = PIECE_MOST;
	if (threads > 1)
		run_parallel(&job, threads);
	else
		work(&job);
	if (arrived != NULL)
		*arrived = atomic_load(&job.told);
	return atomic_load(&job.error);
}
