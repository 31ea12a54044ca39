/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_ACCESS_H
#define PS_ACCESS_H
/*
 * The program's memory, which may not be there: where the kernel would answer a request with EFAULT,
 * the program must not die of our touching the same memory.
 *
 * No lock. What other threads unmap in the very moment of a copy can still raise SIGSEGV.
 */
#include <stdbool.h>
#include <stddef.h>

/* Copies length bytes from the program's memory. 0; -EFAULT, with a part of it copied perhaps. */
int ps_access_read(void *to, const void *program, size_t length);

/* Copies length bytes into the program's memory. 0; -EFAULT, with a part of it copied perhaps. */
int ps_access_write(void *program, const void *from, size_t length);

/*
 * Can all of it be read? For small things that are then read where they are: costs a system call a
 * page, the cheapest that there is (80 ns).
 */
bool ps_access_is_readable(const void *program, size_t length);

#endif
