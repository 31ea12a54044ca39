/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Host memory of the runtime, row by row as cuda-hooks.md 2.4 has it. Usage: semantics_rt CASES
 */
#include <pthread.h>

#include "semantics.h"

#define MIB ((size_t)1 << 20)

/* What the runtime says of an address that lies `offset` into an allocation. */
static void describe(const char *what, char *base, size_t offset)
{
	struct ps_pointer_attributes got = { .type = 77 };
	void *device = NULL;
	unsigned flags = 77;

	say("%s, %zu bytes in:\n", what, offset);
	GIVES(cudaPointerGetAttributes(&got, base + offset));
	VALUE("type", got.type);
	VALUE("device", got.device);
	VALUE("host pointer", (char *)got.host_pointer - base);
	VALUE("device pointer is the host's", got.device_pointer == base + offset);
	GIVES(cudaHostGetDevicePointer(&device, base + offset, 0));
	VALUE("device pointer is the host's", device == base + offset);
	GIVES(cudaHostGetDevicePointer(&device, base + offset, 1));
	GIVES(cudaHostGetFlags(&flags, base + offset));
	VALUE("flags", flags);
}

/* What an allocation must not be used for, and its end. */
static void misuse(char *block, size_t bytes)
{
	struct ps_pointer_attributes got;
	void *device;
	unsigned flags;

	GIVES(cudaHostRegister(block, bytes, 0));
	GIVES(cudaHostRegister(block + bytes / 2, 1, 0));
	GIVES(cudaHostUnregister(block));
	GIVES(cudaHostUnregister(block + bytes / 2));
	GIVES(cudaFreeHost(block + bytes / 2));
	VALUE("reachable after all that", reachable(block, bytes));
	GIVES(cudaFreeHost(block));
	say("freed:\n");
	GIVES(cudaFreeHost(block));
	GIVES(cudaFreeHost(block + bytes / 2));
	GIVES(cudaHostUnregister(block));
	GIVES(cudaHostUnregister(block + bytes / 2));
	GIVES(cudaHostGetFlags(&flags, block));
	MAY_DIFFER(KEPT, cudaHostGetDevicePointer(&device, block, 0));
	GIVES(cudaPointerGetAttributes(&got, block));
	MAY_DIFFER(KEPT, got.type);
	cudaGetLastError();
}

static void allocating(void)
{
	static const size_t sizes[] = { 2, 100, 4096, 65536, 100000, 3 * MIB + 5, 20 * MIB };
	void *block = NULL;

	/* More than is registered in one call: the driver's own to give or to refuse. */
	GIVES(cudaHostAlloc(&block, (size_t)65 << 30, 0));
	GIVES(cudaFreeHost(block));
	for (unsigned flags = 0; flags < 8; flags++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			say("flags %u, %zu bytes:\n", flags, sizes[i]);
			block = NULL;
			GIVES(cudaHostAlloc(&block, sizes[i], flags));
			VALUE("aligned", (uintptr_t)block % 256);
			describe("a block", block, 0);
			describe("a block", block, sizes[i] / 2);
			describe("a block", block, sizes[i] - 1);
			memset(block, 1, sizes[i]);
			VALUE("reachable", reachable(block, sizes[i]));
			misuse(block, sizes[i]);
		}
	}
	GIVES(cudaMallocHost(&block, 100000));
	describe("cudaMallocHost", block, 77);
	misuse(block, 100000);
}

static void bad_arguments(void)
{
	void *block = &block, *device = &device;
	struct ps_pointer_attributes got;
	unsigned flags = 77;

	GIVES(cudaHostAlloc(&block, 0, 0));
	VALUE("nothing", block == NULL);
	block = &block;
	GIVES(cudaMallocHost(&block, 0));
	VALUE("nothing", block == NULL);
	GIVES(cudaHostAlloc(&block, 0, 8));
	GIVES(cudaHostAlloc(NULL, 100, 0));
	GIVES(cudaHostAlloc(NULL, 0, 0));
	GIVES(cudaMallocHost(NULL, 100));
	GIVES(cudaHostAlloc(&block, 100, 8));
	GIVES(cudaHostAlloc(&block, 100, ~0u));
	GIVES(cudaHostAlloc(&block, SIZE_MAX, 0));
	GIVES(cudaHostAlloc(&block, SIZE_MAX - 4095, 0));
	GIVES(cudaMallocHost(&block, SIZE_MAX));
	GIVES(cudaHostAlloc(&block, (size_t)1 << 60, 0));
	GIVES(cudaGetLastError());
	GIVES(cudaFreeHost(NULL));
	GIVES(cudaFreeHost(&flags));
	GIVES(cudaFreeHost((void *)16));
	GIVES(cudaHostUnregister(NULL));
	GIVES(cudaHostUnregister(&flags));
	GIVES(cudaHostGetFlags(&flags, NULL));
	GIVES(cudaHostGetFlags(&flags, &flags));
	GIVES(cudaHostGetDevicePointer(&device, NULL, 0));
	GIVES(cudaHostGetDevicePointer(&device, &flags, 0));
	GIVES(cudaPointerGetAttributes(&got, NULL));
	GIVES(cudaPointerGetAttributes(&got, &flags));
	VALUE("type", got.type);
	GIVES(cudaMallocHost(&block, 100));
	GIVES(cudaHostGetFlags(NULL, block));
	GIVES(cudaHostGetDevicePointer(NULL, block, 0));
	GIVES(cudaPointerGetAttributes(NULL, block));
	GIVES(cudaFreeHost(block));
	VALUE("flags", flags);
}

