/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices, and contexts: primary ones, created ones, and which is current to a thread. A context is
 * never freed, so that a stale handle is recognised.
 */
#include <stdlib.h>

#include "fake.h"

#define DEVICES 2
#define STACK 32

static struct context primaries[DEVICES] = {
	{ .device = 0, .primary = true },
	{ .device = 1, .primary = true },
};
static struct context *created;

static _Thread_local struct {
	struct context *stack[STACK];
	int depth;
} thread;

struct context *current_context(void)
{
	return thread.depth ? thread.stack[thread.depth - 1] : NULL;
}

struct context *primary_context(int device)
{
	return &primaries[device];
}

int check_context(void)
{
	const struct context *context = current_context();

	if (!context)
		return PS_CUDA_INVALID_CONTEXT;
	return context->alive ? 0 : FAKE_CUDA_CONTEXT_IS_DESTROYED;
}

static bool is_device(ps_cu_device device)
{
	return device >= 0 && device < fake_device_count;
}

/* The context of a handle that the program passes: NULL if it is none, or was destroyed. */
static struct context *live_context(ps_cu_context handle, const char *what)
{
	struct context *context = NULL;

	for (int i = 0; i < DEVICES; i++)
		if (handle == &primaries[i])
			return &primaries[i]; /* can be made current before it is retained again */
	for (context = created; context && context != handle; context = context->next)
		;
	if (context && !context->alive) {
		fault("%s of context %p, which was destroyed", what, handle);
		return NULL;
	}
	return context;
}

static void drop(struct context *context)
{
	finish_context(context);
	stream_drop_context(context);
	range_drop_context(context);
	context->alive = false;
}

ps_cu_result cuDeviceGet(ps_cu_device *device, int ordinal)
{
	static struct call call = { .name = "cuDeviceGet" };
	int result = enter(&call, 0);

	if (!result && !device)
		result = PS_CUDA_INVALID_VALUE;
	if (!result && !is_device(ordinal))
		result = FAKE_CUDA_INVALID_DEVICE;
	if (!result)
		*device = ordinal;
	return leave(&call, result, 0, 0, (unsigned)ordinal);
}

ps_cu_result cuDeviceGetCount(int *count)
{
	static struct call call = { .name = "cuDeviceGetCount" };
	int result = enter(&call, 0);

	if (!result && !count)
		result = PS_CUDA_INVALID_VALUE;
	if (!result)
		*count = fake_device_count;
	return leave(&call, result, 0, 0, 0);
}

ps_cu_result cuDeviceGetAttribute(int *value, int attribute, ps_cu_device device)
{
	static struct call call = { .name = "cuDeviceGetAttribute" };
	int result = enter(&call, 0);

	if (!result && !value)
		result = PS_CUDA_INVALID_VALUE;
	if (!result && !is_device(device))
		result = FAKE_CUDA_INVALID_DEVICE;
	/*
	 * CAN_MAP_HOST_MEMORY, UNIFIED_ADDRESSING, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
	 * HOST_REGISTER_SUPPORTED, READ_ONLY_HOST_REGISTER_SUPPORTED
	 */
	if (!result)
		*value = attribute == 19 || attribute == 41 || attribute == 91 || attribute == 99 ||
			 attribute == 113;
	return leave(&call, result, 0, 0, (unsigned)attribute);
}

ps_cu_result cuDevicePrimaryCtxRetain(ps_cu_context *context, ps_cu_device device)
{
	static struct call call = { .name = "cuDevicePrimaryCtxRetain" };
	int result = enter(&call, 0);

	if (!result && !context)
		result = PS_CUDA_INVALID_VALUE;
	if (!result && !is_device(device))
		result = FAKE_CUDA_INVALID_DEVICE;
	if (!result) {
		primaries[device].retained++;
		primaries[device].alive = true;
		*context = &primaries[device];
	}
	return leave(&call, result, 0, 0, (unsigned)device);
}

/* The last release resets; one too many is 201. */
static int release(ps_cu_device device)
{
	if (!is_device(device))
		return FAKE_CUDA_INVALID_DEVICE;
	if (!primaries[device].retained) {
		fault("the primary context of device %d is released but not retained", device);
		return PS_CUDA_INVALID_CONTEXT;
	}
	if (!--primaries[device].retained)
		drop(&primaries[device]);
	return 0;
}

ps_cu_result cuDevicePrimaryCtxRelease(ps_cu_device device)
{
	static struct call call = { .name = "cuDevicePrimaryCtxRelease" };
	int result = enter(&call, 0);

	if (!result)
		result = release(device);
	return leave(&call, result, 0, 0, (unsigned)device);
}

ps_cu_result cuDevicePrimaryCtxRelease_v2(ps_cu_device device)
{
	static struct call call = { .name = "cuDevicePrimaryCtxRelease_v2" };
	int result = enter(&call, 0);

	if (!result)
		result = release(device);
	return leave(&call, result, 0, 0, (unsigned)device);
}

/* References stay: "Resetting the primary context does not release it". */
static int reset(ps_cu_device device)
{
	if (!is_device(device))
		return FAKE_CUDA_INVALID_DEVICE;
	drop(&primaries[device]);
	return 0;
}

ps_cu_result cuDevicePrimaryCtxReset(ps_cu_device device)
{
	static struct call call = { .name = "cuDevicePrimaryCtxReset" };
	int result = enter(&call, 0);

	if (!result)
		result = reset(device);
	return leave(&call, result, 0, 0, (unsigned)device);
}

