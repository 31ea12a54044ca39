/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_FAKES_H
#define TEST_FAKES_H
/* What the tests of the fake driver share. */
#include <sys/mman.h>

#include "../fakes/fake_cuda.h"
#include "../preload/check.h"

#define PAGE 4096u
#define IS(code, call) check((call) == (code), "%s is %d", #call, (int)(code))
#define DO(call) IS(0, call)

struct cases {
	const char *name;
	void (*go)(void);
};

static inline char *pages(size_t count)
{
	void *memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	if (memory == MAP_FAILED)
		_exit(99);
	return memory;
}

/* The primary context, current. */
static inline ps_cu_context start(void)
{
	ps_cu_context context = NULL;

	DO(cuInit(0));
	DO(cuDevicePrimaryCtxRetain(&context, 0));
	DO(cuCtxSetCurrent(context));
	return context;
}

/* Runs those that the only argument names; the status to end with. */
static inline int run_named(const struct cases *cases, size_t count, int arguments, char **argument)
{
	for (size_t i = 0; arguments == 2 && i < count; i++) {
		if (!strcmp(argument[1], cases[i].name)) {
			cases[i].go();
			return check_end();
		}
	}
	return 2;
}

#endif
