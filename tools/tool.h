/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_TOOL_H
#define PS_TOOL_H
/*
 * The subcommands of pinshim(1). Each gets its arguments with argv[0] being "pinshim" and its own
 * name, and returns the exit status.
 */

/* Exit statuses, as pinshim(1) documents them. */
enum { PS_EXIT_OK, PS_EXIT_INCOMPLETE, PS_EXIT_USAGE, PS_EXIT_CANNOT };

int ps_tool_doctor(int argc, char **argv);
int ps_tool_io(int argc, char **argv);
int ps_tool_run(int argc, char **argv);
int ps_tool_stat(int argc, char **argv);

#endif
