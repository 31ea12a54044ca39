/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads on one heap: allocating, freeing, handing blocks over, while one thread trims all the time,
 * one asks what is pinned, one unlocks everything and locks it again, and one forks.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config.h"
#include "counters.h"
#include "foreign.h"
#include "heap.h"
#include "large.h"
#include "pinned.h"
#include "table.h"

#define WORKERS 4
#define SLOTS 48
#define MAX_SECONDS 3
#define ENTRY PINSHIM_ENTRY_PINSHIM_ALLOC

/* Blocks on their way from one thread to another. */
static struct handed {
	char *block;
	size_t size;
} * _Atomic handed[SLOTS];

static atomic_bool stop;
static atomic_uint allocated, refused;

static size_t random_size(unsigned *seed)
{
	if (rand_r(seed) % 200 == 0)
		return 16 * MIB + (size_t)rand_r(seed) % (8 * MIB);
	if (rand_r(seed) % 10 == 0)
		return 1 + (size_t)rand_r(seed) % (3 * MIB);
	return 1 + (size_t)rand_r(seed) % (128 * KIB);
}

/* Each block tells its address at both ends, and the size between them. */
static void sign(const struct handed *h)
{
	memcpy(h->block, &h->size, h->size < 8 ? h->size : 8);
	h->block[h->size - 1] = (char)h->size;
}

static bool signed_right(const struct handed *h)
{
	return h->block[h->size - 1] == (char)h->size &&
	       (h->size < 9 || memcmp(h->block, &h->size, 8) == 0);
}

static struct handed *make(unsigned *seed)
{
	const enum ps_heap heap = (enum ps_heap)(rand_r(seed) % PS_HEAPS);
	const bool zero = rand_r(seed) % 4 == 0;
	struct handed *h = malloc(sizeof(*h));
	struct ps_refusal why;

	h->size = random_size(seed);
	h->block = ps_heap_alloc(heap, ENTRY, h->size, 0, zero, &why);
	if (h->block == NULL) {
		atomic_fetch_add(&refused, 1);
		free(h);
		return NULL;
	}
	if (zero && !pinned_is_zero(h->block, h->size < 64 * KIB ? h->size : 64 * KIB))
		abort();
	atomic_fetch_add(&allocated, 1);
	sign(h);
	return h;
}

static void unmake(struct handed *h)
{
	if (!signed_right(h) || ps_heap_entry(h->block) != ENTRY)
		abort();
	ps_heap_free(h->block, "free");
	free(h);
}

static void *work(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;

	while (!atomic_load(&stop)) {
		struct handed *h = rand_r(&seed) % 3 ? make(&seed) : NULL;
		struct handed *before = atomic_exchange(&handed[rand_r(&seed) % SLOTS], h);

		if (before != NULL && rand_r(&seed) % 8 == 0 && signed_right(before) &&
		    ps_heap_resize(before->block, before->size / 2 + 1, "realloc")) {
			before->size = before->size / 2 + 1;
			sign(before);
		}
		if (before != NULL)
			unmake(before);
	}
	return NULL;
}

static void *trim(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop))
		ps_heap_trim(0);
	return NULL;
}

static void *ask(void *unused)
{
	unsigned seed = 77;

	(void)unused;
	while (!atomic_load(&stop)) {
		char *at = (char *)ps_window.base + (size_t)rand_r(&seed) * 64 % (2 * GIB);

		ps_heap_is_pinned(at, (size_t)rand_r(&seed) % (64 * MIB));
		(void)ps_heap_entry(at);
	}
	return NULL;
}

static void *unlock_and_relock(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		syscall(SYS_munlockall);
		ps_heap_relock();
		usleep(1000);
	}
	return NULL;
}

static void *fail_now_and_then(void *unused)
{
	static const enum ps_os_call call[] = { PS_OS_MLOCK, PS_OS_MPROTECT, PS_OS_MMAP };

	(void)unused;
	for (unsigned i = 0; !atomic_load(&stop); i++) {
		ps_fault_set(call[i % 3], 1, 1 + i % 3, ENOMEM);
		usleep(500);
	}
	ps_fault_clear();
	return NULL;
}

static void setup(void)
{
	ps_fault_clear();
	ps_config.retain = 128 * MIB;
	ps_config.limit = UINT64_MAX;
	atomic_store(&stop, false);
	atomic_store(&allocated, 0);
	atomic_store(&refused, 0);
}

