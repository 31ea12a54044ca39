/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * small N [BYTES]: N pairs of malloc and free, of 64 bytes unless told otherwise, a size that is never
 * rerouted. Run under callgrind with two values of N, the difference is what a pair costs, without
 * start-up and exit.
 */
#include <stdlib.h>

int main(int argc, char **argv)
{
	long pairs = argc > 1 ? atol(argv[1]) : 0;
	size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 64;

	for (long i = 0; i < pairs; i++) {
		void *volatile block = malloc(bytes);

		free(block);
	}
	return 0;
}
