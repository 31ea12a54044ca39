/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long cudaHostAlloc and cudaFreeHost take. Usage: cost SIZE ROUNDS SECONDS
 * A line for each round, the first of which is cold: microseconds to allocate and to free. As many
 * rounds as SECONDS allow, two at least. The context is made before.
 */
#include <stdlib.h>
#include <time.h>

#include "gpu.h"

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

int main(int arguments, char **argument)
{
	size_t size;
	long rounds;
	double until;

	if (arguments != 4 || cudaFree(NULL))
		return 2;
	size = strtoull(argument[1], NULL, 0);
	rounds = strtol(argument[2], NULL, 0);
	until = now() + 1e6 * strtod(argument[3], NULL);
	for (long i = 0; i < rounds && (i < 2 || now() < until); i++) {
		double began = now(), allocated;
		char *pointer = NULL;
		int r = cudaHostAlloc((void **)&pointer, size, 0);

		allocated = now();
		if (r) {
			fprintf(stderr, "cudaHostAlloc failed with %d\n", r);
			return 1;
		}
		/* Used, or it may never be there. Not timed: both have populated it. */
		pointer[0] = pointer[size - 1] = 1;
		printf("%.3f ", allocated - began);
		began = now();
		r = cudaFreeHost(pointer);
		printf("%.3f\n", now() - began);
		fflush(stdout);
		if (r) {
			fprintf(stderr, "cudaFreeHost failed with %d\n", r);
			return 1;
		}
	}
	return 0;
}
