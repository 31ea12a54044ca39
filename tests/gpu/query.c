/* SPDX-License-Identifier: BSD-2-Clause */
/* cudaHostGetFlags, cudaHostGetDevicePointer, cudaPointerGetAttributes, the last error. */
#include <pthread.h>
#include <stdlib.h>

#include "attributes.h"

static void asked_of(size_t size)
{
	const size_t kib = size >> 10;
	char *pointer = NULL;
	void *device = UNTOUCHED;
	unsigned flags = 77;
	int r;

	if (cudaHostAlloc((void **)&pointer, size, 0))
		return;
	guess();
	r = cudaHostGetFlags(&flags, pointer + PAGE);
	text(named("cudaHostGetFlags, %zu KiB, inside", kib), "0 2", "%d %u", r, flags);
	flags = 77;
	guess();
	r = cudaHostGetFlags(&flags, pointer + size - 1);
	text(named("cudaHostGetFlags, %zu KiB, last byte", kib), "0 2", "%d %u", r, flags);
	code(named("cudaHostGetFlags, %zu KiB, into NULL", kib), 1,
	     cudaHostGetFlags(NULL, pointer));
	r = cudaHostGetDevicePointer(&device, pointer + size - 1, 0);
	text(named("cudaHostGetDevicePointer, %zu KiB, last byte", kib), "0 same", "%d %s", r,
	     seen(device, pointer + size - 1));
	device = UNTOUCHED;
	r = cudaHostGetDevicePointer(&device, pointer, 1);
	text(named("cudaHostGetDevicePointer, %zu KiB, flags 1", kib), "1 untouched", "%d %s", r,
	     seen(device, pointer));
	code(named("cudaHostGetDevicePointer, %zu KiB, into NULL", kib), 1,
	     cudaHostGetDevicePointer(NULL, pointer, 0));
	attributes(named("cudaPointerGetAttributes, %zu KiB, inside", kib), ATTRIBUTES_PINNED,
		   pointer + PAGE + 9);
	attributes(named("cudaPointerGetAttributes, %zu KiB, last byte", kib), ATTRIBUTES_PINNED,
		   pointer + size - 1);
	code(named("cudaPointerGetAttributes, %zu KiB, into NULL", kib), 1,
	     cudaPointerGetAttributes(NULL, pointer));
	code(named("cudaFreeHost, %zu KiB", kib), 0, cudaFreeHost(pointer));
	known(ATTRIBUTES_PINNED, "freed memory stays pinned for the next allocation");
	attributes(named("cudaPointerGetAttributes, %zu KiB, freed", kib), ATTRIBUTES_NONE,
		   pointer);
	flags = 77;
	r = cudaHostGetFlags(&flags, pointer);
	text(named("cudaHostGetFlags, %zu KiB, freed", kib), "1 77", "%d %u", r, flags);
	cudaGetLastError();
}

static void allocated(void)
{
	asked_of(100 << 10);
	asked_of(32 * MIB);
}

static void others(void)
{
	char *memory = pages(4), *heap = malloc(MIB);
	union {
		struct ps_pointer_attributes is;
		long room[24];
	} of = { .is = { .type = -1 } };
	void *device = UNTOUCHED, *mapped = UNTOUCHED;
	unsigned flags = 77;
	int r;

	attributes("cudaPointerGetAttributes, stack", ATTRIBUTES_NONE, &flags);
	attributes("cudaPointerGetAttributes, malloc's", ATTRIBUTES_NONE, heap);
	attributes("cudaPointerGetAttributes, mapped", ATTRIBUTES_NONE, memory);
	munmap(memory + PAGE, PAGE);
	guess();
	attributes("cudaPointerGetAttributes, not mapped", ATTRIBUTES_NONE, memory + PAGE);
	guess();
	r = cudaPointerGetAttributes(&of.is, NULL);
	text("cudaPointerGetAttributes(NULL)", "0 0", "%d %d", r, of.is.type);
	r = cudaHostGetFlags(&flags, memory);
	text("cudaHostGetFlags, mapped", "1 77", "%d %u", r, flags);
	code("cudaHostGetFlags(NULL)", 1, cudaHostGetFlags(&flags, NULL));
	r = cudaHostGetDevicePointer(&mapped, memory, 0);
	text("cudaHostGetDevicePointer, mapped", "1 untouched", "%d %s", r, seen(mapped, memory));
	code("cudaHostGetDevicePointer(NULL)", 1, cudaHostGetDevicePointer(&mapped, NULL, 0));
	code("cudaMalloc", 0, cudaMalloc(&device, MIB));
	attributes("cudaPointerGetAttributes, device memory",
		   "0 type=2 device=0 devicePointer=same hostPointer=NULL", device);
	guess();
	code("cudaHostGetFlags, device memory", 1, cudaHostGetFlags(&flags, device));
	guess();
	code("cudaHostGetDevicePointer, device memory", 1,
	     cudaHostGetDevicePointer(&mapped, device, 0));
	code("cudaFree", 0, cudaFree(device));
	free(heap);
}

static void *in_thread(void *unused)
{
	code("cudaPeekAtLastError, in another thread", 0, cudaPeekAtLastError());
	return unused;
}

static void last_error(void)
{
	char *memory = pages(2);
	void *pointer = NULL;
	pthread_t thread;

	code("cudaHostRegister", 0, cudaHostRegister(memory, PAGE, 0));
	code("cudaHostRegister, again", 712, cudaHostRegister(memory, PAGE, 0));
	code("cudaPeekAtLastError", 712, cudaPeekAtLastError());
	if (pthread_create(&thread, NULL, in_thread, NULL) == 0)
		pthread_join(thread, NULL);
	code("cudaMallocHost", 0, cudaMallocHost(&pointer, MIB));
	code("cudaFreeHost", 0, cudaFreeHost(pointer));
	code("cudaPeekAtLastError, after calls that succeed", 712, cudaPeekAtLastError());
	code("cudaGetLastError", 712, cudaGetLastError());
	code("cudaGetLastError, again", 0, cudaGetLastError());
	code("cudaHostUnregister, unknown", 713, cudaHostUnregister(memory + PAGE));
	code("cudaHostAlloc, flags 8", 1, cudaHostAlloc(&pointer, PAGE, 8));
	code("cudaGetLastError, the later of two", 1, cudaGetLastError());
	code("cudaGetLastError, after both", 0, cudaGetLastError());
	code("cudaHostUnregister", 0, cudaHostUnregister(memory));
}

int main(int arguments, char **argument)
{
	static const struct group groups[] = {
		{ "allocated", allocated },
		{ "others", others },
		{ "last_error", last_error },
	};

	return run_group(groups, COUNT(groups), arguments, argument);
}
