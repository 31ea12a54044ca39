/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints what look-ups answer, for lookup_plain.sh to compare with and without us.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lookup.h"
#include "lookup_names.h"

void own_print(void) __attribute__((weak));

static void print(const char *how, void *handle, const char *name)
{
	void *found;

	errno = 77;
	found = dlsym(handle, name);
	printf("%s %s %s+%lx errno %d", how, name, library_of(found), offset_of(found), errno);
	printf(" dlerror %s\n", found == NULL ? dlerror() : "not asked");
	/* Told once; and a look-up that worked leaves nothing to tell. */
	printf("%s %s dlerror %s\n", how, name, dlerror());
}

static void print_everywhere(void *handle, const char *name)
{
	print("next", RTLD_NEXT, name);
	print("default", RTLD_DEFAULT, name);
	print("handle", handle, name);
}

/* Names that end where readable memory does. */
static void print_at_page_end(void *handle)
{
	static const char *const names[] = { "",           "c",         "cu",       "cuM",
					     "cuMemA",     "cuDev",     "cuda",     "cudaD",
					     "cudaHos",    "cuMemHost", "cuGetP",   "cudaM",
					     "cudaMalloc", "cuPoint",   "cuDeviceP" };
	const long page = sysconf(_SC_PAGESIZE);
	char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE) < 0)
		exit(99);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char *name = memory + page - strlen(names[i]) - 1;

		memcpy(name, names[i], strlen(names[i]) + 1);
		print_everywhere(handle, name);
	}
}

static void print_null_name(void *handle)
{
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		char *volatile none = NULL;

		_exit(dlsym(handle, none) != NULL);
	}
	waitpid(child, &status, 0);
	printf("a name that is NULL: status %d\n", status);
}

int main(int count, char **argument)
{
	static const char *const names[] = { PLAIN_NAMES(NAME_ENTRY) };
	static const char *const missing[] = { "missing",      "cuMemHostAllocate", "cuMemHostNone",
					       "cudaHostNone", "cudaHostAl",        "" };
	void *libc = dlopen("libc.so.6", RTLD_NOW), *other;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		print_everywhere(libc, names[i]);
	for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++)
		print_everywhere(libc, missing[i]);
	print_at_page_end(libc);
	print_null_name(libc);
	if (own_print != NULL)
		own_print();
	if (count > 1) {
		/* Not CUDA's, whatever its functions are called. */
		other = dlopen(argument[1], RTLD_NOW);
		print("other", other, "cuMemHostAlloc");
		print("other", other, "cudaHostAlloc");
		print("other", other, "cuMemHostNone");
	}
	return 0;
}
