/* SPDX-License-Identifier: BSD-2-Clause */
#include "figures.h"

#include "counters.h"

#define WORDS (sizeof(struct ps_figures) / sizeof(uint64_t))

static uint64_t live_blocks(const struct pinshim_table *table)
{
	struct pinshim_entry sum;
	uint64_t served = 0, freed = 0;

	for (unsigned i = 0; i < PINSHIM_ENTRIES; i++) {
		ps_count_sum(table, i, &sum);
		served += sum.served;
		freed += sum.freed;
	}
	return served > freed ? served - freed : 0;
}

static uint64_t refusals(const struct pinshim_table *table)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PINSHIM_LIMITS_MAX; i++)
		sum += table->refused[i];
	return sum;
}

void ps_figures_of(const struct pinshim_table *table, struct ps_figures *figures)
{
	*figures = (struct ps_figures){
		.pinned = table->pinned_bytes,
		.peak = table->pinned_peak_bytes,
		.locked = table->locked_bytes,
		.registered = table->registered_bytes,
		.huge = table->huge_bytes,
		.foreign = table->foreign_bytes,
		.retained = ps_count_retained(table),
		.blocks = live_blocks(table),
		.refusals = refusals(table),
	};
	ps_count_aio_sum(table, &figures->aio);
}

void ps_figures_add(struct ps_figures *sum, const struct ps_figures *one)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)one;

	for (unsigned i = 0; i < WORDS; i++)
		if (__builtin_add_overflow(to[i], from[i], &to[i]))
			to[i] = UINT64_MAX;
}
