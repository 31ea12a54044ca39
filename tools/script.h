/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_SCRIPT_H
#define PS_SCRIPT_H

#include <stddef.h>

/*
 * Which program runs this script: what its #! line says, behind env(1) too; /bin/sh for text without
 * one, as execvp(3) and shells do it. 0; -ENOEXEC where it is no script; -errno.
 */
int ps_script_runner(const char *path, char *program, size_t size);

#endif
