/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways that need no link with CUDA. Usage: ways_lookup local | names | addresses |
 * library FILE | deepbind FILE | copies FILE FILE
 */
#include "ways.h"

#define FIND(handle, name) __typeof__(name) *name##_ = (__typeof__(name) *)dlsym(handle, #name)

static void use_runtime(const char *way, void *handle)
{
	FIND(handle, cudaHostAlloc);
	FIND(handle, cudaMallocHost);
	FIND(handle, cudaFreeHost);
	void *block = NULL;

	if (!cudaHostAlloc_ || !cudaMallocHost_ || !cudaFreeHost_)
		_exit(98);
	WAY(way, cudaHostAlloc_(&block, BYTES, 0), cudaFreeHost_(block));
	WAY(way, cudaMallocHost_(&block, BYTES), cudaFreeHost_(block));
}

/* Python's torch and ctypes, vLLM's CudaRTLibrary. */
static void local(void)
{
	use_runtime("dlopen", dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL));
}

static void make_context(void *driver)
{
	FIND(driver, cuInit);
	FIND(driver, cuDevicePrimaryCtxRetain);
	FIND(driver, cuCtxSetCurrent);
	ps_cu_context context = NULL;

	check(cuInit_ && cuDevicePrimaryCtxRetain_ && cuCtxSetCurrent_ && !cuInit_(0) &&
		      !cuDevicePrimaryCtxRetain_(&context, 0) && !cuCtxSetCurrent_(context),
	      "a context");
}

/* XLA's generated trampolines: each function by its exported name. */
static void names(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *block = NULL;
	FIND(driver, cuMemHostAlloc);
	FIND(driver, cuMemAllocHost_v2);
	FIND(driver, cuMemFreeHost);

	if (!cuMemHostAlloc_ || !cuMemAllocHost_v2_ || !cuMemFreeHost_)
		_exit(98);
	make_context(driver);
	WAY("by name", cuMemHostAlloc_(&block, BYTES, PS_HOST_ALLOC_PORTABLE),
	    cuMemFreeHost_(block));
	WAY("by name", cuMemAllocHost_v2_(&block, BYTES), cuMemFreeHost_(block));
}

/* CuPy and NCCL, whose cudart is static: by name and version. */
static void addresses(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *block = NULL;
	FIND(driver, cuGetProcAddress_v2);
	__typeof__(cuMemHostAlloc) *allocate = NULL;
	__typeof__(cuMemAllocHost) *narrow = NULL;
	__typeof__(cuMemAllocHost_v2) *wide = NULL, *narrow_wide;
	__typeof__(cuMemFreeHost) *release = NULL;
	int status = 7;

	if (!cuGetProcAddress_v2_)
		_exit(98);
	make_context(driver);
	DO(cuGetProcAddress_v2_("cuMemHostAlloc", (void **)&allocate, 2020, 0, &status));
	DO(cuGetProcAddress_v2_("cuMemAllocHost", (void **)&narrow, 2000, 0, &status));
	DO(cuGetProcAddress_v2_("cuMemAllocHost", (void **)&wide, 3020, 0, NULL));
	DO(cuGetProcAddress_v2_("cuMemFreeHost", (void **)&release, 2000, 0, &status));
	check(status == 0 && (void *)narrow != (void *)wide, "versions 2000 and 3020 differ");
	if (!allocate || !release || !wide || !narrow)
		_exit(98);
	WAY("cuGetProcAddress", allocate(&block, BYTES, 0), release(block));
	WAY("version 3020", wide(&block, BYTES), release(block));
	/* Version 2000 has a size of 32 bits: what else the register holds must not count. */
	*(void **)&narrow_wide = (void *)narrow;
	WAY("version 2000", narrow_wide(&block, ((size_t)1 << 40) + BYTES), release(block));
}

/* A library that is linked with the runtime. */
static void library(const char *file, int mode)
{
	void *handle = dlopen(file, RTLD_NOW | mode);
	int (*ways_of_library)(void) = NULL;

	if (handle)
		*(void **)&ways_of_library = dlsym(handle, "ways_of_library");
	check(ways_of_library != NULL, "the library is there");
	if (ways_of_library)
		ways_of_library();
}

/* Each copy of the runtime has a last error of its own, the refusals of the heap among them. */
static void copies(const char *first, const char *second)
{
	void *one = dlopen(first, RTLD_NOW | RTLD_LOCAL);
	void *two = dlopen(second, RTLD_NOW | RTLD_LOCAL);
	__typeof__(cudaGetLastError) *last[2] = { dlsym(one, "cudaGetLastError"),
						  dlsym(two, "cudaGetLastError") };
	__typeof__(cudaHostUnregister) *unregister[2] = { dlsym(one, "cudaHostUnregister"),
							  dlsym(two, "cudaHostUnregister") };
	__typeof__(cudaHostAlloc) *allocate[2] = { dlsym(one, "cudaHostAlloc"),
						   dlsym(two, "cudaHostAlloc") };
	__typeof__(cudaFreeHost) *release[2] = { dlsym(one, "cudaFreeHost"),
						 dlsym(two, "cudaFreeHost") };
	void *block = NULL;

	check(last[0] != last[1] && allocate[0] != allocate[1], "there are two copies");
	use_runtime("first", one);
	use_runtime("second", two);
	WAY("freed by the other", allocate[0](&block, BYTES, 0), release[1](block));
	IS(1, unregister[0](NULL));
	IS(0, last[1]());
	IS(1, last[0]());
	IS(0, last[0]());
	/* Refused by PINSHIM_LIMIT, without us by the size. */
	for (int i = 0; i < 2; i++) {
		const size_t much = pinshim_present() ? (size_t)64 << 20 : (size_t)1 << 60;

		IS(2, allocate[i](&block, much, 0));
		IS(0, last[1 - i]());
		IS(2, last[i]());
		IS(0, last[i]());
	}
}

int main(int count, char **argument)
{
	const char *way = count > 1 ? argument[1] : "";

	if (!strcmp(way, "local"))
		local();
	else if (!strcmp(way, "names"))
		names();
	else if (!strcmp(way, "addresses"))
		addresses();
	else if (!strcmp(way, "library") && count == 3)
		library(argument[2], RTLD_LOCAL);
	else if (!strcmp(way, "deepbind") && count == 3)
		library(argument[2], RTLD_LOCAL | RTLD_DEEPBIND);
	else if (!strcmp(way, "copies") && count == 4)
		copies(argument[2], argument[3]);
	else
		return 2;
	return check_end();
}
