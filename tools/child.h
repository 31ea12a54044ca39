/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CHILD_H
#define PS_CHILD_H
/*
 * Child processes that try something which may hang, crash, or change the process it is done in.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "text.h"

/*
 * Calls work(result) in a child process, for so many seconds at most, and copies what it made of the
 * size bytes at result back. false, with the reason in *why, where that did not come about.
 */
bool ps_child_ask(void (*work)(void *result), void *result, size_t size, unsigned seconds,
		  struct ps_text *why);

/* Reads to the end, or what there is room for less one byte; ends it with NUL. Returns the length. */
size_t ps_child_read(int fd, char *buffer, size_t size);

/* Waits for a child. Did it exit with 0? Else *why says how it ended. */
bool ps_child_wait(pid_t child, struct ps_text *why);

#endif
