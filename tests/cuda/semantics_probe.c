/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the runtime returns and writes where there is no driver. Looks every function up, so that it
 * needs no library to be built. Usage: semantics_probe LIBRARY; with no argument: the one it is linked
 * with.
 */
#include "semantics.h"

static void *library;

#define CALL(name) ((__typeof__(name) *)dlsym(library, #name))

/* All but what native serves: allocating, freeing it, registering. */
static void probe(void)
{
	struct ps_pointer_attributes attributes = { .type = 7, .device = 7 };
	void *device = (void *)7, *pointer = (void *)7;
	fake_cu_stream stream = NULL;
	unsigned flags = 7;
	int number = 7;

	GIVES(CALL(cudaRuntimeGetVersion)(&number));
	VALUE("version", number);
	GIVES(CALL(cudaDriverGetVersion)(&number));
	VALUE("version", number);
	GIVES(CALL(cudaGetDeviceCount)(&number));
	GIVES(CALL(cudaGetDevice)(&number));
	GIVES(CALL(cudaSetDevice)(0));
	GIVES(CALL(cudaMalloc)(&device, 100));
	GIVES(CALL(cudaFree)(NULL));
	GIVES(CALL(cudaFreeHost)(NULL));
	GIVES(CALL(cudaFreeHost)(&flags));
	GIVES(CALL(cudaHostAlloc)(&pointer, 100, 99));
	GIVES(CALL(cudaHostAlloc)(&pointer, 0, 0));
	GIVES(CALL(cudaHostAlloc)(&pointer, 100, PS_HOST_ALLOC_WRITE_COMBINED));
	GIVES(CALL(cudaHostAlloc)(NULL, 100, 0));
	GIVES(CALL(cudaMallocHost)(&pointer, 0));
	GIVES(CALL(cudaMallocHost)(NULL, 100));
	GIVES(CALL(cudaHostRegister)(NULL, 100, 0));
	GIVES(CALL(cudaHostRegister)(&number, 0, 0));
	GIVES(CALL(cudaHostRegister)(&number, 4, PS_HOST_REGISTER_READ_ONLY));
	GIVES(CALL(cudaHostUnregister)(NULL));
	GIVES(CALL(cudaHostUnregister)(&number));
	GIVES(CALL(cudaHostGetFlags)(&flags, &number));
	GIVES(CALL(cudaHostGetDevicePointer)(&device, &number, 0));
	GIVES(CALL(cudaPointerGetAttributes)(&attributes, &number));
	GIVES(CALL(cudaPeekAtLastError)());
	GIVES(CALL(cudaGetLastError)());
	GIVES(CALL(cudaGetLastError)());
	GIVES(CALL(cudaMemcpy)(&number, &flags, 4, FAKE_HOST_TO_HOST));
	GIVES(CALL(cudaStreamCreate)(&stream));
	GIVES(CALL(cudaDeviceSynchronize)());
	GIVES(CALL(cudaDeviceReset)());
	GIVES(CALL(cudaGetLastError)());
	VALUE("flags", flags);
	VALUE("number", number);
	VALUE("pointers", device == (void *)7 && pointer == (void *)7);
	VALUE("type", attributes.type);
	say("%s, %s\n", CALL(cudaGetErrorName)(35), CALL(cudaGetErrorString)(712));
}

/* What native serves: the values depend on the backend. */
static void serve(void)
{
	static char memory[8192];
	void *block = NULL;

	if (CALL(cudaHostAlloc)(&block, 100000, 0) == 0) {
		check(is_locked(block, 100000), "cudaHostAlloc: locked");
		fill(block, 100000, 3);
		check(CALL(cudaFreeHost)(block) == 0, "and freed");
	} else {
		check(block == NULL, "cudaHostAlloc is refused");
	}
	if (CALL(cudaMallocHost)(&block, 32 << 20) == 0) {
		check(is_locked(block, 32 << 20), "cudaMallocHost: locked");
		fill(block, 32 << 20, 3);
		check(CALL(cudaFreeHost)(block) == 0, "and freed");
	} else {
		check(block == NULL, "cudaMallocHost is refused");
	}
	if (CALL(cudaHostRegister)(memory, sizeof(memory), 0) == 0) {
		check(is_locked(memory, sizeof(memory)), "cudaHostRegister: locked");
		check(CALL(cudaHostRegister)(memory + 5, 1, 0) == 712, "twice is 712");
		check(CALL(cudaHostUnregister)(memory + 5) == 1, "unregistering the middle is 1");
		check(CALL(cudaHostUnregister)(memory) == 0, "unregistered");
		check(!is_locked(memory, 1), "and unlocked");
	} else {
		check(!is_locked(memory, 1), "cudaHostRegister is refused");
	}
}

int main(int count, char **argument)
{
	if (count != 3)
		return 2;
	library = dlopen(argument[2], RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		return 2;
	if (!strcmp(argument[1], "probe"))
		probe();
	else
		serve();
	return check_end();
}
