/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting I/O. Where there is no table of this process to be found, the counts are kept in the one
 * that this library's allocator has for its own, which is private memory until something is pinned
 * here.
 */
#include "count.h"

#include <stdatomic.h>

#include "counters.h"
#include "pinned.h"
#include "table.h"

/* Something was, or is about to be, counted where nobody sees it. */
static atomic_bool kept;

static uint64_t *words(struct pinshim_table *table, unsigned stripe)
{
	return (uint64_t *)&table->stripe[stripe].aio;
}

uint64_t *ps_aio_words(void)
{
	struct pinshim_table *table = ps_pinned_table();

	if (__builtin_expect(table == NULL, 0)) {
		atomic_store_explicit(&kept, true, memory_order_release);
		return words(ps_table(), ps_stripe_index());
	}
	if (__builtin_expect(atomic_load_explicit(&kept, memory_order_relaxed), 0))
		ps_aio_count_publish();
	return words(table, ps_stripe_index());
}

void ps_aio_count_publish(void)
{
	struct pinshim_table *table;

	/* Where the counts are kept in the very table, they are taken out and put in again. */
	(void)ps_pinned_generation();
	table = ps_pinned_table();
	if (table == NULL)
		return;
	/*
	 * Looks whether or not: who was told where to count before there was a table may count there only now, after
	 * somebody else was here. The end of the process finds that.
	 */
	(void)atomic_exchange(&kept, false);
	for (unsigned stripe = 0; stripe < PINSHIM_STRIPES; stripe++) {
		uint64_t *from = words(ps_table(), stripe), *to = words(table, stripe);

		for (unsigned word = 0; word < PS_AIO_WORDS; word++)
			if (ps_count_get(from + word) != 0)
				ps_count_add(to + word,
					     __atomic_exchange_n(from + word, 0, __ATOMIC_RELAXED));
	}
}

void ps_aio_count_fork_child(void)
{
	for (unsigned stripe = 0; stripe < PINSHIM_STRIPES; stripe++)
		for (unsigned word = 0; word < PS_AIO_WORDS; word++)
			__atomic_store_n(words(ps_table(), stripe) + word, 0, __ATOMIC_RELAXED);
	atomic_store(&kept, false);
}
