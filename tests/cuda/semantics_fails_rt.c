/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What only pinshim does: limits, calls of its own that fail, memory that goes while it is registered,
 * forked children. Usage: semantics_fails_rt CASES
 */
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/shm.h>

#include "../../interpose/pinshim.h"
#include "fakes.h"
#include "semantics.h"

#define MIB ((size_t)1 << 20)

/* PINSHIM_LIMIT=8M */
static void refused(void)
{
	void *block = &block, *small = NULL;

	IS(2, cudaHostAlloc(&block, 64 * MIB, 0));
	check(block == NULL, "the pointer is NULL");
	IS(2, cudaPeekAtLastError());
	IS(2, cudaPeekAtLastError());
	IS(2, cudaGetLastError());
	IS(0, cudaPeekAtLastError());
	IS(0, cudaGetLastError());
	IS(2, cudaMallocHost(&block, 64 * MIB));
	IS(1, cudaHostUnregister(NULL));
	IS(1, cudaPeekAtLastError());
	IS(1, cudaGetLastError());
	IS(0, cudaGetLastError());
	IS(1, cudaHostUnregister(NULL));
	IS(2, cudaMallocHost(&block, 64 * MIB));
	IS(2, cudaPeekAtLastError());
	IS(2, cudaGetLastError());
	IS(0, cudaGetLastError());
	DO(cudaHostAlloc(&small, MIB, 0));
	DO(cudaFreeHost(small));
	check(!FAKE_CUDA(fake_cuda_allocations)(), "CUDA allocated nothing");
}

/* PINSHIM_LIMIT=8M PINSHIM_ON_FAIL=fallback, or registering fails: CUDA's own memory. */
static void really(size_t bytes)
{
	struct ps_pointer_attributes got;
	unsigned flags = 77;
	void *block = NULL;

	DO(cudaHostAlloc(&block, bytes, 1));
	check(FAKE_CUDA(fake_cuda_is_allocated)(block, bytes), "it is CUDA's");
	check(pinshim_is_pinned(block, bytes) == 1, "published as pinned");
	check(!pinshim_is_pinned(block, bytes + (1 << 20)), "and nothing beyond");
	DO(cudaHostGetFlags(&flags, block));
	check(flags == 3, "flags");
	DO(cudaPointerGetAttributes(&got, block));
	check(got.type == 1, "pinned for CUDA");
	IS(0, cudaGetLastError());
	DO(cudaFreeHost(block));
	check(!pinshim_is_pinned(block, 1), "no longer");
	check(!FAKE_CUDA(fake_cuda_allocations)(), "CUDA has it back");
}

static void fallback(void)
{
	really(64 * MIB);
	really(64 * MIB);
}

/* FAKE_CUDA_FAIL=cuMemHostRegister_v2:1-:801 */
static void register_fails(void)
{
	really(MIB);
	really(20 * MIB);
	really(MIB);
}

/* PINSHIM_RETAIN=0: memory is given back when it is free, if the driver lets go of it. */
static void unregister_fails(void)
{
	const size_t bytes = 32 * MIB;
	void *block = NULL, *next = NULL;

	DO(cudaHostAlloc(&block, bytes, 0));
	FAKE_CUDA(fake_cuda_fail)("cuMemHostUnregister", 1, 0, 1);
	DO(cudaFreeHost(block));
	DO(cudaHostAlloc(&next, bytes, 0));
	check(next != block, "its addresses are not used again");
	pinshim_trim(0);
	check(FAKE_CUDA(fake_cuda_is_registered)(block, bytes), "it is still registered");
	check(is_locked(block, bytes), "it stays locked");
	FAKE_CUDA(fake_cuda_fail)("cuMemHostUnregister", 0, 0, 0);
	DO(cudaFreeHost(next));
	pinshim_trim(0);
	check(!FAKE_CUDA(fake_cuda_is_registered)(next, 1), "the next one is let go");
	check(!is_locked(next, bytes), "and unlocked");
	check(FAKE_CUDA(fake_cuda_faults)() == 0, "no faults");
}

/*
 * PyTorch allocates with its thread's mode relaxed while a stream is captured: waiting for the device
 * would end the capture (CUDA C++ Programming Guide, "Prohibited and Unhandled Operations").
 */
