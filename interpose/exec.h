/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_EXEC_H
#define PS_EXEC_H
/*
 * The exec family, in the C library's place: exec.c has its ten functions, and both preloaded libraries
 * have exec.c. What they do around an exec, and where the next definitions are, each says here.
 *
 * All may run between vfork() and exec, so nothing is allocated.
 */
#include <stdbool.h>

/*
 * The program is about to be replaced, if that is possible: what is named exists and may be executed.
 * The answer is handed to ps_exec_after().
 */
bool ps_exec_before(bool possible);

/* It failed, and the process lives on. Returns result, and preserves errno. */
int ps_exec_after(bool before, int result);

/* The next definitions of four of them, which the other six come to. */
int ps_exec_next_execve(const char *path, char *const argv[], char *const envp[]);
int ps_exec_next_execvpe(const char *file, char *const argv[], char *const envp[]);
int ps_exec_next_fexecve(int fd, char *const argv[], char *const envp[]);
int ps_exec_next_execveat(int fd, const char *path, char *const argv[], char *const envp[],
			  int flags);

#endif
