/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CUDA_ABI_H
#define PS_CUDA_ABI_H
/*
 * The few types and numbers of CUDA's host-memory interface, as its documentation gives them, so
 * that building needs no toolkit. Where headers are found a test compiles these against them.
 */
#include <stddef.h>

typedef int ps_cuda_error; /* cudaError_t */
typedef int ps_cu_result;  /* CUresult */
typedef unsigned long long ps_cu_deviceptr;
typedef void *ps_cu_context; /* CUcontext */
typedef int ps_cu_device;    /* CUdevice */

/* Errors whose numbers the runtime (cudaError*) and the driver (CUDA_ERROR_*) share. */
enum {
	PS_CUDA_SUCCESS = 0,
	PS_CUDA_INVALID_VALUE = 1,
	PS_CUDA_MEMORY_ALLOCATION = 2, /* CUDA_ERROR_OUT_OF_MEMORY */
	PS_CUDA_NOT_INITIALIZED = 3,
	PS_CUDA_DEINITIALIZED = 4,
	PS_CUDA_STUB_LIBRARY = 34,
	PS_CUDA_INSUFFICIENT_DRIVER = 35, /* the runtime only */
	PS_CUDA_NO_DEVICE = 100,
	PS_CUDA_INVALID_CONTEXT = 201,
	PS_CUDA_NOT_FOUND = 500,
	PS_CUDA_CONTEXT_IS_DESTROYED = 709,
	PS_CUDA_ALREADY_REGISTERED = 712, /* HOST_MEMORY_ALREADY_REGISTERED */
	PS_CUDA_NOT_REGISTERED = 713,     /* HOST_MEMORY_NOT_REGISTERED */
	PS_CUDA_NOT_PERMITTED = 800,
	PS_CUDA_NOT_SUPPORTED = 801,
	PS_CUDA_STREAM_CAPTURE_UNSUPPORTED = 900,
};

/* Flags of cudaHostAlloc and cuMemHostAlloc. */
enum {
	PS_HOST_ALLOC_PORTABLE = 1,
	PS_HOST_ALLOC_MAPPED = 2, /* CU_MEMHOSTALLOC_DEVICEMAP */
	PS_HOST_ALLOC_WRITE_COMBINED = 4,
};

/* Flags of cudaHostRegister and cuMemHostRegister. */
enum {
	PS_HOST_REGISTER_PORTABLE = 1,
	PS_HOST_REGISTER_MAPPED = 2, /* CU_MEMHOSTREGISTER_DEVICEMAP */
	PS_HOST_REGISTER_IO_MEMORY = 4,
	PS_HOST_REGISTER_READ_ONLY = 8,
};

/* cudaMemoryType, and CU_POINTER_ATTRIBUTE_* / CU_MEMORYTYPE_* of the driver. */
enum {
	PS_MEMORY_UNREGISTERED = 0,
	PS_MEMORY_HOST = 1,
	PS_MEMORY_DEVICE = 2,
	PS_MEMORY_MANAGED = 3
};

/* struct cudaPointerAttributes since CUDA 11; later ones only add reserved space at the end. */
struct ps_pointer_attributes {
	int type;
	int device;
	void *device_pointer;
	void *host_pointer;
};

/* cudaStreamCaptureMode and CUstreamCaptureMode. */
enum { PS_CAPTURE_GLOBAL = 0, PS_CAPTURE_THREAD_LOCAL = 1, PS_CAPTURE_RELAXED = 2 };

#endif
