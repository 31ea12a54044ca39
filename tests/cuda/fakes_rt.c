/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fake runtime against CUDA's documented rules. Usage: fakes_rt CASES
 * Linked with it, as programs are, and with no driver; no pinshim is involved.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../fakes/fake_cuda.h"
#include "../preload/check.h"

#define IS(code, call) check((call) == (code), "%s is %d", #call, (int)(code))
#define DO(call) IS(0, call)

static void host_memory(void)
{
	void *pointer = NULL, *device = NULL, *none = &pointer, *both[2] = { NULL, &both };
	unsigned flags = 77;

	DO(cudaHostAlloc(&pointer, 100000, 0));
	check(FAKE_CUDA(fake_cuda_is_allocated)(pointer, 100000), "the driver allocated it");
	DO(cudaHostGetFlags(&flags, pointer));
	check(flags == 2, "flags 0 are reported as 2");
	DO(cudaHostGetDevicePointer(&device, pointer, 0));
	check(device == pointer, "the device's pointer is the host's");
	IS(1, cudaHostGetDevicePointer(&device, pointer, 1));
	IS(1, cudaHostGetDevicePointer(&device, &flags, 0));
	IS(1, cudaHostUnregister(pointer));
	IS(712, cudaHostRegister(pointer, 100, 0));
	IS(1, cudaFreeHost((char *)pointer + 4096));
	DO(cudaFreeHost(pointer));
	IS(1, cudaFreeHost(pointer));
	DO(cudaFreeHost(NULL));
	DO(cudaMallocHost(both, 100));
	check(both[0] && both[1] == &both, "cudaMallocHost allocates");
	DO(cudaFreeHost(both[0]));
	DO(cudaMallocHost(&none, 0));
	check(!none, "size 0 gives NULL");
	none = &pointer;
	DO(cudaHostAlloc(&none, 0, 0));
	check(!none, "for cudaHostAlloc, too");
	IS(1, cudaHostAlloc(&pointer, 100, 8));
	IS(1, cudaHostAlloc(NULL, 100, 0));
	IS(1, cudaMallocHost(NULL, 100));
	IS(2, cudaMallocHost(&pointer, SIZE_MAX));
	IS(2, cudaGetLastError());
}

static void registering(void)
{
	static char memory[3 * 4096] __attribute__((aligned(4096)));
	unsigned flags;

	DO(cudaHostRegister(memory + 4096, 4096, 3));
	check(FAKE_CUDA(fake_cuda_is_registered)(memory + 4096, 4096), "the driver registered it");
	check(FAKE_CUDA(fake_cuda_calls)("cuMemHostRegister_v2") == 1,
	      "by version 6050's function");
	IS(712, cudaHostRegister(memory + 4096, 4096, 0));
	IS(712, cudaHostRegister(memory, sizeof(memory), 0));
	IS(712, cudaGetLastError());
	DO(cudaGetLastError());
	IS(1, cudaHostRegister(NULL, 100, 0));
	IS(1, cudaHostRegister(memory, 0, 0));
	IS(1, cudaHostUnregister(NULL));
	IS(713, cudaHostUnregister(memory));
	IS(1, cudaHostUnregister(memory + 4097));
	IS(1, cudaFreeHost(memory + 4096));
	IS(1, cudaHostGetFlags(&flags, memory + 4096));
	DO(cudaHostUnregister(memory + 4096));
	IS(713, cudaHostUnregister(memory + 4096));
}

static void attributes(void)
{
	struct {
		struct ps_pointer_attributes attributes;
		long reserved[8];
	} got = { .reserved = { 7, 7 } };
	struct ps_pointer_attributes *a = &got.attributes;
	void *pointer, *device;

	DO(cudaPointerGetAttributes(a, &got));
	check(a->type == 0 && a->device_pointer == NULL, "unregistered: success, type 0");
	DO(cudaMallocHost(&pointer, 100));
	DO(cudaPointerGetAttributes(a, pointer));
	check(a->type == 1 && a->device == 0 && a->device_pointer == pointer &&
		      a->host_pointer == pointer,
	      "pinned: type 1, both pointers");
	DO(cudaMalloc(&device, 100));
	DO(cudaPointerGetAttributes(a, device));
	check(a->type == 2 && a->device_pointer == device && !a->host_pointer, "device: type 2");
	check(got.reserved[0] == 7 && got.reserved[1] == 7, "nothing behind them is written");
	IS(1, cudaPointerGetAttributes(NULL, pointer));
	DO(cudaFree(device));
	DO(cudaFree(NULL));
	DO(cudaFreeHost(pointer));
}