ps_cu_result cuDevicePrimaryCtxReset_v2(ps_cu_device device)
{
	static struct call call = { .name = "cuDevicePrimaryCtxReset_v2" };
	int result = enter(&call, 0);

	if (!result)
		result = reset(device);
	return leave(&call, result, 0, 0, (unsigned)device);
}

ps_cu_result cuDevicePrimaryCtxGetState(ps_cu_device device, unsigned *flags, int *active)
{
	static struct call call = { .name = "cuDevicePrimaryCtxGetState" };
	int result = enter(&call, 0);

	if (!result && (!flags || !active))
		result = PS_CUDA_INVALID_VALUE;
	if (!result && !is_device(device))
		result = FAKE_CUDA_INVALID_DEVICE;
	if (!result) {
		*flags = 0;
		*active = primaries[device].alive;
	}
	return leave(&call, result, 0, 0, (unsigned)device);
}

static int push(struct context *context)
{
	if (thread.depth == STACK)
		return PS_CUDA_MEMORY_ALLOCATION;
	thread.stack[thread.depth++] = context;
	return 0;
}

static int create(ps_cu_context *out, ps_cu_device device)
{
	struct context *context;
	int result;

	if (!out)
		return PS_CUDA_INVALID_VALUE;
	if (!is_device(device))
		return FAKE_CUDA_INVALID_DEVICE;
	context = calloc(1, sizeof(*context));
	if (!context)
		return PS_CUDA_MEMORY_ALLOCATION;
	result = push(context);
	if (result) {
		free(context);
		return result;
	}
	context->device = device;
	context->alive = true;
	context->next = created;
	created = context;
	*out = context;
	return 0;
}

ps_cu_result cuCtxCreate_v2(ps_cu_context *context, unsigned flags, ps_cu_device device)
{
	static struct call call = { .name = "cuCtxCreate_v2" };
	int result = enter(&call, 0);

	if (!result)
		result = create(context, device);
	return leave(&call, result, result ? 0 : (uintptr_t)*context, 0, flags);
}

/* Leaves it current to other threads, whose calls then get 709. */
static int destroy(ps_cu_context handle)
{
	struct context *context = live_context(handle, "destruction");

	if (!context || context->primary)
		return PS_CUDA_INVALID_CONTEXT;
	drop(context);
	if (current_context() == context)
		thread.depth--;
	return 0;
}

ps_cu_result cuCtxDestroy(ps_cu_context context)
{
	static struct call call = { .name = "cuCtxDestroy" };
	int result = enter(&call, 0);

	if (!result)
		result = destroy(context);
	return leave(&call, result, (uintptr_t)context, 0, 0);
}

ps_cu_result cuCtxDestroy_v2(ps_cu_context context)
{
	static struct call call = { .name = "cuCtxDestroy_v2" };
	int result = enter(&call, 0);

	if (!result)
		result = destroy(context);
	return leave(&call, result, (uintptr_t)context, 0, 0);
}

ps_cu_result cuCtxGetCurrent(ps_cu_context *context)
{
	static struct call call = { .name = "cuCtxGetCurrent" };
	int result = enter(&call, 0);

	if (!result && !context)
		result = PS_CUDA_INVALID_VALUE;
	if (!result)
		*context = current_context();
	return leave(&call, result, 0, 0, 0);
}

/* Replaces the top of the thread's stack; NULL pops it. */
static int set_current(ps_cu_context handle)
{
	struct context *context;

	if (!handle) {
		thread.depth -= thread.depth > 0;
		return 0;
	}
	context = live_context(handle, "use");
	if (!context)
		return PS_CUDA_INVALID_CONTEXT;
	if (!thread.depth)
		return push(context);
	thread.stack[thread.depth - 1] = context;
	return 0;
}

ps_cu_result cuCtxSetCurrent(ps_cu_context context)
{
	static struct call call = { .name = "cuCtxSetCurrent" };
	int result = enter(&call, 0);

	if (!result)
		result = set_current(context);
	return leave(&call, result, (uintptr_t)context, 0, 0);
}

ps_cu_result cuCtxPushCurrent_v2(ps_cu_context handle)
{
	static struct call call = { .name = "cuCtxPushCurrent_v2" };
	int result = enter(&call, 0);

	if (!result) {
		struct context *context = handle ? live_context(handle, "use") : NULL;

		result = context ? push(context) : PS_CUDA_INVALID_CONTEXT;
	}
	return leave(&call, result, (uintptr_t)handle, 0, 0);
}

ps_cu_result cuCtxPopCurrent_v2(ps_cu_context *context)
{
	static struct call call = { .name = "cuCtxPopCurrent_v2" };
	int result = enter(&call, 0);

	if (!result && !thread.depth)
		result = PS_CUDA_INVALID_CONTEXT;
	if (!result) {
		if (context)
			*context = current_context();
		thread.depth--;
	}
	return leave(&call, result, 0, 0, 0);
}

ps_cu_result cuCtxGetDevice(ps_cu_device *device)
{
	static struct call call = { .name = "cuCtxGetDevice" };
	int result = enter(&call, NEEDS_CONTEXT);

	if (!result && !device)
		result = PS_CUDA_INVALID_VALUE;
	if (!result)
		*device = current_context()->device;
	return leave(&call, result, 0, 0, 0);
}

ps_cu_result cuCtxSynchronize(void)
{
	static struct call call = { .name = "cuCtxSynchronize" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result) {
		finish_context(current_context());
		result = copy_error();
	}
	return leave(&call, result, 0, 0, 0);
}
