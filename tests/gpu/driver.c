/* SPDX-License-Identifier: BSD-2-Clause */
/* Host memory by the driver's own functions. */
#include <pthread.h>

#include "gpu.h"

#define LARGE (32 * MIB)
#define THE_CHUNK "what is registered is the chunk that the block is in"

static ps_cu_context start(void)
{
	ps_cu_context context = NULL;

	code("cuInit", 0, cuInit(0));
	code("cuDevicePrimaryCtxRetain", 0, cuDevicePrimaryCtxRetain(&context, 0));
	code("cuCtxSetCurrent", 0, cuCtxSetCurrent(context));
	return context;
}

/* CU_POINTER_ATTRIBUTE_* that are about host memory, and those of the range that holds it. */
static void every_attribute(const char *of, char *pointer, size_t size, size_t offset)
{
	const ps_cu_deviceptr at = (uintptr_t)pointer + offset;
	unsigned type = 77;
	void *host = UNTOUCHED;
	ps_cu_deviceptr device = 0, start_address = 0;
	size_t length = 0;
	int ordinal = 77, mapped = 77, managed = 77, r;

	r = cuPointerGetAttribute(&type, 2, at);
	text(named("cuPointerGetAttribute, MEMORY_TYPE, %s", of), "0 1", "%d %u", r, type);
	r = cuPointerGetAttribute(&device, 3, at);
	text(named("cuPointerGetAttribute, DEVICE_POINTER, %s", of), "0 same", "%d %s", r,
	     seen((void *)(uintptr_t)device, pointer + offset));
	r = cuPointerGetAttribute(&host, 4, at);
	text(named("cuPointerGetAttribute, HOST_POINTER, %s", of), "0 same", "%d %s", r,
	     seen(host, pointer + offset));
	guess();
	r = cuPointerGetAttribute(&managed, 8, at);
	text(named("cuPointerGetAttribute, IS_MANAGED, %s", of), "0 0", "%d %d", r, managed);
	r = cuPointerGetAttribute(&ordinal, 9, at);
	text(named("cuPointerGetAttribute, DEVICE_ORDINAL, %s", of), "0 0", "%d %d", r, ordinal);
	guess();
	r = cuPointerGetAttribute(&mapped, 13, at);
	text(named("cuPointerGetAttribute, MAPPED, %s", of), "0 1", "%d %d", r, mapped);
	known("0 other", THE_CHUNK);
	r = cuPointerGetAttribute(&start_address, 11, at);
	text(named("cuPointerGetAttribute, RANGE_START_ADDR, %s", of), "0 same", "%d %s", r,
	     seen((void *)(uintptr_t)start_address, pointer));
	known("0 other", THE_CHUNK);
	r = cuPointerGetAttribute(&length, 12, at);
	text(named("cuPointerGetAttribute, RANGE_SIZE, %s", of), "0 as asked for", "%d %s", r,
	     length == size ? "as asked for" : "other");
}

static void block_of(size_t size)
{
	const char *of = named("%zu KiB", size >> 10);
	char *pointer = NULL;
	ps_cu_deviceptr device = 0;
	unsigned flags;
	int r;

	for (unsigned f = 0; f < 4; f++) {
		flags = 77;
		r = cuMemHostAlloc((void **)&pointer, size, f);
		code(named("cuMemHostAlloc, %s, flags %u", of, f), 0, r);
		if (r)
			continue;
		guess();
		r = cuMemHostGetFlags(&flags, pointer);
		text(named("cuMemHostGetFlags, %s, flags %u", of, f), named("0 %u", f | 2), "%d %u",
		     r, flags);
		r = cuMemHostGetDevicePointer_v2(&device, pointer, 0);
		text(named("cuMemHostGetDevicePointer, %s, flags %u", of, f), "0 same", "%d %s", r,
		     seen((void *)(uintptr_t)device, pointer));
		code(named("cuMemFreeHost, %s, flags %u", of, f), 0, cuMemFreeHost(pointer));
	}
	r = cuMemAllocHost_v2((void **)&pointer, size);
	code(named("cuMemAllocHost_v2, %s", of), 0, r);
	if (r)
		return;
	every_attribute(named("%zu KiB", size >> 10), pointer, size, 0);
	every_attribute(named("inside %zu KiB", size >> 10), pointer, size, PAGE + 5);
	code(named("cuMemHostUnregister, %zu KiB", size >> 10), 1, cuMemHostUnregister(pointer));
	guess();
	code(named("cuMemFreeHost, inside %zu KiB", size >> 10), 1, cuMemFreeHost(pointer + PAGE));
	code(named("cuMemFreeHost, %zu KiB", size >> 10), 0, cuMemFreeHost(pointer));
}

static void small(void)
{
	start();
	block_of(100 << 10);
}

static void large(void)
{
	start();
	block_of(LARGE);
}

static void registered(void)
{
	char *memory = pages(16);

	start();
	code("cuMemHostRegister", 0, cuMemHostRegister_v2(memory, 16 * PAGE, 0));
	every_attribute("registered", memory, 16 * PAGE, 0);
	every_attribute("inside what is registered", memory, 16 * PAGE, PAGE + 5);
	code("cuMemHostRegister, again", 712, cuMemHostRegister_v2(memory, 16 * PAGE, 0));
	code("cuMemHostUnregister, inside", 1, cuMemHostUnregister(memory + PAGE));
	code("cuMemFreeHost, registered", 1, cuMemFreeHost(memory));
	code("cuMemHostUnregister", 0, cuMemHostUnregister(memory));
	code("cuMemHostUnregister, again", 713, cuMemHostUnregister(memory));
}

