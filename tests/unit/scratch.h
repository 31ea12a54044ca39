/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SCRATCH_H
#define SCRATCH_H
/*
 * A directory for the tables of a test, so that none of them comes to lie in /dev/shm.
 */
#include <stdbool.h>
#include <stdint.h>

/* Unchecked fixture: makes and removes the directory of a whole test case, failed tests included. */
void scratch_begin(void);
void scratch_end(void);

/* Checked fixture: an empty directory for one test, which becomes ps_table_directory. */
void scratch_enter(void);

/* The directory of this test, and paths in it, the last eight of which stay valid. */
extern char scratch[64];
const char *scratch_path(const char *name);

/* How many entries it has. */
unsigned scratch_entries(void);

/* The path that the table of this process has or will have. */
const char *scratch_table(void);

/* Reads, or replaces, a whole file. */
long scratch_read(const char *path, void *buffer, long size);
void scratch_write(const char *path, const void *buffer, long size);

/* Numbers that are the same in each run. */
uint64_t scratch_random(uint64_t *state);

/* Waits for a child. Its exit status, or -signal. */
int scratch_wait(int pid);

#endif
