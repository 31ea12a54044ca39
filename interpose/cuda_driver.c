/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The CUDA driver: our hooks of its host-memory functions, under every name and version that programs
 * ask for, and what the heap needs of it (driver.h).
 *
 * An exported function is what a program linked with libcuda calls; the hook beside it is what
 * dlsym() and cuGetProcAddress() hand out. Both do the same.
 *
 * Our own calls use the driver and never the runtime, whose error state is the program's. They are
 * made with the thread's capture mode relaxed, so that a stream that is being captured is not
 * disturbed. No lock is owned here.
 */
#include <dlfcn.h>

#include "config.h"
#include "counters.h"
#include "cuda.h"
#include "cuda_hooks.h"
#include "driver.h"
#include "lookup.h"
#include "proc_address.h"

#define PUBLIC __attribute__((visibility("default")))

/* What our own calls need. Filled in once, all or nothing. */
static struct {
	int (*cuCtxGetCurrent)(ps_cu_context *context);
	int (*cuCtxGetDevice)(ps_cu_device *device);
	int (*cuCtxPushCurrent_v2)(ps_cu_context context);
	int (*cuCtxPopCurrent_v2)(ps_cu_context *context);
	int (*cuCtxSynchronize)(void);
	int (*cuDeviceGetAttribute)(int *value, int attribute, ps_cu_device device);
	int (*cuDeviceGetCount)(int *count);
	int (*cuDevicePrimaryCtxGetState)(ps_cu_device device, unsigned *flags, int *active);
	int (*cuDevicePrimaryCtxRetain)(ps_cu_context *context, ps_cu_device device);
	int (*cuDevicePrimaryCtxRelease_v2)(ps_cu_device device);
	int (*cuMemHostRegister_v2)(void *pointer, size_t size, unsigned flags);
	int (*cuMemHostUnregister)(void *pointer);
	int (*cuThreadExchangeStreamCaptureMode)(int *mode);
} driver;

static const struct {
	const char *name;
	void **function;
} wanted[] = {
#define WANTED(name)                                                                               \
	{                                                                                          \
#name, (void **)&driver.name                                                       \
	}
	WANTED(cuCtxGetCurrent),
	WANTED(cuCtxGetDevice),
	WANTED(cuCtxPushCurrent_v2),
	WANTED(cuCtxPopCurrent_v2),
	WANTED(cuCtxSynchronize),
	WANTED(cuDeviceGetAttribute),
	WANTED(cuDeviceGetCount),
	WANTED(cuDevicePrimaryCtxGetState),
	WANTED(cuDevicePrimaryCtxRetain),
	WANTED(cuDevicePrimaryCtxRelease_v2),
	WANTED(cuMemHostRegister_v2),
	WANTED(cuMemHostUnregister),
	WANTED(cuThreadExchangeStreamCaptureMode),
#undef WANTED
};

/* The context that the heap's memory was registered in last; unregistering needs one. */
static _Atomic(ps_cu_context) registered_in;

/* All in which some was, and which did not end: one that ends takes what is registered in it along. */
#define HOLDERS 32
static _Atomic(ps_cu_context) holders[HOLDERS];
/* There were more than there is room for: any may be one. */
static atomic_bool more_holders;

ps_cu_context ps_cuda_context(void)
{
	ps_cu_context context = NULL;

	if (ps_driver == NULL || driver.cuCtxGetCurrent(&context) != PS_CUDA_SUCCESS)
		return NULL;
	return context;
}

static void note_holder(ps_cu_context context)
{
	for (unsigned i = 0; i < HOLDERS; i++) {
		ps_cu_context holder = atomic_load_explicit(&holders[i], memory_order_relaxed);

		if (holder == context ||
		    (holder == NULL &&
		     (atomic_compare_exchange_strong(&holders[i], &holder, context) ||
		      holder == context)))
			return;
	}
	atomic_store(&more_holders, true);
}