static void registering(void)
{
	static char memory[8 * 4096] __attribute__((aligned(4096)));
	int on_the_stack = 7;
	void *device;

	GIVES(cudaHostRegister(memory + 4096, 4096, 3));
	describe("a registration", memory + 4096, 77);
	GIVES(cudaHostRegister(memory + 4096, 4096, 0));
	GIVES(cudaHostRegister(memory + 5000, 10, 0));
	GIVES(cudaHostRegister(memory, sizeof(memory), 0));
	GIVES(cudaHostRegister(memory, 4097, 0));
	GIVES(cudaHostRegister(memory, 4096, 0));
	GIVES(cudaHostGetDevicePointer(&device, memory, 0));
	/* Bytes of one page. */
	GIVES(cudaHostRegister(memory + 8192, 100, 0));
	GIVES(cudaHostRegister(memory + 8292, 100, 0));
	GIVES(cudaHostRegister(memory + 8391, 1, 0));
	GIVES(cudaHostRegister(&on_the_stack, 4, 1));
	GIVES(cudaHostRegister(memory + 3 * 4096, 4096, 8));
	GIVES(cudaHostRegister(memory + 5 * 4096, 4096, 4));
	GIVES(cudaHostRegister(memory + 5 * 4096, 4096, 16));
	GIVES(cudaHostRegister(NULL, 100, 0));
	GIVES(cudaHostRegister(memory + 5 * 4096, 0, 0));
	GIVES(cudaHostRegister(memory + 5 * 4096, SIZE_MAX, 0));
	GIVES(cudaHostRegister((void *)16, 100, 0));
	GIVES(cudaGetLastError());
	GIVES(cudaFreeHost(memory + 4096));
	GIVES(cudaHostUnregister(memory + 4097));
	GIVES(cudaHostUnregister(memory + 5 * 4096));
	GIVES(cudaHostUnregister(memory + 4096));
	GIVES(cudaHostUnregister(memory + 4096));
	GIVES(cudaHostUnregister(memory));
	GIVES(cudaHostUnregister(memory + 8192));
	GIVES(cudaHostUnregister(memory + 8292));
	GIVES(cudaHostUnregister(memory + 3 * 4096));
	GIVES(cudaHostUnregister(&on_the_stack));
	VALUE("left", reachable(memory, 1));
}

static void *another_thread(void *unused)
{
	(void)unused;
	GIVES(cudaPeekAtLastError());
	GIVES(cudaHostUnregister(NULL));
	GIVES(cudaGetLastError());
	return NULL;
}

static void last_error(void)
{
	static char memory[4096];
	pthread_t thread;
	void *block = NULL;

	GIVES(cudaGetLastError());
	GIVES(cudaHostAlloc(&block, MIB, 0));
	GIVES(cudaGetLastError());
	GIVES(cudaHostRegister(block, 100, 0));
	GIVES(cudaPeekAtLastError());
	if (!pthread_create(&thread, NULL, another_thread, NULL))
		pthread_join(thread, NULL);
	GIVES(cudaFreeHost(block));
	GIVES(cudaHostAlloc(&block, MIB, 0));
	GIVES(cudaHostRegister(memory, sizeof(memory), 0));
	GIVES(cudaHostUnregister(memory));
	GIVES(cudaPeekAtLastError());
	GIVES(cudaPeekAtLastError());
	GIVES(cudaGetLastError());
	GIVES(cudaPeekAtLastError());
	GIVES(cudaGetLastError());
	/* The later of two errors is the last. */
	GIVES(cudaHostAlloc(&block, (size_t)1 << 60, 0));
	GIVES(cudaHostUnregister(memory));
	GIVES(cudaGetLastError());
	GIVES(cudaGetLastError());
	GIVES(cudaFreeHost(block));
}

