/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies from and to host memory, and what the end of a context does to it. */
#include <stdlib.h>

#include "attributes.h"

#define SIZE (64 * MIB)

static bool is_all(const char *memory, char what, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (memory[i] != what)
			return false;
	return true;
}

static void there_and_back(const char *question, char *from, char *to, void *device, size_t size)
{
	fake_cu_stream stream = NULL;
	int r = cudaStreamCreate(&stream);

	memset(from, 'f', size);
	memset(to, 't', size);
	r = r ? r : cudaMemcpyAsync(device, from, size, FAKE_HOST_TO_DEVICE, stream);
	r = r ? r : cudaMemcpyAsync(to, device, size, FAKE_DEVICE_TO_HOST, stream);
	r = r ? r : cudaStreamSynchronize(stream);
	text(question, "0 right", "%d %s", r, is_all(to, 'f', size) ? "right" : "wrong");
	cudaStreamDestroy(stream);
	cudaGetLastError();
}

static void right(void)
{
	char *from = NULL, *to = NULL, *heap = malloc(SIZE), *small = NULL;
	void *device = NULL;

	code("cudaMalloc", 0, cudaMalloc(&device, SIZE));
	code("cudaHostAlloc", 0, cudaHostAlloc((void **)&from, SIZE, 0));
	code("cudaMallocHost", 0, cudaMallocHost((void **)&to, SIZE));
	code("cudaMallocHost, small", 0, cudaMallocHost((void **)&small, 3 * PAGE));
	there_and_back("pinned to pinned", from, to, device, SIZE);
	there_and_back("pinned to malloc's", from, heap, device, SIZE);
	there_and_back("malloc's to pinned", heap, to, device, SIZE);
	there_and_back("part of a block, odd addresses", from + 4097, to + 3, device, SIZE - 9999);
	there_and_back("small", from, small, device, 3 * PAGE);
	code("cudaFreeHost", 0, cudaFreeHost(from));
	code("cudaFreeHost, the other", 0, cudaFreeHost(to));
	code("cudaFreeHost, small", 0, cudaFreeHost(small));
	code("cudaFree", 0, cudaFree(device));
	free(heap);
}

static void straddling(void)
{
	char *memory = pages(16);
	void *device = NULL;

	code("cudaMalloc", 0, cudaMalloc(&device, MIB));
	code("cudaHostRegister, half of it", 0, cudaHostRegister(memory, 8 * PAGE, 0));
	guess();
	code("cudaMemcpy, across the border", 1,
	     cudaMemcpy(device, memory, 16 * PAGE, FAKE_HOST_TO_DEVICE));
	guess();
	code("cudaMemcpy, into the registered part", 1,
	     cudaMemcpy(device, memory + 8 * PAGE - 1, 2, FAKE_HOST_TO_DEVICE));
	code("cudaMemcpy, the registered half", 0,
	     cudaMemcpy(device, memory, 8 * PAGE, FAKE_HOST_TO_DEVICE));
	code("cudaMemcpy, the other half", 0,
	     cudaMemcpy(device, memory + 8 * PAGE, 8 * PAGE, FAKE_HOST_TO_DEVICE));
	code("cudaHostRegister, the other half", 0,
	     cudaHostRegister(memory + 8 * PAGE, 8 * PAGE, 0));
	guess();
	code("cudaMemcpy, across two registrations", OPEN,
	     cudaMemcpy(device, memory, 16 * PAGE, FAKE_HOST_TO_DEVICE));
	code("cudaHostUnregister", 0, cudaHostUnregister(memory));
	code("cudaHostUnregister, the other half", 0, cudaHostUnregister(memory + 8 * PAGE));
	cudaFree(device);
}

/* cudaFreeHost waits: what is allocated next may be the same memory. */
static void freed_in_flight(void)
{
	char *block = NULL, *other = NULL, *back;
	void *device = NULL;
	fake_cu_stream stream = NULL;

	if (cudaMalloc(&device, SIZE) || cudaMallocHost((void **)&block, SIZE) ||
	    cudaStreamCreate(&stream))
		return;
	back = malloc(SIZE);
	memset(block, 'a', SIZE);
	for (int i = 0; i < 8; i++)
		cudaMemcpyAsync(device, block, SIZE, FAKE_HOST_TO_DEVICE, stream);
	code("cudaFreeHost, with copies in flight", 0, cudaFreeHost(block));
	known("600", "it is the next allocation that waits");
	code("cudaStreamQuery right after it", 0, cudaStreamQuery(stream));
	code("cudaMallocHost, the same size", 0, cudaMallocHost((void **)&other, SIZE));
	memset(other, 'b', SIZE);
	code("cudaStreamSynchronize", 0, cudaStreamSynchronize(stream));
	cudaMemcpy(back, device, SIZE, FAKE_DEVICE_TO_HOST);
	text("the copies have what was there before", "yes",
	     is_all(back, 'a', SIZE) ? "yes" : "no");
	code("cudaFreeHost, the other", 0, cudaFreeHost(other));
	cudaStreamDestroy(stream);
	cudaFree(device);
	free(back);
}

static void reset(void)
{
	char *block = NULL, *memory = pages(4);

	code("cudaMallocHost", 0, cudaMallocHost((void **)&block, MIB));
	code("cudaHostRegister", 0, cudaHostRegister(memory, 4 * PAGE, 0));
	code("cudaDeviceReset", 0, cudaDeviceReset());
	attributes("cudaPointerGetAttributes, registered before it", ATTRIBUTES_NONE, memory);
	code("cudaHostUnregister, registered before it", 713, cudaHostUnregister(memory));
	code("cudaHostRegister, anew", 0, cudaHostRegister(memory, 4 * PAGE, 0));
	code("cudaHostUnregister, that", 0, cudaHostUnregister(memory));
	known(ATTRIBUTES_PINNED, "a block outlives the context");
	attributes("cudaPointerGetAttributes, allocated before it", ATTRIBUTES_NONE, block);
	known("0", "a block outlives the context");
	code("cudaFreeHost, allocated before it", 1, cudaFreeHost(block));
	cudaGetLastError();
	code("cudaMallocHost, anew", 0, cudaMallocHost((void **)&block, MIB));
	attributes("cudaPointerGetAttributes, that", ATTRIBUTES_PINNED, block);
	code("cudaFreeHost, that", 0, cudaFreeHost(block));
}

int main(int arguments, char **argument)
{
	static const struct group groups[] = {
		{ "right", right },
		{ "straddling", straddling },
		{ "freed_in_flight", freed_in_flight },
		{ "reset", reset },
	};

	return run_group(groups, COUNT(groups), arguments, argument);
}