bool ps_cuda_holds(ps_cu_context context)
{
	if (context == NULL || atomic_load(&more_holders))
		return true;
	for (unsigned i = 0; i < HOLDERS; i++)
		if (atomic_load(&holders[i]) == context)
			return true;
	return false;
}

static void forget(_Atomic(ps_cu_context) *place, ps_cu_context context)
{
	atomic_compare_exchange_strong(place, &context, NULL);
}

void ps_cuda_forget_context(ps_cu_context context)
{
	forget(&registered_in, context);
	for (unsigned i = 0; i < HOLDERS; i++)
		forget(&holders[i], context);
}

/* Relaxes this thread's capture mode; returns what it was. */
static int relax(void)
{
	int mode = PS_CAPTURE_RELAXED;

	(void)driver.cuThreadExchangeStreamCaptureMode(&mode);
	return mode;
}

static void restore(int mode)
{
	(void)driver.cuThreadExchangeStreamCaptureMode(&mode);
}

static bool ready(void)
{
	return ps_cuda_context() != NULL;
}

static int register_memory(void *address, size_t length)
{
	const int mode = relax();
	int r = driver.cuMemHostRegister_v2(address, length,
					    PS_HOST_REGISTER_PORTABLE | PS_HOST_REGISTER_MAPPED);

	restore(mode);
	/* The memory is ours alone: a registration that is there is one that outlived what we knew. */
	if (r == PS_CUDA_ALREADY_REGISTERED)
		r = PS_CUDA_SUCCESS;
	if (r == PS_CUDA_SUCCESS) {
		const ps_cu_context context = ps_cuda_context();

		atomic_store(&registered_in, context);
		note_holder(context);
	}
	return r;
}

/* A trim may come from a thread that never used CUDA: it borrows the context of the registration. */
static int unregister_memory(void *address)
{
	ps_cu_context borrowed = ready() ? NULL : atomic_load(&registered_in);
	int mode, r;

	if (borrowed != NULL && driver.cuCtxPushCurrent_v2(borrowed) != PS_CUDA_SUCCESS)
		borrowed = NULL;
	mode = relax();
	r = driver.cuMemHostUnregister(address);
	restore(mode);
	/* At exit, and where a context is gone: the driver holds nothing any more. */
	if (r == PS_CUDA_DEINITIALIZED || r == PS_CUDA_CONTEXT_IS_DESTROYED)
		r = PS_CUDA_SUCCESS;
	if (borrowed != NULL)
		(void)driver.cuCtxPopCurrent_v2(&borrowed);
	return r;
}

/* Waits for one device, if it is in use and its context is not the thread's, which has been waited for. */
static int synchronize_device(ps_cu_device device, ps_cu_context current)
{
	ps_cu_context context;
	unsigned flags;
	int active = 0, r;

	if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != PS_CUDA_SUCCESS ||
	    !active)
		return 0;
	if (driver.cuDevicePrimaryCtxRetain(&context, device) != PS_CUDA_SUCCESS)
		return 0;
	r = context == current ? PS_CUDA_SUCCESS : driver.cuCtxPushCurrent_v2(context);
	if (r == PS_CUDA_SUCCESS && context != current) {
		r = driver.cuCtxSynchronize();
		(void)driver.cuCtxPopCurrent_v2(&context);
	}
	(void)driver.cuDevicePrimaryCtxRelease_v2(device);
	return r;
}

static int synchronize(void)
{
	const ps_cu_context current = ps_cuda_context();
	const int mode = relax();
	int count = 0, r = 0;

	/* Who relaxed it before us is capturing, or may be: waiting would end that. */
	if (mode == PS_CAPTURE_RELAXED)
		return PS_CUDA_STREAM_CAPTURE_UNSUPPORTED;
	if (current != NULL)
		r = driver.cuCtxSynchronize();
	if (driver.cuDeviceGetCount(&count) == PS_CUDA_SUCCESS)
		for (int i = 0; i < count && r == 0; i++)
			r = synchronize_device(i, current);
	restore(mode);
	return r;
}

