/* SPDX-License-Identifier: BSD-2-Clause */
/* How the runtime reaches the driver; devices; errors. */
#include <dlfcn.h>
#include <pthread.h>

#include "runtime.h"

#define DEVICES 2
#define VERSION 13000

struct driver driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded, initialised;
static ps_cu_context retained[DEVICES]; /* what it has retained, by device */
static _Thread_local int last_error, device;

static bool load(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);
	bool complete = true;

	if (!handle)
		return false;
	driver.get_address = (__typeof__(driver.get_address))dlsym(handle, "cuGetProcAddress_v2");
	driver.runtime_call = (__typeof__(driver.runtime_call))dlsym(handle,
								     "fake_cuda_runtime_call");
	if (!driver.get_address)
		return false;
#define LOAD(field, name, version)                                                                 \
	complete &= !driver.get_address(name, (void **)&driver.field, version, 0, NULL) &&         \
		    driver.field;
	DRIVER_FUNCTIONS(LOAD)
#undef LOAD
	return complete;
}

/* Tried again by every call until it succeeds. */
static int initialise(void)
{
	int result = 0;

	pthread_mutex_lock(&lock);
	if (!loaded)
		loaded = load();
	if (!loaded)
		result = PS_CUDA_INSUFFICIENT_DRIVER;
	else if (!initialised)
		result = driver.cuInit(0);
	if (!result)
		initialised = true;
	pthread_mutex_unlock(&lock);
	return result;
}

int begin(const char *call)
{
	int result = initialise();

	if (!result && driver.runtime_call)
		result = driver.runtime_call(call);
	return result;
}

/* The primary context of the thread's device, retained once for this copy of the runtime. */
static int retain(int which)
{
	int result = 0, active = 0;
	unsigned flags;

	pthread_mutex_lock(&lock);
	if (retained[which])
		result = driver.cuDevicePrimaryCtxGetState(which, &flags, &active);
	/* It may have been reset since, here or by somebody else. */
	if (!result && !active)
		result = driver.cuDevicePrimaryCtxRetain(&retained[which], which);
	pthread_mutex_unlock(&lock);
	return result;
}

int begin_in_context(const char *call)
{
	ps_cu_context current = NULL;
	int result = begin(call);

	if (!result)
		result = driver.cuCtxGetCurrent(&current);
	if (result)
		return result;
	for (int i = 0; i < DEVICES; i++)
		if (current && current == retained[i])
			return retain(i);
	if (current)
		return 0; /* one that the program made */
	result = retain(device);
	return result ? result : driver.cuCtxSetCurrent(retained[device]);
}

ps_cuda_error finish(int result)
{
	if (result)
		last_error = result;
	return result;
}

/* Without a driver the error is never cleared. */
ps_cuda_error cudaGetLastError(void)
{
	int result = begin("cudaGetLastError");

	if (!result) {
		result = last_error;
		last_error = 0;
	}
	return result;
}

ps_cuda_error cudaPeekAtLastError(void)
{
	int result = begin("cudaPeekAtLastError");

	return result ? result : last_error;
}

/* These two succeed without a driver, too. */
ps_cuda_error cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return finish(PS_CUDA_INVALID_VALUE);
	*version = VERSION;
	return 0;
}

ps_cuda_error cudaDriverGetVersion(int *version)
{
	if (!version)
		return finish(PS_CUDA_INVALID_VALUE);
	*version = 0;
	initialise();
	return finish(loaded ? driver.cuDriverGetVersion(version) : 0);
}

ps_cuda_error cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
				      int *status)
{
	int result = begin("cudaGetDriverEntryPoint");

	if (!result)
		result = driver.get_address(symbol, function, VERSION, flags, status);
	return finish(result);
}

ps_cuda_error cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
					       unsigned version, unsigned long long flags,
					       int *status)
{
	int result = begin("cudaGetDriverEntryPointByVersion");

	if (!result)
		result = driver.get_address(symbol, function, (int)version, flags, status);
	return finish(result);
}

