/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CGROUP_H
#define PS_CGROUP_H
/*
 * The memory cgroup of this process and those above it, version 1 or 2: how much more they allow.
 *
 * Has no lock: the budget calls it with its own held. Nothing here allocates; the cgroup's place is
 * kept in static storage.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Stands before /proc and the mount points. Empty, but for tests that make a tree of their own. */
extern const char *ps_cgroup_root;

/* What the tightest cgroup allows. */
struct ps_cgroup_room {
	uint64_t room;    /* bytes that may still be taken; UINT64_MAX: there is no limit */
	uint64_t allowed; /* its limit less the reserve */
	uint64_t used;    /* its use less page cache that can be dropped */
	uint64_t flying;  /* and what is about to be used, see ps_cgroup_room_besides() */
	uint64_t bare;    /* what every one would allow if nothing were */
	char where[128];  /* its directory; the end of it if it is long */
};

/* Memory that another process is about to take. */
struct ps_flight {
	uint64_t bytes;
	size_t shared; /* ps_cgroup_shared() of that process */
};

/*
 * Finds the cgroup of this process; where there is none ps_cgroup_room() knows no limit. 0; -errno
 * when /proc cannot be read.
 */
int ps_cgroup_find(void);

/* The version, 1 or 2, of the hierarchy that ps_cgroup_find() found us in; 0: in none. */
unsigned ps_cgroup_version(void);

/*
 * Reads limits and use, from the own cgroup up to the top of the mount. The reserve is percent of
 * each cgroup's limit, or bytes where percent is 0.
 */
void ps_cgroup_room(unsigned percent, uint64_t bytes, struct ps_cgroup_room *room);

/*
 * The same besides what is about to be used: so much by this process, and what others take as far as
 * they are in the cgroup.
 */
void ps_cgroup_room_besides(unsigned percent, uint64_t bytes, uint64_t own,
			    const struct ps_flight *flight, unsigned flights,
			    struct ps_cgroup_room *room);

/*
 * Which of our cgroups another process is in, too: those whose paths have at most so many bytes. All
 * where that cannot be told.
 */
size_t ps_cgroup_shared(pid_t pid);

#endif
