/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a look-up by dlsym() answers. Owns no lock; a look-up before the constructor works and finds
 * what it would without us.
 */
#include "lookup.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "config.h"
#include "counters.h"
#include "proc_address.h"
#include "text.h"
#include "window.h"

/* dlsym.S calls these, and nobody else. */
void ps_dlsym_resolve(void);
void *ps_dlsym_candidate(void *handle, const char *name);
extern void *ps_dlsym_first(void *handle, const char *name) __attribute__((visibility("hidden")));

/*
 * The next definition of dlsym, which may be another interposer's; and the C library's own, for what
 * must not be answered by one.
 */
void *(*ps_dlsym_next)(void *handle, const char *name) = ps_dlsym_first;
static void *(*libc_dlsym)(void *handle, const char *name);

static void *no_dlsym(void *handle, const char *name)
{
	(void)handle;
	(void)name;
	return NULL;
}

/* The C library's dlsym. By version, which overrides of other interposers do not have. */
static void *find_libc_dlsym(void)
{
	/* Since glibc 2.34; before, on aarch64; on x86-64. */
	static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5" };

	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		void *found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);

		if (found != NULL)
			return found;
	}
	return (void *)no_dlsym;
}

/* May run in several threads: each stores the same. */
void ps_dlsym_resolve(void)
{
	const int saved = errno;
	void *(*libc)(void *, const char *);
	void *next;

	*(void **)&libc = find_libc_dlsym();
	next = libc(RTLD_NEXT, "dlsym");
	__atomic_store_n(&libc_dlsym, libc, __ATOMIC_RELEASE);
	if (next == NULL)
		next = (void *)libc;
	__atomic_store_n((void **)&ps_dlsym_next, next, __ATOMIC_RELEASE);
	errno = saved;
}

/* The C library's dlsym, looked up if need be. */
static void *ask_libc(void *handle, const char *name)
{
	if (__atomic_load_n(&libc_dlsym, __ATOMIC_ACQUIRE) == NULL)
		ps_dlsym_resolve();
	return libc_dlsym(handle, name);
}

void *ps_next_definition(const char *name)
{
	return ask_libc(RTLD_NEXT, name);
}

const struct ps_hook *ps_hook_find(const char *name)
{
	size_t low = 0, high = ps_cuda_hooks_count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (strcmp(ps_cuda_hooks[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == ps_cuda_hooks_count || strcmp(ps_cuda_hooks[low].name, name) != 0)
		return NULL;
	return &ps_cuda_hooks[low];
}

bool ps_is_cuda_library(const char *path, bool runtime)
{
	const char *prefix = runtime ? "libcudart" : "libcuda.so";

	return strncmp(ps_base_name(path), prefix, strlen(prefix)) == 0;
}

/*
 * Where the library that defines a symbol is mapped; NULL where it is none of CUDA's. found is what
 * the next dlsym answered, which may be the hook of an interposer after us: then the C library's
 * answer tells whose symbol it is.
 */
static const void *cuda_library_of(void *handle, const char *name, void *found)
{
	Dl_info info;

	if ((void *)ps_dlsym_next != (void *)libc_dlsym) {
		found = ask_libc(handle, name);
		if (found == NULL) {
			/* The program's look-up did not fail. */
			dlerror();
			return NULL;
		}
	}
	if (dladdr(found, &info) == 0 || info.dli_fname == NULL)
		return NULL;
	return ps_is_cuda_library(info.dli_fname, true) || ps_is_cuda_library(info.dli_fname, false)
		       ? info.dli_fbase
		       : NULL;
}

/* Is this code of a driver? The one of WSL is a front that looks up, at each call, the driver behind it. */
static bool is_in_driver(const void *code)
{
	Dl_info info;

	return dladdr(code, &info) != 0 && info.dli_fname != NULL &&
	       ps_is_cuda_library(info.dli_fname, false);
}

/* dlsym.S jumps here, so whoever it returns to is the caller of dlsym. */
void *ps_dlsym_candidate(void *handle, const char *name)
{
	const void *caller = __builtin_return_address(0);
	void *found = ps_dlsym_next(handle, name);
	const struct ps_hook *hook;
	const void *base;
	void *answer;
	int saved;

	if (found == NULL || ps_window.size == 0 || ps_config.backend == PS_BACKEND_OFF)
		return found;
	hook = ps_hook_find(name);
	if (hook == NULL || hook->hook == found)
		return found;
	saved = errno;
	base = cuda_library_of(handle, name, found);
	answer = base != NULL && !is_in_driver(caller) ? ps_hook_for(name, found, base) : found;
	if (answer != found)
		ps_count_reached(PINSHIM_REACHED_DLSYM);
	errno = saved;
	return answer;
}