ps_cuda_error cudaGetDeviceCount(int *count)
{
	int result = begin("cudaGetDeviceCount");

	if (!result)
		result = driver.cuDeviceGetCount(count);
	return finish(result);
}

ps_cuda_error cudaGetDevice(int *which)
{
	int result = begin("cudaGetDevice");

	if (!result && !which)
		result = PS_CUDA_INVALID_VALUE;
	if (!result)
		*which = device;
	return finish(result);
}

/* Makes the primary context, and makes it current, since CUDA 12. */
ps_cuda_error cudaSetDevice(int which)
{
	int result = begin("cudaSetDevice"), count = 0;

	if (!result)
		result = driver.cuDeviceGetCount(&count);
	if (!result && (which < 0 || which >= count))
		result = FAKE_CUDA_INVALID_DEVICE;
	if (!result)
		result = retain(which);
	if (!result)
		result = driver.cuCtxSetCurrent(retained[which]);
	if (!result)
		device = which;
	return finish(result);
}

ps_cuda_error cudaDeviceReset(void)
{
	int result = begin("cudaDeviceReset");

	pthread_mutex_lock(&lock);
	if (!result)
		result = driver.cuDevicePrimaryCtxReset_v2(device);
	if (!result && retained[device]) {
		result = driver.cuDevicePrimaryCtxRelease_v2(device);
		retained[device] = NULL;
	}
	pthread_mutex_unlock(&lock);
	/* The thread's context is gone; the next call makes a new one. */
	if (!result)
		result = driver.cuCtxSetCurrent(NULL);
	return finish(result);
}

ps_cuda_error cudaDeviceSynchronize(void)
{
	int result = begin_in_context("cudaDeviceSynchronize");

	if (!result)
		result = driver.cuCtxSynchronize();
	return finish(result);
}

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
	{ PS_CUDA_SUCCESS, "cudaSuccess", "no error" },
	{ PS_CUDA_INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument" },
	{ PS_CUDA_MEMORY_ALLOCATION, "cudaErrorMemoryAllocation", "out of memory" },
	{ PS_CUDA_NOT_INITIALIZED, "cudaErrorInitializationError", "initialization error" },
	{ PS_CUDA_DEINITIALIZED, "cudaErrorCudartUnloading", "driver shutting down" },
	{ PS_CUDA_STUB_LIBRARY, "cudaErrorStubLibrary", "CUDA driver is a stub library" },
	{ PS_CUDA_INSUFFICIENT_DRIVER, "cudaErrorInsufficientDriver",
	  "CUDA driver version is insufficient for CUDA runtime version" },
	{ PS_CUDA_NO_DEVICE, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
	{ FAKE_CUDA_INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal" },
	{ PS_CUDA_INVALID_CONTEXT, "cudaErrorDeviceUninitialized", "invalid device context" },
	{ FAKE_CUDA_INVALID_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
	{ PS_CUDA_NOT_FOUND, "cudaErrorSymbolNotFound", "named symbol not found" },
	{ FAKE_CUDA_NOT_READY, "cudaErrorNotReady", "device not ready" },
	{ PS_CUDA_ALREADY_REGISTERED, "cudaErrorHostMemoryAlreadyRegistered",
	  "part or all of the requested memory range is already mapped" },
	{ PS_CUDA_NOT_REGISTERED, "cudaErrorHostMemoryNotRegistered",
	  "pointer does not correspond to a registered memory region" },
	{ PS_CUDA_NOT_PERMITTED, "cudaErrorNotPermitted", "operation not permitted" },
	{ PS_CUDA_NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported" },
};

const char *cudaGetErrorName(ps_cuda_error error)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == error)
			return errors[i].name;
	return "unrecognized error code";
}

const char *cudaGetErrorString(ps_cuda_error error)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == error)
			return errors[i].text;
	return "unrecognized error code";
}
