/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How PyTorch and DeepSpeed pin: cudaHostAlloc, or the program's own block and cudaHostRegister. Whether
 * malloc serves the block or not, the driver knows exactly the range that was registered.
 * Usage: torch_ways_rt CASES. The library need not be there.
 */
#include "../../interpose/pinshim.h"
#include "fakes.h"
#include "semantics.h"

#define MIB ((size_t)1 << 20)

static fake_cu_stream stream;
static char *device, *back;

static void begin(void)
{
	DO(cudaStreamCreateWithFlags(&stream, 1));
	DO(cudaMalloc((void **)&device, 20 * MIB));
	back = calloc(20, MIB);
}

static bool is_pinned(const void *block)
{
	struct ps_pointer_attributes got = { .type = 77 };

	return !cudaPointerGetAttributes(&got, block) && got.type == PS_MEMORY_HOST;
}

/* What the device got of a copy whose source was changed as soon as the call was back. */
static int seed_copied(char *block, size_t bytes)
{
	fill_all(block, bytes, 1);
	DO(cudaMemcpyAsync(device, block, bytes, FAKE_HOST_TO_DEVICE, stream));
	fill_all(block, bytes, 2);
	DO(cudaStreamSynchronize(stream));
	DO(cudaMemcpy(back, device, bytes, FAKE_DEVICE_TO_HOST));
	return holds(back, bytes, 1) ? 1 : holds(back, bytes, 2) ? 2 : 0;
}

/* A block is registered, and its neighbours, of which the last lies behind it, are not. */
static void look(char *block, size_t bytes, char **neighbour)
{
	check(FAKE_CUDA(fake_cuda_is_registered)(block, bytes), "the driver knows the block");
	check(FAKE_CUDA(fake_cuda_registrations)() == 1 &&
		      FAKE_CUDA(fake_cuda_registered_bytes)() == bytes,
	      "exactly that, and nothing else");
	check(is_pinned(block) && is_pinned(block + bytes - 1), "pinned, says CUDA");
	check(seed_copied(block, bytes) == 2, "copies from it are asynchronous");
	for (int i = 0; i < 2; i++) {
		check(!is_pinned(neighbour[i]), "neighbour %d is not pinned, says CUDA", i);
		check(seed_copied(neighbour[i], bytes) == 1, "neighbour %d is staged", i);
	}
	if (pinshim_present())
		check(pinshim_is_pinned(block, bytes) == 1, "published");
	IS(712, cudaHostRegister(block, bytes, 0));
	IS(712, cudaHostRegister(block + bytes / 2, 1, 0));
	IS(1, cudaHostUnregister(block + bytes / 2));
	IS(1, cudaFreeHost(block));
	cudaGetLastError();
}

static void let_go(char *block, size_t bytes)
{
	DO(cudaHostUnregister(block));
	check(!FAKE_CUDA(fake_cuda_registrations)(), "the driver let go of it");
	check(!is_pinned(block), "no longer pinned, says CUDA");
	check(seed_copied(block, bytes) == 1, "copies from it are staged");
	IS(713, cudaHostUnregister(block));
	cudaGetLastError();
}

/* csrc/aio/py_lib/deepspeed_pin_tensor.cpp, with the registration of DeepSpeed#8283. */
static void deepspeed_block(size_t bytes)
{
	void *block[3] = { NULL };
	char *neighbour[2];

	for (int i = 0; i < 3; i++)
		check(!posix_memalign(&block[i], PAGE, bytes), "block %d", i);
	neighbour[0] = block[0];
	neighbour[1] = block[2];
	check(!mlock(block[1], bytes), "mlock");
	DO(cudaHostRegister(block[1], bytes, 0));
	look(block[1], bytes, neighbour);
	let_go(block[1], bytes);
	check(!munlock(block[1], bytes), "munlock");
	for (int i = 0; i < 3; i++)
		free(block[i]);
}

