/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_FORMATS_H
#define PS_FORMATS_H
/*
 * The formats in which pinshim stat shows what it found; each is a file of its own. None looks
 * whether writing succeeded: the caller does.
 *
 * Names come from other processes, which may be hostile: nothing of them steers a terminal or ends a
 * string of a format before its time.
 */
#include <stdbool.h>
#include <stdio.h>

#include "jobs.h"

/* listing.c: a table for a person, with ranges if the holders have some. */
void ps_listing_write(FILE *to, const struct ps_jobs *jobs);

/* json.c: one object. */
void ps_json_write(FILE *to, const struct ps_jobs *jobs, bool ranges);

/* prometheus.c: the text exposition format 0.0.4. */
void ps_prometheus_write(FILE *to, const struct ps_jobs *jobs);

/* range_flags.c: the names of these flags, in such quotes, separated by commas. */
void ps_range_flags_write(FILE *to, uint32_t flags, const char *quote);

#endif
