/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the code that nvcc generates calls (crt/host_runtime.h). Programs start and end; a kernel
 * cannot be run, and launching one says so: cudaErrorNotSupported.
 */
#include "runtime.h"

#pragma GCC visibility push(default)
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle);
void __cudaRegisterVar(void **handle);
char __cudaInitModule(void **handle);
ps_cuda_error __cudaGetKernel(void **kernel, const void *function);
ps_cuda_error __cudaLaunchKernel(void *kernel);
unsigned __cudaPushCallConfiguration(void);
ps_cuda_error __cudaPopCallConfiguration(void);
ps_cuda_error cudaLaunchKernel(const void *function);
#pragma GCC visibility pop

static void *binary_handle;

/* Some take more arguments than are declared here, which C's calling conventions allow. */
void **__cudaRegisterFatBinary(void *binary)
{
	(void)binary;
	return &binary_handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}

void __cudaRegisterFunction(void **handle)
{
	(void)handle;
}

void __cudaRegisterVar(void **handle)
{
	(void)handle;
}

char __cudaInitModule(void **handle)
{
	(void)handle;
	return 1;
}

ps_cuda_error __cudaGetKernel(void **kernel, const void *function)
{
	(void)kernel;
	(void)function;
	return finish(PS_CUDA_NOT_SUPPORTED);
}

ps_cuda_error __cudaLaunchKernel(void *kernel)
{
	(void)kernel;
	return finish(PS_CUDA_NOT_SUPPORTED);
}

/* <<<>>> skips the launch unless this is 0. */
unsigned __cudaPushCallConfiguration(void)
{
	finish(PS_CUDA_NOT_SUPPORTED);
	return 1;
}

ps_cuda_error __cudaPopCallConfiguration(void)
{
	return finish(PS_CUDA_NOT_SUPPORTED);
}

ps_cuda_error cudaLaunchKernel(const void *function)
{
	(void)function;
	return finish(PS_CUDA_NOT_SUPPORTED);
}
