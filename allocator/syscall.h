/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_SYSCALL_H
#define PS_SYSCALL_H
/*
 * System calls that neither touch errno nor pass through libc.
 *
 * Two things need this. free() must leave errno alone (POSIX.1-2024), and the threads that populate
 * a chunk share their maker's thread-local storage, so they may not write errno. And other preloaded
 * libraries interpose mmap, madvise and open: calling libc's from under an allocator lock re-enters
 * the allocator (jemalloc#329, jemalloc#500).
 *
 * ps_syscallN() returns what the kernel returns: a result, or -errno.
 */
#include <sys/syscall.h>

#if defined(__x86_64__)

static inline long ps_syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

#elif defined(__aarch64__)

static inline long ps_syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory", "cc");
	return x0;
}

#else
#error "pinshim: no system call stub for this processor"
#endif

#define ps_syscall0(n) ps_syscall6((n), 0, 0, 0, 0, 0, 0)
#define ps_syscall1(n, a) ps_syscall6((n), (long)(a), 0, 0, 0, 0, 0)
#define ps_syscall2(n, a, b) ps_syscall6((n), (long)(a), (long)(b), 0, 0, 0, 0)
#define ps_syscall3(n, a, b, c) ps_syscall6((n), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define ps_syscall4(n, a, b, c, d)                                                                 \
	ps_syscall6((n), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define ps_syscall5(n, a, b, c, d, e)                                                              \
	ps_syscall6((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

#endif
