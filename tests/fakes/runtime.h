/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FAKE_RUNTIME_H
#define FAKE_RUNTIME_H
/*
 * Inside the fake libcudart.so.13. All it keeps is the driver's functions, which devices it has
 * retained, and each thread's device and last error; a second copy of the library has its own.
 */
#include "fake_cuda.h"

/* Field, base name and version for cuGetProcAddress: those that cudart 13.0 asks for. */
#define DRIVER_FUNCTIONS(F)                                                                        \
	F(cuInit, "cuInit", 2000)                                                                  \
	F(cuCtxGetCurrent, "cuCtxGetCurrent", 4000)                                                \
	F(cuCtxSetCurrent, "cuCtxSetCurrent", 4000)                                                \
	F(cuCtxSynchronize, "cuCtxSynchronize", 2000)                                              \
	F(cuDeviceGetCount, "cuDeviceGetCount", 2000)                                              \
	F(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000)                          \
	F(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000)                        \
	F(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000)                            \
	F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000)                              \
	F(cuDriverGetVersion, "cuDriverGetVersion", 2020)                                          \
	F(cuEventCreate, "cuEventCreate", 2000)                                                    \
	F(cuEventDestroy_v2, "cuEventDestroy", 4000)                                               \
	F(cuEventElapsedTime, "cuEventElapsedTime", 2000)                                          \
	F(cuEventQuery, "cuEventQuery", 2000)                                                      \
	F(cuEventRecord, "cuEventRecord", 2000)                                                    \
	F(cuEventSynchronize, "cuEventSynchronize", 2000)                                          \
	F(cuGraphDestroy, "cuGraphDestroy", 10000)                                                 \
	F(cuMemAlloc_v2, "cuMemAlloc", 3020)                                                       \
	F(cuMemFree_v2, "cuMemFree", 3020)                                                         \
	F(cuMemFreeHost, "cuMemFreeHost", 2000)                                                    \
	F(cuMemHostAlloc, "cuMemHostAlloc", 2020)                                                  \
	F(cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer", 3020)                         \
	F(cuMemHostGetFlags, "cuMemHostGetFlags", 2030)                                            \
	F(cuMemHostRegister_v2, "cuMemHostRegister", 6050)                                         \
	F(cuMemHostUnregister, "cuMemHostUnregister", 4000)                                        \
	F(cuMemcpy, "cuMemcpy", 4000)                                                              \
	F(cuMemcpyAsync, "cuMemcpyAsync", 4000)                                                    \
	F(cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020)                                                   \
	F(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020)                                         \
	F(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020)                                                   \
	F(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020)                                         \
	F(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020)                                                   \
	F(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020)                                         \
	F(cuMemsetD8_v2, "cuMemsetD8", 3020)                                                       \
	F(cuPointerGetAttributes, "cuPointerGetAttributes", 7000)                                  \
	F(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010)                                  \
	F(cuStreamCreate, "cuStreamCreate", 2000)                                                  \
	F(cuStreamDestroy_v2, "cuStreamDestroy", 4000)                                             \
	F(cuStreamEndCapture, "cuStreamEndCapture", 10000)                                         \
	F(cuStreamIsCapturing, "cuStreamIsCapturing", 10000)                                       \
	F(cuStreamQuery, "cuStreamQuery", 2000)                                                    \
	F(cuStreamSynchronize, "cuStreamSynchronize", 2000)                                        \
	F(cuStreamWaitEvent, "cuStreamWaitEvent", 3020)                                            \
	F(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010)

#define DRIVER_FIELD(field, name, version) __typeof__(field) *field;
struct driver {
	DRIVER_FUNCTIONS(DRIVER_FIELD)
	__typeof__(cuGetProcAddress_v2) *get_address;
	__typeof__(fake_cuda_runtime_call) *runtime_call; /* NULL if the driver is not the fake */
};
#undef DRIVER_FIELD

extern struct driver driver;

/*
 * Begins a call: 0, or why it cannot be made, which is 35 without a driver. begin_in_context also
 * makes the primary context of the thread's device current if nothing is.
 */
int begin(const char *call);
int begin_in_context(const char *call);
/* Ends it: an error becomes the thread's last one. */
ps_cuda_error finish(int result);

#endif
