// SPDX-License-Identifier: BSD-2-Clause
// An ordinary program with device code in it, built by nvcc -cudart shared.
#include <cstdio>
#include <cstring>

__device__ int variable;

__global__ void kernel(int value)
{
	variable = value;
}

int main()
{
	char *pinned, *other, back[100];
	void *device;
	cudaPointerAttributes attributes;
	int count = 0;

	if (cudaGetDeviceCount(&count) || count != 1 || cudaHostAlloc(&pinned, 100, 0) ||
	    cudaMallocHost(&other, 100) || cudaMalloc(&device, 100) ||
	    cudaPointerGetAttributes(&attributes, pinned) ||
	    attributes.type != cudaMemoryTypeHost || attributes.hostPointer != pinned)
		return 1;
	memset(pinned, 'x', 100);
	if (cudaMemcpy(device, pinned, 100, cudaMemcpyHostToDevice) ||
	    cudaMemcpy(back, device, 100, cudaMemcpyDeviceToHost) || back[99] != 'x')
		return 2;
	kernel<<<1, 1>>>(7);
	if (cudaGetLastError() != cudaErrorNotSupported) // the fakes run no kernels
		return 3;
	if (cudaFreeHost(pinned) || cudaFreeHost(other) || cudaFree(device))
		return 4;
	puts("works");
}
