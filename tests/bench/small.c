/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * small N: N pairs of malloc(64) and free, a size that is never rerouted. Run under callgrind with
 * two values of N, the difference is what a pair costs, without start-up and exit.
 */
#include <stdlib.h>

int main(int argc, char **argv)
{
	long pairs = argc > 1 ? atol(argv[1]) : 0;

	for (long i = 0; i < pairs; i++) {
		void *volatile block = malloc(64);

		free(block);
	}
	return 0;
}