static const struct ps_driver operations = {
	.piece = (size_t)64 << 30, /* a call for 512 GiB fails (vllm#51080) */
	.ready = ready,
	.register_memory = register_memory,
	.unregister_memory = unregister_memory,
	.synchronize = synchronize,
};

bool ps_cuda_find_driver(void)
{
	void *handle;
	bool complete = true;

	if (ps_driver != NULL || ps_driver_forbidden)
		return ps_driver != NULL;
	ps_thread.depth++;
	/* Only if the program has loaded it. */
	handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	for (size_t i = 0; handle != NULL && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *found = ps_dlsym_next(handle, wanted[i].name);

		complete &= found != NULL;
		__atomic_store_n(wanted[i].function, found, __ATOMIC_RELEASE);
	}
	if (handle != NULL && complete)
		__atomic_store_n(&ps_driver, &operations, __ATOMIC_RELEASE);
	ps_thread.depth--;
	return ps_driver != NULL;
}

/*
 * CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM and _HOST_REGISTER_SUPPORTED: without the
 * first the device has another address for what we register than for what CUDA allocates.
 */
#define CAN_USE_HOST_POINTER 91
#define HOST_REGISTER_SUPPORTED 99

bool ps_cuda_takes_registered(void)
{
	/* Per device, 0 unknown, 1 yes, 2 no. */
	static atomic_uchar known[64];
	ps_cu_device device = 0;
	int same = 0, supported = 0;

	if (driver.cuCtxGetDevice(&device) != PS_CUDA_SUCCESS || device < 0 || device >= 64)
		return false;
	if (atomic_load(&known[device]) == 0) {
		(void)driver.cuDeviceGetAttribute(&same, CAN_USE_HOST_POINTER, device);
		(void)driver.cuDeviceGetAttribute(&supported, HOST_REGISTER_SUPPORTED, device);
		atomic_store(&known[device], same && supported ? 1 : 2);
	}
	return atomic_load(&known[device]) == 1;
}

/* Where originals of the functions below are kept; cuda_hooks.c lists them. */
void *ps_cu_original[PS_CU_FUNCTIONS];

/* The real function: what a look-up found, or the next definition where the program is linked to it. */
static void *original(enum ps_cu_function function)
{
	void *found = __atomic_load_n(&ps_cu_original[function], __ATOMIC_ACQUIRE);

	if (found == NULL) {
		found = ps_cuda_definition(ps_cu_name[function], false);
		__atomic_store_n(&ps_cu_original[function], found, __ATOMIC_RELEASE);
	}
	return found;
}

/* The driver's functions need a context and make none: without one the real function says so. */
static int prepare(void *self)
{
	(void)self;
	if (!ps_cuda_find_driver())
		return PS_CUDA_NOT_INITIALIZED;
	return ready() ? 0 : PS_CUDA_INVALID_CONTEXT;
}

static int allocate(struct ps_cuda_allocator *how, void **pointer, size_t size, unsigned flags)
{
	how->prepare = prepare;
	how->missing = PS_CUDA_NOT_INITIALIZED;
	return ps_cuda_allocate(how, pointer, size, flags);
}

static int do_cuMemHostAlloc(void **pointer, size_t size, unsigned flags)
{
	struct ps_cuda_allocator how = { .entry = PINSHIM_ENTRY_CU_MEM_HOST_ALLOC };

	*(void **)&how.with_flags = original(PS_CU_MEM_HOST_ALLOC);
	return allocate(&how, pointer, size, flags);
}

static int do_cuMemAllocHost_v2(void **pointer, size_t size)
{
	struct ps_cuda_allocator how = { .entry = PINSHIM_ENTRY_CU_MEM_ALLOC_HOST };

	*(void **)&how.plain = original(PS_CU_MEM_ALLOC_HOST_V2);
	return allocate(&how, pointer, size, 0);
}

static int do_cuMemAllocHost(void **pointer, unsigned size)
{
	struct ps_cuda_allocator how = { .entry = PINSHIM_ENTRY_CU_MEM_ALLOC_HOST };

	*(void **)&how.narrow = original(PS_CU_MEM_ALLOC_HOST);
	return allocate(&how, pointer, size, 0);
}

