/* SPDX-License-Identifier: BSD-2-Clause */
#include "start.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>

#include "config.h"
#include "fault.h"
#include "kernel.h"
#include "life.h"
#include "lock.h"
#include "log.h"
#include "memory.h"
#include "os.h"
#include "ring.h"
#include "syscall.h"

/* Status of a process that was ended for a bad setting: EX_CONFIG of sysexits.h. */
#define EXIT_BAD_SETTING 78

enum answer { UNKNOWN, ALLOWED, REFUSED };

static atomic_bool started;
static atomic_uint allowed; /* enum answer */

/* libpinshim.so reads the same settings: what is to be said of them, one of the two says. */
static void read_settings(void)
{
	char line[512];
	struct ps_text error = PS_TEXT_INIT(line);

	if (ps_config_from_environment(&error) < 0) {
		ps_log(PS_LOG_ERROR, "%s", line);
		ps_syscall1(SYS_exit_group, EXIT_BAD_SETTING);
	}
	if (!ps_memory_is_shared())
		ps_config_say_unknown();
}

void ps_aio_start(void)
{
	static struct ps_lock once = PS_LOCK_INIT;

	if (atomic_load_explicit(&started, memory_order_acquire))
		return;
	ps_lock(&once);
	if (!atomic_load(&started)) {
		ps_log_start();
#ifdef PS_FAULT_INJECTION
		ps_fault_from_environment();
#endif
		ps_kernel_resolve();
		ps_memory_start();
		read_settings();
		ps_aio_life_start();
		atomic_store_explicit(&started, true, memory_order_release);
	}
	ps_unlock(&once);
}

bool ps_aio_is_on(void)
{
	return atomic_load_explicit(&started, memory_order_acquire) && ps_config.aio != PS_AIO_OFF;
}

static void say_refused(int error)
{
	const char *why = error == -ENOSYS ? "the kernel has no io_uring"
			  : error == -EPERM
				  ? "io_uring is not permitted here (a seccomp filter, or the "
				    "sysctl kernel.io_uring_disabled)"
				  : strerrordesc_np(-error);

	ps_log(PS_LOG_INFO, "asynchronous I/O uses the kernel's AIO: %s", why);
}

/*
 * No ring is made: closing one interrupts whatever its thread waits in next. The kernel looks at whether
 * the caller may have a ring before it looks at the ring's parameters, which cannot be read.
 */
bool ps_aio_ring_allowed(void)
{
	int error;

	if (atomic_load(&allowed) != UNKNOWN)
		return atomic_load(&allowed) == ALLOWED;
	error = ps_ring_probe();
	if (error == 0)
		ps_log(PS_LOG_INFO,
		       "asynchronous I/O uses io_uring, where it serves as the kernel's "
		       "AIO does");
	else
		say_refused(error);
	atomic_store(&allowed, error == 0 ? ALLOWED : REFUSED);
	return error == 0;
}
