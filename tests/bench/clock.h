/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_BENCH_CLOCK_H
#define PS_BENCH_CLOCK_H
/*
 * Time, and the processor time of this process, in seconds.
 */
#include <sys/resource.h>
#include <time.h>

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

#endif
