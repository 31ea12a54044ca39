/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_VIEW_H
#define PS_VIEW_H
/*
 * What pinshim stat was asked to show, and how.
 */
#include <stdbool.h>
#include <stddef.h>

#include "holders.h"
#include "jobs.h"

enum ps_format { PS_FORMAT_LISTING, PS_FORMAT_JSON, PS_FORMAT_PROMETHEUS };

struct ps_view {
	struct ps_search search;
	struct ps_order order;
	enum ps_format format;
	const char *output;    /* the file to write, or NULL for standard output */
	bool reap;             /* remove the tables of the dead afterwards */
	unsigned milliseconds; /* between two looks; 0: look once */
	unsigned long times;   /* to look; 0: until somebody ends it */
};

/* What one look comes to, and what it found. */
struct ps_picture {
	char *text;
	size_t length; /* bytes; the text ends with NUL, too */
	struct ps_sum total;
	size_t unread; /* tables that could not be read */
};

/* Looks once. 0 or -ENOMEM. */
int ps_picture_take(struct ps_picture *picture, const struct ps_view *view);

void ps_picture_free(struct ps_picture *picture);

/*
 * Looks, and writes what was seen to where it goes. PS_EXIT_OK, or PS_EXIT_INCOMPLETE where something
 * could not be read or written, which was said.
 */
int ps_view_show(const struct ps_view *view);

/* Does so again and again, on a terminal in place. Returns likewise, of the last time. */
int ps_watch(struct ps_view *view);

#endif
