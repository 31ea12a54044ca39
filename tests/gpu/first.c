/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each call answers when it is a thread's first, of the runtime and of the driver: that comes
 * first, a NULL pointer or that nothing is initialised? And that any of them can be the first.
 */
#include "attributes.h"

static void runtime_null(void)
{
	code("cudaHostAlloc(NULL) first", 1, cudaHostAlloc(NULL, PAGE, 0));
}

static void runtime_free(void)
{
	code("cudaFreeHost(NULL) first", 0, cudaFreeHost(NULL));
}

static void runtime_attributes(void)
{
	attributes("cudaPointerGetAttributes first", ATTRIBUTES_NONE, &next_row);
}

static void runtime_error(void)
{
	code("cudaGetLastError first", 0, cudaGetLastError());
}

static void runtime_alloc(void)
{
	void *pointer = UNTOUCHED;
	int r = cudaMallocHost(&pointer, MIB);

	text("cudaMallocHost first", "0 other", "%d %s", r, seen(pointer, NULL));
	attributes("cudaPointerGetAttributes then", ATTRIBUTES_PINNED, pointer);
	code("cudaFreeHost then", 0, cudaFreeHost(pointer));
}

/* Every driver call of host memory, with arguments that are bad if they are looked at. */
static void driver_calls(const char *when, int bad, int good)
{
	char *memory = pages(1);
	void *pointer = UNTOUCHED;
	ps_cu_deviceptr device;
	unsigned flags;
	int r;

	guess();
	code(named("cuMemHostAlloc(NULL), %s", when), bad, cuMemHostAlloc(NULL, PAGE, 0));
	guess();
	code(named("cuMemHostAlloc, flags 8, %s", when), bad, cuMemHostAlloc(&pointer, PAGE, 8));
	guess();
	r = cuMemHostAlloc(&pointer, PAGE, 0);
	text(named("cuMemHostAlloc, %s", when), named("%d untouched", good), "%d %s", r,
	     seen(pointer, NULL));
	pointer = UNTOUCHED;
	guess();
	r = cuMemHostAlloc(&pointer, 0, 0);
	text(named("cuMemHostAlloc, 0 bytes, %s", when), named("%d untouched", good), "%d %s", r,
	     seen(pointer, NULL));
	guess();
	code(named("cuMemAllocHost_v2, %s", when), good, cuMemAllocHost_v2(&pointer, PAGE));
	guess();
	code(named("cuMemFreeHost(NULL), %s", when), good, cuMemFreeHost(NULL));
	guess();
	code(named("cuMemFreeHost, unknown, %s", when), bad, cuMemFreeHost(memory));
	guess();
	code(named("cuMemHostRegister(NULL), %s", when), bad, cuMemHostRegister_v2(NULL, PAGE, 0));
	guess();
	code(named("cuMemHostRegister, %s", when), good, cuMemHostRegister_v2(memory, PAGE, 0));
	guess();
	code(named("cuMemHostUnregister(NULL), %s", when), bad, cuMemHostUnregister(NULL));
	guess();
	code(named("cuMemHostUnregister, unknown, %s", when), bad, cuMemHostUnregister(memory));
	guess();
	code(named("cuMemHostGetDevicePointer, unknown, %s", when), bad,
	     cuMemHostGetDevicePointer_v2(&device, memory, 0));
	guess();
	code(named("cuMemHostGetFlags, unknown, %s", when), bad, cuMemHostGetFlags(&flags, memory));
}

static void driver_before_init(void)
{
	unsigned type;

	driver_calls("before cuInit", 3, 3);
	guess();
	code("cuPointerGetAttribute, before cuInit", 3,
	     cuPointerGetAttribute(&type, 2, (uintptr_t)&type));
}

static void driver_without_context(void)
{
	unsigned type;

	code("cuInit", 0, cuInit(0));
	driver_calls("without context", 201, 201);
	guess();
	code("cuPointerGetAttribute, unknown, without context", 1,
	     cuPointerGetAttribute(&type, 2, (uintptr_t)&type));
}

int main(int arguments, char **argument)
{
	static const struct group groups[] = {
		{ "runtime_null", runtime_null },
		{ "runtime_free", runtime_free },
		{ "runtime_attributes", runtime_attributes },
		{ "runtime_error", runtime_error },
		{ "runtime_alloc", runtime_alloc },
		{ "driver_before_init", driver_before_init },
		{ "driver_without_context", driver_without_context },
	};

	return run_group(groups, COUNT(groups), arguments, argument);
}
