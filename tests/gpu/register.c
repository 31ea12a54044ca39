/* SPDX-License-Identifier: BSD-2-Clause */
/* cudaHostRegister, cudaHostUnregister. */
#include <stdlib.h>

#include "attributes.h"

static void undo(void *pointer)
{
	cudaHostUnregister(pointer);
	cudaGetLastError();
}

/* A question about a registration that should not last. */
static void try(const char *question, int expected, void *pointer, size_t size, unsigned flags)
{
	const int r = cudaHostRegister(pointer, size, flags);

	code(question, expected, r);
	if (r)
		cudaGetLastError();
	else
		undo(pointer);
}

static void flags(void)
{
	char *memory = pages(16);

	for (unsigned f = 0; f < 4; f++) {
		void *device = UNTOUCHED;
		unsigned got = 77;
		int r;

		code(named("cudaHostRegister, flags %u", f), 0,
		     cudaHostRegister(memory, 16 * PAGE, f));
		guess();
		r = cudaHostGetFlags(&got, memory);
		text(named("cudaHostGetFlags, registered with %u", f), "1 77", "%d %u", r, got);
		got = 77;
		guess();
		r = DRIVER(cuMemHostGetFlags)(&got, memory);
		text(named("cuMemHostGetFlags, registered with %u", f), "1 77", "%d %u", r, got);
		r = cudaHostGetDevicePointer(&device, memory + 100, 0);
		text(named("cudaHostGetDevicePointer, 100 bytes inside, %u", f), "0 same", "%d %s",
		     r, seen(device, memory + 100));
		attributes(named("cudaPointerGetAttributes, registered with %u", f),
			   ATTRIBUTES_PINNED, memory);
		attributes(named("cudaPointerGetAttributes, inside, %u", f), ATTRIBUTES_PINNED,
			   memory + 5 * PAGE + 7);
		code(named("cudaHostUnregister, %u", f), 0, cudaHostUnregister(memory));
	}
	attributes("cudaPointerGetAttributes, unregistered again", ATTRIBUTES_NONE, memory);
	try("cudaHostRegister, flags 16", 1, memory, PAGE, 16);
	try("cudaHostRegister, all flags", 1, memory, PAGE, ~0u);
	guess();
	try("cudaHostRegister, IoMemory", OPEN, memory, PAGE, PS_HOST_REGISTER_IO_MEMORY);
	guess();
	try("cudaHostRegister, ReadOnly", 0, memory, PAGE, PS_HOST_REGISTER_READ_ONLY);
}

static void overlap(void)
{
	char *memory = pages(16), *middle = memory + 4 * PAGE;

	try("cudaHostRegister, 50 bytes at 100", 0, memory + 100, 50, 0);
	code("cudaHostRegister, 100 bytes of a page", 0, cudaHostRegister(memory, 100, 0));
	code("cudaHostRegister, 100 others of it", 0, cudaHostRegister(memory + 200, 100, 0));
	try("cudaHostRegister, between them", 0, memory + 100, 100, 0);
	try("cudaHostRegister, across one's end", 712, memory + 50, 100, 0);
	code("cudaHostUnregister, the first", 0, cudaHostUnregister(memory));
	code("cudaHostUnregister, the second", 0, cudaHostUnregister(memory + 200));

	code("cudaHostRegister, 4 pages", 0, cudaHostRegister(middle, 4 * PAGE, 0));
	try("cudaHostRegister, the same", 712, middle, 4 * PAGE, 0);
	try("cudaHostRegister, the same, shorter", 712, middle, PAGE, 0);
	try("cudaHostRegister, a page inside", 712, middle + PAGE, PAGE, 0);
	try("cudaHostRegister, around it", 712, memory, 16 * PAGE, 0);
	try("cudaHostRegister, its first byte", 712, memory, 4 * PAGE + 1, 0);
	try("cudaHostRegister, up to it", 0, memory, 4 * PAGE, 0);
	try("cudaHostRegister, from its end on", 0, middle + 4 * PAGE, PAGE, 0);
	code("cudaHostUnregister, a page inside", 1, cudaHostUnregister(middle + PAGE));
	code("cudaHostUnregister, a byte inside", 1, cudaHostUnregister(middle + 1));
	code("cudaHostUnregister, its base", 0, cudaHostUnregister(middle));
	code("cudaHostUnregister, again", 713, cudaHostUnregister(middle));
	cudaGetLastError();
	try("cudaHostRegister, again", 0, middle, 4 * PAGE, 0);
}

