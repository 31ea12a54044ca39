/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H
/*
 * What a test program needs of the fakes: the part of CUDA they have, with types of our own so that
 * no toolkit is needed, and the functions by which a test drives and questions them.
 *
 * libcuda.so.1 holds the truth; libcudart.so.13 reaches it as NVIDIA's does: dlopen, dlsym of
 * cuGetProcAddress_v2, and everything else through that. Environment, read when libcuda is loaded:
 *
 *   FAKE_CUDA_DEVICES=0|1|2   default 1; 0 makes cuInit return 100
 *   FAKE_CUDA_NO_DRIVER=1     cuInit returns 100
 *   FAKE_CUDA_FAIL=CALL:FIRST[-[LAST]]:CODE[,...]
 *                             those calls, counted from 1, return CODE and do nothing. A runtime
 *                             function can be named too: it then fails before it asks the driver
 *   FAKE_CUDA_LOG=FILE        every call is appended at exit: pid thread call(arguments) = code
 *   FAKE_CUDA_LEAKS=off       registrations left at exit are not reported
 *   FAKE_CUDA_ABORT=1         a fault aborts where it is noticed
 *
 * A fault is a use that is an error even if no call can return one: memory unmapped while it is
 * registered or a copy from it is queued, a context or a primary context given back twice. Each is
 * one line "fake cuda: ..." on stderr.
 *
 * Not as in a real GPU's driver: pages are populated at registration but not pinned, so memory
 * unmapped and mapped again at the same address goes unnoticed; no kernel runs and no captured graph
 * can be launched; every query of a stream or event carries its work out; streams per thread are the
 * default stream; _ptsz and _ptds names, memory pools, managed and virtual memory do not exist.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuda_abi.h"

/* Further results that the fakes give; CUDA's numbers. */
enum {
	FAKE_CUDA_INVALID_DEVICE = 101,
	FAKE_CUDA_INVALID_HANDLE = 400,
	FAKE_CUDA_NOT_READY = 600,
	FAKE_CUDA_ILLEGAL_ADDRESS = 700,
	FAKE_CUDA_CONTEXT_IS_DESTROYED = 709,
	FAKE_CUDA_CAPTURE_UNSUPPORTED = 900,
	FAKE_CUDA_CAPTURE_INVALIDATED = 901,
	FAKE_CUDA_CAPTURE_UNMATCHED = 903,
	FAKE_CUDA_CAPTURE_IMPLICIT = 906,
	FAKE_CUDA_CAPTURED_EVENT = 907,
	FAKE_CUDA_CAPTURE_WRONG_THREAD = 908,
};

typedef struct fake_stream *fake_cu_stream; /* CUstream, cudaStream_t */
typedef struct fake_event *fake_cu_event;   /* CUevent, cudaEvent_t */

/* One entry of the log. */
struct fake_cuda_entry {
	const char *call;
	pid_t thread;
	int result;
	uintptr_t pointer; /* the call's first pointer or handle, 0 where it has none */
	size_t size;       /* its size, 0 where it has none */
	unsigned flags;    /* its flags, kind, mode or version */
};

#pragma GCC visibility push(default)

/* How often a call was made, failed ones included; NULL: all calls. */
unsigned long fake_cuda_calls(const char *call);
/* The same for the calling thread, as far as the log reaches. */
unsigned long fake_cuda_thread_calls(const char *call);
/*
 * From now on the first to the last time (from 1; last 0: for ever) that call returns code and does
 * nothing. Replaces an earlier rule for that call; first 0 only removes it.
 */
void fake_cuda_fail(const char *call, unsigned long first, unsigned long last, int code);
/* Registrations alive, and their bytes as asked for. */
unsigned long fake_cuda_registrations(void);
size_t fake_cuda_registered_bytes(void);
/* Host allocations alive (cuMemHostAlloc, cuMemAllocHost), and their bytes as asked for. */
unsigned long fake_cuda_allocations(void);
size_t fake_cuda_allocated_bytes(void);
/* Does the range lie within one registration, or one host allocation? Length 0 asks for one byte. */
bool fake_cuda_is_registered(const void *pointer, size_t length);
bool fake_cuda_is_allocated(const void *pointer, size_t length);
/* Copies queued and not yet carried out. */
unsigned long fake_cuda_pending(void);
/* Looks at every registration now; the number of faults so far. */
unsigned long fake_cuda_faults(void);
/* The log: its length, and an entry (valid for ever) or NULL. Entries past 262144 are lost. */
size_t fake_cuda_log_length(void);
const struct fake_cuda_entry *fake_cuda_log_entry(size_t index);
/* For the fake runtime: counts and logs one of its calls; the code it must fail with, or 0. */
int fake_cuda_runtime_call(const char *call);

