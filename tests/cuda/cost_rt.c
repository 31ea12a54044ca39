/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What calls cost, in nanoseconds; cost.sh takes the fakes' part out. Counts are cases, times are not.
 */
#include <pthread.h>
#include <time.h>

#include "../../interpose/pinshim.h"
#include "fakes.h"

#define MIB ((size_t)1 << 20)
#define ROUNDS 20 /* of which the best counts: the machine has other things to do */
#define PAIRS 200
#define RANGES 10000
#define LOOKS 50000
#define THREADS 4

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* The driver's calls between two points of the log. */
static void print_calls(size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		say("#   %s\n", FAKE_CUDA(fake_cuda_log_entry)(i)->call);
}

/* The least nanoseconds of a turn of action, which makes so many turns. */
static double least(void (*action)(void), int turns)
{
	double best = 1e18;

	for (int i = 0; i < ROUNDS; i++) {
		const double start = now();
		double each;

		action();
		each = (now() - start) / turns;
		best = each < best ? each : best;
	}
	return best;
}

static long bad; /* calls that failed */

static void allocate_and_free(void)
{
	void *block;

	for (int i = 0; i < PAIRS; i++)
		bad += cudaHostAlloc(&block, MIB, 0) || cudaFreeHost(block);
}

/* A call that does nothing, and looks at nothing but the thread's context. */
static void call_driver(void)
{
	__typeof__(cuCtxGetCurrent) *call = FAKE_CUDA(cuCtxGetCurrent);
	ps_cu_context context;

	for (int i = 0; i < PAIRS; i++)
		bad += call(&context);
}

static void pairs(void)
{
	__typeof__(fake_cuda_calls) *calls = FAKE_CUDA(fake_cuda_calls);
	unsigned long before, registered;
	double made;
	void *block = NULL;
	size_t from;

	allocate_and_free();
	from = FAKE_CUDA(fake_cuda_log_length)();
	bad += cudaHostAlloc(&block, MIB, 0) || cudaFreeHost(block);
	print_calls(from, FAKE_CUDA(fake_cuda_log_length)());
	before = calls(NULL);
	registered = calls("cuMemHostRegister_v2");
	allocate_and_free();
	made = (double)(calls(NULL) - before) / PAIRS;
	say("cost of a pair, %.0f\n", least(allocate_and_free, PAIRS));
	say("cost of its %.1f calls of the driver, %.0f\n", made, least(call_driver, PAIRS) * made);
	check(!bad, "pairs of 1 MiB");
	if (!pinshim_present())
		return;
	check(made <= 14, "at most 14 calls of the driver a pair: %.1f", made);
	check(calls("cuMemHostRegister_v2") == registered && !calls("cuMemHostUnregister"),
	      "in steady state nothing is registered or unregistered");
}

/* Every other page is registered. */
static char *memory;
static long pinned;

static void register_all(void)
{
	for (int i = 0; i < RANGES; i++)
		bad += cudaHostRegister(memory + (size_t)2 * i * PAGE, PAGE, 0);
}

static void unregister_all(void)
{
	for (int i = 0; i < RANGES; i++)
		bad += cudaHostUnregister(memory + (size_t)2 * i * PAGE);
}

static void *look_around(void *count)
{
	for (unsigned i = 0; i < LOOKS; i++)
		*(long *)count += pinshim_is_pinned(
			memory + (size_t)(i * 7919u % (2 * RANGES)) * PAGE, 64);
	return NULL;
}

static void look(void)
{
	look_around(&pinned);
}

static void look_in_threads(void)
{
	pthread_t thread[THREADS];
	long count[THREADS][64 / sizeof(long)] = { { 0 } }; /* a cache line for each */

	for (int i = 0; i < THREADS; i++)
		bad += pthread_create(&thread[i], NULL, look_around, count[i]) != 0;
	for (int i = 0; i < THREADS; i++) {
		bad += pthread_join(thread[i], NULL) != 0;
		pinned += count[i][0];
	}
}

/* Among all the others, a stretch at a time. */
static void unregister_and_register(void)
{
	static unsigned at;

	for (int i = 0; i < RANGES / ROUNDS; i++, at++) {
		char *range = memory + (size_t)2 * (at * 7919u % RANGES) * PAGE;

		bad += cudaHostUnregister(range) || cudaHostRegister(range, PAGE, 0);
	}
}

static void ranges(void)
{
	memory = pages(2 * RANGES);
	memset(memory, 1, (size_t)2 * RANGES * PAGE);
	register_all();
	check(!bad, "%d ranges are registered", RANGES);
	say("cost of pinshim_is_pinned, %.0f\n", least(look, LOOKS));
	say("cost of asking in threads, %.0f\n", least(look_in_threads, THREADS * LOOKS));
	check(pinned == (pinshim_present() ? (long)LOOKS / 2 * ROUNDS * (1 + THREADS) : 0),
	      "every other page is pinned");
	say("cost of unregistering and registering, %.0f\n",
	    least(unregister_and_register, RANGES / ROUNDS));
	check(!bad, "unregistered and registered again");
	unregister_all();
	check(!bad && !FAKE_CUDA(fake_cuda_is_registered)(memory, 1), "unregistered");
	check(!pinshim_is_pinned(memory, 1), "and withdrawn");
}

int main(void)
{
	pairs();
	ranges();
	return check_end();
}