static void capturing(void)
{
	__typeof__(fake_cuda_calls) *calls = FAKE_CUDA(fake_cuda_calls);
	int mode = PS_CAPTURE_RELAXED;
	unsigned long waits;
	fake_cu_stream stream;
	void *block[2], *graph = NULL;

	DO(cudaStreamCreateWithFlags(&stream, 1));
	DO(cudaHostAlloc(&block[0], MIB, 0));
	DO(cudaFreeHost(block[0]));
	DO(cudaStreamBeginCapture(stream, PS_CAPTURE_GLOBAL));
	DO(cudaThreadExchangeStreamCaptureMode(&mode));
	waits = calls("cuCtxSynchronize");
	DO(cudaHostAlloc(&block[0], MIB, 0));
	DO(cudaHostAlloc(&block[1], 80 * MIB, 0));
	check(calls("cuCtxSynchronize") == waits, "the device was not waited for");
	DO(cudaThreadExchangeStreamCaptureMode(&mode));
	DO(cudaStreamEndCapture(stream, &graph));
	DO(cudaFreeHost(block[1]));
	DO(cudaHostAlloc(&block[1], 80 * MIB, 0));
	check(calls("cuCtxSynchronize") > waits, "but afterwards it is");
	DO(cudaFreeHost(block[0]));
	DO(cudaFreeHost(block[1]));
	DO(cudaStreamDestroy(stream));
}

static char *registered(size_t pages_count)
{
	char *memory = pages(pages_count);

	DO(cudaHostRegister(memory, pages_count * PAGE, 0));
	check(pinshim_is_pinned(memory, pages_count * PAGE) == 1, "registered memory is published");
	check(!pinshim_is_pinned(memory - 1, 2) &&
		      !pinshim_is_pinned(memory + pages_count * PAGE, 1),
	      "and nothing beside it");
	return memory;
}

static void gone(const char *how, char *memory, size_t count)
{
	check(!pinshim_is_pinned(memory, 1) && !pinshim_is_pinned(memory + count * PAGE - 1, 1),
	      "%s: not published any more", how);
	check(!FAKE_CUDA(fake_cuda_is_registered)(memory, 1), "%s: the driver forgot it", how);
	check(FAKE_CUDA(fake_cuda_faults)() == 0, "%s: no fault", how);
}

/* The memory goes while it is registered. Each is said; the first time. */
static void foreign(void)
{
	const int segment = shmget(IPC_PRIVATE, 4 * PAGE, IPC_CREAT | 0600);
	char *memory = registered(4);
	void *moved;

	munmap(memory, 4 * PAGE);
	gone("munmap", memory, 4);
	IS(713, cudaHostUnregister(memory));
	memory = registered(4);
	munmap(memory + PAGE, PAGE);
	gone("munmap of a part", memory, 4);
	munmap(memory, 4 * PAGE);
	memory = registered(4);
	moved = mremap(memory, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages(16));
	gone("mremap", memory, 4);
	munmap(moved, 8 * PAGE);
	memory = registered(4);
	check(mmap(memory, 4 * PAGE, PROT_READ | PROT_WRITE,
		   MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == memory,
	      "mmap over it");
	gone("mmap over it", memory, 4);
	DO(cudaHostRegister(memory, 4 * PAGE, 0));
	DO(cudaHostUnregister(memory));
	check(!pinshim_is_pinned(memory, 1), "unregistered: not published");
	munmap(memory, 4 * PAGE);
	memory = shmat(segment, NULL, 0);
	DO(cudaHostRegister(memory, 4 * PAGE, 0));
	check(pinshim_is_pinned(memory, 4 * PAGE) == 1, "shared memory is published");
	check(!shmdt(memory), "shmdt");
	gone("shmdt", memory, 4);
	shmctl(segment, IPC_RMID, NULL);
	memory = sbrk(8 * PAGE);
	DO(cudaHostRegister(memory, 8 * PAGE, 0));
	check(!brk(memory), "brk");
	gone("brk", memory, 8);
	memory = sbrk(8 * PAGE);
	DO(cudaHostRegister(memory, 8 * PAGE, 0));
	check(sbrk(-8 * (intptr_t)PAGE) != (void *)-1, "sbrk");
	gone("sbrk", memory, 8);
	memory = malloc(100000);
	DO(cudaHostRegister(memory, 100000, 0));
	check(pinshim_is_pinned(memory, 100000) == 1, "a malloc block is published");
	free(opaque(memory));
	gone("free", memory, 100000 / PAGE);
	memory = malloc(100000);
	DO(cudaHostRegister(memory, 100000, 0));
	memory = realloc(opaque(memory), (size_t)64 << 20);
	check(!pinshim_is_pinned(memory, 1), "realloc: not published");
	check(FAKE_CUDA(fake_cuda_registrations)() == 0, "realloc: the driver forgot it");
	free(memory);
}

/* The driver's code, which no one may enter in a child. */
static void close_driver(void)
{
	unsigned long low, high;
	char line[512], mode[8];
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "libcuda.so.1") &&
		    sscanf(line, "%lx-%lx %7s", &low, &high, mode) == 3 && mode[2] == 'x' &&
		    mprotect((void *)low, high - low, PROT_READ))
			_exit(98);
	if (maps)
		fclose(maps);
}

