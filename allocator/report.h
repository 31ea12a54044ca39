/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_REPORT_H
#define PS_REPORT_H
/*
 * The exit report, from a table: text for a person or one JSON object ("schema": 1).
 */
#include <stdbool.h>

#include "pinshim_table.h"
#include "text.h"

/* Appends the report as text, each line beginning "pinshim[pid]: ". */
void ps_report_text(const struct pinshim_table *table, struct ps_text *text);

/* Appends the report as one JSON object and a newline. */
void ps_report_json(const struct pinshim_table *table, struct ps_text *text);

/* Was there any asynchronous I/O? */
bool ps_report_has_aio(const struct pinshim_aio *aio);

/* Appends what became of it, as the report has it: for a person, in one line without its end. */
void ps_report_text_aio(const struct pinshim_aio *aio, struct ps_text *text);

/* Appends it as a JSON object that has every counter. */
void ps_report_json_aio(const struct pinshim_aio *aio, struct ps_text *text);

/*
 * Writes this process's report where the setting says: "stderr" text, "off" nothing, else JSON to
 * the file the pattern names, written to a temporary name beside it and renamed. With "stderr" only
 * if the process ever pinned something or did asynchronous I/O through us. What is no regular file
 * (/dev/null, a pipe) is written into and not replaced. 0; -errno, said once; -EBADF where stderr may
 * not be written. Takes no lock.
 */
int ps_report_write(const char *stats);

/*
 * Makes this the content of the file at path: written to a temporary name beside it, mode 0644 as the
 * umask allows, and renamed, so that nobody reads half of it. What is no regular file is written into.
 * 0 or -errno, with the file as it was.
 */
int ps_report_put(const char *path, const char *content, size_t length);

#endif
