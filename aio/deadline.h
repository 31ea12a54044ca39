/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_DEADLINE_H
#define PS_DEADLINE_H
/*
 * Until when somebody waits, from a timeout as io_getevents(2) takes it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "os.h"

/* Nanoseconds. */
#define PS_SECOND UINT64_C(1000000000)
#define PS_MILLISECOND UINT64_C(1000000)

#define PS_NO_DEADLINE UINT64_MAX

/* No time at all? The kernel looks at no more than the sum. */
static inline bool ps_deadline_is_now(const struct timespec *timeout)
{
	return timeout != NULL && timeout->tv_sec <= 0 && timeout->tv_sec >= -INT32_MAX &&
	       timeout->tv_sec * (int64_t)PS_SECOND + timeout->tv_nsec == 0;
}

/*
 * Nanoseconds of CLOCK_MONOTONIC; PS_NO_DEADLINE without a timeout, for one of many years, and for a negative
 * one, which the kernel's timers take for one of many years, too.
 */
static inline uint64_t ps_deadline_of(const struct timespec *timeout)
{
	int64_t nanoseconds;

	if (timeout == NULL || timeout->tv_sec > INT32_MAX || timeout->tv_sec < -INT32_MAX)
		return PS_NO_DEADLINE;
	nanoseconds = timeout->tv_sec * (int64_t)PS_SECOND + timeout->tv_nsec;
	return nanoseconds < 0 ? PS_NO_DEADLINE : ps_os_now() + (uint64_t)nanoseconds;
}

/* Stores how long that is from now, which means nothing for PS_NO_DEADLINE. false where it has passed. */
static inline bool ps_deadline_left(uint64_t deadline, struct timespec *left)
{
	const uint64_t now = deadline != PS_NO_DEADLINE ? ps_os_now() : 0;
	const uint64_t nanoseconds = now < deadline ? deadline - now : 0;

	left->tv_sec = (time_t)(nanoseconds / PS_SECOND);
	left->tv_nsec = (long)(nanoseconds % PS_SECOND);
	return nanoseconds > 0;
}

#endif
