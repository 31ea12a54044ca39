/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names and sums of what a table counts. Depends on no other part of the library.
 */
#include "names.h"
#include "counters.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *ps_entry_name(enum pinshim_entry_point entry)
{
	static const char *const name[PINSHIM_ENTRIES] = {
		[PINSHIM_ENTRY_MALLOC] = "malloc",
		[PINSHIM_ENTRY_CALLOC] = "calloc",
		[PINSHIM_ENTRY_REALLOC] = "realloc",
		[PINSHIM_ENTRY_ALIGNED] = "aligned_alloc",
		[PINSHIM_ENTRY_PINSHIM_ALLOC] = "pinshim_alloc",
		[PINSHIM_ENTRY_PINSHIM_PIN] = "pinshim_pin",
		[PINSHIM_ENTRY_CUDA_HOST_ALLOC] = "cudaHostAlloc",
		[PINSHIM_ENTRY_CUDA_MALLOC_HOST] = "cudaMallocHost",
		[PINSHIM_ENTRY_CUDA_HOST_REGISTER] = "cudaHostRegister",
		[PINSHIM_ENTRY_CU_MEM_HOST_ALLOC] = "cuMemHostAlloc",
		[PINSHIM_ENTRY_CU_MEM_ALLOC_HOST] = "cuMemAllocHost",
		[PINSHIM_ENTRY_CU_MEM_HOST_REGISTER] = "cuMemHostRegister",
	};

	return (unsigned)entry < COUNT(name) ? name[entry] : NULL;
}

const char *pinshim_limit_name(unsigned limit)
{
	static const char *const name[] = { "process", "memlock", "cgroup", "available",
					    "node",    "hugetlb", "window", "kernel" };

	return limit < COUNT(name) ? name[limit] : NULL;
}

const char *ps_hook_name(unsigned hook)
{
	static const char *const name[] = { "malloc", "cuda_runtime", "dlsym", "cuGetProcAddress",
					    "cuda_driver" };

	return hook < COUNT(name) ? name[hook] : NULL;
}

const char *ps_aio_name(unsigned word)
{
#define NAME(member) [offsetof(struct pinshim_aio, member) / sizeof(uint64_t)] = #member
	static const char *const name[PS_AIO_WORDS] = {
		NAME(submitted), NAME(direct),  NAME(fixed),   NAME(bounced), NAME(passed),
		NAME(repaired),  NAME(failed),  NAME(partial), NAME(bytes),   NAME(contexts),
		NAME(rings),     NAME(settled), NAME(dropped),
	};
#undef NAME

	return word < COUNT(name) ? name[word] : NULL;
}

void ps_count_aio_sum(const struct pinshim_table *table, struct pinshim_aio *sum)
{
	*sum = (struct pinshim_aio){ 0 };
	for (unsigned i = 0; i < PINSHIM_STRIPES; i++) {
		const uint64_t *from = (const uint64_t *)&table->stripe[i].aio;

		for (unsigned word = 0; word < PS_AIO_WORDS; word++)
			((uint64_t *)sum)[word] += ps_count_get(from + word);
	}
}

void ps_count_sum(const struct pinshim_table *table, enum pinshim_entry_point entry,
		  struct pinshim_entry *sum)
{
	*sum = (struct pinshim_entry){ 0 };
	for (unsigned i = 0; i < PINSHIM_STRIPES; i++) {
		const struct pinshim_entry *from = &table->stripe[i].entry[entry];

		sum->served += ps_count_get(&from->served);
		sum->fallback += ps_count_get(&from->fallback);
		sum->failed += ps_count_get(&from->failed);
		sum->requested_bytes += ps_count_get(&from->requested_bytes);
		sum->served_bytes += ps_count_get(&from->served_bytes);
		sum->freed += ps_count_get(&from->freed);
		sum->freed_bytes += ps_count_get(&from->freed_bytes);
	}
}