static int do_cuMemFreeHost(void *pointer)
{
	int (*real)(void *);

	*(void **)&real = original(PS_CU_MEM_FREE_HOST);
	return ps_cuda_free(real, PS_CUDA_NOT_INITIALIZED, pointer);
}

static int do_register(enum ps_cu_function function, void *pointer, size_t size, unsigned flags)
{
	int (*real)(void *, size_t, unsigned);
	bool owned;

	ps_cuda_find_driver();
	*(void **)&real = original(function);
	return ps_cuda_register(PINSHIM_ENTRY_CU_MEM_HOST_REGISTER, real, PS_CUDA_NOT_INITIALIZED,
				pointer, size, flags, &owned);
}

static int do_cuMemHostRegister(void *pointer, size_t size, unsigned flags)
{
	return do_register(PS_CU_MEM_HOST_REGISTER, pointer, size, flags);
}

static int do_cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags)
{
	return do_register(PS_CU_MEM_HOST_REGISTER_V2, pointer, size, flags);
}

static int do_cuMemHostUnregister(void *pointer)
{
	int (*real)(void *);
	bool owned;

	*(void **)&real = original(PS_CU_MEM_HOST_UNREGISTER);
	return ps_cuda_unregister(real, PS_CUDA_NOT_INITIALIZED, pointer, &owned);
}

static int do_cuMemHostGetDevicePointer(unsigned *device, void *pointer, unsigned flags)
{
	int (*real)(unsigned *, void *, unsigned);

	ps_cuda_cover(pointer);
	*(void **)&real = original(PS_CU_MEM_HOST_GET_DEVICE_POINTER);
	return real != NULL ? real(device, pointer, flags) : PS_CUDA_NOT_INITIALIZED;
}

static int do_cuMemHostGetDevicePointer_v2(ps_cu_deviceptr *device, void *pointer, unsigned flags)
{
	int (*real)(ps_cu_deviceptr *, void *, unsigned);

	ps_cuda_cover(pointer);
	*(void **)&real = original(PS_CU_MEM_HOST_GET_DEVICE_POINTER_V2);
	return real != NULL ? real(device, pointer, flags) : PS_CUDA_NOT_INITIALIZED;
}

static int do_cuMemHostGetFlags(unsigned *flags, void *pointer)
{
	int (*real)(unsigned *, void *);

	if (flags != NULL && ps_cuda_block_flags(pointer, flags))
		return PS_CUDA_SUCCESS;
	*(void **)&real = original(PS_CU_MEM_HOST_GET_FLAGS);
	return real != NULL ? real(flags, pointer) : PS_CUDA_NOT_INITIALIZED;
}

static int do_cuPointerGetAttribute(void *data, int attribute, ps_cu_deviceptr pointer)
{
	int (*real)(void *, int, ps_cu_deviceptr);

	ps_cuda_cover((void *)(uintptr_t)pointer);
	*(void **)&real = original(PS_CU_POINTER_GET_ATTRIBUTE);
	return real != NULL ? real(data, attribute, pointer) : PS_CUDA_NOT_INITIALIZED;
}

static int do_cuPointerGetAttributes(unsigned count, int *attributes, void **data,
				     ps_cu_deviceptr pointer)
{
	int (*real)(unsigned, int *, void **, ps_cu_deviceptr);

	ps_cuda_cover((void *)(uintptr_t)pointer);
	*(void **)&real = original(PS_CU_POINTER_GET_ATTRIBUTES);
	return real != NULL ? real(count, attributes, data, pointer) : PS_CUDA_NOT_INITIALIZED;
}

static int end_context(enum ps_cu_function function, ps_cu_context context)
{
	int (*real)(ps_cu_context);
	int r;

	ps_cuda_before_context_ends(context);
	*(void **)&real = original(function);
	/* Raised, because the driver unmaps what it had allocated in the context. */
	ps_thread.depth++;
	r = real != NULL ? real(context) : PS_CUDA_NOT_INITIALIZED;
	ps_thread.depth--;
	ps_cuda_after_context_ended(r == PS_CUDA_SUCCESS ? context : NULL);
	return r;
}

