/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_PINNED_H
#define PS_PINNED_H
/*
 * What of this process's memory is pinned, from its table in /dev/shm alone (pinshim_table.h): no
 * symbol of libpinshim.so is needed. Only memory of the heap counts here: what the program pinned
 * where it is (FOREIGN) can be replaced behind everybody's back by an unmapping that no hook sees, and
 * a registration of it would then read and write pages that are no longer there.
 *
 * The table is found at the first look after it appeared; looking for it costs a system call at most
 * every 50 ms. Its header is mapped, so that asking for the generation is one load: whoever could
 * shorten the file of our own process could end the process as well, which itself has it mapped.
 *
 * Owns one lock, under which nothing but the reader is called; it is inside all of context.h's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pinshim_table.h"

/* Part of one contiguous run of locked heap memory, and what it consisted of when it was asked for. */
struct ps_piece {
	uintptr_t base;
	size_t length;       /* bytes, at most PS_PIECE_MAX */
	uint64_t generation; /* of the table then */
	uint64_t print;      /* of the bases, lengths and serials of the ranges it touches */
};

/*
 * io_uring takes 1 GiB as one buffer, which takes milliseconds to register. A piece has to be registered
 * anew when anything in it was unpinned, or memory beside it pinned that is wanted, too.
 */
#define PS_PIECE_MAX ((size_t)64 << 20)

static inline bool ps_pinned_is_table(const struct pinshim_table *header)
{
	return __atomic_load_n(&header->magic, __ATOMIC_RELAXED) == PINSHIM_TABLE_MAGIC;
}

/* The header of this process's table, once one was found; generation and magic are 0 when it is gone. */
extern struct pinshim_table *ps_pinned_header;

/* Its generation; 0 while there is none. */
static inline uint64_t ps_pinned_generation_of_found(void)
{
	const struct pinshim_table *header = __atomic_load_n(&ps_pinned_header, __ATOMIC_ACQUIRE);

	return __builtin_expect(header != NULL, 1)
		       ? __atomic_load_n(&header->generation, __ATOMIC_ACQUIRE)
		       : 0;
}

/* As ps_pinned_generation(), where there is no table, or none that ever had a range. */
uint64_t ps_pinned_generation_of_new(void);

/*
 * The generation of the table: when it has not changed, neither has what is pinned. 0 while there is
 * no table. Costs two loads; without a table, a look at the clock and the search for one.
 */
static inline uint64_t ps_pinned_generation(void)
{
	const uint64_t generation = ps_pinned_generation_of_found();

	return __builtin_expect(generation != 0, 1) ? generation : ps_pinned_generation_of_new();
}

/*
 * Where locked heap memory lies: none is outside [*low, *high). Both 0 where there is none.
 * Takes the lock, as all below do.
 */
void ps_pinned_bounds(uintptr_t *low, uintptr_t *high);

/*
 * The piece around [address, address+length): all of the run that lies in the same PS_PIECE_MAX
 * aligned block of addresses, which may be less than was asked about if that crosses one: then false,
 * as when a byte is not pinned.
 */
bool ps_pinned_piece(uintptr_t address, size_t length, struct ps_piece *piece);

/*
 * Does the piece still consist of the very ranges it did? If so its generation is brought up to
 * date. What was unpinned and pinned again at the same address is another range.
 */
bool ps_pinned_same(struct ps_piece *piece);

/*
 * The table itself, mapped for counting, or NULL while there is none: the file of libpinshim.so in
 * this process, or without it the table of the allocator in this library.
 */
static inline struct pinshim_table *ps_pinned_table(void)
{
	struct pinshim_table *header = __atomic_load_n(&ps_pinned_header, __ATOMIC_ACQUIRE);

	return header != NULL && ps_pinned_is_table(header) ? header : NULL;
}

/* Looks for the table now, however short ago that was done: it was just published. */
void ps_pinned_look(void);

/* In a forked child: the parent's table is no longer looked at. */
void ps_pinned_fork_child(void);

#endif
