/* SPDX-License-Identifier: BSD-2-Clause */
/* Host memory: allocated, registered, and asked about. cuda-hooks.md 2.4, row by row. */
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

/* Bytes that one registration must stay below (open-gpu-kernel-modules#1234). */
#define LIMIT ((size_t)512 << 30)

/* Size 0 succeeds and gives nothing. */
static int allocate(void **pointer, size_t size, unsigned flags)
{
	struct range range = {
		.size = size,
		.extent = whole_pages(size),
		.kind = RANGE_ALLOCATED,
		.flags = flags,
		.owner = current_context(),
	};
	struct range alias = range;

	if (!pointer || (flags & ~7u))
		return PS_CUDA_INVALID_VALUE;
	if (!size) {
		*pointer = NULL;
		return 0;
	}
	range.memory = pages_new(size, PROT_READ | PROT_WRITE);
	if (!range.memory)
		return PS_CUDA_MEMORY_ALLOCATION;
	range.base = range.device_pointer = (uintptr_t)range.memory;
	/* "separate, disjoint host and device addresses" (cuPointerGetAttribute) */
	if (flags & PS_HOST_ALLOC_WRITE_COMBINED) {
		alias.kind = RANGE_ALIAS;
		alias.memory = range.memory;
		alias.base = alias.device_pointer = (uintptr_t)pages_new(size, PROT_NONE);
		if (!alias.base || !range_add(&alias))
			goto no_memory;
		range.device_pointer = alias.base;
	}
	if (!range_add(&range))
		goto no_memory;
	*pointer = range.memory;
	return 0;
no_memory: /* the alias is lost; so is the process */
	munmap(range.memory, range.extent);
	return PS_CUDA_MEMORY_ALLOCATION;
}

/* As the real one it waits for the device. */
static int release(void *pointer)
{
	struct range *found, range;

	if (!pointer)
		return 0;
	found = range_find((uintptr_t)pointer);
	if (!found || found->kind != RANGE_ALLOCATED || found->base != (uintptr_t)pointer)
		return PS_CUDA_INVALID_VALUE;
	finish_everything();
	range_is_mapped(found, "cuMemFreeHost");
	range = *found;
	range_remove(found);
	munmap(range.memory, range.extent);
	if (range.device_pointer != range.base) {
		range_remove(range_find(range.device_pointer));
		munmap((void *)range.device_pointer, range.extent);
	}
	return 0;
}

/*
 * Any alignment; disjoint byte ranges may share a page. Memory that is not there, or is read-only
 * without the flag, cannot be pinned: 1.
 */
static int register_range(void *pointer, size_t size, unsigned flags)
{
	uintptr_t base = (uintptr_t)pointer, from = base & ~(uintptr_t)4095;
	bool read_only = flags & PS_HOST_REGISTER_READ_ONLY;

	if (!pointer || !size || (flags & ~15u) || base + size < base)
		return PS_CUDA_INVALID_VALUE;
	if (flags & PS_HOST_REGISTER_IO_MEMORY)
		return geteuid() ? PS_CUDA_NOT_PERMITTED : PS_CUDA_NOT_SUPPORTED;
	if (range_overlap(base, size))
		return PS_CUDA_ALREADY_REGISTERED;
	if (size >= LIMIT)
		return PS_CUDA_MEMORY_ALLOCATION;
	if (!is_mapped(base, size))
		return PS_CUDA_INVALID_VALUE;
	if (madvise((void *)from, base + size - from,
		    read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE))
		return PS_CUDA_INVALID_VALUE;
	return range_add(&(struct range){
		       .base = base,
		       .size = size,
		       .extent = size,
		       .kind = RANGE_REGISTERED,
		       .flags = flags,
		       .owner = current_context(),
		       .memory = pointer,
		       .device_pointer = base,
	       })
		       ? 0
		       : PS_CUDA_MEMORY_ALLOCATION;
}

