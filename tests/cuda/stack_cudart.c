/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * As much of libcudart as the stacking test calls, and without a driver.
 */
#include <stdlib.h>

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int cudaHostAlloc(void **pointer, size_t size, unsigned int flags);
PUBLIC int cudaFreeHost(void *pointer);

PUBLIC int cudaHostAlloc(void **pointer, size_t size, unsigned int flags)
{
	(void)flags;
	*pointer = malloc(size);
	return *pointer != NULL ? 0 : 2;
}

PUBLIC int cudaFreeHost(void *pointer)
{
	free(pointer);
	return 0;
}
