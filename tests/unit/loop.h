/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef LOOP_H
#define LOOP_H
/*
 * Loop devices, where the user may make one, for tests of disks with other blocks than the machine's.
 */
#include <stdbool.h>
#include <stddef.h>

/*
 * A device of this many bytes, with logical blocks of block bytes, whose file has no name in directory.
 * Its path is stored in device. One at a time; it goes with the process at the latest. false: says why the
 * test by this name is left out.
 */
bool loop_begin(const char *test, const char *directory, size_t bytes, unsigned block, char *device,
		size_t size);
void loop_end(void);

#endif
