/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dlsym: names that may be ours go to ps_dlsym_candidate(), all others straight on.
 *
 * A jump, not a call: glibc takes RTLD_NEXT for "after whoever the return address belongs to", so a
 * dlsym that calls the real one sends every other interposer round in circles. RTLD_NEXT and
 * RTLD_DEFAULT go on untouched whatever the name: our exported functions are in that search.
 *
 * Programs look up thousands of names, some in the middle of start-up, so all that is done here is
 * comparing bytes: no lock, no memory, at most 40 instructions. The letters tested tell our names from
 * all others of CUDA; which of them it is, if any, ps_dlsym_candidate() finds out.
 *
 * A byte is looked at only when those before it have shown that the name goes on, since it may end
 * where a page does. Names of device functions are told apart by a late letter instead, and are
 * candidates where that might be in the next page.
 */
	.text

#if defined(__x86_64__)

/* On to the next dlsym unless the name has this letter there. */
	.macro	want at, letter
	cmpb	$\letter, \at(%rsi)
	jne	.Lonward
	.endm

/* Takes the letter there, for on. */
	.macro	take at
	movzbl	\at(%rsi), %eax
	.endm

	.macro	on letter, label
	cmpb	$\letter, %al
	je	\label
	.endm

/* A candidate unless this letter is in the page of the first, if the name goes on so far. */
	.macro	within at
	leaq	\at(%rsi), %rax
	xorq	%rsi, %rax
	testl	$4096, %eax
	jne	.Lcandidate
	.endm

	.macro	unless_name
	testq	%rsi, %rsi
	je	.Lonward
	.endm

	.macro	go_on
	jmpq	*ps_dlsym_next(%rip)
	.endm

/* A candidate unless the handle is RTLD_DEFAULT, 0, or RTLD_NEXT, -1. */
	.macro	decide
	leaq	1(%rdi), %rax
	cmpq	$1, %rax
	ja	ps_dlsym_candidate
	go_on
	.endm

	.macro	resolve
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	ps_dlsym_resolve
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	.endm

#elif defined(__aarch64__)

	.macro	want at, letter
	ldrb	w16, [x1, #\at]
	cmp	w16, #\letter
	b.ne	.Lonward
	.endm

	.macro	take at
	ldrb	w16, [x1, #\at]
	.endm

	.macro	on letter, label
	cmp	w16, #\letter
	b.eq	\label
	.endm

	.macro	within at
	add	x16, x1, #\at
	eor	x16, x16, x1
	tbnz	x16, #12, .Lcandidate
	.endm

	.macro	unless_name
	cbz	x1, .Lonward
	.endm

	.macro	go_on
	adrp	x16, ps_dlsym_next
	ldr	x16, [x16, :lo12:ps_dlsym_next]
	br	x16
	.endm

	.macro	decide
	add	x16, x0, #1
	cmp	x16, #1
	b.ls	.Lonward
	b	ps_dlsym_candidate
	.endm

	.macro	resolve
	stp	x29, x30, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	stp	x0, x1, [sp, #16]
	bl	ps_dlsym_resolve
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #32
	.cfi_adjust_cfa_offset -32
	.cfi_restore x29
	.cfi_restore x30
	.endm

#else
#error "pinshim: no dlsym for this processor"
#endif

	.globl	dlsym
	.type	dlsym, %function
dlsym:
	.cfi_startproc
	unless_name
	want	0, 'c'
	want	1, 'u'
	take	2
	on	'd', .Lruntime
	on	'M', .Lmemory
	on	'D', .Ldevice
	on	'P', .Lpointer
	on	'G', .Lget
	on	'C', .Lcontext
.Lonward:
	go_on

/* cuMemAllocHost, cuMemFreeHost, cuMemHost... */
.Lmemory:
	want	3, 'e'
	want	4, 'm'
	take	5
	on	'A', .Lmemory_alloc
	on	'F', .Lmemory_free
	want	5, 'H'
	want	6, 'o'
.Lcandidate:
	decide
.Lmemory_alloc:
	want	6, 'l'
	want	7, 'l'
	want	8, 'o'
	want	9, 'c'
	want	10, 'H'
	decide
.Lmemory_free:
	want	6, 'r'
	want	7, 'e'
	want	8, 'e'
	want	9, 'H'
	decide

/* cuDevicePrimaryCtxRelease, ...Reset; not ...Retain, ...GetState, nor cuDeviceGet... */
.Ldevice:
	within	20
	want	8, 'P'
	want	18, 'R'
	take	20
	on	't', .Lonward
	decide

/* cuPointerGetAttribute(s) */
.Lpointer:
	want	3, 'o'
	want	4, 'i'
	want	5, 'n'
	want	6, 't'
	want	7, 'e'
	want	8, 'r'
	want	9, 'G'
	decide

/* cuGetProcAddress; not cuGetErrorString */
.Lget:
	want	3, 'e'
	want	4, 't'
	want	5, 'P'
	decide

/* cuCtxDestroy */
.Lcontext:
	want	3, 't'
	want	4, 'x'
	want	5, 'D'
	want	6, 'e'
	want	7, 's'
	decide

.Lruntime:
	want	3, 'a'
	take	4
	on	'M', .Lruntime_malloc
	on	'D', .Lruntime_device
	on	'F', .Lruntime_free
	on	'G', .Lruntime_get
	on	'P', .Lruntime_peek
	/* cudaHostAlloc, cudaHostRegister, ... */
	want	4, 'H'
	want	5, 'o'
	decide

/* cudaMallocHost; not cudaMallocAsync, cudaMemcpy */
.Lruntime_malloc:
	want	5, 'a'
	want	6, 'l'
	want	7, 'l'
	want	8, 'o'
	want	9, 'c'
	want	10, 'H'
	decide

/* cudaDeviceReset; not cudaDeviceRegisterAsyncNotification, cudaDeviceSynchronize */
.Lruntime_device:
	within	12
	want	10, 'R'
	want	12, 's'
	decide

/* cudaFreeHost */
.Lruntime_free:
	want	5, 'r'
	want	6, 'e'
	want	7, 'e'
	want	8, 'H'
	decide

/* cudaGetLastError */
.Lruntime_get:
	want	5, 'e'
	want	6, 't'
	want	7, 'L'
	decide

/* cudaPeekAtLastError, cudaPointerGetAttributes */
.Lruntime_peek:
	take	5
	on	'e', .Lruntime_peek_at
	want	5, 'o'
.Lruntime_peek_at:
	decide
	.cfi_endproc
	.size	dlsym, . - dlsym

/* What ps_dlsym_next points to at first: looks the next dlsym up, then goes there. */
	.globl	ps_dlsym_first
	.hidden	ps_dlsym_first
	.type	ps_dlsym_first, %function
ps_dlsym_first:
	.cfi_startproc
	resolve
	go_on
	.cfi_endproc
	.size	ps_dlsym_first, . - ps_dlsym_first

	.hidden	ps_dlsym_candidate
	.hidden	ps_dlsym_next
	.hidden	ps_dlsym_resolve
	.section .note.GNU-stack, "", %progbits
