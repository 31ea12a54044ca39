/* SPDX-License-Identifier: BSD-2-Clause */
/* The runtime's memory calls. All but the sizes 0 and the pointers' types is the driver's doing. */
#include "runtime.h"

/* "cudaMallocHost(&p,0) returns success with p=NULL without calling the driver" */
static int allocate(const char *call, void **pointer, size_t size, unsigned flags)
{
	int result = begin_in_context(call);

	if (!result && (!pointer || (flags & ~7u)))
		result = PS_CUDA_INVALID_VALUE;
	if (!result && !size)
		*pointer = NULL;
	else if (!result)
		result = driver.cuMemHostAlloc(pointer, size, flags);
	return finish(result);
}

ps_cuda_error cudaHostAlloc(void **pointer, size_t size, unsigned flags)
{
	return allocate("cudaHostAlloc", pointer, size, flags);
}

ps_cuda_error cudaMallocHost(void **pointer, size_t size)
{
	return allocate("cudaMallocHost", pointer, size, 0);
}

ps_cuda_error cudaFreeHost(void *pointer)
{
	int result = begin_in_context("cudaFreeHost");

	if (!result)
		result = driver.cuMemFreeHost(pointer);
	return finish(result);
}

ps_cuda_error cudaHostRegister(void *pointer, size_t size, unsigned flags)
{
	int result = begin_in_context("cudaHostRegister");

	if (!result)
		result = driver.cuMemHostRegister_v2(pointer, size, flags);
	return finish(result);
}

ps_cuda_error cudaHostUnregister(void *pointer)
{
	int result = begin_in_context("cudaHostUnregister");

	if (!result)
		result = driver.cuMemHostUnregister(pointer);
	return finish(result);
}

ps_cuda_error cudaHostGetDevicePointer(void **device_pointer, void *pointer, unsigned flags)
{
	int result = begin_in_context("cudaHostGetDevicePointer");
	ps_cu_deviceptr found = 0;

	if (!result && !device_pointer)
		result = PS_CUDA_INVALID_VALUE;
	if (!result)
		result = driver.cuMemHostGetDevicePointer_v2(&found, pointer, flags);
	if (!result)
		*device_pointer = (void *)(uintptr_t)found;
	return finish(result);
}

ps_cuda_error cudaHostGetFlags(unsigned *flags, void *pointer)
{
	int result = begin_in_context("cudaHostGetFlags");

	if (!result)
		result = driver.cuMemHostGetFlags(flags, pointer);
	return finish(result);
}

/* The caller's structure may end in reserved words (CUDA 13), which are not touched. */
ps_cuda_error cudaPointerGetAttributes(struct ps_pointer_attributes *attributes,
				       const void *pointer)
{
	int which[] = { 2, 9, 3,
			4 }; /* MEMORY_TYPE, DEVICE_ORDINAL, DEVICE_POINTER, HOST_POINTER */
	int result = begin_in_context("cudaPointerGetAttributes"), device = 0;
	unsigned type = 0;
	ps_cu_deviceptr device_pointer = 0;
	void *host_pointer = NULL;
	void *data[] = { &type, &device, &device_pointer, &host_pointer };

	if (!result && !attributes)
		result = PS_CUDA_INVALID_VALUE;
	if (!result)
		result = driver.cuPointerGetAttributes(4, which, data, (uintptr_t)pointer);
	if (!result)
		*attributes = (struct ps_pointer_attributes){
			.type = (int)type,
			.device = device,
			.device_pointer = (void *)(uintptr_t)device_pointer,
			/* "CUDA doesn't check if unregistered memory is allocated" */
			.host_pointer = type ? host_pointer : (void *)(uintptr_t)pointer,
		};
	return finish(result);
}

ps_cuda_error cudaMalloc(void **pointer, size_t size)
{
	int result = begin_in_context("cudaMalloc");
	ps_cu_deviceptr found = 0;

	if (!result && !pointer)
		result = PS_CUDA_INVALID_VALUE;
	if (!result && size)
		result = driver.cuMemAlloc_v2(&found, size);
	if (!result)
		*pointer = (void *)(uintptr_t)found;
	return finish(result);
}

ps_cuda_error cudaFree(void *pointer)
{
	int result = begin_in_context("cudaFree");

	if (!result)
		result = driver.cuMemFree_v2((uintptr_t)pointer);
	return finish(result);
}

ps_cuda_error cudaMemcpy(void *to, const void *from, size_t size, int kind)
{
	int result = begin_in_context("cudaMemcpy");

	if (result)
		return finish(result);
	switch (kind) {
	case FAKE_HOST_TO_DEVICE:
		return finish(driver.cuMemcpyHtoD_v2((uintptr_t)to, from, size));
	case FAKE_DEVICE_TO_HOST:
		return finish(driver.cuMemcpyDtoH_v2(to, (uintptr_t)from, size));
	case FAKE_DEVICE_TO_DEVICE:
		return finish(driver.cuMemcpyDtoD_v2((uintptr_t)to, (uintptr_t)from, size));
	case FAKE_HOST_TO_HOST:
	case FAKE_COPY_DEFAULT:
		return finish(driver.cuMemcpy((uintptr_t)to, (uintptr_t)from, size));
	default:
		return finish(21); /* cudaErrorInvalidMemcpyDirection */
	}
}

ps_cuda_error cudaMemcpyAsync(void *to, const void *from, size_t size, int kind,
			      fake_cu_stream stream)
{
	int result = begin_in_context("cudaMemcpyAsync");

	if (result)
		return finish(result);
	switch (kind) {
	case FAKE_HOST_TO_DEVICE:
		return finish(driver.cuMemcpyHtoDAsync_v2((uintptr_t)to, from, size, stream));
	case FAKE_DEVICE_TO_HOST:
		return finish(driver.cuMemcpyDtoHAsync_v2(to, (uintptr_t)from, size, stream));
	case FAKE_DEVICE_TO_DEVICE:
		return finish(
			driver.cuMemcpyDtoDAsync_v2((uintptr_t)to, (uintptr_t)from, size, stream));
	case FAKE_HOST_TO_HOST:
	case FAKE_COPY_DEFAULT:
		return finish(driver.cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, size, stream));
	default:
		return finish(21); /* cudaErrorInvalidMemcpyDirection */
	}
}

ps_cuda_error cudaMemset(void *to, int value, size_t size)
{
	int result = begin_in_context("cudaMemset");

	if (!result)
		result = driver.cuMemsetD8_v2((uintptr_t)to, (unsigned char)value, size);
	return finish(result);
}
