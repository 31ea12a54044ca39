/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking up the next definitions. No lock: a lookup stores the same pointer whoever does it.
 */
#include "next.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "counters.h"
#include "proc_address.h"
#include "syscall.h"

/* glibc's own, for a request that arrives while the next definitions are being looked up. */
extern void *__libc_malloc(size_t size) __attribute__((weak));
extern void *__libc_calloc(size_t count, size_t size) __attribute__((weak));
extern void *__libc_realloc(void *pointer, size_t size) __attribute__((weak));
extern void __libc_free(void *pointer) __attribute__((weak));

#define STUB_NAME(name) first_##name

/* The stubs: look up, then call what was found. */
#define STUB(name, result, parameters, arguments)                                                  \
	static result STUB_NAME(name) parameters                                                   \
	{                                                                                          \
		ps_next_resolve();                                                                 \
		return ps_next.name arguments;                                                     \
	}

PS_NEXT_MALLOC_FAMILY(STUB)
PS_NEXT_OTHERS(STUB)

#define STUB_ENTRY(name, result, parameters, arguments) .name = STUB_NAME(name),

struct ps_next ps_next = { PS_NEXT_MALLOC_FAMILY(STUB_ENTRY) PS_NEXT_OTHERS(STUB_ENTRY) };

/* What a function that this libc does not have answers. */
static int absent(void)
{
	errno = ENOSYS;
	return -1;
}

static void *absent_pointer(void)
{
	errno = ENOMEM;
	return NULL;
}

/* The next definition of a name, or instead where there is none. */
static void *find(const char *name, void *instead)
{
	void *found = ps_next_definition(name);

	return found != NULL ? found : instead;
}

/* While a lookup allocates, if it does: the C library's own allocator. */
static void lend_libc_malloc(void)
{
	if (__libc_malloc == NULL || __libc_calloc == NULL || __libc_realloc == NULL ||
	    __libc_free == NULL)
		return;
	ps_next.malloc = __libc_malloc;
	ps_next.calloc = __libc_calloc;
	ps_next.realloc = __libc_realloc;
	ps_next.free = __libc_free;
}

#define FIND(name, result, parameters, arguments)                                                  \
	*(void **)&next.name = find(#name, (void *)absent);

void ps_next_resolve(void)
{
	struct ps_next next = ps_next;
	const bool first = ps_next.malloc == STUB_NAME(malloc);

	ps_thread.depth++;
	if (first)
		lend_libc_malloc();
	PS_NEXT_MALLOC_FAMILY(FIND)
	*(void **)&next.pvalloc = find("pvalloc", (void *)absent_pointer);
	/* From here on a lookup that fails may allocate the text for dlerror(). */
	ps_next.malloc = next.malloc;
	ps_next.calloc = next.calloc;
	ps_next.realloc = next.realloc;
	ps_next.free = next.free;
	PS_NEXT_OTHERS(FIND)
	ps_next = next;
	ps_thread.depth--;
}