static int do_cuCtxDestroy(ps_cu_context context)
{
	return end_context(PS_CU_CTX_DESTROY, context);
}

static int do_cuCtxDestroy_v2(ps_cu_context context)
{
	return end_context(PS_CU_CTX_DESTROY_V2, context);
}

/* The primary context of a device, if it is in use, without keeping it in use. */
static ps_cu_context primary_of(ps_cu_device device)
{
	ps_cu_context context = NULL;
	unsigned flags;
	int active = 0;

	if (!ps_cuda_find_driver() ||
	    driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != PS_CUDA_SUCCESS ||
	    !active || driver.cuDevicePrimaryCtxRetain(&context, device) != PS_CUDA_SUCCESS)
		return NULL;
	(void)driver.cuDevicePrimaryCtxRelease_v2(device);
	return context;
}

/* Calls a function of primary contexts that may end one: whether it did is asked afterwards. */
static int call_for_device(enum ps_cu_function function, ps_cu_device device, bool *ends)
{
	int (*real)(ps_cu_device);
	unsigned flags;
	int active = 0, r;

	*(void **)&real = original(function);
	ps_thread.depth++;
	r = real != NULL ? real(device) : PS_CUDA_NOT_INITIALIZED;
	*ends = r == PS_CUDA_SUCCESS && ps_driver != NULL &&
		driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == PS_CUDA_SUCCESS &&
		!active;
	ps_thread.depth--;
	return r;
}

/*
 * Only the last release ends the context, which is not known before; until then nothing must be
 * unregistered, for that takes long. It takes its registrations along.
 */
static int release_primary(enum ps_cu_function function, ps_cu_device device)
{
	const ps_cu_context context = ps_thread.depth == 0 ? primary_of(device) : NULL;
	bool ends;
	int r = call_for_device(function, device, &ends);

	if (context != NULL && ends) {
		ps_cuda_before_context_ends(context);
		ps_cuda_after_context_ended(context);
	}
	return r;
}

static int reset_primary(enum ps_cu_function function, ps_cu_device device)
{
	const ps_cu_context context = ps_thread.depth == 0 ? primary_of(device) : NULL;
	bool ends;
	int r;

	if (context != NULL)
		ps_cuda_before_context_ends(context);
	r = call_for_device(function, device, &ends);
	if (context != NULL)
		ps_cuda_after_context_ended(ends ? context : NULL);
	return r;
}

static int do_cuDevicePrimaryCtxRelease(ps_cu_device device)
{
	return release_primary(PS_CU_PRIMARY_RELEASE, device);
}

static int do_cuDevicePrimaryCtxRelease_v2(ps_cu_device device)
{
	return release_primary(PS_CU_PRIMARY_RELEASE_V2, device);
}

static int do_cuDevicePrimaryCtxReset(ps_cu_device device)
{
	return reset_primary(PS_CU_PRIMARY_RESET, device);
}

static int do_cuDevicePrimaryCtxReset_v2(ps_cu_device device)
{
	return reset_primary(PS_CU_PRIMARY_RESET_V2, device);
}

/* For each function the hook that look-ups hand out, and the exported one. */
#define DEFINE(function, name, parameters, arguments)                                              \
	int ps_hook_##name parameters                                                              \
	{                                                                                          \
		return do_##name arguments;                                                        \
	}                                                                                          \
	PUBLIC int name parameters;                                                                \
	PUBLIC int name parameters                                                                 \
	{                                                                                          \
		if (ps_thread.depth == 0)                                                          \
			ps_count_reached(PINSHIM_REACHED_DRIVER);                                  \
		return do_##name arguments;                                                        \
	}

PS_CU_HOOKS(DEFINE)

#define NAME(function, name, parameters, arguments) [function] = #name,
const char *const ps_cu_name[PS_CU_FUNCTIONS] = { PS_CU_HOOKS(NAME) };
