/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_PROC_ADDRESS_H
#define PS_PROC_ADDRESS_H
/*
 * cuGetProcAddress, through which libcudart, CuPy, NCCL and others ask for each function of the
 * driver by name and CUDA version.
 */
#include "cuda_abi.h"

/* Exported, and entries of ps_cuda_hooks with the originals below. */
ps_cu_result cuGetProcAddress(const char *symbol, void **function, int version,
			      unsigned long long flags);
ps_cu_result cuGetProcAddress_v2(const char *symbol, void **function, int version,
				 unsigned long long flags, int *status);

/* The real ones; NULL until somebody has looked them up. */
extern void *ps_original_cuGetProcAddress;
extern void *ps_original_cuGetProcAddress_v2;

/*
 * The definition of a name that comes after this library, or NULL: as dlsym(RTLD_NEXT), but asked of
 * the C library itself. A dlsym of another interposer would answer for its own place.
 */
void *ps_next_definition(const char *name);

#endif
