/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * interpose/dlsym.S by itself, assembled as lookup_filter(): which names it lets through and which
 * it stops, with what return address. The names end where readable memory does.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lookup_names.h"

#define COUNT(names) (sizeof(names) / sizeof(*(names)))

void *lookup_filter(void *handle, const char *name);
void *ps_dlsym_first(void *handle, const char *name);
void *ps_dlsym_candidate(void *handle, const char *name);
void ps_dlsym_resolve(void);
extern void *(*ps_dlsym_next)(void *handle, const char *name);

static int failures;
static char next_answer, candidate_answer;
static void *got_handle, *got_return;
static const char *got_name;
static int resolved;

static void check(bool good, const char *name)
{
	printf("%s - %s\n", good ? "ok" : "not ok", name);
	failures += !good;
}

static void *next(void *handle, const char *name)
{
	got_handle = handle;
	got_name = name;
	got_return = __builtin_return_address(0);
	return &next_answer;
}

void *ps_dlsym_candidate(void *handle, const char *name)
{
	next(handle, name);
	got_return = __builtin_return_address(0);
	return &candidate_answer;
}

void ps_dlsym_resolve(void)
{
	resolved++;
	ps_dlsym_next = next;
}

void *(*ps_dlsym_next)(void *handle, const char *name) = ps_dlsym_first;

/* Does a look-up arrive there, with its arguments, as a call from here? */
static __attribute__((noinline)) bool arrives(void *handle, const char *name, const void *where)
{
	const uintptr_t here = (uintptr_t)arrives;
	void *answer;

	got_handle = got_return = NULL;
	answer = lookup_filter(handle, name);
	if (answer != where)
		return false;
	return got_handle == handle && got_name == name && (uintptr_t)got_return > here &&
	       (uintptr_t)got_return < here + 256;
}

/* The name as a copy that ends with the page, or at bytes before. */
static const char *placed(const char *name, size_t bytes)
{
	static char *memory;
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), length = strlen(name) + 1;

	if (memory == NULL) {
		memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
		if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE) < 0)
			exit(99);
	}
	return memcpy(memory + page - length - bytes, name, length);
}

static bool all_arrive(void *handle, const char *const *names, size_t count, const void *where)
{
	bool good = true;

	for (size_t i = 0; i < count; i++) {
		/* The filter does not look into the next page for what tells these from ours. */
		const bool unsure = strstr(names[i], "Device") != NULL;

		if (arrives(handle, placed(names[i], 64), where) &&
		    (arrives(handle, placed(names[i], 0), where) ||
		     (unsure && arrives(handle, placed(names[i], 0), &candidate_answer))))
			continue;
		printf("# %s\n", names[i]);
		good = false;
	}
	return good;
}

/* Every beginning of every name, where it could make a difference that more follows. */
static bool beginnings_are_read(const char *const *names, size_t count)
{
	char beginning[64];

	for (size_t i = 0; i < count; i++)
		for (size_t length = 0; length < strlen(names[i]); length++) {
			memcpy(beginning, names[i], length);
			beginning[length] = '\0';
			lookup_filter(beginning, placed(beginning, 0));
		}
	return true;
}

int main(void)
{
	static const char *const hooks[] = { DRIVER_HOOKS(NAME_ENTRY)
						     RUNTIME_HOOKS(NAME_ENTRY) "cuGetProcAddress",
					     "cuGetProcAddress_v2" };
	static const char *const others[] = { PLAIN_NAMES(NAME_ENTRY) UNRELATED_NAMES(NAME_ENTRY)
						      DRIVER_OTHERS(NAME_ENTRY)
							      RUNTIME_OTHERS(NAME_ENTRY) "c",
					      "cu",
					      "cuda",
					      "",
					      "malloc",
					      "dlsym" };
	static char handle;

	check(arrives(&handle, "malloc", &next_answer) && resolved == 1,
	      "the first look-up resolves");
	check(arrives(&handle, "malloc", &next_answer) && resolved == 1, "and only it");
	check(all_arrive(&handle, hooks, COUNT(hooks), &candidate_answer), "ours are candidates");
	check(all_arrive(&handle, others, COUNT(others), &next_answer), "others go on");
	check(all_arrive(RTLD_NEXT, hooks, COUNT(hooks), &next_answer), "RTLD_NEXT goes on");
	check(all_arrive(RTLD_DEFAULT, hooks, COUNT(hooks), &next_answer), "RTLD_DEFAULT goes on");
	check(all_arrive(RTLD_NEXT, others, COUNT(others), &next_answer),
	      "others with RTLD_NEXT too");
	check(arrives(&handle, NULL, &next_answer), "no name goes on");
	check(beginnings_are_read(hooks, COUNT(hooks)) &&
		      beginnings_are_read(others, COUNT(others)),
	      "nothing is read beyond a name's end");
	return failures != 0;
}
