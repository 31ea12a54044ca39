/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What nvcc makes by default, its runtime linked in, or -cudart shared: prints what host-memory calls
 * and others return and leave behind. There is no driver that works, so they all fail.
 */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define GIVES(call) printf("%s = %d\n", #call, (int)(call))

int main()
{
	/* The shim reports only if it has served something. */
	void *volatile served = malloc(1 << 20);
	void *pointer = &pointer, *device = &device;
	cudaPointerAttributes attributes = {};
	unsigned flags = 7;
	int number = 7;

	GIVES(cudaRuntimeGetVersion(&number));
	printf("version %d\n", number);
	GIVES(cudaGetDeviceCount(&number));
	GIVES(cudaSetDevice(0));
	GIVES(cudaMalloc(&device, 100));
	GIVES(cudaFreeHost(NULL));
	GIVES(cudaHostUnregister(&number));
	GIVES(cudaHostGetFlags(&flags, &number));
	GIVES(cudaHostGetDevicePointer(&device, &number, 0));
	GIVES(cudaPointerGetAttributes(&attributes, &number));
	GIVES(cudaPeekAtLastError());
	GIVES(cudaGetLastError());
	GIVES(cudaGetLastError());
	GIVES(cudaDeviceSynchronize());
	GIVES(cudaDeviceReset());
#ifdef ALLOCATES
	GIVES(cudaHostAlloc(&pointer, 100000, 0));
	GIVES(cudaMallocHost(&pointer, 0));
	GIVES(cudaHostRegister(&number, 4, 0));
	printf("pointer %d\n", pointer == &pointer);
#endif
	printf("%d %d %d %d\n", flags, number, device == &device, (int)attributes.type);
	free(served);
	return 3;
}