static void bad_memory(void)
{
	char *memory = pages(16);
	void *device = NULL;
	int local = 0;

	try("cudaHostRegister(NULL)", 1, NULL, PAGE, 0);
	try("cudaHostRegister, 0 bytes", 1, memory, 0, 0);
	guess();
	try("cudaHostRegister, SIZE_MAX", 1, memory, SIZE_MAX, 0);
	try("cudaHostRegister, 4 bytes of stack", 0, &local, sizeof(local), 0);
	munmap(memory + 4 * PAGE, PAGE);
	guess();
	try("cudaHostRegister, around a hole", 1, memory, 8 * PAGE, 0);
	guess();
	try("cudaHostRegister, a hole", 1, memory + 4 * PAGE, PAGE, 0);
	mprotect(memory + 8 * PAGE, PAGE, PROT_READ);
	guess();
	try("cudaHostRegister, read-only memory", 1, memory + 8 * PAGE, PAGE, 0);
	guess();
	try("cudaHostRegister, read-only memory, ReadOnly", 0, memory + 8 * PAGE, PAGE,
	    PS_HOST_REGISTER_READ_ONLY);
	mprotect(memory + 8 * PAGE, PAGE, PROT_NONE);
	guess();
	try("cudaHostRegister, memory without access", 1, memory + 8 * PAGE, PAGE, 0);
	code("cudaMalloc", 0, cudaMalloc(&device, MIB));
	guess();
	try("cudaHostRegister, device memory", OPEN, device, PAGE, 0);
	code("cudaHostUnregister(NULL)", 1, cudaHostUnregister(NULL));
	code("cudaHostUnregister, never registered", 713, cudaHostUnregister(memory));
	code("cudaHostUnregister, stack", 713, cudaHostUnregister(&local));
	code("cudaHostUnregister, not mapped", 713, cudaHostUnregister(memory + 4 * PAGE));
	guess();
	code("cudaHostUnregister, device memory", 1, cudaHostUnregister(device));
	cudaFree(device);
}

/* PyTorch's other way, and DeepSpeed's. */
static void malloc_memory(void)
{
	char *block = malloc(8 * MIB), *neighbour = malloc(8 * MIB);

	code("cudaHostRegister, malloc's", 0, cudaHostRegister(block, 8 * MIB, 0));
	code("cudaHostRegister, another of malloc's", 0, cudaHostRegister(neighbour, 8 * MIB, 0));
	attributes("cudaPointerGetAttributes, malloc's, registered", ATTRIBUTES_PINNED, block);
	code("cudaHostUnregister, malloc's", 0, cudaHostUnregister(block));
	attributes("cudaPointerGetAttributes, malloc's, not any more", ATTRIBUTES_NONE, block);
	attributes("cudaPointerGetAttributes, the other", ATTRIBUTES_PINNED, neighbour);
	code("cudaHostUnregister, the other", 0, cudaHostUnregister(neighbour));
	free(block);
	free(neighbour);
}

/* Registering or unregistering what cudaHostAlloc gave. */
static void allocated_of(size_t size)
{
	const size_t kib = size >> 10;
	char *pointer = NULL;

	if (cudaHostAlloc((void **)&pointer, size, 0))
		return;
	try(named("cudaHostRegister, cudaHostAlloc's, %zu KiB", kib), 712, pointer, size, 0);
	try(named("cudaHostRegister, a page inside, %zu KiB", kib), 712, pointer + PAGE, PAGE, 0);
	guess();
	try(named("cudaHostRegister, its last byte, %zu KiB", kib), 712, pointer + size - 1, 1, 0);
	code(named("cudaHostUnregister, a page inside, %zu KiB", kib), 1,
	     cudaHostUnregister(pointer + PAGE));
	attributes(named("cudaPointerGetAttributes, %zu KiB", kib), ATTRIBUTES_PINNED, pointer);
	code(named("cudaHostUnregister, cudaHostAlloc's, %zu KiB", kib), 1,
	     cudaHostUnregister(pointer));
	attributes(named("cudaPointerGetAttributes after that, %zu KiB", kib), ATTRIBUTES_PINNED,
		   pointer);
	code(named("cudaFreeHost after that, %zu KiB", kib), 0, cudaFreeHost(pointer));
	cudaGetLastError();
}

static void allocated_small(void)
{
	allocated_of(100 << 10);
}

static void allocated_large(void)
{
	allocated_of(32 * MIB);
}

static void allocated_tail(void)
{
	char *tail = NULL;

	if (cudaHostAlloc((void **)&tail, 100, 0))
		return;
	guess();
	try("cudaHostRegister, behind 100 bytes on their page", 712, tail + 200, 100, 0);
	cudaFreeHost(tail);
}

int main(int arguments, char **argument)
{
	static const struct group groups[] = {
		{ "flags", flags },
		{ "overlap", overlap },
		{ "bad_memory", bad_memory },
		{ "malloc_memory", malloc_memory },
		{ "allocated_small", allocated_small },
		{ "allocated_large", allocated_large },
		{ "allocated_tail", allocated_tail },
	};

	return run_group(groups, COUNT(groups), arguments, argument);
}
