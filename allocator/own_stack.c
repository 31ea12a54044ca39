/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Not with makecontext() and swapcontext(): a program built with AddressSanitizer would print a warning
 * about them, which it has no reason to.
 */
#include "own_stack.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "os.h"

#define STACK_BYTES ((size_t)256 << 10)

/* Calls run(argument) with the stack pointer at top, which is a multiple of 16. */
void ps_call_on_stack(void (*run)(void *argument), void *argument, void *top)
	__attribute__((visibility("hidden")));

/* The frame pointer keeps the way back, for us and for debuggers. */
__asm__(".text\n"
	".hidden ps_call_on_stack\n"
	".globl ps_call_on_stack\n"
	".type ps_call_on_stack, %function\n"
	"ps_call_on_stack:\n"
	".cfi_startproc\n"
#if defined(__x86_64__)
	"push %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset %rbp, -16\n"
	"mov %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"mov %rdx, %rsp\n"
	"mov %rdi, %rax\n"
	"mov %rsi, %rdi\n"
	"call *%rax\n"
	"mov %rbp, %rsp\n"
	"pop %rbp\n"
	".cfi_def_cfa %rsp, 8\n"
	"ret\n"
#elif defined(__aarch64__)
	"stp x29, x30, [sp, #-16]!\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset x29, -16\n"
	".cfi_offset x30, -8\n"
	"mov x29, sp\n"
	".cfi_def_cfa_register x29\n"
	"mov sp, x2\n"
	"mov x3, x0\n"
	"mov x0, x1\n"
	"blr x3\n"
	"mov sp, x29\n"
	"ldp x29, x30, [sp], #16\n"
	".cfi_def_cfa sp, 0\n"
	"ret\n"
#else
#error "pinshim: no stack switch for this processor"
#endif
	".cfi_endproc\n"
	".size ps_call_on_stack, . - ps_call_on_stack\n");

/*
 * The thread sanitizer does not see that memory is mapped and unmapped by system calls of our own: a stack
 * where another thread's was would be a race to it.
 */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static char stacks;
#define STACK_BEGINS() __tsan_acquire(&stacks)
#define STACK_ENDS() __tsan_release(&stacks)
#else
#define STACK_BEGINS()
#define STACK_ENDS()
#endif

void ps_on_own_stack(void (*run)(void *argument), void *argument)
{
	const int saved = errno;
	void *stack;

	if (ps_os_mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0, &stack) < 0) {
		run(argument);
	} else {
		STACK_BEGINS();
		ps_call_on_stack(run, argument, (char *)stack + STACK_BYTES);
		STACK_ENDS();
		ps_os_munmap(stack, STACK_BYTES);
	}
	errno = saved;
}
