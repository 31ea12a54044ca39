/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fake driver against CUDA's documented rules: host memory, threads, forks, failing on demand.
 * Usage: fakes_drv CASES. fakes.sh says what stderr must have. No pinshim is involved.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "fakes.h"

static void init(void)
{
	void *pointer = (void *)1;
	ps_cu_context context;
	const char *text;
	int number = -1;

	IS(3, cuMemHostAlloc(&pointer, 100, 0));
	IS(3, cuMemFreeHost(NULL));
	IS(3, cuDeviceGetCount(&number));
	check(pointer == (void *)1 && number == -1, "before cuInit nothing is written");
	IS(1, cuInit(1));
	DO(cuDriverGetVersion(&number));
	check(number == 13000, "the version is 13000");
	DO(cuInit(0));
	IS(201, cuMemHostAlloc(&pointer, 100, 0));
	IS(201, cuMemHostRegister_v2(&number, 4, 0));
	IS(500, cuGetExportTable((const void **)&pointer, NULL));
	DO(cuGetErrorName(712, &text));
	check(!strcmp(text, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"), "712 has its name");
	IS(1, cuGetErrorName(123456, &text));
	IS(101, cuDevicePrimaryCtxRetain(&context, 7));
}

static void no_device(void)
{
	IS(100, cuInit(0));
	IS(3, cuMemFreeHost(NULL));
}

static void host_alloc(void)
{
	void *pointer = NULL, *second = NULL;
	ps_cu_deviceptr device = 0;
	unsigned flags = 77, narrow[2] = { 1, 77 };

	start();
	for (unsigned wanted = 0; wanted < 8; wanted++) {
		check(!cuMemHostAlloc(&pointer, 10000, wanted) && pointer, "flags %u: allocates",
		      wanted);
		check(!((uintptr_t)pointer % PAGE), "flags %u: page-aligned", wanted);
		check(!cuMemHostGetFlags(&flags, (char *)pointer + 5000) && flags == (wanted | 2),
		      "flags %u: reported with Mapped, for interior pointers, too", wanted);
		check(!cuMemHostGetDevicePointer_v2(&device, pointer, 0) &&
			      (device == (uintptr_t)pointer) == !(wanted & 4),
		      "flags %u: the device's pointer is the host's except write-combined", wanted);
		check(!cuMemFreeHost(pointer), "flags %u: freed", wanted);
	}
	check(fake_cuda_allocations() == 0, "nothing is left");
	IS(1, cuMemHostAlloc(&pointer, 100, 8));
	IS(1, cuMemHostAlloc(NULL, 100, 0));
	IS(2, cuMemHostAlloc(&pointer, SIZE_MAX, 0));
	IS(2, cuMemHostAlloc(&pointer, (size_t)1 << 60, 0));
	DO(cuMemHostAlloc(&pointer, 0, 0));
	DO(cuMemFreeHost(NULL));
	DO(cuMemAllocHost(&pointer, 100));
	DO(cuMemAllocHost_v2(&second, 100));
	check(fake_cuda_allocations() == 2 && fake_cuda_allocated_bytes() == 200,
	      "they are counted");
	check(fake_cuda_is_allocated(pointer, 100) && !fake_cuda_is_registered(pointer, 100),
	      "an allocation is no registration");
	IS(1, cuMemFreeHost((char *)pointer + 16));
	IS(1, cuMemFreeHost(&flags));
	IS(1, cuMemHostUnregister(pointer));
	IS(712, cuMemHostRegister_v2(pointer, 50, 0));
	IS(1, cuMemHostGetDevicePointer_v2(&device, pointer, 1));
	IS(1, cuMemHostGetDevicePointer_v2(&device, &flags, 0));
	DO(cuMemHostGetDevicePointer(narrow, pointer, 0));
	check(narrow[0] == (unsigned)(uintptr_t)pointer && narrow[1] == 77, "v1 writes four bytes");
	DO(cuMemFreeHost(pointer));
	IS(1, cuMemFreeHost(pointer));
	DO(cuMemFreeHost(second));
}

static void host_register(void)
{
	char *memory = pages(8), small[4];
	ps_cu_deviceptr device;
	unsigned flags;

	start();
	IS(1, cuMemHostRegister_v2(NULL, 100, 0));
	IS(1, cuMemHostRegister_v2(memory, 0, 0));
	IS(1, cuMemHostRegister_v2(memory, 100, 16));
	IS(1, cuMemHostRegister_v2(memory, SIZE_MAX, 0));
	IS(2, cuMemHostRegister_v2(memory, (size_t)512 << 30, 0));
	DO(cuMemHostRegister_v2(memory + 10, 100, 3));
	DO(cuMemHostRegister_v2(memory + 200, 100, 0));
	check(fake_cuda_registrations() == 2 && fake_cuda_registered_bytes() == 200,
	      "disjoint bytes of one page are both registered");
	IS(712, cuMemHostRegister_v2(memory + 10, 100, 0));
	IS(712, cuMemHostRegister_v2(memory + 109, 10, 0));
	IS(712, cuMemHostRegister_v2(memory, PAGE, 0));
	DO(cuMemHostRegister_v2(memory + PAGE, 4 * PAGE, 0));
	IS(712, cuMemHostRegister_v2(memory + 2 * PAGE, PAGE, 0));
	check(fake_cuda_is_registered(memory + 2 * PAGE, PAGE), "an inner page is registered");
	check(!fake_cuda_is_registered(memory + PAGE, 5 * PAGE), "what goes beyond is not");
	IS(1, cuMemHostUnregister(NULL));
	IS(1, cuMemHostUnregister(memory + 2 * PAGE));
	IS(713, cuMemHostUnregister(memory + 6 * PAGE));
	IS(1, cuMemFreeHost(memory + PAGE));
	IS(1, cuMemHostGetFlags(&flags, memory + PAGE));
	DO(cuMemHostGetDevicePointer_v2(&device, memory + PAGE + 5, 0));
	check(device == (uintptr_t)memory + PAGE + 5, "the device's pointer is the host's");
	DO(cuMemHostUnregister(memory + PAGE));
	IS(713, cuMemHostUnregister(memory + PAGE));
	DO(cuMemHostUnregister(memory + 10));
	DO(cuMemHostUnregister(memory + 200));
	DO(cuMemHostRegister(small, sizeof(small), 0));
	DO(cuMemHostUnregister(small));
	mprotect(memory + 7 * PAGE, PAGE, PROT_READ);
	IS(1, cuMemHostRegister_v2(memory + 7 * PAGE, PAGE, 0));
	DO(cuMemHostRegister_v2(memory + 7 * PAGE, PAGE, 8));
	DO(cuMemHostUnregister(memory + 7 * PAGE));
	munmap(memory + 7 * PAGE, PAGE);
	IS(1, cuMemHostRegister_v2(memory + 6 * PAGE, 2 * PAGE, 0));
	IS(geteuid() ? 800 : 801, cuMemHostRegister_v2(memory, PAGE, 4));
}

/* Ten thousand ranges in no order. */
static void many(void)
{
	enum { COUNT = 10000 };
	char *memory = pages(COUNT);
	bool good = true;

	start();
	for (size_t i = 0; i < COUNT; i++)
		good &= !cuMemHostRegister_v2(memory + i * 7919 % COUNT * PAGE, PAGE, 0);
	check(good && fake_cuda_registrations() == COUNT, "10000 ranges are registered");
	for (size_t i = 0; i < COUNT; i++)
		good &= !cuMemHostUnregister(memory + i * 101 % COUNT * PAGE);
	check(good && fake_cuda_registrations() == 0, "and unregistered");
}

static void attributes(void)
{
	ps_cu_context context = start(), owner = NULL;
	int which[] = { 1, 2, 3, 4, 9, 12 }, ordinal = 7;
	unsigned type = 7;
	ps_cu_deviceptr device = 7, memory;
	void *pointer, *host = &type;
	size_t size = 7;
	void *data[] = { &owner, &type, &device, &host, &ordinal, &size };

	DO(cuMemHostAlloc(&pointer, 10000, 0));
	DO(cuPointerGetAttribute(&type, 2, (uintptr_t)pointer + 100));
	check(type == 1, "its type is host");
	IS(1, cuPointerGetAttribute(&type, 2, (uintptr_t)&type));
	IS(1, cuPointerGetAttribute(NULL, 2, (uintptr_t)pointer));
	IS(1, cuPointerGetAttribute(&type, 99, (uintptr_t)pointer));
	DO(cuPointerGetAttributes(6, which, data, (uintptr_t)pointer + 100));
	check(owner == context && type == 1 && device == (uintptr_t)pointer + 100 &&
		      host == (char *)pointer + 100 && ordinal == 0 && size == 10000,
	      "all its attributes");
	DO(cuPointerGetAttributes(6, which, data, (uintptr_t)&type));
	check(!owner && !type && !device && !host && !size, "unknown: success and null values");
	IS(1, cuPointerGetAttributes(0, which, data, (uintptr_t)pointer));
	DO(cuMemAlloc_v2(&memory, 100));
	DO(cuPointerGetAttribute(&type, 2, memory));
	check(type == 2, "device memory's type is device");
	DO(cuMemFree_v2(memory));
	IS(1, cuMemFree_v2(memory));
	DO(cuMemFreeHost(pointer));
}

static void failures(void)
{
	char *memory = pages(4);
	void *pointer = (void *)1;

	start();
	/* from the environment: cuMemHostRegister_v2:2-3:801,cuMemHostAlloc:2:2,cuMemFreeHost:1-:3 */
	DO(cuMemHostRegister_v2(memory, PAGE, 0));
	IS(801, cuMemHostRegister_v2(memory + PAGE, PAGE, 0));
	IS(801, cuMemHostRegister_v2(memory + PAGE, PAGE, 0));
	DO(cuMemHostRegister_v2(memory + PAGE, PAGE, 0));
	DO(cuMemHostAlloc(&pointer, 100, 0));
	pointer = (void *)1;
	IS(2, cuMemHostAlloc(&pointer, 100, 0));
	check(pointer == (void *)1, "a failing call writes nothing");
	for (int i = 0; i < 3; i++)
		IS(3, cuMemFreeHost(NULL));
	check(fake_cuda_calls("cuMemHostRegister_v2") == 4, "failing calls are counted");
	check(fake_cuda_thread_calls("cuMemHostRegister_v2") == 4, "by thread, too");
	fake_cuda_fail("cuMemFreeHost", 0, 0, 0);
	DO(cuMemFreeHost(NULL));
	fake_cuda_fail("cuMemHostUnregister", 2, 0, 999);
	DO(cuMemHostUnregister(memory));
	IS(999, cuMemHostUnregister(memory + PAGE));
	IS(999, cuMemHostUnregister(memory + PAGE));
	check(fake_cuda_registrations() == 1, "what failed is still registered");
	const struct fake_cuda_entry *entry = fake_cuda_log_entry(fake_cuda_log_length() - 1);
	check(!strcmp(entry->call, "cuMemHostUnregister") && entry->result == 999 &&
		      entry->pointer == (uintptr_t)memory + PAGE && entry->thread == gettid(),
	      "the log has the call");
}

static void *hammer(void *argument)
{
	uintptr_t index = (uintptr_t)argument;
	char *memory = pages(16);
	ps_cu_context context;
	bool good = !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context);

	for (size_t i = 0; i < 3000 && good; i++) {
		char *mine = memory + i % 16 * PAGE;
		void *pointer;

		good = !cuMemHostRegister_v2(mine, PAGE, 0) && !cuMemHostAlloc(&pointer, 9000, 0) &&
		       fake_cuda_is_registered(mine, PAGE) && !cuMemHostUnregister(mine) &&
		       !cuMemFreeHost(pointer);
	}
	check(good, "thread %d: every call does what it must", (int)index);
	check(!cuDevicePrimaryCtxRelease_v2(0), "thread %d: releases", (int)index);
	return NULL;
}

static void threads(void)
{
	pthread_t thread[8];
	unsigned long before;

	start();
	before = fake_cuda_calls("cuMemHostAlloc");
	for (uintptr_t i = 0; i < 8; i++)
		if (pthread_create(&thread[i], NULL, hammer, (void *)i))
			_exit(99);
	for (int i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	check(fake_cuda_calls("cuMemHostAlloc") - before == 24000, "every call was counted");
	check(!fake_cuda_registrations() && !fake_cuda_allocations(), "nothing is left");
}

static void forked(void)
{
	char *memory = pages(1);
	int status = -1;
	pid_t child;

	start();
	DO(cuMemHostRegister_v2(memory, PAGE, 0));
	child = fork();
	if (child == 0) {
		void *pointer = (void *)1;

		IS(3, cuInit(0));
		IS(3, cuMemHostUnregister(memory));
		IS(3, cuMemHostAlloc(&pointer, 100, 0));
		IS(3, cuMemFreeHost(NULL));
		check(pointer == (void *)1, "in a child nothing is written");
		exit(check_end());
	}
	waitpid(child, &status, 0);
	check(status == 0, "the child's cases hold");
	check(fake_cuda_registrations() == 1, "the parent's registration is untouched");
	DO(cuMemHostUnregister(memory));
}

static void forked_first(void)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		void *pointer;

		start();
		DO(cuMemHostAlloc(&pointer, 100, 0));
		exit(check_end());
	}
	waitpid(child, &status, 0);
	check(status == 0, "a child of a process without CUDA has CUDA");
	start();
}

static void unmapped_at_exit(void)
{
	char *memory = pages(1);

	start();
	DO(cuMemHostRegister_v2(memory, PAGE, 0));
	munmap(memory, PAGE);
}

static void leak(void)
{
	start();
	DO(cuMemHostRegister_v2(pages(1), 100, 0));
}

static const struct cases cases[] = {
	{ "attributes", attributes },
	{ "failures", failures },
	{ "forked", forked },
	{ "forked_first", forked_first },
	{ "host_alloc", host_alloc },
	{ "host_register", host_register },
	{ "init", init },
	{ "leak", leak },
	{ "many", many },
	{ "no_device", no_device },
	{ "threads", threads },
	{ "unmapped_at_exit", unmapped_at_exit },
};

int main(int count, char **argument)
{
	return run_named(cases, sizeof(cases) / sizeof(cases[0]), count, argument);
}