/* CachingHostAllocator.cpp with pinned_use_cuda_host_register. */
static void torch_block(size_t bytes)
{
	char *block[3], *neighbour[2];

	for (int i = 0; i < 3; i++)
		block[i] = malloc(bytes);
	neighbour[0] = block[0];
	neighbour[1] = block[2];
	for (size_t at = 0; at < bytes; at += PAGE)
		block[1][at] = 0;
	DO(cudaHostRegister(block[1], bytes, 0));
	look(block[1], bytes, neighbour);
	let_go(block[1], bytes);
	for (int i = 0; i < 3; i++)
		free(block[i]);
}

static void deepspeed(void)
{
	begin();
	for (int i = 0; i < 2; i++) {
		deepspeed_block(MIB);
		deepspeed_block(20 * MIB);
	}
	check(!FAKE_CUDA(fake_cuda_faults)(), "no faults");
}

static void torch(void)
{
	begin();
	for (int i = 0; i < 2; i++) {
		torch_block(MIB);
		torch_block(100000);
		torch_block(20 * MIB);
	}
	check(!FAKE_CUDA(fake_cuda_faults)(), "no faults");
}

/* The default: cudaHostAlloc, powers of two, freed by empty_cache(). */
static void caching(void)
{
	void *block[8];

	begin();
	for (int i = 0; i < 8; i++) {
		DO(cudaHostAlloc(&block[i], (size_t)4096 << i, 0));
		check(is_pinned(block[i]), "is_pinned()");
		check(seed_copied(block[i], (size_t)4096 << i) == 2, "non_blocking");
	}
	for (int i = 0; i < 8; i++)
		DO(cudaFreeHost(block[i]));
}

/* Part of a block, whose other parts are not registered. */
static void part(void)
{
	char *block = malloc(4 * MIB);

	begin();
	DO(cudaHostRegister(block + MIB, MIB, 0));
	DO(cudaHostRegister(block + 3 * MIB, 100, 0));
	check(FAKE_CUDA(fake_cuda_registered_bytes)() == MIB + 100, "just these");
	check(!is_pinned(block) && !is_pinned(block + 2 * MIB) && is_pinned(block + MIB),
	      "the rest is not pinned");
	IS(1, cudaMemcpy(device, block, 4 * MIB, FAKE_HOST_TO_DEVICE));
	DO(cudaHostUnregister(block + MIB));
	DO(cudaHostUnregister(block + 3 * MIB));
	DO(cudaMemcpy(device, block, 4 * MIB, FAKE_HOST_TO_DEVICE));
	free(block);
}

/* Freed first, unregistered never: dropped, and said, once. */
static void freed_first(void)
{
	char *block;

	begin();
	for (int i = 0; i < 3; i++) {
		block = malloc((size_t)(i ? 20 : 1) * MIB);
		DO(cudaHostRegister(block, MIB, 0));
		free(opaque(block));
		check(!FAKE_CUDA(fake_cuda_registrations)(), "dropped");
		IS(713, cudaHostUnregister(block));
	}
	block = malloc(MIB);
	check(!is_pinned(block), "whoever gets the memory next has it unregistered");
	check(seed_copied(block, MIB) == 1, "and staged");
	free(block);
	block = malloc(MIB);
	DO(cudaHostRegister(block + PAGE, PAGE, 0));
	block = realloc(opaque(block), 40 * MIB);
	check(!FAKE_CUDA(fake_cuda_registrations)(), "realloc drops it");
	free(block);
	check(!FAKE_CUDA(fake_cuda_faults)(), "no faults");
}

static const struct cases cases[] = {
	{ "caching", caching }, { "deepspeed", deepspeed }, { "freed_first", freed_first },
	{ "part", part },       { "torch", torch },
};

int main(int count, char **argument)
{
	return run_named(cases, sizeof(cases) / sizeof(cases[0]), count, argument);
}