static void copies(void)
{
	char *pinned, back[4096];
	void *device;
	fake_cu_stream stream;
	bool good = true;

	DO(cudaStreamCreate(&stream));
	DO(cudaMalloc(&device, 4096));
	DO(cudaMallocHost((void **)&pinned, 4096));
	memset(pinned, 'a', 4096);
	DO(cudaMemcpyAsync(device, pinned, 4096, FAKE_HOST_TO_DEVICE, stream));
	DO(cudaMemcpyAsync(back, device, 4096, FAKE_COPY_DEFAULT, stream));
	for (int i = 0; i < 4096; i++)
		good &= back[i] == 'a';
	check(good, "there and back");
	DO(cudaMemcpyAsync(device, pinned, 4096, FAKE_HOST_TO_DEVICE, stream));
	memset(pinned, 'b', 4096);
	DO(cudaStreamSynchronize(stream));
	DO(cudaMemcpy(back, device, 4096, FAKE_DEVICE_TO_HOST));
	check(back[0] == 'b' && back[4095] == 'b', "reuse before it is done is seen");
	DO(cudaMemset(device, 'c', 4096));
	DO(cudaMemcpy(back, device, 4096, FAKE_DEVICE_TO_HOST));
	check(back[0] == 'c' && back[4095] == 'c', "memset");
	IS(1, cudaMemcpy(device, pinned, 4097, FAKE_HOST_TO_DEVICE));
	IS(21, cudaMemcpy(device, pinned, 4096, 9));
	DO(cudaStreamDestroy(stream));
	IS(400, cudaStreamQuery(stream));
	DO(cudaFreeHost(pinned));
	DO(cudaFree(device));
}

static void *no_error(void *unused)
{
	(void)unused;
	IS(0, cudaGetLastError());
	return NULL;
}

static void last_error(void)
{
	pthread_t thread;
	void *pointer;

	IS(1, cudaHostUnregister(NULL));
	if (!pthread_create(&thread, NULL, no_error, NULL))
		pthread_join(thread, NULL);
	DO(cudaMallocHost(&pointer, 100));
	IS(1, cudaPeekAtLastError());
	IS(1, cudaPeekAtLastError());
	IS(1, cudaGetLastError());
	IS(0, cudaGetLastError());
	/* The driver's own errors do not touch it. */
	__typeof__(cuMemHostUnregister) *unregister = NULL;
	int status = 7;
	DO(cudaGetDriverEntryPoint("cuMemHostUnregister", (void **)&unregister, 0, &status));
	check(unregister && status == 0, "the driver's function");
	if (!unregister)
		return;
	IS(713, unregister(&thread));
	IS(0, cudaPeekAtLastError());
	DO(cudaGetDriverEntryPointByVersion("cuMemAllocHost", (void **)&unregister, 3000, 0,
					    &status));
	check(status == 0, "an old version");
	check((void *)unregister == (void *)FAKE_CUDA(cuMemAllocHost), "is the old function");
	check(!strcmp(cudaGetErrorName(712), "cudaErrorHostMemoryAlreadyRegistered"), "a name");
	check(strstr(cudaGetErrorString(35), "driver") != NULL, "a text");
	DO(cudaFreeHost(pointer));
}

static void reset(void)
{
	static char memory[4096];
	void *pointer;

	DO(cudaMallocHost(&pointer, 100));
	DO(cudaHostRegister(memory, sizeof(memory), 0));
	DO(cudaDeviceReset());
	check(!FAKE_CUDA(fake_cuda_registrations)() && !FAKE_CUDA(fake_cuda_allocations)(),
	      "a reset frees and unregisters");
	IS(713, cudaHostUnregister(memory));
	IS(1, cudaFreeHost(pointer));
	DO(cudaHostRegister(memory, sizeof(memory), 0));
	DO(FAKE_CUDA(cuDevicePrimaryCtxReset_v2)(0));
	DO(cudaHostRegister(memory, sizeof(memory), 0));
	DO(cudaHostUnregister(memory));
	DO(cudaDeviceSynchronize());
	DO(cudaDeviceReset());
	DO(cudaDeviceReset());
}

