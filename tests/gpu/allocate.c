/* SPDX-License-Identifier: BSD-2-Clause */
/* cudaHostAlloc, cudaMallocHost, cudaFreeHost. */
#include <stdlib.h>

#include "attributes.h"

#define LARGE (32 * MIB)

static void every_flag(size_t size)
{
	for (unsigned f = 0; f < 8; f++) {
		const bool combined = f & PS_HOST_ALLOC_WRITE_COMBINED;
		const char *of = named("%zu KiB, flags %u", size >> 10, f);
		void *pointer = UNTOUCHED, *device = UNTOUCHED;
		unsigned flags = 77;
		int r;

		code(named("cudaHostAlloc, %s", of), 0, cudaHostAlloc(&pointer, size, f));
		if (pointer == UNTOUCHED || !pointer)
			continue;
		text(named("alignment, %s", of), "of 256", "of %s",
		     (uintptr_t)pointer % 256 ? "less" : "256");
		guess();
		r = cudaHostGetFlags(&flags, pointer);
		text(named("cudaHostGetFlags, %s", of), named("0 %u", f | 2), "%d %u", r, flags);
		guess();
		r = DRIVER(cuMemHostGetFlags)(&flags, pointer);
		text(named("cuMemHostGetFlags, %s", of), named("0 %u", f | 2), "%d %u", r, flags);
		if (combined)
			guess();
		r = cudaHostGetDevicePointer(&device, pointer, 0);
		text(named("cudaHostGetDevicePointer, %s", of), combined ? "0 other" : "0 same",
		     "%d %s", r, seen(device, pointer));
		if (combined)
			guess();
		attributes(named("cudaPointerGetAttributes, %s", of),
			   combined ? "0 type=1 device=0 devicePointer=other hostPointer=same"
				    : ATTRIBUTES_PINNED,
			   pointer);
		code(named("cudaFreeHost, %s", of), 0, cudaFreeHost(pointer));
	}
}

/* Mapped, these are left to CUDA. */
static void flags_tiny(void)
{
	every_flag(PAGE);
}

static void flags_small(void)
{
	every_flag(100 << 10);
}

static void flags_large(void)
{
	every_flag(LARGE);
}

/* With what became of the pointer. flags OPEN: cudaMallocHost. */
static void allocates(const char *question, const char *expected, size_t size, long flags)
{
	void *pointer = UNTOUCHED;
	const int r = flags == OPEN ? cudaMallocHost(&pointer, size)
				    : cudaHostAlloc(&pointer, size, (unsigned)flags);

	text(question, expected, "%d %s", r, seen(pointer, NULL));
	cudaGetLastError();
}

static void bad_arguments(void)
{
	static const unsigned flags[] = { 8, 16, 0x80000000u, ~0u };
	static const size_t sizes[] = { (size_t)1 << 50, SIZE_MAX / 2, SIZE_MAX - PAGE, SIZE_MAX };

	for (size_t i = 0; i < COUNT(flags); i++)
		allocates(named("cudaHostAlloc, flags %#x", flags[i]), "1 untouched", PAGE,
			  flags[i]);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		guess();
		allocates(named("cudaHostAlloc, %#zx bytes", sizes[i]), "2 untouched", sizes[i], 0);
	}
	guess();
	allocates("cudaMallocHost, SIZE_MAX", "2 untouched", SIZE_MAX, OPEN);
	allocates("cudaMallocHost, 0 bytes", "0 NULL", 0, OPEN);
	guess();
	allocates("cudaHostAlloc, 0 bytes", "0 NULL", 0, 0);
	guess();
	allocates("cudaHostAlloc, 0 bytes, flags 8", "1 untouched", 0, 8);
	code("cudaHostAlloc(NULL)", 1, cudaHostAlloc(NULL, PAGE, 0));
	code("cudaMallocHost(NULL)", 1, cudaMallocHost(NULL, PAGE));
	guess();
	code("cudaHostAlloc(NULL), 0 bytes", 1, cudaHostAlloc(NULL, 0, 0));
}

static void freeing_of(size_t size)
{
	const size_t kib = size >> 10;
	char *pointer = NULL;

	if (cudaHostAlloc((void **)&pointer, size, 0))
		return;
	memset(pointer, 'x', size);
	guess();
	code(named("cudaFreeHost, %zu KiB, 1 byte inside", kib), 1, cudaFreeHost(pointer + 1));
	guess();
	code(named("cudaFreeHost, %zu KiB, 1 page inside", kib), 1, cudaFreeHost(pointer + PAGE));
	text(named("%zu KiB is as before", kib), "yes",
	     pointer[0] == 'x' && pointer[size - 1] == 'x' ? "yes" : "no");
	code(named("cudaFreeHost, %zu KiB", kib), 0, cudaFreeHost(pointer));
	cudaGetLastError();
}

static void freeing(void)
{
	char *memory = pages(4), *heap = malloc(MIB);
	void *device = NULL;

	freeing_of(100 << 10);
	freeing_of(LARGE);
	code("cudaFreeHost(NULL)", 0, cudaFreeHost(NULL));
	code("cudaFreeHost, mapped memory", 1, cudaFreeHost(memory));
	code("cudaFreeHost, stack", 1, cudaFreeHost(&memory));
	code("cudaFreeHost, malloc's", 1, cudaFreeHost(heap));
	code("cudaHostRegister", 0, cudaHostRegister(memory, 4 * PAGE, 0));
	code("cudaFreeHost, registered", 1, cudaFreeHost(memory));
	code("cudaHostUnregister after that", 0, cudaHostUnregister(memory));
	code("cudaMalloc", 0, cudaMalloc(&device, MIB));
	code("cudaFreeHost, device memory", 1, cudaFreeHost(device));
	code("cudaFree", 0, cudaFree(device));
	free(heap);
}

/* By itself: the shim ends the process at a double free, as free() does. */
static void double_free_of(size_t size)
{
	void *pointer = NULL;

	if (cudaHostAlloc(&pointer, size, 0) || cudaFreeHost(pointer))
		return;
	code(named("cudaFreeHost, %zu KiB, again", size >> 10), 1, cudaFreeHost(pointer));
}

static void double_free_small(void)
{
	double_free_of(100 << 10);
}

static void double_free_large(void)
{
	double_free_of(LARGE);
}

int main(int arguments, char **argument)
{
	static const struct group groups[] = {
		{ "flags_tiny", flags_tiny },
		{ "flags_small", flags_small },
		{ "flags_large", flags_large },
		{ "bad_arguments", bad_arguments },
		{ "freeing", freeing },
		{ "double_free_small", double_free_small },
		{ "double_free_large", double_free_large },
	};

	return run_group(groups, COUNT(groups), arguments, argument);
}
