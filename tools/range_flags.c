/* SPDX-License-Identifier: BSD-2-Clause */
#include "formats.h"

static const struct {
	uint32_t flag;
	const char *name;
} range_flag[] = {
	{ PINSHIM_RANGE_LOCKED, "locked" },       { PINSHIM_RANGE_REGISTERED, "registered" },
	{ PINSHIM_RANGE_HUGE, "huge" },           { PINSHIM_RANGE_FOREIGN, "foreign" },
	{ PINSHIM_RANGE_HEAP_CUDA, "cuda_heap" }, { PINSHIM_RANGE_HEAP_MALLOC, "malloc_heap" },
};

void ps_range_flags_write(FILE *to, uint32_t flags, const char *quote)
{
	const char *separator = "";

	for (size_t i = 0; i < sizeof(range_flag) / sizeof(range_flag[0]); i++) {
		if (!(flags & range_flag[i].flag))
			continue;
		fprintf(to, "%s%s%s%s", separator, quote, range_flag[i].name, quote);
		separator = ",";
	}
}
