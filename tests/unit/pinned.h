/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_PINNED_H
#define TEST_PINNED_H
/*
 * For tests of the pinned heap: what the kernel, the table, the budget and the window each say is
 * pinned, and whether they agree.
 *
 * Cases run in one process (CK_NOFORK): a forked child has no locks to look at.
 */
#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "fault.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif
#define SANITIZED (UNDER_TSAN || UNDER_ASAN)

/* What is pinned, by everybody's own account. */
struct pinned {
	long locked_kb;      /* VmLck, less what it was at start */
	uint64_t claimed;    /* by the budget */
	uint64_t present;    /* of these: said to be in memory */
	uint64_t gauge;      /* locked_bytes of the table */
	uint64_t huge_gauge; /* huge_bytes of the table */
	uint64_t chunks;     /* of the table */
	size_t ranges;       /* in the table */
	uint64_t published;  /* bytes in these */
	uint64_t granules;   /* of the window that are not free */
	uint64_t busy;       /* of these: busy or lost */
};

void pinned_look(struct pinned *now);

/* The table, the budget, the gauges, VmLck and every run of the window must agree. At rest only. */
void pinned_check(void);

/* As before, when nothing was pinned: nothing leaked, no granule lost. */
void pinned_check_nothing(void);

long pinned_locked_kb(void);

/* A field of a file of /proc/self in kB, such as "VmSize:" of status. */
long pinned_proc_kb(const char *file, const char *field);

/* Releases the window and reserves one of this many bytes, for tests of its exhaustion. */
void pinned_new_window(uint64_t bytes);

/* Fills memory so that pinned_filled() can tell it from any other. */
void pinned_fill(void *block, size_t length, uint64_t seed);
bool pinned_filled(const void *block, size_t length, uint64_t seed);
bool pinned_is_zero(const void *block, size_t length);

/* Says why a case is left out; the runner counts it. */
void pinned_skip(const char *name, const char *reason);

/* main() of such a test: one case by this name, which add() adds the functions to. */
int pinned_main(const char *name, void (*add)(TCase *tcase));

#endif
