/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_LOOKUP_NAMES_H
#define TEST_LOOKUP_NAMES_H

/* Names of libc that no program here calls, so that a library may define them for itself. */
#define PLAIN_NAMES(X)                                                                             \
	X(a64l)                                                                                    \
	X(cuserid)                                                                                 \
	X(drand48)                                                                                 \
	X(ecvt)                                                                                    \
	X(fcvt)                                                                                    \
	X(ffsll)                                                                                   \
	X(getlogin)                                                                                \
	X(hcreate)                                                                                 \
	X(insque)                                                                                  \
	X(l64a)                                                                                    \
	X(lfind)                                                                                   \
	X(lrand48)                                                                                 \
	X(lsearch)                                                                                 \
	X(memfrob)                                                                                 \
	X(rand_r)                                                                                  \
	X(remque)                                                                                  \
	X(strfry)                                                                                  \
	X(swab)                                                                                    \
	X(wcsdup)                                                                                  \
	X(wcpncpy)

/* The functions of the driver and of the runtime that we stand in for. */
#define DRIVER_HOOKS(X)                                                                            \
	X(cuCtxDestroy)                                                                            \
	X(cuCtxDestroy_v2)                                                                         \
	X(cuDevicePrimaryCtxRelease)                                                               \
	X(cuDevicePrimaryCtxRelease_v2)                                                            \
	X(cuDevicePrimaryCtxReset)                                                                 \
	X(cuDevicePrimaryCtxReset_v2)                                                              \
	X(cuMemAllocHost)                                                                          \
	X(cuMemAllocHost_v2)                                                                       \
	X(cuMemFreeHost)                                                                           \
	X(cuMemHostAlloc)                                                                          \
	X(cuMemHostGetDevicePointer)                                                               \
	X(cuMemHostGetDevicePointer_v2)                                                            \
	X(cuMemHostGetFlags)                                                                       \
	X(cuMemHostRegister)                                                                       \
	X(cuMemHostRegister_v2)                                                                    \
	X(cuMemHostUnregister)                                                                     \
	X(cuPointerGetAttribute)                                                                   \
	X(cuPointerGetAttributes)

#define RUNTIME_HOOKS(X)                                                                           \
	X(cudaDeviceReset)                                                                         \
	X(cudaFreeHost)                                                                            \
	X(cudaGetLastError)                                                                        \
	X(cudaHostAlloc)                                                                           \
	X(cudaHostGetDevicePointer)                                                                \
	X(cudaHostGetFlags)                                                                        \
	X(cudaHostRegister)                                                                        \
	X(cudaHostUnregister)                                                                      \
	X(cudaMallocHost)                                                                          \
	X(cudaPeekAtLastError)                                                                     \
	X(cudaPointerGetAttributes)

/* Others that begin like them. */
#define DRIVER_OTHERS(X)                                                                           \
	X(cuCtxDetach)                                                                             \
	X(cuCtxDisablePeerAccess)                                                                  \
	X(cuDeviceGet)                                                                             \
	X(cuDevicePrimaryCtxGetState)                                                              \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuDevicePrimaryCtxSetFlags_v2)                                                           \
	X(cuGetErrorString)                                                                        \
	X(cuGetExportTable)                                                                        \
	X(cuInit)                                                                                  \
	X(cuMemAlloc_v2)                                                                           \
	X(cuMemAllocManaged)                                                                       \
	X(cuMemAllocPitch_v2)                                                                      \
	X(cuMemFree_v2)                                                                            \
	X(cuMemFreeAsync)                                                                          \
	X(cuMemcpyHtoDAsync_v2)                                                                    \
	X(cuPointerSetAttribute)

#define RUNTIME_OTHERS(X)                                                                          \
	X(cudaDeviceRegisterAsyncNotification)                                                     \
	X(cudaDeviceSynchronize)                                                                   \
	X(cudaFree)                                                                                \
	X(cudaFreeArray)                                                                           \
	X(cudaFreeAsync)                                                                           \
	X(cudaGetDevice)                                                                           \
	X(cudaGetDriverEntryPoint)                                                                 \
	X(cudaGetErrorString)                                                                      \
	X(cudaMalloc)                                                                              \
	X(cudaMallocAsync)                                                                         \
	X(cudaMemcpyAsync)                                                                         \
	X(cudaProfilerStart)                                                                       \
	X(cudaStreamSynchronize)

/* And of libraries that have nothing to do with it. */
#define UNRELATED_NAMES(X)                                                                         \
	X(cublasCreate_v2)                                                                         \
	X(cudnnCreate)                                                                             \
	X(curl_easy_init)                                                                          \
	X(cusparseCreate)

#define NAME_ENTRY(name) #name,

#endif