/* All that pinshim may do in a child by itself. */
static void in_child(void **block, char *memory)
{
	void *fresh;

	close_driver();
	check(!pinshim_is_pinned(block[0], MIB) && !pinshim_is_pinned(memory, 1),
	      "child: nothing is pinned");
	for (int i = 0; i < 4; i++)
		check(!cudaFreeHost(block[i]), "child: frees block %d", i);
	fresh = pinshim_alloc(MIB, 0);
	check(fresh && pinshim_is_pinned(fresh, MIB), "child: allocates");
	memset(fresh, 1, MIB);
	check(!pinshim_free(fresh), "child: and frees");
	pinshim_trim(0);
	munmap(memory, PAGE);
	check(!pinshim_is_pinned(memory, 1), "child: unmaps");
	free(malloc(MIB));
	_exit(check_end());
}

static void child(void)
{
	char *memory = registered(1);
	void *block[5];
	int status = -1;
	pid_t pid;

	for (int i = 0; i < 5; i++)
		DO(cudaHostAlloc(&block[i], i % 2 ? 20 * MIB : MIB, 0));
	DO(cudaFreeHost(block[4]));
	pid = fork();
	if (pid == 0)
		in_child(block, memory);
	waitpid(pid, &status, 0);
	check(status == 0, "the child's cases hold (%#x)", (unsigned)status);
	for (int i = 0; i < 4; i++)
		DO(cudaFreeHost(block[i]));
	DO(cudaHostUnregister(memory));
}

/* A child writes to the block and the parent sees it; a fork says nothing about 256 MiB of it. */
static void shared(void)
{
	void *block = NULL;
	int status = -1;
	pid_t pid;

	DO(cudaHostAlloc(&block, 256 * MIB, 0));
	fill_all(block, 20 * MIB, 1);
	pid = fork();
	if (pid == 0) {
		fill_all(block, 20 * MIB, 2);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	check(status == 0, "the child ends with 0 (%#x)", (unsigned)status);
	check(holds(block, 20 * MIB, 2), "a block is shared with a child");
	DO(cudaFreeHost(block));
}

/* So much of pinshim_alloc() that the kernel takes long to copy it to each. */
static void copied(void)
{
	void *block, *first = NULL;
	int status = -1;
	pid_t pid;

	/* With a context there is somebody to register it with. */
	DO(cudaHostAlloc(&first, MIB, 0));
	block = pinshim_alloc(256 * MIB, 0);
	check(block != NULL, "a block of pinshim_alloc()");
	for (int i = 0; i < 2; i++) {
		pid = fork();
		if (pid == 0)
			_exit(0);
		waitpid(pid, &status, 0);
		check(status == 0, "child %d ends with 0 (%#x)", i, (unsigned)status);
	}
	pinshim_free(block);
	DO(cudaFreeHost(first));
}

/* Threads that allocate, copy and free at once; the data tell. */
static void *worker(void *argument)
{
	const int seed = (int)(intptr_t)argument;
	char *back = malloc(MIB);
	fake_cu_stream stream = NULL;
	void *device = NULL;
	long bad = 0;

	bad += cudaStreamCreateWithFlags(&stream, 1);
	bad += cudaMalloc(&device, MIB);
	for (int i = 0; i < 60; i++) {
		const size_t bytes = i % 20 == 7 ? MIB : (size_t)4096 << i % 5;
		void *block = NULL;

		bad += cudaHostAlloc(&block, bytes, 0);
		fill_all(block, bytes, seed + i);
		bad += cudaMemcpyAsync(device, block, bytes, FAKE_HOST_TO_DEVICE, stream);
		bad += cudaFreeHost(block);
		bad += cudaStreamSynchronize(stream);
		bad += cudaMemcpy(back, device, bytes, FAKE_DEVICE_TO_HOST);
		bad += !holds(back, bytes, seed + i);
	}
	free(back);
	return (void *)bad;
}

static void threads(void)
{
	pthread_t thread[4];
	long bad = 0;

	for (intptr_t i = 0; i < 4; i++)
		check(!pthread_create(&thread[i], NULL, worker, (void *)(i * 50)), "a thread");
	for (int i = 0; i < 4; i++) {
		void *result;

		pthread_join(thread[i], &result);
		bad += (long)result;
	}
	check(bad == 0, "four threads: %ld calls or copies went wrong", bad);
}

static const struct cases cases[] = {
	{ "capturing", capturing },
	{ "child", child },
	{ "copied", copied },
	{ "fallback", fallback },
	{ "foreign", foreign },
	{ "refused", refused },
	{ "register_fails", register_fails },
	{ "shared", shared },
	{ "threads", threads },
	{ "unregister_fails", unregister_fails },
};

int main(int count, char **argument)
{
	return run_named(cases, sizeof(cases) / sizeof(cases[0]), count, argument);
}
