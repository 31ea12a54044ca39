/* SPDX-License-Identifier: BSD-2-Clause */
#include "own_stack.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "os.h"

#define STACK_BYTES ((size_t)256 << 10)

struct call {
	void (*run)(void *argument);
	void *argument;
};

/* makecontext() hands over ints only. */
static void enter(unsigned high, unsigned low)
{
	const struct call *call = (const struct call *)(uintptr_t)((uint64_t)high << 32 | low);

	call->run(call->argument);
}

void ps_on_own_stack(void (*run)(void *argument), void *argument)
{
	const int saved = errno;
	struct call call = { run, argument };
	const uint64_t address = (uintptr_t)&call;
	ucontext_t here, there;
	void *stack;

	if (ps_os_mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0, &stack) < 0) {
		run(argument);
	} else {
		getcontext(&there);
		there.uc_stack.ss_sp = stack;
		there.uc_stack.ss_size = STACK_BYTES;
		there.uc_link = &here;
		makecontext(&there, (void (*)(void))enter, 2, (unsigned)(address >> 32),
			    (unsigned)address);
		swapcontext(&here, &there);
		ps_os_munmap(stack, STACK_BYTES);
	}
	errno = saved;
}
