/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_DOCTOR_H
#define PS_DOCTOR_H
/*
 * The parts of pinshim doctor. Each looks at one thing and says what it found: it never fails itself.
 */
#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "findings.h"
#include "preload.h"
#include "program.h"
#include "settings.h"

#define PS_CHUNK_BYTES (UINT64_C(2) << 20) /* the unit of pinning */

struct ps_doctor {
	struct ps_findings findings;
	struct ps_settings settings;
	struct ps_config config; /* as the libraries will read it; the defaults where they cannot */
	struct ps_preload preload;
	bool has_library; /* preload is what was found */
	uint64_t need;    /* bytes that are to be pinned: --need, else PINSHIM_LIMIT, else 0 */
	bool need_said;   /* by --need: less is no use */
	const char *file; /* --file: where asynchronous I/O is done */
	const char *name; /* of the program, or NULL */
	struct ps_program program;
	bool has_program; /* it was opened */
	bool uses_cuda;   /* as far as its files tell */
};

/* doctor_limits.c: what limits how much may be locked, and how much memory there is. */
void ps_doctor_limits(struct ps_doctor *doctor);

/* doctor_pages.c: huge pages and NUMA nodes. */
void ps_doctor_pages(struct ps_doctor *doctor);

/* doctor_shm.c: the place of the tables. */
void ps_doctor_shm(struct ps_doctor *doctor);

/* doctor_trial.c: pins 2 MiB in child processes. */
void ps_doctor_trial(struct ps_doctor *doctor);

/* doctor_io.c: io_uring, the kernel's AIO, and what a file demands of direct I/O. */
void ps_doctor_io(struct ps_doctor *doctor);

/* doctor_cuda.c: the CUDA driver and runtime of this system. */
void ps_doctor_cuda(struct ps_doctor *doctor);

/* doctor_program.c: the program, and what else is preloaded. */
void ps_doctor_program(struct ps_doctor *doctor);
void ps_doctor_preloaded(struct ps_doctor *doctor);

/*
 * How an amount of memory compares with what is needed: ok; warning; or failed, where it is less than
 * a chunk or than --need.
 */
enum ps_state ps_doctor_enough(const struct ps_doctor *doctor, uint64_t bytes);

/*
 * The same of what memory is taken from that pages of a hugetlb pool are not: with
 * PINSHIM_HUGEPAGES=hugetlb too little of it is a note.
 */
enum ps_state ps_doctor_enough_outside_pool(const struct ps_doctor *doctor, uint64_t bytes);

/* Adds what such an amount falls short of; nothing where it is enough. */
void ps_doctor_add_shortfall(const struct ps_doctor *doctor, uint64_t bytes, struct ps_text *text);

/* The number after "NAME:" in a file of /proc, in this base; false where there is none. */
bool ps_doctor_proc(const char *path, const char *name, unsigned base, uint64_t *value);

/* The first number in a file of /proc or /sys. */
bool ps_doctor_number(const char *path, uint64_t *value);

#endif
