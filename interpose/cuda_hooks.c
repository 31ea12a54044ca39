/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of all functions that look-ups are answered for, and the answer. No lock.
 */
#include "cuda_hooks.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

#include "config.h"
#include "counters.h"
#include "lookup.h"
#include "proc_address.h"
#include "window.h"

#define DRIVER(number, name, parameters, arguments)                                                \
	{ #name, (void *)ps_hook_##name, &ps_cu_original[number], false },
#define RUNTIME(number, name, parameters, arguments) { #name, (void *)ps_hook_##name, NULL, true },
#define PROC_ADDRESS(name) { #name, (void *)name, &ps_original_##name, false },

const struct ps_hook ps_cuda_hooks[] = {
	/* clang-format off */
	PS_CU_HOOKS_FIRST(DRIVER)
	PROC_ADDRESS(cuGetProcAddress)
	PROC_ADDRESS(cuGetProcAddress_v2)
	PS_CU_HOOKS_SECOND(DRIVER)
	PS_CUDART_HOOKS(RUNTIME)
	/* clang-format on */
};
const size_t ps_cuda_hooks_count = sizeof(ps_cuda_hooks) / sizeof(ps_cuda_hooks[0]);

/* The runtime's functions are the end of the table. */
static enum ps_cudart_function cudart_function(const struct ps_hook *hook)
{
	return (enum ps_cudart_function)(hook -
					 &ps_cuda_hooks[ps_cuda_hooks_count - PS_CUDART_FUNCTIONS]);
}

void *ps_hook_for(const char *name, void *real, const void *base)
{
	const struct ps_hook *hook = ps_hook_find(name);
	void *answer, *unknown = NULL;

	if (hook == NULL || ps_window.size == 0 || ps_config.backend == PS_BACKEND_OFF)
		return real;
	if (hook->runtime) {
		answer = ps_cudart_hook_of(cudart_function(hook), real, base);
		return answer != NULL ? answer : real;
	}
	/* The first one found stays: there is one driver, and it answers alike however it is asked. */
	__atomic_compare_exchange_n(hook->original, &unknown, real, false, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
	return hook->hook;
}

struct search {
	bool runtime;
	char path[PATH_MAX];
};

static int look_at(struct dl_phdr_info *object, size_t size, void *context)
{
	struct search *search = context;
	const size_t length = strlen(object->dlpi_name);

	(void)size;
	if (length >= sizeof(search->path) ||
	    !ps_is_cuda_library(object->dlpi_name, search->runtime))
		return 0;
	memcpy(search->path, object->dlpi_name, length + 1);
	return 1;
}

void *ps_cuda_definition(const char *name, bool runtime)
{
	struct search search = { .runtime = runtime };
	void *found = ps_next_definition(name), *handle;

	if (found != NULL || dl_iterate_phdr(look_at, &search) == 0)
		return found;
	ps_thread.depth++;
	/* Not closed: what is found is kept. */
	handle = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
	if (handle != NULL)
		found = ps_dlsym_next(handle, name);
	ps_thread.depth--;
	return found;
}
