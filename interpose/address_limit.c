/* SPDX-License-Identifier: BSD-2-Clause */
#include "address_limit.h"

#include "os.h"
#include "table.h"
#include "window.h"

#define PUBLIC __attribute__((visibility("default")))

/* A limit of this process was set, or was not; a child of vfork() has its parent's heap. Returns result. */
static int was_set(int result, __rlimit_resource_t resource, const struct rlimit *limit)
{
	if (result == 0 && resource == RLIMIT_AS && limit != NULL &&
	    limit->rlim_cur != RLIM_INFINITY && ps_table_is_ours())
		ps_window_fit(limit->rlim_cur);
	return result;
}

PUBLIC int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	return was_set(ps_address_limit_next_setrlimit(resource, limit), resource, limit);
}

PUBLIC int prlimit(pid_t pid, __rlimit_resource_t resource, const struct rlimit *limit,
		   struct rlimit *old)
{
	const int result = ps_address_limit_next_prlimit(pid, resource, limit, old);

	return pid == 0 || pid == ps_os_getpid() ? was_set(result, resource, limit) : result;
}

_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "they are the same");

PUBLIC int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	return setrlimit(resource, (const struct rlimit *)limit);
}

PUBLIC int prlimit64(pid_t pid, __rlimit_resource_t resource, const struct rlimit64 *limit,
		     struct rlimit64 *old)
{
	return prlimit(pid, resource, (const struct rlimit *)limit, (struct rlimit *)old);
}