/* The driver. Where CUDA has a _v2 and cuda.h maps the plain name to it, so is the test to call it. */
ps_cu_result cuInit(unsigned flags);
ps_cu_result cuDriverGetVersion(int *version);
ps_cu_result cuGetErrorName(ps_cu_result error, const char **name);
ps_cu_result cuGetErrorString(ps_cu_result error, const char **text);
ps_cu_result cuGetExportTable(const void **table, const void *id);
ps_cu_result cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
ps_cu_result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
				 int *status);
ps_cu_result cuDeviceGet(ps_cu_device *device, int ordinal);
ps_cu_result cuDeviceGetCount(int *count);
ps_cu_result cuDeviceGetAttribute(int *value, int attribute, ps_cu_device device);
ps_cu_result cuDevicePrimaryCtxRetain(ps_cu_context *context, ps_cu_device device);
ps_cu_result cuDevicePrimaryCtxRelease(ps_cu_device device);
ps_cu_result cuDevicePrimaryCtxRelease_v2(ps_cu_device device);
ps_cu_result cuDevicePrimaryCtxReset(ps_cu_device device);
ps_cu_result cuDevicePrimaryCtxReset_v2(ps_cu_device device);
ps_cu_result cuDevicePrimaryCtxGetState(ps_cu_device device, unsigned *flags, int *active);
ps_cu_result cuCtxCreate_v2(ps_cu_context *context, unsigned flags, ps_cu_device device);
ps_cu_result cuCtxDestroy(ps_cu_context context);
ps_cu_result cuCtxDestroy_v2(ps_cu_context context);
ps_cu_result cuCtxGetCurrent(ps_cu_context *context);
ps_cu_result cuCtxSetCurrent(ps_cu_context context);
ps_cu_result cuCtxPushCurrent_v2(ps_cu_context context);
ps_cu_result cuCtxPopCurrent_v2(ps_cu_context *context);
ps_cu_result cuCtxGetDevice(ps_cu_device *device);
ps_cu_result cuCtxSynchronize(void);
ps_cu_result cuMemAllocHost(void **pointer, unsigned size);
ps_cu_result cuMemAllocHost_v2(void **pointer, size_t size);
ps_cu_result cuMemHostAlloc(void **pointer, size_t size, unsigned flags);
ps_cu_result cuMemFreeHost(void *pointer);
ps_cu_result cuMemHostRegister(void *pointer, size_t size, unsigned flags);
ps_cu_result cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags);
ps_cu_result cuMemHostUnregister(void *pointer);
ps_cu_result cuMemHostGetDevicePointer(unsigned *device_pointer, void *pointer, unsigned flags);
ps_cu_result cuMemHostGetDevicePointer_v2(ps_cu_deviceptr *device_pointer, void *pointer,
					  unsigned flags);
ps_cu_result cuMemHostGetFlags(unsigned *flags, void *pointer);
ps_cu_result cuPointerGetAttribute(void *data, int attribute, ps_cu_deviceptr pointer);
ps_cu_result cuPointerGetAttributes(unsigned count, int *attributes, void **data,
				    ps_cu_deviceptr pointer);
ps_cu_result cuMemAlloc_v2(ps_cu_deviceptr *pointer, size_t size);
ps_cu_result cuMemFree_v2(ps_cu_deviceptr pointer);
ps_cu_result cuMemcpy(ps_cu_deviceptr to, ps_cu_deviceptr from, size_t size);
ps_cu_result cuMemcpyAsync(ps_cu_deviceptr to, ps_cu_deviceptr from, size_t size,
			   fake_cu_stream stream);
ps_cu_result cuMemcpyHtoD_v2(ps_cu_deviceptr to, const void *from, size_t size);
ps_cu_result cuMemcpyDtoH_v2(void *to, ps_cu_deviceptr from, size_t size);
ps_cu_result cuMemcpyDtoD_v2(ps_cu_deviceptr to, ps_cu_deviceptr from, size_t size);
ps_cu_result cuMemcpyHtoDAsync_v2(ps_cu_deviceptr to, const void *from, size_t size,
				  fake_cu_stream stream);
ps_cu_result cuMemcpyDtoHAsync_v2(void *to, ps_cu_deviceptr from, size_t size,
				  fake_cu_stream stream);
ps_cu_result cuMemcpyDtoDAsync_v2(ps_cu_deviceptr to, ps_cu_deviceptr from, size_t size,
				  fake_cu_stream stream);
ps_cu_result cuMemsetD8_v2(ps_cu_deviceptr to, unsigned char value, size_t count);
ps_cu_result cuStreamCreate(fake_cu_stream *stream, unsigned flags);
ps_cu_result cuStreamDestroy_v2(fake_cu_stream stream);
ps_cu_result cuStreamSynchronize(fake_cu_stream stream);
ps_cu_result cuStreamQuery(fake_cu_stream stream);
ps_cu_result cuStreamWaitEvent(fake_cu_stream stream, fake_cu_event event, unsigned flags);
ps_cu_result cuStreamBeginCapture_v2(fake_cu_stream stream, int mode);
ps_cu_result cuStreamEndCapture(fake_cu_stream stream, void **graph);
ps_cu_result cuStreamIsCapturing(fake_cu_stream stream, int *status);
ps_cu_result cuThreadExchangeStreamCaptureMode(int *mode);
ps_cu_result cuGraphDestroy(void *graph);
ps_cu_result cuEventCreate(fake_cu_event *event, unsigned flags);
ps_cu_result cuEventDestroy_v2(fake_cu_event event);
ps_cu_result cuEventRecord(fake_cu_event event, fake_cu_stream stream);
ps_cu_result cuEventQuery(fake_cu_event event);
ps_cu_result cuEventSynchronize(fake_cu_event event);
ps_cu_result cuEventElapsedTime(float *milliseconds, fake_cu_event start, fake_cu_event end);

