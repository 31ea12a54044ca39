/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_LOOKUP_H
#define PS_LOOKUP_H
/*
 * The ways in to CUDA that are not symbols a program is linked to: dlsym() on a handle, and
 * cuGetProcAddress() (cudart itself, CuPy, NCCL, JAX, numba).
 */
#include <stdbool.h>
#include <stddef.h>

/* A function of CUDA that we stand in for. */
struct ps_hook {
	const char
		*name;   /* exported name: "cuMemHostAlloc", "cuMemAllocHost_v2", "cudaHostAlloc" */
	void *hook;      /* what callers get instead */
	void **original; /* where hook looks for the real one; NULL inside until it is known */
	bool runtime;    /* of libcudart, else of libcuda */
};

/* All of them, sorted by name; cuda_hooks.c. */
extern const struct ps_hook ps_cuda_hooks[];
extern const size_t ps_cuda_hooks_count;

/* The entry of a name, or NULL. Exact names only: cublas, cudnn and curl begin with "cu" as well. */
const struct ps_hook *ps_hook_find(const char *name);

/*
 * What a caller gets for a symbol of a CUDA library: our hook, with real remembered as its original,
 * or real itself where the name is none of ours or we are switched off. base tells copies of
 * libcudart apart: the address where the object that holds real is mapped. Takes no lock.
 */
void *ps_hook_for(const char *name, void *real, const void *base);

/* Is this the path of a libcudart (libcudart-9335f6a2.so.12, PyTorch's, is), or of a driver (libcuda.so.1)? */
bool ps_is_cuda_library(const char *path, bool runtime);

/* The next dlsym after ours, which may be another interposer's; dlsym.S jumps through it. */
extern void *(*ps_dlsym_next)(void *handle, const char *name) __attribute__((visibility("hidden")));

#endif
