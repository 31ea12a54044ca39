/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BOOTSTRAP_LIBRARY_H
#define BOOTSTRAP_LIBRARY_H
#include <stddef.h>

enum { BOOTSTRAP_BLOCKS = 12 };

/* Block i is filled with bytes i; the library's destructor checks and frees them. */
struct bootstrap_block {
	unsigned char *bytes;
	size_t size;
};

extern struct bootstrap_block bootstrap_block[BOOTSTRAP_BLOCKS];

#endif