static int unregister(void *pointer)
{
	struct range *range = pointer ? range_find((uintptr_t)pointer) : NULL;

	if (!pointer)
		return PS_CUDA_INVALID_VALUE;
	if (!range)
		return PS_CUDA_NOT_REGISTERED;
	/* inside a registration, or cuMemHostAlloc's */
	if (range->kind != RANGE_REGISTERED || range->base != (uintptr_t)pointer)
		return PS_CUDA_INVALID_VALUE;
	finish_everything();
	range_is_mapped(range, "cuMemHostUnregister");
	range_remove(range);
	return 0;
}

ps_cu_result cuMemAllocHost(void **pointer, unsigned size)
{
	static struct call call = { .name = "cuMemAllocHost" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result)
		result = allocate(pointer, size, 0);
	return leave(&call, result, result ? 0 : (uintptr_t)*pointer, size, 0);
}

ps_cu_result cuMemAllocHost_v2(void **pointer, size_t size)
{
	static struct call call = { .name = "cuMemAllocHost_v2" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result)
		result = allocate(pointer, size, 0);
	return leave(&call, result, result ? 0 : (uintptr_t)*pointer, size, 0);
}

ps_cu_result cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
	static struct call call = { .name = "cuMemHostAlloc" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result)
		result = allocate(pointer, size, flags);
	return leave(&call, result, result ? 0 : (uintptr_t)*pointer, size, flags);
}

ps_cu_result cuMemFreeHost(void *pointer)
{
	static struct call call = { .name = "cuMemFreeHost" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result)
		result = release(pointer);
	return leave(&call, result, (uintptr_t)pointer, 0, 0);
}

ps_cu_result cuMemHostRegister(void *pointer, size_t size, unsigned flags)
{
	static struct call call = { .name = "cuMemHostRegister" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result)
		result = register_range(pointer, size, flags);
	return leave(&call, result, (uintptr_t)pointer, size, flags);
}

ps_cu_result cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags)
{
	static struct call call = { .name = "cuMemHostRegister_v2" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result)
		result = register_range(pointer, size, flags);
	return leave(&call, result, (uintptr_t)pointer, size, flags);
}

ps_cu_result cuMemHostUnregister(void *pointer)
{
	static struct call call = { .name = "cuMemHostUnregister" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result)
		result = unregister(pointer);
	return leave(&call, result, (uintptr_t)pointer, 0, 0);
}

static bool is_host(const struct range *range)
{
	return range && (range->kind == RANGE_ALLOCATED || range->kind == RANGE_REGISTERED);
}

static int device_pointer(ps_cu_deviceptr *out, const void *pointer, unsigned flags)
{
	struct range *range = range_find((uintptr_t)pointer);

	if (flags || !is_host(range) || !range_is_mapped(range, "cuMemHostGetDevicePointer"))
		return PS_CUDA_INVALID_VALUE;
	*out = range->device_pointer + ((uintptr_t)pointer - range->base);
	return 0;
}

/* Of the time of 32-bit device pointers: writes four bytes. */
ps_cu_result cuMemHostGetDevicePointer(unsigned *out, void *pointer, unsigned flags)
{
	static struct call call = { .name = "cuMemHostGetDevicePointer" };
	int result = enter(&call, NEEDS_CONTEXT);
	ps_cu_deviceptr wide = 0;

	if (!result)
		result = out ? device_pointer(&wide, pointer, flags) : PS_CUDA_INVALID_VALUE;
	if (!result)
		*out = (unsigned)wide;
	return leave(&call, result, (uintptr_t)pointer, 0, flags);
}

ps_cu_result cuMemHostGetDevicePointer_v2(ps_cu_deviceptr *out, void *pointer, unsigned flags)
{
	static struct call call = { .name = "cuMemHostGetDevicePointer_v2" };
	int result = enter(&call, NEEDS_CONTEXT);

	if (!result)
		result = out ? device_pointer(out, pointer, flags) : PS_CUDA_INVALID_VALUE;
	return leave(&call, result, (uintptr_t)pointer, 0, flags);
}

