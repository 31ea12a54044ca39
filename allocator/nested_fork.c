/* SPDX-License-Identifier: BSD-2-Clause */
#include "nested_fork.h"

#include "counters.h"

static _Thread_local struct {
	unsigned inner; /* forks that took no lock and are not over */
	bool holds;     /* one that did is not */
} forks __attribute__((tls_model("initial-exec")));

bool ps_fork_takes_locks(bool holds)
{
	if (holds || ps_thread.depth > 0)
		forks.inner++;
	else
		forks.holds = true;
	return !holds && ps_thread.depth == 0;
}

bool ps_fork_took_locks(void)
{
	const bool took = forks.inner == 0 && forks.holds;

	if (forks.inner > 0)
		forks.inner--;
	else
		forks.holds = false;
	return took;
}

bool ps_fork_child_took_locks(void)
{
	const bool took = forks.holds;

	forks.inner = 0;
	forks.holds = false;
	return took;
}
