/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same of the driver's functions. Usage: semantics_drv CASES
 */
#include "semantics.h"

#define MIB ((size_t)1 << 20)

/* CU_POINTER_ATTRIBUTE_* */
enum {
	CONTEXT = 1,
	MEMORY_TYPE = 2,
	DEVICE_POINTER = 3,
	HOST_POINTER = 4,
	BUFFER_ID = 7,
	IS_MANAGED = 8,
	DEVICE_ORDINAL = 9,
	RANGE_START = 11,
	RANGE_SIZE = 12,
	MAPPED = 13,
};

static ps_cu_context start(void)
{
	ps_cu_context context = NULL;

	GIVES(cuInit(0));
	GIVES(cuDevicePrimaryCtxRetain(&context, 0));
	GIVES(cuCtxSetCurrent(context));
	return context;
}

static void not_ready(void)
{
	void *block = &block;
	ps_cu_deviceptr device = 7;
	unsigned flags = 77;

	GIVES(cuMemHostAlloc(&block, MIB, 0));
	GIVES(cuMemHostAlloc(NULL, 0, 99));
	GIVES(cuMemAllocHost_v2(&block, MIB));
	GIVES(cuMemAllocHost(&block, 100));
	GIVES(cuMemFreeHost(NULL));
	GIVES(cuMemHostRegister_v2(&flags, 4, 0));
	GIVES(cuMemHostUnregister(&flags));
	GIVES(cuMemHostGetFlags(&flags, &flags));
	GIVES(cuMemHostGetDevicePointer_v2(&device, &flags, 0));
	VALUE("nothing written", block == &block && device == 7 && flags == 77);
}

/* Before cuInit, and without a context. */
static void early(void)
{
	ps_cu_context context = NULL;
	void *block = NULL;

	not_ready();
	GIVES(cuInit(0));
	not_ready();
	GIVES(cuDevicePrimaryCtxRetain(&context, 0));
	not_ready();
	GIVES(cuCtxSetCurrent(context));
	GIVES(cuMemHostAlloc(&block, MIB, 0));
	VALUE("reachable", reachable(block, MIB));
	GIVES(cuMemFreeHost(block));
	GIVES(cuCtxSetCurrent(NULL));
	not_ready();
}

static void describe(char *block, size_t offset, size_t bytes)
{
	ps_cu_context current = NULL, context = NULL;
	ps_cu_deviceptr at = (uintptr_t)block + offset, device = 0;
	int which[] = { MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, DEVICE_ORDINAL };
	unsigned type = 77, flags = 77, narrow[2] = { 0, 77 };
	int ordinal = 77, managed = 77, mapped = 77;
	unsigned long long id = 0, other_id = 0;
	void *host = NULL, *data[] = { &type, &device, &host, &ordinal };
	ps_cu_deviceptr base = 0;
	size_t size = 0;

	GIVES(cuCtxGetCurrent(&current));
	GIVES(cuPointerGetAttributes(4, which, data, at));
	VALUE("type", type);
	VALUE("device pointer", device == at);
	VALUE("host pointer", host == block + offset);
	VALUE("device", ordinal);
	GIVES(cuPointerGetAttribute(&context, CONTEXT, at));
	VALUE("context", context == current);
	GIVES(cuPointerGetAttribute(&type, MEMORY_TYPE, at));
	VALUE("type", type);
	GIVES(cuPointerGetAttribute(&managed, IS_MANAGED, at));
	GIVES(cuPointerGetAttribute(&mapped, MAPPED, at));
	VALUE("managed and mapped", managed * 10 + mapped);
	GIVES(cuPointerGetAttribute(&id, BUFFER_ID, at));
	GIVES(cuPointerGetAttribute(&other_id, BUFFER_ID, (uintptr_t)block));
	VALUE("one buffer", id == other_id);
	GIVES(cuPointerGetAttribute(&base, RANGE_START, at));
	MAY_DIFFER(CHUNK, base == (uintptr_t)block);
	GIVES(cuPointerGetAttribute(&size, RANGE_SIZE, at));
	MAY_DIFFER(CHUNK, size == bytes);
	GIVES(cuPointerGetAttribute(&size, 999, at));
	GIVES(cuPointerGetAttribute(NULL, MEMORY_TYPE, at));
	GIVES(cuMemHostGetFlags(&flags, block + offset));
	VALUE("flags", flags);
	GIVES(cuMemHostGetDevicePointer_v2(&device, block + offset, 0));
	VALUE("device pointer", device == at);
	GIVES(cuMemHostGetDevicePointer_v2(&device, block + offset, 1));
	GIVES(cuMemHostGetDevicePointer(narrow, block + offset, 0));
	VALUE("narrow", narrow[0] == (unsigned)at && narrow[1] == 77);
}