ps_cu_result cuMemHostGetFlags(unsigned *flags, void *pointer)
{
	static struct call call = { .name = "cuMemHostGetFlags" };
	int result = enter(&call, NEEDS_CONTEXT);
	struct range *range;

	if (!result) {
		range = range_find((uintptr_t)pointer);
		if (!flags || !range || range->kind != RANGE_ALLOCATED)
			result = PS_CUDA_INVALID_VALUE;
		else
			*flags = range->flags | PS_HOST_ALLOC_MAPPED; /* implied by UVA */
	}
	return leave(&call, result, (uintptr_t)pointer, 0, 0);
}

/* CU_POINTER_ATTRIBUTE_* */
enum {
	CONTEXT = 1,
	MEMORY_TYPE = 2,
	DEVICE_POINTER = 3,
	HOST_POINTER = 4,
	SYNC_MEMOPS = 6,
	BUFFER_ID = 7,
	IS_MANAGED = 8,
	DEVICE_ORDINAL = 9,
	IS_LEGACY_CUDA_IPC_CAPABLE = 10,
	RANGE_START_ADDR = 11,
	RANGE_SIZE = 12,
	MAPPED = 13,
};

/* Without a range, the value that cuPointerGetAttributes gives. */
static int attribute(void *data, int which, const struct range *range, uintptr_t pointer)
{
	uintptr_t offset = range ? pointer - range->base : 0;
	bool device = range && range->kind == RANGE_DEVICE;

	if (!data)
		return PS_CUDA_INVALID_VALUE;
	switch (which) {
	case CONTEXT:
		*(void **)data = range ? range->owner : NULL;
		return 0;
	case MEMORY_TYPE:
		*(unsigned *)data = !range ? 0 : device ? PS_MEMORY_DEVICE : PS_MEMORY_HOST;
		return 0;
	case DEVICE_POINTER:
		*(ps_cu_deviceptr *)data = range ? range->device_pointer + offset : 0;
		return 0;
	case HOST_POINTER:
		if (device)
			return PS_CUDA_INVALID_VALUE;
		*(void **)data = range ? range->memory + offset : NULL;
		return 0;
	case BUFFER_ID:
		*(unsigned long long *)data = range ? range->id : 0;
		return 0;
	case DEVICE_ORDINAL:
		*(int *)data = range ? range->owner->device : -2;
		return 0;
	case RANGE_START_ADDR:
		*(ps_cu_deviceptr *)data = range ? range->device_pointer : 0;
		return 0;
	case RANGE_SIZE:
		*(size_t *)data = range ? range->size : 0;
		return 0;
	case SYNC_MEMOPS:
	case IS_MANAGED:
	case IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)data = 0;
		return 0;
	case MAPPED:
		*(int *)data = range != NULL;
		return 0;
	default:
		return PS_CUDA_INVALID_VALUE;
	}
}

ps_cu_result cuPointerGetAttribute(void *data, int which, ps_cu_deviceptr pointer)
{
	static struct call call = { .name = "cuPointerGetAttribute" };
	int result = enter(&call, 0);

	if (!result) {
		const struct range *range = range_find(pointer);

		result = range ? attribute(data, which, range, pointer) : PS_CUDA_INVALID_VALUE;
	}
	return leave(&call, result, pointer, 0, (unsigned)which);
}

ps_cu_result cuPointerGetAttributes(unsigned count, int *which, void **data,
				    ps_cu_deviceptr pointer)
{
	static struct call call = { .name = "cuPointerGetAttributes" };
	int result = enter(&call, 0);

	if (!result && (!count || !which || !data))
		result = PS_CUDA_INVALID_VALUE;
	for (unsigned i = 0; !result && i < count; i++) {
		const struct range *range = range_find(pointer);

		/* device memory has no host pointer: NULL rather than an error here */
		if (which[i] == HOST_POINTER && range && range->kind == RANGE_DEVICE)
			range = NULL;
		result = attribute(data[i], which[i], range, pointer);
	}
	return leave(&call, result, pointer, 0, count);
}
