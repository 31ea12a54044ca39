/* SPDX-License-Identifier: BSD-2-Clause */
#include "view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats.h"
#include "report.h"
#include "tool.h"

static void write_listing(FILE *to, const struct ps_jobs *jobs)
{
	ps_listing_write(to, jobs);
	if (!jobs->holders->count && !jobs->holders->unread)
		fputs("no process has memory pinned through pinshim\n", to);
}

static void write_picture(FILE *to, const struct ps_jobs *jobs, const struct ps_view *view)
{
	switch (view->format) {
	case PS_FORMAT_LISTING:
		write_listing(to, jobs);
		break;
	case PS_FORMAT_JSON:
		ps_json_write(to, jobs, view->search.ranges);
		break;
	case PS_FORMAT_PROMETHEUS:
		ps_prometheus_write(to, jobs);
		break;
	}
}

int ps_picture_take(struct ps_picture *picture, const struct ps_view *view)
{
	struct ps_holders holders = { .count = 0 };
	struct ps_jobs jobs;
	FILE *to;
	int rc;

	*picture = (struct ps_picture){ .text = NULL };
	ps_holders_read(&holders, &view->search);
	rc = ps_jobs_make(&jobs, &holders, &view->order);
	if (rc < 0)
		goto err_holders;
	to = open_memstream(&picture->text, &picture->length);
	if (!to) {
		rc = -ENOMEM;
		goto err_jobs;
	}
	write_picture(to, &jobs, view);
	if (ferror(to))
		rc = -ENOMEM;
	if (fclose(to) != 0)
		rc = -ENOMEM;
	picture->total = jobs.total;
	picture->unread = holders.unread;
	if (rc < 0)
		ps_picture_free(picture);
err_jobs:
	ps_jobs_free(&jobs);
err_holders:
	ps_holders_free(&holders);
	return rc;
}

void ps_picture_free(struct ps_picture *picture)
{
	free(picture->text);
	*picture = (struct ps_picture){ .text = NULL };
}

/* Standard output is flushed, and its errors are said, by whoever called the command. */
static int write_out(const struct ps_picture *picture, const char *output)
{
	int rc;

	if (!output) {
		fwrite(picture->text, 1, picture->length, stdout);
		return PS_EXIT_OK;
	}
	rc = ps_report_put(output, picture->text, picture->length);
	if (rc == 0)
		return PS_EXIT_OK;
	fprintf(stderr, "pinshim stat: %s: %s\n", output, strerrordesc_np(-rc));
	return PS_EXIT_INCOMPLETE;
}

int ps_view_show(const struct ps_view *view)
{
	struct ps_picture picture;
	int status;

	if (ps_picture_take(&picture, view) < 0) {
		fputs("pinshim stat: out of memory\n", stderr);
		return PS_EXIT_INCOMPLETE;
	}
	status = write_out(&picture, view->output);
	if (picture.unread)
		status = PS_EXIT_INCOMPLETE;
	ps_picture_free(&picture);
	return status;
}
