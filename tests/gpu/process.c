/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the life of a process does to pinned memory: children, ends, and the ways into CUDA. Each group
 * is a process of its own, which must end by itself and with 0.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"

#define SIZE (16 * MIB)

static char *block(void)
{
	void *pointer = NULL;

	code("cudaHostAlloc", 0, cudaHostAlloc(&pointer, SIZE, 0));
	if (!pointer)
		exit(1);
	return memset(pointer, 'p', SIZE);
}

static void in_child(const char *question, void (*go)(char *), char *pointer)
{
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		go(pointer);
		exit(0);
	}
	if (child > 0)
		waitpid(child, &status, 0);
	text(question, "status 0", "status %#x", (unsigned)status);
}

static void reads(char *pointer)
{
	if (pointer[0] != 'p' || pointer[SIZE - 1] != 'p')
		_exit(1);
}

static void writes(char *pointer)
{
	memset(pointer, 'c', SIZE);
	free(malloc(MIB));
}

static void nothing(char *pointer)
{
	(void)pointer;
}

static void execs(char *pointer)
{
	(void)pointer;
	execl("/bin/true", "true", (char *)NULL);
	_exit(1);
}

static void fork_children(void)
{
	char *pointer = block(), *back = malloc(SIZE);
	void *device = NULL;

	in_child("a child that ends", nothing, pointer);
	in_child("a child that calls exec", execs, pointer);
	/* Children share what CUDA allocates: nvidia_mmap_helper() of NVIDIA's open kernel modules. */
	in_child("a child that reads the block", reads, pointer);
	in_child("a child that writes to it", writes, pointer);
	text("the parent's block", "has changed", "%s",
	     pointer[0] == 'p' && pointer[SIZE - 1] == 'p' ? "is as before" : "has changed");
	code("cudaMalloc", 0, cudaMalloc(&device, SIZE));
	memset(pointer, 'q', SIZE);
	code("cudaMemcpy, to the device", 0,
	     cudaMemcpy(device, pointer, SIZE, FAKE_HOST_TO_DEVICE));
	code("cudaMemcpy, back", 0, cudaMemcpy(back, device, SIZE, FAKE_DEVICE_TO_HOST));
	text("what the device got after fork", "right", "%s",
	     back[0] == 'q' && !memcmp(back, pointer, SIZE) ? "right" : "wrong");
	code("cudaFreeHost", 0, cudaFreeHost(pointer));
	free(back);
}

static void exits(void)
{
	block();
	exit(0);
}

static void exits_at_once(void)
{
	block();
	_exit(0);
}

static void exits_registered(void)
{
	code("cudaHostRegister", 0, cudaHostRegister(pages(16), 16 * PAGE, 0));
	exit(0);
}

static void exits_after_reset(void)
{
	block();
	code("cudaDeviceReset", 0, cudaDeviceReset());
	exit(0);
}

static void *frees_and_allocates(void *unused)
{
	for (;;) {
		void *pointer = NULL;

		if (cudaMallocHost(&pointer, MIB) || cudaFreeHost(pointer))
			return unused;
	}
}

static void exits_under_threads(void)
{
	pthread_t thread;

	code("cudaFree(NULL)", 0, cudaFree(NULL));
	for (int i = 0; i < 4; i++)
		pthread_create(&thread, NULL, frees_and_allocates, NULL);
	usleep(50000);
	exit(0);
}

static void exit_handler(void)
{
	void *pointer = NULL;

	code("cudaMallocHost, in an exit handler", OPEN, cudaMallocHost(&pointer, MIB));
	code("cudaFreeHost, in an exit handler", OPEN, cudaFreeHost(pointer));
}

/* CUDA may be gone by then. */
static void allocates_at_exit(void)
{
	atexit(exit_handler);
	block();
	exit(0);
}

/* The ways in: what is counted where is in the report. */
static void way_runtime(void)
{
	code("cudaFreeHost", 0, cudaFreeHost(block()));
}

static void driver_context(void)
{
	ps_cu_context context = NULL;

	code("cuInit", 0, DRIVER(cuInit)(0));
	code("cuDevicePrimaryCtxRetain", 0, DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
	code("cuCtxSetCurrent", 0, DRIVER(cuCtxSetCurrent)(context));
}

static void way_driver(void)
{
	void *pointer = NULL;

	driver_context();
	code("cuMemHostAlloc", 0, cuMemHostAlloc(&pointer, SIZE, 0));
	code("cuMemFreeHost", 0, cuMemFreeHost(pointer));
}

static void way_dlsym(void)
{
	void *pointer = NULL;

	driver_context();
	code("cuMemHostAlloc", 0, DRIVER(cuMemHostAlloc)(&pointer, SIZE, 0));
	code("cuMemFreeHost", 0, DRIVER(cuMemFreeHost)(pointer));
}

static void way_address(void)
{
	__typeof__(cuMemHostAlloc) *allocate = NULL;
	__typeof__(cuMemFreeHost) *release = NULL;
	void *pointer = NULL;
	int status;

	driver_context();
	DRIVER(cuGetProcAddress_v2)("cuMemHostAlloc", (void **)&allocate, 12000, 0, &status);
	DRIVER(cuGetProcAddress_v2)("cuMemFreeHost", (void **)&release, 12000, 0, &status);
	code("cuMemHostAlloc", 0, allocate(&pointer, SIZE, 0));
	code("cuMemFreeHost", 0, release(pointer));
}

int main(int arguments, char **argument)
{
	static const struct group groups[] = {
		{ "fork_children", fork_children },
		{ "exits", exits },
		{ "exits_at_once", exits_at_once },
		{ "exits_registered", exits_registered },
		{ "exits_after_reset", exits_after_reset },
		{ "exits_under_threads", exits_under_threads },
		{ "allocates_at_exit", allocates_at_exit },
		{ "way_runtime", way_runtime },
		{ "way_driver", way_driver },
		{ "way_dlsym", way_dlsym },
		{ "way_address", way_address },
	};

	return run_group(groups, COUNT(groups), arguments, argument);
}
