/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_FINDINGS_H
#define PS_FINDINGS_H
/*
 * What pinshim doctor found, in the order in which it looked.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "text.h"

enum ps_state {
	PS_STATE_OK,
	PS_STATE_NOTE,    /* worth knowing; nothing is lost */
	PS_STATE_WARNING, /* pinning works, with this limit */
	PS_STATE_FAILED,  /* because of this it cannot */
};

struct ps_finding {
	enum ps_state state;
	const char *check; /* what was looked at: a word, the same in every format */
	char found[1024];
	char remedy[768]; /* what to do; empty: nothing */
};

#define PS_FINDINGS_MAX 64

struct ps_findings {
	struct ps_finding finding[PS_FINDINGS_MAX];
	size_t count;
};

/* Adds one. Its texts are written through the two that are returned; either may be NULL. */
void ps_findings_begin(struct ps_findings *findings, enum ps_state state, const char *check,
		       struct ps_text *found, struct ps_text *remedy);

/* Adds one as a whole; remedy may be NULL. */
void ps_findings_add(struct ps_findings *findings, enum ps_state state, const char *check,
		     const char *remedy, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* The worst state that there is. */
enum ps_state ps_findings_worst(const struct ps_findings *findings);

/* A line each, and one that sums them up; or one JSON object, as pinshim(1) describes it. */
void ps_findings_write(const struct ps_findings *findings, FILE *to);
void ps_findings_write_json(const struct ps_findings *findings, FILE *to);

#endif
