/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What cuGetProcAddress() answers. The real one comes first, so that errors, statuses and whatever it
 * does with pointers that are NULL are the driver's. No lock.
 *
 * A name without suffix means the newest variant that the version given knows. The suffixes must not
 * be guessed: the variants differ in their arguments.
 */
#include "proc_address.h"

#include <string.h>

#include "counters.h"
#include "cuda_hooks.h"
#include "lookup.h"

#define PUBLIC __attribute__((visibility("default")))

void *ps_original_cuGetProcAddress;
void *ps_original_cuGetProcAddress_v2;

/* Names that mean a later variant from a version on, as cudaTypedefs.h has them. */
static const struct {
	const char *name;
	int since; /* 1000 * major + 10 * minor */
	const char *variant;
} variants[] = {
	{ "cuCtxDestroy", 4000, "cuCtxDestroy_v2" },
	{ "cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2" },
	{ "cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2" },
	{ "cuGetProcAddress", 12000, "cuGetProcAddress_v2" },
	{ "cuMemAllocHost", 3020, "cuMemAllocHost_v2" },
	{ "cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2" },
	{ "cuMemHostRegister", 6050, "cuMemHostRegister_v2" },
};

static const char *variant_of(const char *symbol, int version)
{
	for (size_t i = 0; i < sizeof(variants) / sizeof(*variants); i++)
		if (strcmp(symbol, variants[i].name) == 0)
			return version >= variants[i].since ? variants[i].variant : symbol;
	return symbol;
}

/* Puts our hook in the place of a function that the real call has found. */
static void substitute(const char *symbol, void **function, int version)
{
	const char *name = variant_of(symbol, version);
	const struct ps_hook *hook = ps_hook_find(name);
	void *answer;

	if (hook == NULL || hook->runtime || hook->hook == *function)
		return;
	/* The driver is loaded once: unlike for libcudart nobody asks where. */
	answer = ps_hook_for(name, *function, NULL);
	if (answer == *function)
		return;
	*function = answer;
	ps_count_reached(PINSHIM_REACHED_PROC_ADDRESS);
}

/* The real function: noted when it was looked up, or the next definition where we are linked to. */
static void *original(void **noted, const char *name)
{
	void *found = __atomic_load_n(noted, __ATOMIC_ACQUIRE);

	if (found != NULL)
		return found;
	found = ps_cuda_definition(name, false);
	if (found != NULL)
		__atomic_store_n(noted, found, __ATOMIC_RELEASE);
	return found;
}

PUBLIC ps_cu_result cuGetProcAddress(const char *symbol, void **function, int version,
				     unsigned long long flags)
{
	ps_cu_result (*real)(const char *, void **, int, unsigned long long);
	ps_cu_result result;

	*(void **)&real = original(&ps_original_cuGetProcAddress, "cuGetProcAddress");
	/* Found in a process without a driver. */
	if (real == NULL)
		return PS_CUDA_NOT_INITIALIZED;
	result = real(symbol, function, version, flags);
	if (result == PS_CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL)
		substitute(symbol, function, version);
	return result;
}

PUBLIC ps_cu_result cuGetProcAddress_v2(const char *symbol, void **function, int version,
					unsigned long long flags, int *status)
{
	ps_cu_result (*real)(const char *, void **, int, unsigned long long, int *);
	ps_cu_result result;

	*(void **)&real = original(&ps_original_cuGetProcAddress_v2, "cuGetProcAddress_v2");
	if (real == NULL)
		return PS_CUDA_NOT_INITIALIZED;
	result = real(symbol, function, version, flags, status);
	/* A status of 0 is "found". */
	if (result == PS_CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL &&
	    (status == NULL || *status == 0))
		substitute(symbol, function, version);
	return result;
}