static void copy(char *block, size_t bytes, char *device, fake_cu_stream stream)
{
	char *back = calloc(1, bytes);

	fill_all(block, bytes, 1);
	GIVES(cudaMemcpy(device, block, bytes, FAKE_HOST_TO_DEVICE));
	GIVES(cudaMemcpy(back, device, bytes, FAKE_DEVICE_TO_HOST));
	VALUE("to the device", holds(back, bytes, 1));
	fill_all(block, bytes, 2);
	GIVES(cudaMemcpyAsync(device, block, bytes, FAKE_COPY_DEFAULT, stream));
	GIVES(cudaStreamSynchronize(stream));
	GIVES(cudaMemcpy(back, device, bytes, FAKE_DEVICE_TO_HOST));
	VALUE("to the device, later", holds(back, bytes, 2));
	memset(block, 0, bytes);
	GIVES(cudaMemcpyAsync(block, device, bytes, FAKE_DEVICE_TO_HOST, stream));
	VALUE("not at once", block[bytes / 2] == 0 && block[1] == 0);
	GIVES(cudaStreamSynchronize(stream));
	VALUE("from the device", holds(block, bytes, 2));
	/* Truly asynchronous: what is written before the copy is carried out is copied. */
	GIVES(cudaMemcpyAsync(device, block, bytes, FAKE_HOST_TO_DEVICE, stream));
	fill_all(block, bytes, 3);
	GIVES(cudaStreamSynchronize(stream));
	GIVES(cudaMemcpy(back, device, bytes, FAKE_DEVICE_TO_HOST));
	VALUE("as it was then", holds(back, bytes, 3));
	free(back);
}

static void copies(void)
{
	static const size_t sizes[] = { 100, 8192, MIB, 20 * MIB + 4096 };
	char *block[2];
	fake_cu_stream stream;
	void *device;

	GIVES(cudaStreamCreate(&stream));
	GIVES(cudaMalloc(&device, 32 * MIB));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		say("copies of %zu bytes:\n", sizes[i]);
		GIVES(cudaHostAlloc((void **)&block[0], sizes[i], 0));
		copy(block[0], sizes[i], device, stream);
		GIVES(cudaMemcpyAsync(device, block[0] + sizes[i] / 2, sizes[i] / 2,
				      FAKE_HOST_TO_DEVICE, stream));
		GIVES(cudaFreeHost(block[0]));
	}
	for (int i = 0; i < 2; i++)
		GIVES(cudaHostAlloc((void **)&block[i], MIB, 0));
	/* From the end of one block into what follows it. */
	MAY_DIFFER(CHUNK ", so such a copy need not fail",
		   cudaMemcpy(device, block[0] + MIB - 4096, 8192, FAKE_HOST_TO_DEVICE));
	GIVES(cudaFreeHost(block[0]));
	GIVES(cudaFreeHost(block[1]));
	GIVES(cudaFree(device));
	GIVES(cudaStreamDestroy(stream));
	cudaGetLastError();
}

/* A block that is freed while a copy from it is queued: cudaFreeHost() waits, and so its next user. */
static void reuse(void)
{
	const size_t sizes[] = { 4096, MIB, 20 * MIB };
	char *back = malloc(20 * MIB);
	fake_cu_stream stream;
	void *device;

	GIVES(cudaStreamCreateWithFlags(&stream, 1));
	GIVES(cudaMalloc(&device, 20 * MIB));
	for (size_t i = 0; i < 3; i++) {
		void *block = NULL, *next[8] = { NULL };
		bool allocated = true;

		say("%zu bytes:\n", sizes[i]);
		GIVES(cudaHostAlloc(&block, sizes[i], 0));
		fill_all(block, sizes[i], 5);
		GIVES(cudaMemcpyAsync(device, block, sizes[i], FAKE_HOST_TO_DEVICE, stream));
		GIVES(cudaFreeHost(block));
		for (int j = 0; j < 8; j++) {
			allocated &= !cudaHostAlloc(&next[j], sizes[i], 0);
			memset(next[j], 0xee, sizes[i]);
		}
		VALUE("allocated", allocated);
		GIVES(cudaStreamSynchronize(stream));
		GIVES(cudaMemcpy(back, device, sizes[i], FAKE_DEVICE_TO_HOST));
		VALUE("what was copied is what was there", holds(back, sizes[i], 5));
		for (int j = 0; j < 8; j++)
			allocated &= !cudaFreeHost(next[j]);
		VALUE("freed", allocated);
	}
	GIVES(cudaFree(device));
	GIVES(cudaStreamDestroy(stream));
	free(back);
}