static void devices(void)
{
	int number = 7;

	DO(cudaGetDeviceCount(&number));
	check(number == 2, "two devices");
	DO(cudaSetDevice(1));
	DO(cudaGetDevice(&number));
	check(number == 1, "the second is set");
	IS(101, cudaSetDevice(2));
	IS(101, cudaGetLastError());
	DO(FAKE_CUDA(cuCtxGetDevice)(&number));
	check(number == 1, "its context is current");
}

static void forked(void)
{
	void *pointer;
	int status = -1;
	pid_t child;

	DO(cudaMallocHost(&pointer, 100));
	child = fork();
	if (child == 0) {
		void *other = &status;

		IS(3, cudaMallocHost(&other, 100));
		IS(3, cudaFreeHost(pointer));
		IS(3, cudaGetLastError());
		check(other == &status, "in a child nothing is written");
		exit(check_end());
	}
	waitpid(child, &status, 0);
	check(status == 0, "the child's cases hold");
	DO(cudaFreeHost(pointer));
}

static void failures(void)
{
	void *pointer;

	/* FAKE_CUDA_FAIL=cudaHostAlloc:2:2,cuMemHostAlloc:3-:801 */
	DO(cudaHostAlloc(&pointer, 100, 0));
	IS(2, cudaHostAlloc(&pointer, 100, 0));
	IS(2, cudaGetLastError());
	DO(cudaHostAlloc(&pointer, 100, 0));
	IS(801, cudaHostAlloc(&pointer, 100, 0));
	IS(801, cudaMallocHost(&pointer, 100));
	check(FAKE_CUDA(fake_cuda_calls)("cudaHostAlloc") == 4, "the runtime's calls are counted");
}

/* What every call but a few must give when there is no driver, or none that works. */
static void nothing_works(int code)
{
	struct ps_pointer_attributes attributes = { .type = 7, .device = 7 };
	void *pointer = (void *)7, *device = (void *)7;
	unsigned flags = 7;
	int number = 7;

	IS(code, cudaHostAlloc(&pointer, 100, 0));
	IS(code, cudaHostAlloc(NULL, 100, 99));
	IS(code, cudaMallocHost(&pointer, 0));
	IS(code, cudaFreeHost(NULL));
	IS(code, cudaHostRegister(&attributes, 4, 0));
	IS(code, cudaHostUnregister(NULL));
	IS(code, cudaHostGetDevicePointer(&device, &number, 0));
	IS(code, cudaHostGetFlags(&flags, &number));
	IS(code, cudaPointerGetAttributes(&attributes, &number));
	IS(code, cudaGetDeviceCount(&number));
	IS(code, cudaSetDevice(0));
	IS(code, cudaMalloc(&device, 100));
	IS(code, cudaDeviceReset());
	IS(code, cudaPeekAtLastError());
	IS(code, cudaGetLastError());
	IS(code, cudaGetLastError());
	check(pointer == (void *)7 && device == (void *)7 && flags == 7 && number == 7 &&
		      attributes.type == 7 && attributes.device == 7,
	      "nothing is written");
	DO(cudaRuntimeGetVersion(&number));
	check(number == 13000, "the runtime has a version");
	DO(cudaDriverGetVersion(&number));
	check(number == (code == 35 ? 0 : 13000), "a driver that is not there has version 0");
}

static void no_driver(void)
{
	nothing_works(35);
}

static void no_device(void)
{
	nothing_works(100);
}

static const struct cases {
	const char *name;
	void (*go)(void);
} cases[] = {
	{ "attributes", attributes },   { "copies", copies },       { "devices", devices },
	{ "failures", failures },       { "forked", forked },       { "host_memory", host_memory },
	{ "last_error", last_error },   { "no_device", no_device }, { "no_driver", no_driver },
	{ "registering", registering }, { "reset", reset },
};

int main(int count, char **argument)
{
	for (size_t i = 0; count == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!strcmp(argument[1], cases[i].name)) {
			cases[i].go();
			return check_end();
		}
	}
	return 2;
}
