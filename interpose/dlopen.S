/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dlopen without RTLD_DEEPBIND, when malloc classes are served: a library bound deeply would take
 * malloc from us and free from libc (google/tcmalloc#129), or the other way round.
 *
 * A jump, not a call: dlopen looks at its return address to learn whose RPATH applies, and which
 * namespace the caller is in.
 *
 * ps_dlopen_mask is all ones until the constructor clears the bit; ps_next holds the real dlopen, or
 * before the constructor the stub that looks it up.
 */
	.text
	.globl	dlopen
	.type	dlopen, %function
dlopen:
#if defined(__x86_64__)
	andl	ps_dlopen_mask(%rip), %esi
	jmpq	*ps_dlopen_next(%rip)
#elif defined(__aarch64__)
	adrp	x16, ps_dlopen_mask
	ldr	w16, [x16, :lo12:ps_dlopen_mask]
	and	w1, w1, w16
	adrp	x16, ps_dlopen_next
	ldr	x16, [x16, :lo12:ps_dlopen_next]
	br	x16
#else
#error "pinshim: no dlopen for this processor"
#endif
	.size	dlopen, . - dlopen
	.section .note.GNU-stack, "", %progbits