/* A new allocation after the context went: the device reaches it. */
static void allocate_again(size_t bytes)
{
	char *back = malloc(bytes);
	void *block = NULL, *device = NULL;
	fake_cu_stream stream;

	GIVES(cudaHostAlloc(&block, bytes, 0));
	VALUE("reachable", reachable(block, bytes));
	describe("a new block", block, 10);
	GIVES(cudaStreamCreate(&stream));
	GIVES(cudaMalloc(&device, bytes));
	fill_all(block, bytes, 9);
	GIVES(cudaMemcpyAsync(device, block, bytes, FAKE_HOST_TO_DEVICE, stream));
	GIVES(cudaStreamSynchronize(stream));
	GIVES(cudaMemcpy(back, device, bytes, FAKE_DEVICE_TO_HOST));
	VALUE("copied", holds(back, bytes, 9));
	GIVES(cudaFreeHost(block));
	GIVES(cudaFree(device));
	GIVES(cudaStreamDestroy(stream));
	free(back);
}

/* In a thread whose current context is the one that was reset. */
static void *stale_context(void *gate)
{
	void *block = NULL;

	GIVES(cudaHostAlloc(&block, MIB, 0));
	pthread_barrier_wait(gate);
	pthread_barrier_wait(gate);
	MAY_DIFFER(OUTLIVES, cudaFreeHost(block));
	GIVES(cudaHostAlloc(&block, MIB, 0));
	VALUE("reachable", reachable(block, MIB));
	GIVES(cudaFreeHost(block));
	return NULL;
}

static void reset(void)
{
	static char memory[4096];
	pthread_barrier_t gate;
	pthread_t thread;
	void *block = NULL, *large = NULL, *written = NULL;

	GIVES(cudaHostAlloc(&block, MIB, 0));
	GIVES(cudaHostAlloc(&large, 20 * MIB, 0));
	GIVES(cudaHostAlloc(&written, MIB, PS_HOST_ALLOC_WRITE_COMBINED));
	GIVES(cudaHostRegister(memory, sizeof(memory), 0));
	GIVES(cudaDeviceReset());
	VALUE("registrations", FAKE_CUDA(fake_cuda_registrations)());
	VALUE("allocations", FAKE_CUDA(fake_cuda_allocations)());
	MAY_DIFFER(OUTLIVES, cudaFreeHost(block));
	GIVES(cudaFreeHost(written));
	GIVES(cudaHostUnregister(memory));
	cudaGetLastError();
	allocate_again(MIB);
	allocate_again(20 * MIB);
	MAY_DIFFER(OUTLIVES, cudaFreeHost(large));
	cudaGetLastError();
	GIVES(cudaHostRegister(memory, sizeof(memory), 0));
	GIVES(cudaHostUnregister(memory));
	GIVES(cudaDeviceReset());
	GIVES(cudaDeviceReset());
	allocate_again(MIB);
	pthread_barrier_init(&gate, NULL, 2);
	if (!pthread_create(&thread, NULL, stale_context, &gate)) {
		pthread_barrier_wait(&gate);
		GIVES(cudaDeviceReset());
		pthread_barrier_wait(&gate);
		pthread_join(thread, NULL);
	}
}

/* What a captured stream is left with after an allocation and after a free. */
static void capture_in(int mode, int thread_mode)
{
	void *parked = NULL, *block = NULL, *graph = NULL;
	fake_cu_stream stream;
	int was = thread_mode;

	say("stream in mode %d, thread in mode %d:\n", mode, thread_mode);
	GIVES(cudaHostAlloc(&parked, MIB, 0));
	GIVES(cudaHostAlloc(&block, MIB, 0));
	GIVES(cudaFreeHost(parked));
	GIVES(cudaStreamCreateWithFlags(&stream, 1));
	GIVES(cudaStreamBeginCapture(stream, mode));
	GIVES(cudaThreadExchangeStreamCaptureMode(&was));
	if (mode == PS_CAPTURE_RELAXED || thread_mode == PS_CAPTURE_RELAXED) {
		GIVES(cudaFreeHost(block));
		GIVES(cudaHostAlloc(&block, MIB, 0));
	} else {
		MAY_DIFFER("served without the driver", cudaFreeHost(block));
		MAY_DIFFER("served without the driver", cudaHostAlloc(&block, MIB, 0));
	}
	VALUE("mode was", was);
	GIVES(cudaThreadExchangeStreamCaptureMode(&was));
	VALUE("mode is", was);
	if (mode == PS_CAPTURE_RELAXED || thread_mode == PS_CAPTURE_RELAXED)
		GIVES(cudaStreamEndCapture(stream, &graph));
	else
		MAY_DIFFER("nothing disturbed it", cudaStreamEndCapture(stream, &graph));
	cudaGetLastError();
	GIVES(cudaStreamDestroy(stream));
	GIVES(cudaFreeHost(block));
}

