/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cuGetProcAddress: by base name and version, as cudaTypedefs.h 13.0 pairs them. The 4-argument form
 * of 11.3 says 500 for what it does not find and leaves the pointer alone, the 5-argument one of 12.0
 * says success, gives NULL, and has the reason in the optional status.
 */
#include <string.h>

#include "fake.h"

#define VERSION 13000

enum { FOUND = 0, NO_SYMBOL = 1, VERSION_TOO_LOW = 2 };

struct entry {
	const char *name;
	int version; /* since when this function has the name */
	void *function;
};

/* Of entries with the same name the last that is old enough counts. */
static const struct entry entries[] = {
	{ "cuCtxCreate", 3020, cuCtxCreate_v2 },
	{ "cuCtxDestroy", 2000, cuCtxDestroy },
	{ "cuCtxDestroy", 4000, cuCtxDestroy_v2 },
	{ "cuCtxGetCurrent", 4000, cuCtxGetCurrent },
	{ "cuCtxGetDevice", 2000, cuCtxGetDevice },
	{ "cuCtxPopCurrent", 4000, cuCtxPopCurrent_v2 },
	{ "cuCtxPushCurrent", 4000, cuCtxPushCurrent_v2 },
	{ "cuCtxSetCurrent", 4000, cuCtxSetCurrent },
	{ "cuCtxSynchronize", 2000, cuCtxSynchronize },
	{ "cuDeviceGet", 2000, cuDeviceGet },
	{ "cuDeviceGetAttribute", 2000, cuDeviceGetAttribute },
	{ "cuDeviceGetCount", 2000, cuDeviceGetCount },
	{ "cuDevicePrimaryCtxGetState", 7000, cuDevicePrimaryCtxGetState },
	{ "cuDevicePrimaryCtxRelease", 7000, cuDevicePrimaryCtxRelease },
	{ "cuDevicePrimaryCtxRelease", 11000, cuDevicePrimaryCtxRelease_v2 },
	{ "cuDevicePrimaryCtxReset", 7000, cuDevicePrimaryCtxReset },
	{ "cuDevicePrimaryCtxReset", 11000, cuDevicePrimaryCtxReset_v2 },
	{ "cuDevicePrimaryCtxRetain", 7000, cuDevicePrimaryCtxRetain },
	{ "cuDriverGetVersion", 2020, cuDriverGetVersion },
	{ "cuEventCreate", 2000, cuEventCreate },
	{ "cuEventDestroy", 4000, cuEventDestroy_v2 },
	{ "cuEventElapsedTime", 2000, cuEventElapsedTime },
	{ "cuEventQuery", 2000, cuEventQuery },
	{ "cuEventRecord", 2000, cuEventRecord },
	{ "cuEventSynchronize", 2000, cuEventSynchronize },
	{ "cuGetErrorName", 6000, cuGetErrorName },
	{ "cuGetErrorString", 6000, cuGetErrorString },
	{ "cuGetExportTable", 3000, cuGetExportTable },
	{ "cuGetProcAddress", 11030, cuGetProcAddress },
	{ "cuGetProcAddress", 12000, cuGetProcAddress_v2 },
	{ "cuGraphDestroy", 10000, cuGraphDestroy },
	{ "cuInit", 2000, cuInit },
	{ "cuMemAlloc", 3020, cuMemAlloc_v2 },
	{ "cuMemAllocHost", 2000, cuMemAllocHost },
	{ "cuMemAllocHost", 3020, cuMemAllocHost_v2 },
	{ "cuMemFree", 3020, cuMemFree_v2 },
	{ "cuMemFreeHost", 2000, cuMemFreeHost },
	{ "cuMemHostAlloc", 2020, cuMemHostAlloc },
	{ "cuMemHostGetDevicePointer", 2020, cuMemHostGetDevicePointer },
	{ "cuMemHostGetDevicePointer", 3020, cuMemHostGetDevicePointer_v2 },
	{ "cuMemHostGetFlags", 2030, cuMemHostGetFlags },
	{ "cuMemHostRegister", 4000, cuMemHostRegister },
	{ "cuMemHostRegister", 6050, cuMemHostRegister_v2 },
	{ "cuMemHostUnregister", 4000, cuMemHostUnregister },
	{ "cuMemcpy", 4000, cuMemcpy },
	{ "cuMemcpyAsync", 4000, cuMemcpyAsync },
	{ "cuMemcpyDtoD", 3020, cuMemcpyDtoD_v2 },
	{ "cuMemcpyDtoDAsync", 3020, cuMemcpyDtoDAsync_v2 },
	{ "cuMemcpyDtoH", 3020, cuMemcpyDtoH_v2 },
	{ "cuMemcpyDtoHAsync", 3020, cuMemcpyDtoHAsync_v2 },
	{ "cuMemcpyHtoD", 3020, cuMemcpyHtoD_v2 },
	{ "cuMemcpyHtoDAsync", 3020, cuMemcpyHtoDAsync_v2 },
	{ "cuMemsetD8", 3020, cuMemsetD8_v2 },
	{ "cuPointerGetAttribute", 4000, cuPointerGetAttribute },
	{ "cuPointerGetAttributes", 7000, cuPointerGetAttributes },
	{ "cuStreamBeginCapture", 10010, cuStreamBeginCapture_v2 },
	{ "cuStreamCreate", 2000, cuStreamCreate },
	{ "cuStreamDestroy", 4000, cuStreamDestroy_v2 },
	{ "cuStreamEndCapture", 10000, cuStreamEndCapture },
	{ "cuStreamIsCapturing", 10000, cuStreamIsCapturing },
	{ "cuStreamQuery", 2000, cuStreamQuery },
	{ "cuStreamSynchronize", 2000, cuStreamSynchronize },
	{ "cuStreamWaitEvent", 3020, cuStreamWaitEvent },
	{ "cuThreadExchangeStreamCaptureMode", 10010, cuThreadExchangeStreamCaptureMode },
};