/* The runtime. */
enum { /* cudaMemcpyKind */
       FAKE_HOST_TO_HOST = 0,
       FAKE_HOST_TO_DEVICE = 1,
       FAKE_DEVICE_TO_HOST = 2,
       FAKE_DEVICE_TO_DEVICE = 3,
       FAKE_COPY_DEFAULT = 4
};

ps_cuda_error cudaGetLastError(void);
ps_cuda_error cudaPeekAtLastError(void);
const char *cudaGetErrorName(ps_cuda_error error);
const char *cudaGetErrorString(ps_cuda_error error);
ps_cuda_error cudaRuntimeGetVersion(int *version);
ps_cuda_error cudaDriverGetVersion(int *version);
ps_cuda_error cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
				      int *status);
ps_cuda_error cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
					       unsigned version, unsigned long long flags,
					       int *status);
ps_cuda_error cudaGetDeviceCount(int *count);
ps_cuda_error cudaGetDevice(int *device);
ps_cuda_error cudaSetDevice(int device);
ps_cuda_error cudaDeviceReset(void);
ps_cuda_error cudaDeviceSynchronize(void);
ps_cuda_error cudaHostAlloc(void **pointer, size_t size, unsigned flags);
ps_cuda_error cudaMallocHost(void **pointer, size_t size);
ps_cuda_error cudaFreeHost(void *pointer);
ps_cuda_error cudaHostRegister(void *pointer, size_t size, unsigned flags);
ps_cuda_error cudaHostUnregister(void *pointer);
ps_cuda_error cudaHostGetDevicePointer(void **device_pointer, void *pointer, unsigned flags);
ps_cuda_error cudaHostGetFlags(unsigned *flags, void *pointer);
ps_cuda_error cudaPointerGetAttributes(struct ps_pointer_attributes *attributes,
				       const void *pointer);
ps_cuda_error cudaMalloc(void **pointer, size_t size);
ps_cuda_error cudaFree(void *pointer);
ps_cuda_error cudaMemcpy(void *to, const void *from, size_t size, int kind);
ps_cuda_error cudaMemcpyAsync(void *to, const void *from, size_t size, int kind,
			      fake_cu_stream stream);
ps_cuda_error cudaMemset(void *to, int value, size_t size);
ps_cuda_error cudaStreamCreate(fake_cu_stream *stream);
ps_cuda_error cudaStreamCreateWithFlags(fake_cu_stream *stream, unsigned flags);
ps_cuda_error cudaStreamDestroy(fake_cu_stream stream);
ps_cuda_error cudaStreamSynchronize(fake_cu_stream stream);
ps_cuda_error cudaStreamQuery(fake_cu_stream stream);
ps_cuda_error cudaStreamWaitEvent(fake_cu_stream stream, fake_cu_event event, unsigned flags);
ps_cuda_error cudaStreamBeginCapture(fake_cu_stream stream, int mode);
ps_cuda_error cudaStreamEndCapture(fake_cu_stream stream, void **graph);
ps_cuda_error cudaStreamIsCapturing(fake_cu_stream stream, int *status);
ps_cuda_error cudaThreadExchangeStreamCaptureMode(int *mode);
ps_cuda_error cudaGraphDestroy(void *graph);
ps_cuda_error cudaEventCreate(fake_cu_event *event);
ps_cuda_error cudaEventCreateWithFlags(fake_cu_event *event, unsigned flags);
ps_cuda_error cudaEventDestroy(fake_cu_event event);
ps_cuda_error cudaEventRecord(fake_cu_event event, fake_cu_stream stream);
ps_cuda_error cudaEventQuery(fake_cu_event event);
ps_cuda_error cudaEventSynchronize(fake_cu_event event);
ps_cuda_error cudaEventElapsedTime(float *milliseconds, fake_cu_event start, fake_cu_event end);

#pragma GCC visibility pop

static inline void *fake_cuda_find(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_NOW);

	return handle ? dlsym(handle, name) : NULL;
}

/*
 * For programs that are not linked with the fake driver: FAKE_CUDA(fake_cuda_calls)("cuInit").
 * It is loaded if it is not there yet.
 */
#define FAKE_CUDA(function) ((__typeof__(function) *)fake_cuda_find("libcuda.so.1", #function))

#endif
