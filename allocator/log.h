/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_LOG_H
#define PS_LOG_H
/*
 * Messages on stderr, each one line and one write(2): "pinshim[pid]: what failed: why: what to do".
 *
 * May be called from anywhere, with any lock held. Nothing is written when descriptor 2 is no longer
 * what it was at start and does not look like a log either (terminal, pipe, or file opened with
 * O_APPEND): a daemon may have closed it and opened its data file there.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Values of PINSHIM_LOG. */
enum ps_log_level { PS_LOG_ERROR, PS_LOG_WARN, PS_LOG_INFO, PS_LOG_DEBUG };

/* What is said; set once from the settings, PS_LOG_WARN before. */
extern enum ps_log_level ps_log_level;

/* Remembers what descriptor 2 is. Called once by the constructor. */
void ps_log_start(void);

void ps_log(enum ps_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says it the first time only; each use has its own memory of having been said. */
#define ps_log_once(level, ...)                                                                    \
	do {                                                                                       \
		static atomic_flag said = ATOMIC_FLAG_INIT;                                        \
		if (!atomic_flag_test_and_set_explicit(&said, memory_order_relaxed))               \
			ps_log(level, __VA_ARGS__);                                                \
	} while (0)

/*
 * Writes a text of several lines as it is (the exit report). false where descriptor 2 may not be
 * written, see above.
 */
bool ps_log_raw(const char *text, size_t length);

/* Says it at level error and aborts: for damage to the heap, as glibc does. */
_Noreturn void ps_log_abort(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
