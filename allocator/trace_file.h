/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_TRACE_FILE_H
#define PS_TRACE_FILE_H
/*
 * The trace of PINSHIM_TRACE: when this process pinned and unpinned memory and was refused, as a JSON
 * array of Chrome's trace events, which Perfetto opens.
 *
 * Each event is one write(2) that takes the place of the array's end and brings it anew, so the file is
 * whole at any time, whatever becomes of the process; and were it cut in the middle of an event, Perfetto
 * would still read what is before. (It accepts an array without its end, but not an object.) Times are
 * those of CLOCK_MONOTONIC in microseconds, as `perf record -k mono` has them, so that the files of a
 * node's processes can be looked at together.
 *
 * The file is opened anew for each event: programs close descriptors that they do not know. That costs
 * some microseconds, of the hundred and more that pinning takes. A process that pins nothing and is
 * refused nothing makes no file. A forked child writes a file of its own.
 *
 * Owns one lock, innermost (lock.h), which is held while the file is written. Allocates nothing.
 */
#include <stdint.h>

#include "budget.h"

/* The file is not made longer than that; what comes then is counted in its last event. Bytes. */
#define PS_TRACE_FILE_MOST (UINT64_C(64) << 20)

/* The same, but for tests. */
extern uint64_t ps_trace_file_most;

/* Something done to a range of memory. */
struct ps_trace_span {
	const char *name;
	uintptr_t address;
	uint64_t bytes;
	uint64_t huge_bytes; /* of these, in huge pages; UINT64_MAX: not told */
	uint32_t flags;      /* PINSHIM_RANGE_* */
	int error;           /* of the CUDA driver; 0: none */
	uint64_t began;      /* ps_os_now() */
	uint64_t took;       /* nanoseconds */
};

/* Both only where PINSHIM_TRACE names a file (trace.h asks). What cannot be written is said once. */
void ps_trace_file_span(const struct ps_trace_span *span);

/*
 * Of those by one limit within 10 ms of the last that was written, which may be very many, the number
 * is written with the next.
 */
void ps_trace_file_refusal(const struct ps_refusal *why);

/* In a forked child: what it does goes to another file. */
void ps_trace_file_fork_child(void);

#endif
