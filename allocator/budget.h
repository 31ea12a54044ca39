/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_BUDGET_H
#define PS_BUDGET_H
/*
 * How much may be pinned: the smallest of PINSHIM_LIMIT, RLIMIT_MEMLOCK as the kernel applies it,
 * the memory cgroup and its parents, MemAvailable less PINSHIM_RESERVE, and PINSHIM_NODE_LIMIT.
 *
 * The last three are shared with other processes. What these claim, in memory or on its way there, is
 * read from their tables (others.h), so processes that claim at the same time do not exceed a limit
 * together; where what others only ask for decides, a claim waits for up to a quarter of a second.
 *
 * Owns one lock (see lock.h for its place). Everything here may be called with the window's lock
 * held. Reading /proc, cgroup files and tables costs tens of microseconds, so a reading that shows room
 * gives a credit, one eighth of the room and at most 256 MiB, that following claims use up without
 * reading again for up to 100 ms.
 */
#include <stdbool.h>
#include <stdint.h>

#include "text.h"

enum ps_limit {
	PS_LIMIT_PROCESS,   /* PINSHIM_LIMIT */
	PS_LIMIT_MEMLOCK,   /* RLIMIT_MEMLOCK; found by the kernel's refusal, never guessed */
	PS_LIMIT_CGROUP,    /* memory.max, .high or .limit_in_bytes of a cgroup above us */
	PS_LIMIT_AVAILABLE, /* MemAvailable less PINSHIM_RESERVE */
	PS_LIMIT_NODE,      /* PINSHIM_NODE_LIMIT */
	PS_LIMIT_HUGETLB,   /* the pool of huge pages is empty */
	PS_LIMIT_WINDOW,    /* the reserved addresses are used up */
	PS_LIMIT_KERNEL,    /* any other refusal of the kernel: error says which */
	PS_LIMITS
};

/* Why something was refused: enough to explain it. */
struct ps_refusal {
	enum ps_limit limit;
	uint64_t asked;   /* bytes wanted */
	uint64_t allowed; /* the limit in bytes, after the reserve; 0 where it has no number */
	uint64_t used;    /* bytes counted against it */
	int error;        /* errno of the refusing call, or ENOMEM */
	char where[128];  /* the cgroup's directory or the call's name, or empty */
};

/*
 * Claims bytes for a pin that is about to be made. 0; or -ENOMEM with *why filled.
 */
int ps_budget_claim(uint64_t bytes, struct ps_refusal *why);

/*
 * As ps_budget_claim(), where only fresh bytes of it will be taken from free memory: pages that are
 * resident already, and those of a hugetlb pool, need no room in the cgroup or in MemAvailable.
 */
int ps_budget_claim_fresh(uint64_t bytes, uint64_t fresh, struct ps_refusal *why);

/*
 * So much of what was claimed is in memory now, so that readings of it show it. To be told of all that
 * was claimed as fresh, while it is populated or when it is pinned; and before the claim is returned if
 * it could not be, too.
 */
void ps_budget_arrived(uint64_t bytes);

/* Returns a claim that has arrived: the pin failed, or was undone. */
void ps_budget_release(uint64_t bytes);

/* Bytes claimed now. */
uint64_t ps_budget_claimed(void);

/*
 * How much freed memory may stay pinned for reuse: PINSHIM_RETAIN, but no more than a quarter of what
 * the memory cgroup allows, since what is kept is missing to whatever else runs there.
 */
uint64_t ps_budget_retain(void);

/* In a forked child nothing is locked: claims start from zero. */
void ps_budget_fork_child(void);

/*
 * Fills *why for a refusal by the kernel itself: call is "mlock" or another call's name, error its
 * errno. mlock's ENOMEM, EPERM and EAGAIN become PS_LIMIT_MEMLOCK with RLIMIT_MEMLOCK and VmLck.
 */
void ps_budget_kernel_refused(const char *call, int error, uint64_t asked, struct ps_refusal *why);

/*
 * Counts a refusal in the table and explains the first of each limit once, at level warn: what was
 * asked, the limit, how much is used, and the remedies. fallback says what the program got instead,
 * for example "ordinary memory".
 */
void ps_budget_refuse(const struct ps_refusal *why, const char *fallback);

/* The explanation as one line without the prefix, as ps_budget_refuse() says it. */
void ps_budget_explain(const struct ps_refusal *why, const char *fallback, struct ps_text *text);

#endif
