/* SPDX-License-Identifier: BSD-2-Clause */
#include "held.h"

#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "syscall.h"

_Thread_local unsigned ps_held[PS_HELD_KINDS] __attribute__((tls_model("initial-exec")));

uint64_t ps_signals_block(void)
{
	const uint64_t all = ~UINT64_C(0);
	uint64_t before = 0;

	ps_syscall4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof(before));
	return before;
}

void ps_signals_restore(uint64_t mask)
{
	ps_syscall4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}