static void run(void *(*other)(void *), void *(*another)(void *), void (*meanwhile)(void))
{
	pthread_t thread[WORKERS + 2];
	uint64_t until = ps_os_now() + (uint64_t)MAX_SECONDS * 1000000000;

	for (uintptr_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, work, (void *)(i + 1)), 0);
	ck_assert_int_eq(pthread_create(&thread[WORKERS], NULL, other, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread[WORKERS + 1], NULL, another, NULL), 0);
	while (ps_os_now() < until)
		meanwhile ? meanwhile() : (void)usleep(10000);
	atomic_store(&stop, true);
	for (int i = 0; i < WORKERS + 2; i++)
		pthread_join(thread[i], NULL);
	ps_fault_clear();
	ck_assert_uint_gt(atomic_load(&allocated), 100);
	for (int i = 0; i < SLOTS; i++) {
		struct handed *h = atomic_exchange(&handed[i], NULL);

		if (h != NULL)
			unmake(h);
	}
	ps_heap_trim(0);
	pinned_check_nothing();
}

START_TEST(with_trims_and_questions)
{
	run(trim, ask, NULL);
	ck_assert_uint_eq(atomic_load(&refused), 0);
}
END_TEST

START_TEST(with_failures)
{
	run(fail_now_and_then, ask, NULL);
}
END_TEST

START_TEST(with_unlocking)
{
	run(unlock_and_relock, trim, NULL);
}
END_TEST

START_TEST(at_the_limit)
{
	ps_config.limit = 24 * MIB;
	run(ask, ask, NULL);
}
END_TEST

/* Ends a process that hangs; Check's handler would end its parents as well. */
static void give_up_after(unsigned seconds)
{
	signal(SIGALRM, SIG_DFL);
	alarm(seconds);
}

/* In the child: everything inherited is readable and can be freed, and new blocks are pinned. */
static void child(void)
{
	unsigned seed = 5;

	give_up_after(20);
	for (int i = 0; i < 30; i++) {
		struct ps_refusal why;
		const size_t size = random_size(&seed);
		char *block = ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, size, 0, true, &why);

		if (block == NULL || !ps_heap_is_pinned(block, size) ||
		    !pinned_is_zero(block, size))
			_exit(2);
		if (i % 2)
			ps_heap_free(block, "free");
	}
	for (int i = 0; i < SLOTS; i++) {
		struct handed *h = atomic_load(&handed[i]);

		/* A block that was on its way when we forked may be half made. */
		if (h == NULL || ps_heap_entry(h->block) != ENTRY)
			continue;
		if (ps_heap_is_pinned(h->block, h->size))
			_exit(3);
		ps_heap_usable(h->block, "usable");
		ps_heap_free(h->block, "free");
	}
	ps_heap_trim(0);
	_exit(0);
}

static void fork_once(void)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		child();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "child ended with %#x", status);
}

START_TEST(with_forks)
{
	run(trim, ask, fork_once);
}
END_TEST

/* A fork in the very moment of jemalloc's first use, in a process of its own each time. */
static void *first_use(void *unused)
{
	struct ps_refusal why;

	(void)unused;
	return ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, 64 * KIB, 0, false, &why);
}

static void race_with_first_use(unsigned microseconds)
{
	pthread_t thread;
	struct ps_refusal why;
	int status;
	pid_t pid;

	give_up_after(10);
	pthread_create(&thread, NULL, first_use, NULL);
	for (uint64_t until = ps_os_now() + microseconds * UINT64_C(1000); ps_os_now() < until;)
		;
	pid = fork();
	if (pid == 0) {
		give_up_after(5);
		_exit(ps_heap_alloc(PS_HEAP_MALLOC, ENTRY, 64 * KIB, 0, false, &why) == NULL);
	}
	/* Without jemalloc a child has ordinary memory, which is as good; to hang is not. */
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		_exit(1);
	pthread_join(thread, NULL);
	_exit(0);
}

START_TEST(fork_during_first_use)
{
	int status;

	for (unsigned i = 0; i < (SANITIZED ? 20 : 150); i++) {
		pid_t pid = fork();

		if (pid == 0)
			race_with_first_use(i * 20);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(status == 0, "turn %u ended with %#x", i, status);
	}
}
END_TEST

/* As interpose/process.c has them. */
static void prepare(void)
{
	ps_foreign_fork_prepare();
	ps_heap_fork_prepare();
	ps_table_fork_prepare();
}

static void parent(void)
{
	ps_table_fork_parent();
	ps_heap_fork_parent();
	ps_foreign_fork_parent();
}

static void add(TCase *tcase)
{
	pthread_atfork(prepare, parent, ps_fork_child);
	tcase_set_timeout(tcase, 100);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, fork_during_first_use);
	tcase_add_test(tcase, with_trims_and_questions);
	tcase_add_test(tcase, with_failures);
	tcase_add_test(tcase, with_unlocking);
	tcase_add_test(tcase, at_the_limit);
	tcase_add_test(tcase, with_forks);
}

int main(void)
{
	return pinned_main("heap threads", add);
}
