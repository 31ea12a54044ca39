/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Linked with the runtime. ways.sh also makes a library of it, which ways_lookup.c opens.
 */
#include "ways.h"

int ways_of_library(void);

__attribute__((visibility("default"))) int ways_of_library(void)
{
	void *block = NULL;

	WAY("runtime", cudaHostAlloc(&block, BYTES, 0), cudaFreeHost(block));
	WAY("runtime", cudaMallocHost(&block, BYTES), cudaFreeHost(block));
	return check_end();
}

int main(void)
{
	return ways_of_library();
}
