/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CUDA_H
#define PS_CUDA_H
/*
 * What the hooks of the CUDA runtime (cuda_runtime.c) and of the driver (cuda_driver.c) have in
 * common: cuda_memory.c serves, tracks and counts; they know how to call the real functions.
 *
 * All return CUDA's error numbers, which the runtime and the driver share for host memory. The real
 * function is called with ps_thread.depth raised: the runtime's call reaches the driver's hooks, and
 * a request counts once.
 */
#include <stdbool.h>
#include <stddef.h>

#include "cuda_abi.h"
#include "pinshim_table.h"

/* What every call answers for ever where there is no driver or no device. */
static inline bool ps_cuda_is_missing(int error)
{
	return error == PS_CUDA_INSUFFICIENT_DRIVER || error == PS_CUDA_STUB_LIBRARY ||
	       error == PS_CUDA_NO_DEVICE;
}

/* Answers of prepare() besides CUDA's errors. */
#define PS_CUDA_NO_DRIVER (-1)

/* A function that allocates, in one of its shapes; the real one, NULL where there is none. */
struct ps_cuda_allocator {
	enum pinshim_entry_point entry;
	int (*with_flags)(void **pointer, size_t size, unsigned flags);
	int (*plain)(void **pointer, size_t size);
	int (*narrow)(void **pointer, unsigned size);
	/*
	 * Makes ready what the real function would make ready before it allocates, a context above
	 * all. 0; PS_CUDA_NO_DRIVER where there is no driver or device, so that memory can only be
	 * locked; another error is left to the real function to give.
	 */
	int (*prepare)(void *self);
	void *self;  /* for prepare */
	int missing; /* the answer where there is no real function */
	bool owned;  /* set where the error returned is ours, so that the runtime remembers it */
};

int ps_cuda_allocate(struct ps_cuda_allocator *how, void **pointer, size_t size, unsigned flags);

/* cudaFreeHost and cuMemFreeHost. real may be NULL: then missing is the answer. */
int ps_cuda_free(int (*real)(void *pointer), int missing, void *pointer);

/*
 * cudaHostRegister and cuMemHostRegister. *owned is set where the error returned is ours and not the
 * real function's.
 */
int ps_cuda_register(enum pinshim_entry_point entry,
		     int (*real)(void *pointer, size_t size, unsigned flags), int missing,
		     void *pointer, size_t size, unsigned flags, bool *owned);
int ps_cuda_unregister(int (*real)(void *pointer), int missing, void *pointer, bool *owned);

/*
 * Before the real function is asked about an address: it knows our memory once its chunk is registered.
 */
void ps_cuda_cover(const void *pointer);

/* The flags of a block of ours, as cudaHostGetFlags reports them. false: not a block of ours. */
bool ps_cuda_block_flags(const void *pointer, unsigned *flags);

/*
 * Around a call that ends a context: before it our registrations go, if some were made in it or that is
 * not known (NULL); after it they are made again if the thread has a context still. What CUDA had
 * allocated and registered in the one that ended is gone too; context is NULL if the call failed.
 */
void ps_cuda_before_context_ends(ps_cu_context context);
void ps_cuda_after_context_ended(ps_cu_context context);

/* The program unmaps or replaces memory: what CUDA had registered there is unregistered. */
void ps_cuda_forget(const void *address, size_t length);

/* Looks for the driver, if it is not known yet. true if it is. */
bool ps_cuda_find_driver(void);

/*
 * Does the device of the calling thread's context use memory that we register as it uses what CUDA
 * allocates, under the same address? The driver is known and the thread has a context.
 */
bool ps_cuda_takes_registered(void);

/* The context of the calling thread, or NULL. */
ps_cu_context ps_cuda_context(void);

/* May memory of ours be registered in this context? true for NULL. */
bool ps_cuda_holds(ps_cu_context context);

/* It ended: nothing is registered in it, and it is not borrowed. NULL: does nothing. */
void ps_cuda_forget_context(ps_cu_context context);

#endif
