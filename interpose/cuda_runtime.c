/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The CUDA runtime: our hooks of its host-memory functions.
 *
 * A process may have several copies of libcudart (PyTorch's wheels bring libcudart-<hash>.so), each
 * with an error state of its own. A call goes on to the copy it was meant for, so for each copy that
 * look-ups were made in there is a set of hooks; copy 0 is the next definition after us, which serves
 * programs that are linked with libcudart.
 *
 * Owns no lock.
 */
#include <dlfcn.h>
#include <stdatomic.h>

#include "counters.h"
#include "cuda.h"
#include "cuda_hooks.h"
#include "log.h"
#include "lookup.h"
#include "proc_address.h"

#define PUBLIC __attribute__((visibility("default")))
#define COPIES 8

static struct runtime {
	_Atomic(const void *) base; /* where it is mapped; NULL: not in use (copy 0 needs none) */
	void *original[PS_CUDART_FUNCTIONS];
	int (*cudaFree)(void *pointer); /* not hooked; makes the context */
	atomic_bool no_driver;          /* it said so, and will not change its mind */
} copies[COPIES];

/* A function of a copy that no look-up has told us yet. */
static void *find(const struct runtime *copy, const char *name)
{
	const void *base = atomic_load(&copy->base);
	void *handle, *found = NULL;
	Dl_info info;

	if (base == NULL)
		return ps_cuda_definition(name, true);
	if (dladdr(base, &info) == 0)
		return NULL;
	ps_thread.depth++;
	handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (handle != NULL) {
		found = ps_dlsym_next(handle, name);
		dlclose(handle);
	}
	ps_thread.depth--;
	return found;
}

static void *original(struct runtime *copy, enum ps_cudart_function function)
{
	void *found = __atomic_load_n(&copy->original[function], __ATOMIC_ACQUIRE);

	if (found == NULL) {
		found = find(copy, ps_cudart_name[function]);
		__atomic_store_n(&copy->original[function], found, __ATOMIC_RELEASE);
	}
	return found;
}

/* ps_thread.error: the error in these bits, above them the copy whose it is. */
#define ERROR_BITS 12

/*
 * Returns an error of ours. The runtime does not know of it, so it is remembered for the program; what
 * the runtime remembered before is out of date.
 */
static int give(struct runtime *copy, int error, bool owned)
{
	int (*last)(void);

	if (!owned || error == PS_CUDA_SUCCESS)
		return error;
	*(void **)&last = original(copy, PS_CUDART_GET_LAST_ERROR);
	if (last != NULL)
		(void)last();
	ps_thread.error = (uint16_t)((unsigned)(copy - copies) << ERROR_BITS | (unsigned)error);
	return error;
}

/* The error of ours that a copy has to give, or 0. Copy 0 may be one of the others. */
static int given(struct runtime *copy)
{
	struct runtime *owner = &copies[ps_thread.error >> ERROR_BITS];

	if (ps_thread.error == 0 || ps_thread.depth > 0)
		return 0;
	if (owner != copy &&
	    original(owner, PS_CUDART_GET_LAST_ERROR) != original(copy, PS_CUDART_GET_LAST_ERROR))
		return 0;
	return ps_thread.error & ((1u << ERROR_BITS) - 1);
}

/*
 * As the real call would: a context on the current device, made by cudaFree(NULL) unless there is one.
 */
static int prepare(void *self)
{
	struct runtime *copy = self;
	int r;

	if (ps_cuda_find_driver() && ps_cuda_context() != NULL)
		return 0;
	if (atomic_load(&copy->no_driver))
		return PS_CUDA_NO_DRIVER;
	if (copy->cudaFree == NULL)
		*(void **)&copy->cudaFree = find(copy, "cudaFree");
	if (copy->cudaFree == NULL)
		return PS_CUDA_NO_DRIVER;
	ps_thread.depth++;
	r = copy->cudaFree(NULL);
	ps_thread.depth--;
	if (ps_cuda_is_missing(r)) {
		atomic_store(&copy->no_driver, true);
		return PS_CUDA_NO_DRIVER;
	}
	if (r == PS_CUDA_SUCCESS)
		ps_cuda_find_driver();
	return r;
}

static int allocate(struct runtime *copy, struct ps_cuda_allocator *how, void **pointer,
		    size_t size, unsigned flags)
{
	int r;

	how->prepare = prepare;
	how->self = copy;
	how->missing = PS_CUDA_INSUFFICIENT_DRIVER;
	r = ps_cuda_allocate(how, pointer, size, flags);
	return give(copy, r, how->owned);
}

static int do_cudaHostAlloc(struct runtime *copy, void **pointer, size_t size, unsigned flags)
{
	struct ps_cuda_allocator how = { .entry = PINSHIM_ENTRY_CUDA_HOST_ALLOC };

	*(void **)&how.with_flags = original(copy, PS_CUDART_HOST_ALLOC);
	return allocate(copy, &how, pointer, size, flags);
}

static int do_cudaMallocHost(struct runtime *copy, void **pointer, size_t size)
{
	struct ps_cuda_allocator how = { .entry = PINSHIM_ENTRY_CUDA_MALLOC_HOST };

	*(void **)&how.plain = original(copy, PS_CUDART_MALLOC_HOST);
	return allocate(copy, &how, pointer, size, 0);
}

static int do_cudaFreeHost(struct runtime *copy, void *pointer)
{
	int (*real)(void *);

	*(void **)&real = original(copy, PS_CUDART_FREE_HOST);
	return ps_cuda_free(real, PS_CUDA_INSUFFICIENT_DRIVER, pointer);
}

static int do_cudaHostRegister(struct runtime *copy, void *pointer, size_t size, unsigned flags)
{
	int (*real)(void *, size_t, unsigned);
	bool owned = false;
	int r;

	*(void **)&real = original(copy, PS_CUDART_HOST_REGISTER);
	r = ps_cuda_register(PINSHIM_ENTRY_CUDA_HOST_REGISTER, real, PS_CUDA_INSUFFICIENT_DRIVER,
			     pointer, size, flags, &owned);
	return give(copy, r, owned);
}

static int do_cudaHostUnregister(struct runtime *copy, void *pointer)
{
	int (*real)(void *);
	bool owned = false;
	int r;

	*(void **)&real = original(copy, PS_CUDART_HOST_UNREGISTER);
	r = ps_cuda_unregister(real, PS_CUDA_INSUFFICIENT_DRIVER, pointer, &owned);
	return give(copy, r, owned);
}

static int do_cudaHostGetDevicePointer(struct runtime *copy, void **device, void *pointer,
				       unsigned flags)
{
	int (*real)(void **, void *, unsigned);

	ps_cuda_cover(pointer);
	*(void **)&real = original(copy, PS_CUDART_HOST_GET_DEVICE_POINTER);
	return real != NULL ? real(device, pointer, flags) : PS_CUDA_INSUFFICIENT_DRIVER;
}

static int do_cudaHostGetFlags(struct runtime *copy, unsigned *flags, void *pointer)
{
	int (*real)(unsigned *, void *);

	if (flags != NULL && ps_cuda_block_flags(pointer, flags))
		return PS_CUDA_SUCCESS;
	*(void **)&real = original(copy, PS_CUDART_HOST_GET_FLAGS);
	return real != NULL ? real(flags, pointer) : PS_CUDA_INSUFFICIENT_DRIVER;
}

static int do_cudaPointerGetAttributes(struct runtime *copy,
				       struct ps_pointer_attributes *attributes,
				       const void *pointer)
{
	int (*real)(struct ps_pointer_attributes *, const void *);

	ps_cuda_cover(pointer);
	*(void **)&real = original(copy, PS_CUDART_POINTER_GET_ATTRIBUTES);
	return real != NULL ? real(attributes, pointer) : PS_CUDA_INSUFFICIENT_DRIVER;
}

/* Of an error of ours and one of the runtime the latter is the later: give() took what was before. */
static int later(int ours, int real)
{
	return ours != 0 && (real == PS_CUDA_SUCCESS || ps_cuda_is_missing(real)) ? ours : real;
}

static int do_cudaGetLastError(struct runtime *copy)
{
	const int ours = given(copy);
	int (*real)(void);

	*(void **)&real = original(copy, PS_CUDART_GET_LAST_ERROR);
	if (ours != 0)
		ps_thread.error = 0;
	return later(ours, real != NULL ? real() : PS_CUDA_INSUFFICIENT_DRIVER);
}

static int do_cudaPeekAtLastError(struct runtime *copy)
{
	int (*real)(void);

	*(void **)&real = original(copy, PS_CUDART_PEEK_AT_LAST_ERROR);
	return later(given(copy), real != NULL ? real() : PS_CUDA_INSUFFICIENT_DRIVER);
}

static int do_cudaDeviceReset(struct runtime *copy)
{
	const ps_cu_context context = ps_cuda_find_driver() ? ps_cuda_context() : NULL;
	int (*real)(void);
	int r = PS_CUDA_INSUFFICIENT_DRIVER;

	ps_cuda_before_context_ends(context);
	*(void **)&real = original(copy, PS_CUDART_DEVICE_RESET);
	if (real != NULL) {
		ps_thread.depth++;
		r = real();
		ps_thread.depth--;
	}
	ps_cuda_after_context_ended(r == PS_CUDA_SUCCESS ? context : NULL);
	return r;
}

/* A set of hooks for a copy. ARGUMENTS come with their parentheses, which are taken off. */
#define UNWRAP(...) __VA_OPT__(, ) __VA_ARGS__
#define HOOK_OF_COPY(copy, name, parameters, arguments)                                            \
	static int name##_##copy parameters                                                        \
	{                                                                                          \
		return do_##name(&copies[copy] UNWRAP arguments);                                  \
	}
#define HOOK_1(number, name, parameters, arguments) HOOK_OF_COPY(1, name, parameters, arguments)
#define HOOK_2(number, name, parameters, arguments) HOOK_OF_COPY(2, name, parameters, arguments)
#define HOOK_3(number, name, parameters, arguments) HOOK_OF_COPY(3, name, parameters, arguments)
#define HOOK_4(number, name, parameters, arguments) HOOK_OF_COPY(4, name, parameters, arguments)
#define HOOK_5(number, name, parameters, arguments) HOOK_OF_COPY(5, name, parameters, arguments)
#define HOOK_6(number, name, parameters, arguments) HOOK_OF_COPY(6, name, parameters, arguments)
#define HOOK_7(number, name, parameters, arguments) HOOK_OF_COPY(7, name, parameters, arguments)

PS_CUDART_HOOKS(HOOK_1)
PS_CUDART_HOOKS(HOOK_2)
PS_CUDART_HOOKS(HOOK_3)
PS_CUDART_HOOKS(HOOK_4)
PS_CUDART_HOOKS(HOOK_5)
PS_CUDART_HOOKS(HOOK_6)
PS_CUDART_HOOKS(HOOK_7)

/* Copy 0: what look-ups hand out, should they find us, and the exported functions. */
#define HOOK_0(number, name, parameters, arguments)                                                \
	int ps_hook_##name parameters                                                              \
	{                                                                                          \
		return do_##name(&copies[0] UNWRAP arguments);                                     \
	}                                                                                          \
	PUBLIC int name parameters;                                                                \
	PUBLIC int name parameters                                                                 \
	{                                                                                          \
		if (ps_thread.depth == 0)                                                          \
			ps_count_reached(PINSHIM_REACHED_RUNTIME);                                 \
		return do_##name(&copies[0] UNWRAP arguments);                                     \
	}

PS_CUDART_HOOKS(HOOK_0)

#define NAME(number, name, parameters, arguments) [number] = #name,
const char *const ps_cudart_name[PS_CUDART_FUNCTIONS] = { PS_CUDART_HOOKS(NAME) };

#define ENTRY(number, name, parameters, arguments)                                                 \
	[number] = {                                                                               \
		(void *)ps_hook_##name, (void *)name##_1, (void *)name##_2, (void *)name##_3,      \
		(void *)name##_4,       (void *)name##_5, (void *)name##_6, (void *)name##_7       \
	},
static void *const hooks[PS_CUDART_FUNCTIONS][COPIES] = { PS_CUDART_HOOKS(ENTRY) };

/* The number of the copy that is mapped at base, taking a free one if it is new; 0: all are taken. */
static unsigned copy_at(const void *base)
{
	for (unsigned i = 1; i < COPIES; i++) {
		const void *seen = NULL;

		if (atomic_compare_exchange_strong(&copies[i].base, &seen, base) || seen == base)
			return i;
	}
	return 0;
}

void *ps_cudart_hook_of(enum ps_cudart_function function, void *real, const void *base)
{
	const unsigned copy = copy_at(base);
	void *unknown = NULL;

	if (copy == 0) {
		ps_log_once(
			PS_LOG_WARN,
			"more than %d copies of libcudart are in use: host memory of the others "
			"is CUDA's own",
			COPIES - 1);
		return NULL;
	}
	__atomic_compare_exchange_n(&copies[copy].original[function], &unknown, real, false,
				    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	return hooks[function][copy];
}
