/* SPDX-License-Identifier: BSD-2-Clause */
/* The addresses CUDA knows: one sorted array, so that ten thousand registrations stay cheap. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake.h"

#define PAGE ((size_t)4096)

static struct range *ranges;
static size_t range_count, range_room;
static uint64_t last_id;

size_t whole_pages(size_t size)
{
	return (size + PAGE - 1) & ~(PAGE - 1); /* 0 if that is too much */
}

/* msync walks the mappings only, so huge ranges cost nothing; ENOMEM is a hole. */
bool is_mapped(uintptr_t base, size_t size)
{
	uintptr_t from = base & ~(PAGE - 1);

	return !msync((void *)from, base + size - from, MS_ASYNC);
}

bool range_is_mapped(struct range *range, const char *what)
{
	if (is_mapped((uintptr_t)range->memory, range->size))
		return true;
	if (!range->gone)
		fault("%p of %zu bytes was unmapped while it was %s (noticed at %s)",
		      (void *)range->base, range->size,
		      range->kind == RANGE_REGISTERED ? "registered" : "allocated", what);
	range->gone = true;
	return false;
}

void range_check_all(void)
{
	for (size_t i = 0; i < range_count; i++)
		range_is_mapped(&ranges[i], "a check of all");
}

/* The index of the first range that ends after address. */
static size_t position(uintptr_t address)
{
	size_t low = 0, high = range_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ranges[middle].base + (ranges[middle].extent - 1) < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct range *range_find(uintptr_t address)
{
	size_t index = position(address);

	return index < range_count && ranges[index].base <= address ? &ranges[index] : NULL;
}

struct range *range_overlap(uintptr_t base, size_t size)
{
	size_t index = position(base);

	return size && index < range_count && ranges[index].base <= base + (size - 1)
		       ? &ranges[index]
		       : NULL;
}

bool range_add(const struct range *range)
{
	size_t index = position(range->base);

	if (range_count == range_room) {
		size_t room = range_room ? 2 * range_room : 64;
		struct range *more = realloc(ranges, room * sizeof(*more));

		if (!more)
			return false;
		ranges = more;
		range_room = room;
	}
	memmove(&ranges[index + 1], &ranges[index], (range_count - index) * sizeof(*ranges));
	ranges[index] = *range;
	ranges[index].id = ++last_id;
	range_count++;
	return true;
}

void range_remove(struct range *range)
{
	size_t index = (size_t)(range - ranges);

	memmove(range, range + 1, (range_count - index - 1) * sizeof(*ranges));
	range_count--;
}

void range_drop_context(const struct context *context)
{
	for (size_t i = 0; i < range_count;) {
		struct range range = ranges[i];

		if (range.owner != context) {
			i++;
			continue;
		}
		range_is_mapped(&ranges[i], "the end of its context");
		range_remove(&ranges[i]);
		if (range.kind == RANGE_ALLOCATED || range.kind == RANGE_DEVICE)
			munmap(range.memory, range.extent);
		if (range.kind == RANGE_ALIAS || range.kind == RANGE_DEVICE)
			munmap((void *)range.base, range.extent);
	}
}

/* A forked child shares them: nvidia_mmap_helper() of NVIDIA's open kernel modules. */
char *pages_new(size_t size, int protection)
{
	size_t extent = whole_pages(size);
	void *pages = extent ? mmap(NULL, extent, protection, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
			     : MAP_FAILED;

	return pages == MAP_FAILED ? NULL : pages;
}

void range_totals(enum range_kind kind, unsigned long *number, size_t *bytes)
{
	*number = 0;
	*bytes = 0;
	for (size_t i = 0; i < range_count; i++) {
		if (ranges[i].kind != kind)
			continue;
		++*number;
		*bytes += ranges[i].size;
	}
}