static void edges(void)
{
	int which[] = { 2, 4, 9 }, ordinal = 77, r;
	unsigned type = 77;
	void *host = UNTOUCHED, *pointer = UNTOUCHED, *data[] = { &type, &host, &ordinal };

	start();
	guess();
	r = cuMemHostAlloc(&pointer, 0, 0);
	text("cuMemHostAlloc, 0 bytes", "0 NULL", "%d %s", r, seen(pointer, NULL));
	pointer = UNTOUCHED;
	guess();
	r = cuMemAllocHost_v2(&pointer, 0);
	text("cuMemAllocHost_v2, 0 bytes", "0 NULL", "%d %s", r, seen(pointer, NULL));
	code("cuMemFreeHost(NULL)", 0, cuMemFreeHost(NULL));
	code("cuMemHostAlloc(NULL)", 1, cuMemHostAlloc(NULL, PAGE, 0));
	code("cuMemHostAlloc, flags 8", 1, cuMemHostAlloc(&pointer, PAGE, 8));
	guess();
	code("cuMemHostAlloc, SIZE_MAX", 2, cuMemHostAlloc(&pointer, SIZE_MAX, 0));
	code("cuPointerGetAttribute, unknown", 1,
	     cuPointerGetAttribute(&type, 2, (uintptr_t)&type));
	r = cuPointerGetAttributes(3, which, data, (uintptr_t)&type);
	text("cuPointerGetAttributes, unknown", "0 type=0 host=NULL ordinal=-2",
	     "%d type=%u host=%s ordinal=%d", r, type, seen(host, &type), ordinal);
}

/* The shim needs no context for what it can answer by itself. */
#define NO_CONTEXT "a block of ours needs no context"

static void *free_in_thread(void *pointer)
{
	known("0", NO_CONTEXT);
	code("cuMemFreeHost, in a thread without context", 201, cuMemFreeHost(pointer));
	return NULL;
}

/* Whether a call needs a context at all, with a block that is there. */
static void contexts(void)
{
	ps_cu_context context = start();
	ps_cu_deviceptr device = 0;
	void *pointer = NULL;
	unsigned type = 77, flags = 77;
	pthread_t thread;
	int r = cuMemHostAlloc(&pointer, MIB, 0);

	code("cuMemHostAlloc", 0, r);
	code("cuCtxSetCurrent(NULL)", 0, cuCtxSetCurrent(NULL));
	r = cuPointerGetAttribute(&type, 2, (uintptr_t)pointer);
	text("cuPointerGetAttribute, without context", "0 1", "%d %u", r, type);
	guess();
	r = cuMemHostGetDevicePointer_v2(&device, pointer, 0);
	text("cuMemHostGetDevicePointer, without context", "201 NULL", "%d %s", r,
	     seen((void *)(uintptr_t)device, pointer));
	known("0 2", NO_CONTEXT);
	r = cuMemHostGetFlags(&flags, pointer);
	text("cuMemHostGetFlags, without context", "201 77", "%d %u", r, flags);
	if (pthread_create(&thread, NULL, free_in_thread, pointer) == 0)
		pthread_join(thread, NULL);
	code("cuCtxSetCurrent", 0, cuCtxSetCurrent(context));
	known("1", NO_CONTEXT);
	code("cuMemFreeHost, after that", 0, cuMemFreeHost(pointer));
}

/* NCCL's, CuPy's and the static runtime's way. */
static void by_address(void)
{
	__typeof__(cuMemHostAlloc) *allocate = NULL;
	void *pointer = NULL, *found = NULL;
	int status = -1, r;

	start();
	r = cuGetProcAddress_v2("cuMemHostAlloc", &found, 12000, 0, &status);
	text("cuGetProcAddress_v2, cuMemHostAlloc", "0 0", "%d %d", r, status);
	guess();
	text("cuGetProcAddress_v2 and dlsym", "agree", "%s",
	     found == (void *)DRIVER(cuMemHostAlloc) ? "agree" : "do not agree");
	*(void **)&allocate = found;
	if (!allocate)
		return;
	code("cuMemHostAlloc, that", 0, allocate(&pointer, MIB, 0));
	code("cuMemFreeHost, linked", 0, cuMemFreeHost(pointer));
	r = cuGetProcAddress_v2("cuMemHostRegister", &found, 4000, 0, &status);
	text("cuGetProcAddress_v2, cuMemHostRegister of 4000", "0 0", "%d %d", r, status);
	r = cuGetProcAddress_v2("cuNothing", &found, 12000, 0, &status);
	guess();
	text("cuGetProcAddress_v2, cuNothing", "0 1", "%d %d", r, status);
}

int main(int arguments, char **argument)
{
	static const struct group groups[] = {
		{ "small", small }, { "large", large },       { "registered", registered },
		{ "edges", edges }, { "contexts", contexts }, { "by_address", by_address },
	};

	return run_group(groups, COUNT(groups), arguments, argument);
}
