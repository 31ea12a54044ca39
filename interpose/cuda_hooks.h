/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CUDA_HOOKS_H
#define PS_CUDA_HOOKS_H
/*
 * The functions of CUDA that we stand in for, in one list each for driver and runtime.
 */
#include <stdbool.h>
#include <stddef.h>

#include "cuda_abi.h"

/*
 * The same of a function of CUDA, which may be in no scope of ours: in Python libcudart and what is
 * linked with it are opened RTLD_LOCAL, and the calls come to us all the same. Then the first library
 * of that kind that is loaded has it.
 */
void *ps_cuda_definition(const char *name, bool runtime);

/*
 * X(number, name, parameters, arguments), in the order of strcmp(). Two lists, between which
 * cuGetProcAddress has its place.
 */
#define PS_CU_HOOKS_FIRST(X)                                                                       \
	X(PS_CU_CTX_DESTROY, cuCtxDestroy, (ps_cu_context context), (context))                     \
	X(PS_CU_CTX_DESTROY_V2, cuCtxDestroy_v2, (ps_cu_context context), (context))               \
	X(PS_CU_PRIMARY_RELEASE, cuDevicePrimaryCtxRelease, (ps_cu_device device), (device))       \
	X(PS_CU_PRIMARY_RELEASE_V2, cuDevicePrimaryCtxRelease_v2, (ps_cu_device device), (device)) \
	X(PS_CU_PRIMARY_RESET, cuDevicePrimaryCtxReset, (ps_cu_device device), (device))           \
	X(PS_CU_PRIMARY_RESET_V2, cuDevicePrimaryCtxReset_v2, (ps_cu_device device), (device))

#define PS_CU_HOOKS_SECOND(X)                                                                      \
	X(PS_CU_MEM_ALLOC_HOST, cuMemAllocHost, (void **pointer, unsigned size), (pointer, size))  \
	X(PS_CU_MEM_ALLOC_HOST_V2, cuMemAllocHost_v2, (void **pointer, size_t size),               \
	  (pointer, size))                                                                         \
	X(PS_CU_MEM_FREE_HOST, cuMemFreeHost, (void *pointer), (pointer))                          \
	X(PS_CU_MEM_HOST_ALLOC, cuMemHostAlloc, (void **pointer, size_t size, unsigned flags),     \
	  (pointer, size, flags))                                                                  \
	X(PS_CU_MEM_HOST_GET_DEVICE_POINTER, cuMemHostGetDevicePointer,                            \
	  (unsigned *device, void *pointer, unsigned flags), (device, pointer, flags))             \
	X(PS_CU_MEM_HOST_GET_DEVICE_POINTER_V2, cuMemHostGetDevicePointer_v2,                      \
	  (ps_cu_deviceptr * device, void *pointer, unsigned flags), (device, pointer, flags))     \
	X(PS_CU_MEM_HOST_GET_FLAGS, cuMemHostGetFlags, (unsigned *flags, void *pointer),           \
	  (flags, pointer))                                                                        \
	X(PS_CU_MEM_HOST_REGISTER, cuMemHostRegister,                                              \
	  (void *pointer, size_t size, unsigned flags), (pointer, size, flags))                    \
	X(PS_CU_MEM_HOST_REGISTER_V2, cuMemHostRegister_v2,                                        \
	  (void *pointer, size_t size, unsigned flags), (pointer, size, flags))                    \
	X(PS_CU_MEM_HOST_UNREGISTER, cuMemHostUnregister, (void *pointer), (pointer))              \
	X(PS_CU_POINTER_GET_ATTRIBUTE, cuPointerGetAttribute,                                      \
	  (void *data, int attribute, ps_cu_deviceptr pointer), (data, attribute, pointer))        \
	X(PS_CU_POINTER_GET_ATTRIBUTES, cuPointerGetAttributes,                                    \
	  (unsigned count, int *attributes, void **data, ps_cu_deviceptr pointer),                 \
	  (count, attributes, data, pointer))

#define PS_CU_HOOKS(X) PS_CU_HOOKS_FIRST(X) PS_CU_HOOKS_SECOND(X)

/* X(number, name, parameters, arguments), in the order of names. */
#define PS_CUDART_HOOKS(X)                                                                         \
	X(PS_CUDART_DEVICE_RESET, cudaDeviceReset, (void), ())                                     \
	X(PS_CUDART_FREE_HOST, cudaFreeHost, (void *pointer), (pointer))                           \
	X(PS_CUDART_GET_LAST_ERROR, cudaGetLastError, (void), ())                                  \
	X(PS_CUDART_HOST_ALLOC, cudaHostAlloc, (void **pointer, size_t size, unsigned flags),      \
	  (pointer, size, flags))                                                                  \
	X(PS_CUDART_HOST_GET_DEVICE_POINTER, cudaHostGetDevicePointer,                             \
	  (void **device, void *pointer, unsigned flags), (device, pointer, flags))                \
	X(PS_CUDART_HOST_GET_FLAGS, cudaHostGetFlags, (unsigned *flags, void *pointer),            \
	  (flags, pointer))                                                                        \
	X(PS_CUDART_HOST_REGISTER, cudaHostRegister, (void *pointer, size_t size, unsigned flags), \
	  (pointer, size, flags))                                                                  \
	X(PS_CUDART_HOST_UNREGISTER, cudaHostUnregister, (void *pointer), (pointer))               \
	X(PS_CUDART_MALLOC_HOST, cudaMallocHost, (void **pointer, size_t size), (pointer, size))   \
	X(PS_CUDART_PEEK_AT_LAST_ERROR, cudaPeekAtLastError, (void), ())                           \
	X(PS_CUDART_POINTER_GET_ATTRIBUTES, cudaPointerGetAttributes,                              \
	  (struct ps_pointer_attributes * attributes, const void *pointer), (attributes, pointer))

#define PS_CUDA_NUMBER(number, name, parameters, arguments) number,

enum ps_cu_function { PS_CU_HOOKS(PS_CUDA_NUMBER) PS_CU_FUNCTIONS };
enum ps_cudart_function { PS_CUDART_HOOKS(PS_CUDA_NUMBER) PS_CUDART_FUNCTIONS };

/* What look-ups hand out. Of the runtime: for the copy of libcudart that our own symbols serve. */
#define PS_CUDA_DECLARE(number, name, parameters, arguments) int ps_hook_##name parameters;
PS_CU_HOOKS(PS_CUDA_DECLARE)
PS_CUDART_HOOKS(PS_CUDA_DECLARE)

extern const char *const ps_cu_name[PS_CU_FUNCTIONS];
extern const char *const ps_cudart_name[PS_CUDART_FUNCTIONS];
extern void *ps_cu_original[PS_CU_FUNCTIONS]; /* NULL until it is known */

/*
 * The hook of a function for callers of the copy of libcudart that is mapped at base, with real
 * remembered as its original. NULL where there are more copies than can be told apart.
 */
void *ps_cudart_hook_of(enum ps_cudart_function function, void *real, const void *base);

#endif