static void capture(void)
{
	for (int mode = PS_CAPTURE_GLOBAL; mode <= PS_CAPTURE_RELAXED; mode++)
		for (int thread = PS_CAPTURE_GLOBAL; thread <= PS_CAPTURE_RELAXED; thread++)
			capture_in(mode, thread);
}

static void forked(void)
{
	static char memory[4096];
	void *block = NULL, *other = &other;
	struct ps_pointer_attributes got;
	unsigned flags = 77;
	int status = -1;
	pid_t child;

	GIVES(cudaHostAlloc(&block, MIB, 0));
	fill_all(block, MIB, 4);
	GIVES(cudaHostRegister(memory, sizeof(memory), 0));
	child = fork();
	if (child == 0) {
		VALUE("its contents", holds(block, MIB, 4));
		fill_all(block, MIB, 5);
		GIVES(cudaMallocHost(&other, 100));
		GIVES(cudaHostAlloc(&other, MIB, 0));
		VALUE("written", other != &other);
		GIVES(cudaHostGetFlags(&flags, block));
		GIVES(cudaPointerGetAttributes(&got, block));
		GIVES(cudaHostUnregister(memory));
		GIVES(cudaHostRegister(&flags, 4, 0));
		GIVES(cudaGetLastError());
		MAY_DIFFER("a child frees what it inherited", cudaFreeHost(block));
		exit(0);
	}
	waitpid(child, &status, 0);
	VALUE("the child ends with", status);
	VALUE("what the child wrote", holds(block, MIB, 5));
	GIVES(cudaHostUnregister(memory));
	GIVES(cudaFreeHost(block));
}

/* FAKE_CUDA_DEVICES=2: what one device is still reading is not used again by a thread of the other's. */
static void devices(void)
{
	struct ps_pointer_attributes got = { .type = 77 };
	char *back = malloc(MIB);
	void *block = NULL, *other = NULL, *next = NULL, *device = NULL;
	fake_cu_stream stream;

	GIVES(cudaHostAlloc(&other, MIB, 0));
	GIVES(cudaSetDevice(1));
	GIVES(cudaHostAlloc(&block, MIB, 0));
	VALUE("reachable", reachable(block, MIB));
	GIVES(cudaPointerGetAttributes(&got, block));
	VALUE("type", got.type);
	MAY_DIFFER("a chunk has the device of its first block", got.device);
	GIVES(cudaMalloc(&device, MIB));
	GIVES(cudaStreamCreateWithFlags(&stream, 1));
	fill_all(block, MIB, 6);
	GIVES(cudaMemcpyAsync(device, block, MIB, FAKE_HOST_TO_DEVICE, stream));
	GIVES(cudaSetDevice(0));
	GIVES(cudaFreeHost(block));
	for (int i = 0; i < 4; i++) {
		GIVES(cudaHostAlloc(&next, MIB, 0));
		memset(next, 0xee, MIB);
	}
	GIVES(cudaSetDevice(1));
	GIVES(cudaStreamSynchronize(stream));
	GIVES(cudaMemcpy(back, device, MIB, FAKE_DEVICE_TO_HOST));
	VALUE("what was copied is what was there", holds(back, MIB, 6));
	/* The other device's memory is where it was. */
	GIVES(cudaDeviceReset());
	GIVES(cudaSetDevice(0));
	GIVES(cudaPointerGetAttributes(&got, other));
	VALUE("type", got.type);
	VALUE("reachable", reachable(other, MIB));
	GIVES(cudaFreeHost(other));
	free(back);
}

static const struct {
	const char *name;
	void (*go)(void);
} cases[] = {
	{ "allocating", allocating }, { "bad_arguments", bad_arguments },
	{ "capture", capture },       { "copies", copies },
	{ "devices", devices },       { "forked", forked },
	{ "last_error", last_error }, { "registering", registering },
	{ "reset", reset },           { "reuse", reuse },
};

int main(int count, char **argument)
{
	for (size_t i = 0; count == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!strcmp(argument[1], cases[i].name)) {
			cases[i].go();
			VALUE("faults", FAKE_CUDA(fake_cuda_faults)());
			return 0;
		}
	}
	return 2;
}
