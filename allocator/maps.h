/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_MAPS_H
#define PS_MAPS_H
/*
 * The mappings of this process, from /proc/self/maps: for the rare calls that have to know them.
 *
 * Reads through os.h into the stack (about 5 KiB of it), allocates nothing and takes no lock. The
 * mappings may change meanwhile: the kernel goes on from the last address it gave, so each mapping
 * is seen at most once, as it was at some moment of the call.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_mapping {
	uintptr_t base;
	uintptr_t end;
	int protection;  /* PROT_* */
	uint64_t offset; /* in the file, bytes */
	uint64_t inode;  /* of the file, 0 if none; of System V shared memory: its id */
	bool shm;        /* System V shared memory */
};

/*
 * Calls visit() for each mapping in ascending order until it returns non-zero. Returns that, 0, or
 * -errno where /proc/self/maps cannot be read.
 */
int ps_maps_each(int (*visit)(const struct ps_mapping *mapping, void *context), void *context);

/*
 * Is every byte of [address, address+length) mapped with at least this protection? true also where
 * /proc/self/maps cannot be read: the caller then goes on and meets the kernel's own answer.
 */
bool ps_maps_allow(const void *address, size_t length, int protection);

/*
 * Bytes in huge pages of the mappings that lie in [address, address+length) as a whole, from
 * /proc/self/smaps: takes milliseconds, as the kernel looks at every page of the process. -errno where
 * that cannot be read.
 */
int64_t ps_maps_huge_bytes(const void *address, size_t length);

#endif