static void misuse(char *block, size_t bytes)
{
	unsigned flags = 77;

	GIVES(cuMemHostRegister_v2(block, bytes, 0));
	GIVES(cuMemHostRegister(block + 1, 1, 0));
	GIVES(cuMemHostUnregister(block));
	GIVES(cuMemHostUnregister(block + 10));
	GIVES(cuMemFreeHost(block + 10));
	VALUE("reachable", reachable(block, bytes));
	GIVES(cuMemFreeHost(block));
	GIVES(cuMemFreeHost(block));
	GIVES(cuMemHostUnregister(block));
	GIVES(cuMemHostGetFlags(&flags, block));
}

static void rows(void)
{
	static char memory[2 * 4096] __attribute__((aligned(4096)));
	static const size_t sizes[] = { 100, 100000, 20 * MIB };
	int which[] = { MEMORY_TYPE, DEVICE_POINTER };
	unsigned type = 77;
	ps_cu_deviceptr device = 77;
	void *block = NULL, *data[] = { &type, &device };

	start();
	for (unsigned flags = 0; flags < 4; flags++) {
		for (size_t i = 0; i < 3; i++) {
			say("flags %u, %zu bytes:\n", flags, sizes[i]);
			GIVES(cuMemHostAlloc(&block, sizes[i], flags));
			describe(block, 0, sizes[i]);
			describe(block, sizes[i] - 1, sizes[i]);
			misuse(block, sizes[i]);
		}
	}
	GIVES(cuMemAllocHost_v2(&block, 100000));
	describe(block, 7, 100000);
	misuse(block, 100000);
	GIVES(cuMemAllocHost(&block, 100000));
	describe(block, 7, 100000);
	misuse(block, 100000);
	GIVES(cuMemHostAlloc(NULL, 100, 0));
	GIVES(cuMemHostAlloc(&block, 100, 8));
	GIVES(cuMemHostAlloc(&block, SIZE_MAX, 0));
	GIVES(cuMemAllocHost_v2(NULL, 100));
	GIVES(cuMemAllocHost_v2(&block, SIZE_MAX));
	GIVES(cuMemAllocHost(NULL, 100));
	GIVES(cuMemHostAlloc(&block, 0, 0));
	VALUE("nothing", block == NULL);
	GIVES(cuMemFreeHost(NULL));
	GIVES(cuMemHostUnregister(NULL));
	GIVES(cuMemHostUnregister(memory));
	GIVES(cuMemHostRegister(memory, 100, 0));
	GIVES(cuMemHostRegister_v2(memory + 100, 100, 1));
	GIVES(cuMemHostRegister_v2(memory + 50, 100, 0));
	GIVES(cuMemHostUnregister(memory + 50));
	GIVES(cuMemFreeHost(memory));
	GIVES(cuMemHostUnregister(memory));
	GIVES(cuMemHostUnregister(memory + 100));
	GIVES(cuPointerGetAttribute(&type, MEMORY_TYPE, (uintptr_t)memory));
	GIVES(cuPointerGetAttributes(2, which, data, (uintptr_t)memory));
	VALUE("type", type);
	VALUE("device pointer", device);
	GIVES(cuPointerGetAttributes(0, which, data, (uintptr_t)memory));
	GIVES(cuPointerGetAttributes(2, NULL, data, (uintptr_t)memory));
}

