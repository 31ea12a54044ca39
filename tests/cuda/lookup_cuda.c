/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library with the names of CUDA's, to be looked up rather than called: every function answers 0.
 * With -DDRIVER those of libcuda and a cuGetProcAddress() that knows versions; with -DRUNTIME those
 * of libcudart; with both, any library whose names happen to be the same. -DUNRELATED adds some more.
 */
#include <string.h>

#include "lookup_names.h"

#define FUNCTION(name)                                                                             \
	int name(void);                                                                            \
	int name(void)                                                                             \
	{                                                                                          \
		return 0;                                                                          \
	}

#ifdef UNRELATED
UNRELATED_NAMES(FUNCTION)
#endif

#ifdef RUNTIME
RUNTIME_HOOKS(FUNCTION)
RUNTIME_OTHERS(FUNCTION)
#endif

#ifdef DRIVER
DRIVER_HOOKS(FUNCTION)
DRIVER_OTHERS(FUNCTION)

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags,
			int *status);

static const struct {
	const char *name;
	int since;
	void *function;
} offered[] = {
#define SINCE(version, name) { #name, version, (void *)(name) },
#define VARIANT(version, name, function) { #name, version, (void *)(function) },
	SINCE(2000, cuCtxDestroy) VARIANT(4000, cuCtxDestroy,
					  cuCtxDestroy_v2) SINCE(7000, cuDevicePrimaryCtxRelease)
		VARIANT(11000, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2) SINCE(
			7000, cuDevicePrimaryCtxReset) VARIANT(11000, cuDevicePrimaryCtxReset,
							       cuDevicePrimaryCtxReset_v2)
			SINCE(11030, cuGetProcAddress) VARIANT(
				12000, cuGetProcAddress,
				cuGetProcAddress_v2) SINCE(2000, cuInit) SINCE(2000, cuMemAllocHost)
				VARIANT(3020, cuMemAllocHost, cuMemAllocHost_v2) SINCE(
					2000, cuMemFreeHost) SINCE(2020, cuMemHostAlloc)
					SINCE(2020, cuMemHostGetDevicePointer) VARIANT(
						3020, cuMemHostGetDevicePointer,
						cuMemHostGetDevicePointer_v2) SINCE(2030,
										    cuMemHostGetFlags)
						SINCE(4000, cuMemHostRegister) VARIANT(
							6050, cuMemHostRegister,
							cuMemHostRegister_v2)
							SINCE(4000, cuMemHostUnregister) SINCE(
								4000, cuPointerGetAttribute)
								SINCE(7000, cuPointerGetAttributes)
									SINCE(2020, cuDeviceGet)
};

/* The program may set this: an error that cuGetProcAddress() answers from then on. */
int lookup_cuda_refuse;

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags,
			int *status)
{
	int found = 1;

	(void)flags;
	if (name == NULL || function == NULL)
		return 1;
	if (lookup_cuda_refuse) {
		*function = (void *)cuMemHostAlloc;
		return lookup_cuda_refuse;
	}
	*function = NULL;
	for (size_t i = 0; i < sizeof(offered) / sizeof(*offered); i++) {
		if (strcmp(offered[i].name, name) != 0)
			continue;
		if (offered[i].since <= version) {
			*function = offered[i].function;
			found = 0;
		} else if (*function == NULL) {
			found = 2;
		}
	}
	if (status != NULL)
		*status = found;
	return 0;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags)
{
	void *found = NULL;
	int result = cuGetProcAddress_v2(name, function != NULL ? &found : NULL, version, flags,
					 NULL);

	if (result != 0)
		return result;
	if (found == NULL)
		return 500;
	*function = found;
	return 0;
}
#endif
