/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_ADDRESS_LIMIT_H
#define PS_ADDRESS_LIMIT_H
/*
 * setrlimit(2) and its kin, in the C library's place: address_limit.c has the four functions, and both
 * preloaded libraries have address_limit.c. Where the next definitions are each says here.
 *
 * Reserved addresses count against RLIMIT_AS, which programs, and shells for what they run, lower: most of what the
 * heap has not used is given back then, so that the program has nearly as much as without us.
 */
#include <sys/resource.h>
#include <sys/types.h>

int ps_address_limit_next_setrlimit(__rlimit_resource_t resource, const struct rlimit *limit);
int ps_address_limit_next_prlimit(pid_t pid, __rlimit_resource_t resource,
				  const struct rlimit *limit, struct rlimit *old);

#endif
