/* SPDX-License-Identifier: BSD-2-Clause */
/* Linked with the driver; as ways_rt.c also made a library of. */
#include "ways.h"

int ways_of_library(void);

__attribute__((visibility("default"))) int ways_of_library(void)
{
	__typeof__(cuMemHostAlloc) *allocate = NULL;
	void *block = NULL;

	start();
	WAY("driver", cuMemHostAlloc(&block, BYTES, 0), cuMemFreeHost(block));
	WAY("driver", cuMemAllocHost_v2(&block, BYTES), cuMemFreeHost(block));
	WAY("driver", cuMemAllocHost(&block, (unsigned)BYTES), cuMemFreeHost(block));
	IS(0, cuGetProcAddress_v2("cuMemHostAlloc", (void **)&allocate, 2020, 0, NULL));
	if (allocate)
		WAY("by version", allocate(&block, BYTES, 0), cuMemFreeHost(block));
	return check_end();
}

int main(void)
{
	return ways_of_library();
}