static int look_up(const char *symbol, int version, void **function)
{
	int status = NO_SYMBOL;

	*function = NULL;
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (strcmp(entries[i].name, symbol) != 0)
			continue;
		if (entries[i].version <= version) {
			*function = entries[i].function;
			status = FOUND;
		} else if (status == NO_SYMBOL) {
			status = VERSION_TOO_LOW;
		}
	}
	return status;
}

static int check_request(const char *symbol, void **function, int version, uint64_t flags)
{
	return symbol && function && version <= VERSION && flags <= 2 ? 0 : PS_CUDA_INVALID_VALUE;
}

ps_cu_result cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
	static struct call call = { .name = "cuGetProcAddress" };
	int result = enter(&call, BEFORE_INIT);
	void *found;

	if (!result)
		result = check_request(symbol, function, version, flags);
	if (!result && look_up(symbol, version, &found) != FOUND)
		result = PS_CUDA_NOT_FOUND;
	if (!result)
		*function = found;
	return leave(&call, result, 0, 0, (unsigned)version);
}

ps_cu_result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
				 int *status)
{
	static struct call call = { .name = "cuGetProcAddress_v2" };
	int result = enter(&call, BEFORE_INIT), found;

	if (!result)
		result = check_request(symbol, function, version, flags);
	if (!result) {
		found = look_up(symbol, version, function);
		if (status)
			*status = found;
	}
	return leave(&call, result, 0, 0, (unsigned)version);
}

ps_cu_result cuGetExportTable(const void **table, const void *id)
{
	static struct call call = { .name = "cuGetExportTable" };
	int result = enter(&call, BEFORE_INIT);

	(void)table;
	(void)id;
	if (!result)
		result = PS_CUDA_NOT_FOUND; /* private interfaces are not imitated */
	return leave(&call, result, 0, 0, 0);
}

ps_cu_result cuDriverGetVersion(int *version)
{
	static struct call call = { .name = "cuDriverGetVersion" };
	int result = enter(&call, BEFORE_INIT);

	if (!result && !version)
		result = PS_CUDA_INVALID_VALUE;
	if (!result)
		*version = VERSION;
	return leave(&call, result, 0, 0, 0);
}

/* Those that the fakes give. */
static const struct {
	int code;
	const char *name, *text;
} errors[] = {
	{ PS_CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
	{ PS_CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ PS_CUDA_MEMORY_ALLOCATION, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ PS_CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ PS_CUDA_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down" },
	{ PS_CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ FAKE_CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ PS_CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ FAKE_CUDA_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ PS_CUDA_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ FAKE_CUDA_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
	{ PS_CUDA_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	  "part or all of the requested memory range is already mapped" },
	{ PS_CUDA_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	  "pointer does not correspond to a registered memory region" },
	{ PS_CUDA_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
	{ PS_CUDA_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
};

static int describe(int code, const char **out, bool text)
{
	if (!out)
		return PS_CUDA_INVALID_VALUE;
	*out = NULL;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == code)
			*out = text ? errors[i].text : errors[i].name;
	return *out ? 0 : PS_CUDA_INVALID_VALUE;
}

ps_cu_result cuGetErrorName(ps_cu_result error, const char **name)
{
	return describe(error, name, false);
}

ps_cu_result cuGetErrorString(ps_cu_result error, const char **text)
{
	return describe(error, text, true);
}