/* A context of the program's own, destroyed with blocks in it. */
static void contexts(void)
{
	static char memory[2][4096];
	ps_cu_context first = start(), second = NULL;
	void *before = NULL, *block = NULL, *large = NULL, *after = NULL;
	unsigned long calls;

	GIVES(cuMemHostAlloc(&before, MIB, 0));
	GIVES(cuMemHostRegister_v2(memory[0], 4096, 0));
	/* As FFmpeg has one for decoding. What is registered in another is not its business. */
	calls = fake_cuda_calls("cuMemHostUnregister");
	GIVES(cuCtxCreate_v2(&second, 0, 0));
	GIVES(cuCtxSetCurrent(first));
	GIVES(cuCtxDestroy_v2(second));
	VALUE("unregistered when a context ends that has nothing",
	      fake_cuda_calls("cuMemHostUnregister") - calls);
	GIVES(cuCtxCreate_v2(&second, 0, 0));
	GIVES(cuMemHostAlloc(&block, MIB, 0));
	GIVES(cuMemHostAlloc(&large, 20 * MIB, 0));
	GIVES(cuMemHostRegister_v2(memory[1], 4096, 0));
	VALUE("reachable", reachable(block, MIB) && reachable(large, 20 * MIB));
	GIVES(cuCtxDestroy_v2(second));
	GIVES(cuCtxDestroy_v2(NULL));
	VALUE("of the other context", reachable(before, MIB));
	GIVES(cuMemHostUnregister(memory[1]));
	GIVES(cuMemHostUnregister(memory[0]));
	MAY_DIFFER(OUTLIVES, cuMemFreeHost(block));
	MAY_DIFFER(OUTLIVES, cuMemFreeHost(large));
	VALUE("current", cuCtxSetCurrent(first));
	GIVES(cuMemHostAlloc(&after, MIB, 0));
	VALUE("reachable", reachable(after, MIB));
	GIVES(cuMemFreeHost(after));
	GIVES(cuMemHostAlloc(&after, 20 * MIB, 0));
	VALUE("reachable", reachable(after, 20 * MIB));
	GIVES(cuDevicePrimaryCtxReset_v2(0));
	MAY_DIFFER(OUTLIVES, cuMemFreeHost(before));
	GIVES(cuDevicePrimaryCtxRelease_v2(0));
	GIVES(cuDevicePrimaryCtxRetain(&first, 0));
	GIVES(cuCtxSetCurrent(first));
	GIVES(cuMemHostAlloc(&block, MIB, 0));
	VALUE("reachable", reachable(block, MIB));
	GIVES(cuDevicePrimaryCtxRetain(&first, 0));
	GIVES(cuDevicePrimaryCtxRelease_v2(0));
	VALUE("still retained", reachable(block, MIB));
	GIVES(cuMemFreeHost(block));
	GIVES(cuDevicePrimaryCtxRelease_v2(0));
	VALUE("registrations", fake_cuda_registrations());
	GIVES(cuMemHostAlloc(&block, MIB, 0));
	/* One context ends, and its thread cannot reach what is registered in another. */
	GIVES(cuDevicePrimaryCtxRetain(&first, 0));
	GIVES(cuCtxCreate_v2(&second, 0, 0));
	GIVES(cuMemHostAlloc(&large, 20 * MIB, 0));
	GIVES(cuCtxSetCurrent(first));
	GIVES(cuMemHostAlloc(&block, MIB, 0));
	GIVES(cuDevicePrimaryCtxRelease_v2(0));
	GIVES(cuCtxSetCurrent(second));
	VALUE("reachable", reachable(large, 20 * MIB));
	GIVES(cuMemFreeHost(large));
	GIVES(cuMemHostAlloc(&large, 20 * MIB, 0));
	VALUE("reachable", reachable(large, 20 * MIB));
	GIVES(cuMemFreeHost(large));
}

int main(int count, char **argument)
{
	const char *name = count == 2 ? argument[1] : "";

	if (!strcmp(name, "early"))
		early();
	else if (!strcmp(name, "rows"))
		rows();
	else if (!strcmp(name, "contexts"))
		contexts();
	else
		return 2;
	VALUE("faults", fake_cuda_faults());
	return 0;
}
