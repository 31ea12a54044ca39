/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_COUNT_H
#define PS_COUNT_H
/*
 * Counting I/O, in struct pinshim_aio of the table's stripes (pinshim_table.h), a stripe a thread, so
 * that threads do not contend. Before there is a table, counts are kept in this library and
 * added to the table when it appears.
 */
#include <stdint.h>

#include "counters.h"
#include "lock.h"
#include "pinshim_table.h"

/* A word of struct pinshim_aio. */
#define PS_AIO(member) (offsetof(struct pinshim_aio, member) / sizeof(uint64_t))

/* Where this thread counts just now: struct pinshim_aio, as words. No system call, no lock. */
uint64_t *ps_aio_words(void);

/* Adds to one of these. */
static inline void ps_aio_add(uint64_t *words, unsigned word, uint64_t amount)
{
	if (amount == 0)
		return;
	if (ps_lock_alone())
		ps_count_own(words + word, amount);
	else
		ps_count_add(words + word, amount);
}

/* Adds to one. */
static inline void ps_aio_count(unsigned word, uint64_t amount)
{
	ps_aio_add(ps_aio_words(), word, amount);
}

/* What a number of completed requests came to. */
struct ps_tally {
	uint64_t bytes, failed, partial;
};

/* One that was to transfer this many bytes, 0 where it is not known; its result is a count or -errno. */
static inline void ps_tally_add(struct ps_tally *tally, int64_t result, uint64_t length)
{
	if (result < 0) {
		tally->failed++;
	} else {
		tally->bytes += (uint64_t)result;
		tally->partial += (uint64_t)result < length;
	}
}

/* Adds it up. */
static inline void ps_tally_count(const struct ps_tally *tally)
{
	uint64_t *words;

	if ((tally->bytes | tally->failed | tally->partial) == 0)
		return;
	words = ps_aio_words();
	ps_aio_add(words, PS_AIO(bytes), tally->bytes);
	ps_aio_add(words, PS_AIO(failed), tally->failed);
	ps_aio_add(words, PS_AIO(partial), tally->partial);
}

/* Moves what was counted without a table into the table, if there is one now. Rarely called. */
void ps_aio_count_publish(void);

/* In a forked child counters begin at zero. */
void ps_aio_count_fork_child(void);

#endif
