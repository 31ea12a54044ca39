/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * syscall(2) of the C library: the calls of asynchronous I/O that name a context are answered by raw.c,
 * all others go on.
 *
 * A jump, not a call: a system call may return on another stack (clone), or twice (vfork), and has up to
 * seven arguments, the last of them on the stack.
 *
 * ps_raw_next holds the next definition, or before the first call the function that looks it up.
 */
	.text
	.globl	syscall
	.type	syscall, %function
syscall:
#if defined(__x86_64__)
	/* io_destroy, io_getevents, io_submit, io_cancel: 207 to 210; io_pgetevents: 333. */
	leaq	-207(%rdi), %rax
	cmpq	$3, %rax
	jbe	.Lours
	cmpq	$333, %rdi
	je	.Lours
	jmpq	*ps_raw_next(%rip)
.Lours:
	jmp	ps_raw_call
#elif defined(__aarch64__)
	/* io_destroy, io_submit, io_cancel, io_getevents: 1 to 4; io_pgetevents: 292. */
	sub	x16, x0, #1
	cmp	x16, #3
	b.ls	.Lours
	cmp	x0, #292
	b.eq	.Lours
	adrp	x16, ps_raw_next
	ldr	x16, [x16, :lo12:ps_raw_next]
	br	x16
.Lours:
	b	ps_raw_call
#else
#error "pinshim: no syscall for this processor"
#endif
	.size	syscall, . - syscall
	.section .note.GNU-stack, "", %progbits
