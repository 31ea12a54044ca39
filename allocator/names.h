/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_NAMES_H
#define PS_NAMES_H
/*
 * The names of what a table counts, for the library and for tools that read other processes' tables.
 */
#include <stddef.h>

/* The short name of a limit (enum ps_limit of budget.h), or NULL where it has none. */
const char *pinshim_limit_name(unsigned limit);

/* The name of bit number hook of pinshim_table.hooks_reached, or NULL. */
const char *ps_hook_name(unsigned hook);

#endif
