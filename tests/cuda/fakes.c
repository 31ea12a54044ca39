/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fakes as programs that are not linked with them see them: by dlopen and dlsym, by
 * cuGetProcAddress, and two copies of the runtime at a time. Usage: fakes DIRECTORY
 */
#include "../fakes/fake_cuda.h"
#include "../preload/check.h"

#define IS(code, call) check((call) == (code), "%s is %d", #call, (int)(code))

static const char *driver_path;

static void *address(int version, const char *name, int *status)
{
	__typeof__(cuGetProcAddress_v2) *get = fake_cuda_find(driver_path, "cuGetProcAddress_v2");
	void *function = &function;

	*status = 7;
	check(!get(name, &function, version, 0, status), "%s (%d): success", name, version);
	return function;
}

/* By name and version, before cuInit, as cuda-hooks.md 1.2 lists them. */
static void addresses(void)
{
	static const struct {
		const char *name;
		int version;
		const char *symbol; /* NULL: too low a version */
	} expected[] = {
		{ "cuMemAllocHost", 2000, "cuMemAllocHost" },
		{ "cuMemAllocHost", 3010, "cuMemAllocHost" },
		{ "cuMemAllocHost", 3020, "cuMemAllocHost_v2" },
		{ "cuMemAllocHost", 13000, "cuMemAllocHost_v2" },
		{ "cuMemAllocHost", 1000, NULL },
		{ "cuMemHostGetDevicePointer", 2020, "cuMemHostGetDevicePointer" },
		{ "cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2" },
		{ "cuMemHostRegister", 4000, "cuMemHostRegister" },
		{ "cuMemHostRegister", 6050, "cuMemHostRegister_v2" },
		{ "cuMemHostRegister", 2000, NULL },
		{ "cuMemHostAlloc", 2020, "cuMemHostAlloc" },
		{ "cuMemFreeHost", 2000, "cuMemFreeHost" },
		{ "cuMemHostGetFlags", 2030, "cuMemHostGetFlags" },
		{ "cuMemHostUnregister", 4000, "cuMemHostUnregister" },
		{ "cuPointerGetAttribute", 4000, "cuPointerGetAttribute" },
		{ "cuPointerGetAttributes", 7000, "cuPointerGetAttributes" },
		{ "cuGetProcAddress", 11030, "cuGetProcAddress" },
		{ "cuGetProcAddress", 12000, "cuGetProcAddress_v2" },
		{ "cuCtxDestroy", 13000, "cuCtxDestroy_v2" },
	};
	__typeof__(cuGetProcAddress) *get4 = fake_cuda_find(driver_path, "cuGetProcAddress");
	__typeof__(cuGetProcAddress_v2) *get5 = fake_cuda_find(driver_path, "cuGetProcAddress_v2");
	void *function;
	int status;

	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		const char *symbol = expected[i].symbol;

		function = address(expected[i].version, expected[i].name, &status);
		check(function == (symbol ? fake_cuda_find(driver_path, symbol) : NULL) &&
			      status == (symbol ? 0 : 2),
		      "%s (%d): is %s", expected[i].name, expected[i].version,
		      symbol ? symbol : "too new for it");
	}
	function = address(0, "", &status);
	check(!function && status == 1, "the empty name is not found, and no error");
	function = address(13000, "cuNothing", &status);
	check(!function && status == 1, "an unknown name is not found");
	IS(0, get5("cuInit", &function, 2000, 0, NULL));
	IS(1, get5("cuInit", &function, 99999, 0, NULL));
	IS(1, get5(NULL, &function, 13000, 0, NULL));
	IS(1, get5("cuInit", NULL, 13000, 0, NULL));
	IS(1, get5("cuInit", &function, 13000, 9, NULL));
	function = &status;
	IS(500, get4("cuNothing", &function, 13000, 0));
	IS(500, get4("cuMemHostAlloc", &function, 2000, 0));
	check(function == &status, "four arguments: what is not found is left alone");
	IS(0, get4("cuMemAllocHost", &function, 2000, 0));
	check(function == fake_cuda_find(driver_path, "cuMemAllocHost"), "four arguments: found");
}

static void two_copies(const char *first, const char *second)
{
	__typeof__(cudaHostUnregister) *unregister = fake_cuda_find(first, "cudaHostUnregister");
	__typeof__(cudaGetLastError) *last = fake_cuda_find(first, "cudaGetLastError");
	__typeof__(cudaGetLastError) *other_last = fake_cuda_find(second, "cudaGetLastError");
	__typeof__(cudaHostAlloc) *alloc = fake_cuda_find(first, "cudaHostAlloc");
	__typeof__(cudaFreeHost) *other_free = fake_cuda_find(second, "cudaFreeHost");
	void *pointer;

	check(last && other_last && last != other_last, "there are two copies");
	IS(1, unregister(NULL));
	IS(0, other_last());
	IS(1, last());
	IS(0, alloc(&pointer, 100, 0));
	check(!other_free(pointer), "what one allocates the other can free");
	check(!dlsym(RTLD_DEFAULT, "cudaHostAlloc"), "neither is in the global scope");
	check(dlvsym(dlopen(first, RTLD_NOW), "cudaHostAlloc", "libcudart.so.13") == (void *)alloc,
	      "its symbols have the version libcudart.so.13");
}

int main(int count, char **argument)
{
	char driver[300], runtime[300], copy[300];

	if (count != 2)
		return 2;
	snprintf(driver, sizeof(driver), "%s/libcuda.so.1", argument[1]);
	snprintf(runtime, sizeof(runtime), "%s/libcudart.so.13", argument[1]);
	snprintf(copy, sizeof(copy), "%s/copy/libcudart-1a2b3c4d.so.13", argument[1]);
	driver_path = driver;
	addresses();
	two_copies(runtime, copy);
	return check_end();
}
