/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory and copies. An asynchronous copy between the device and pinned memory is only noted,
 * with the addresses, and carried out when somebody waits for it or asks after it: whoever frees or
 * reuses the memory too early gets wrong data every time, where a real device shows it rarely. From
 * pageable memory the source is staged, to pageable memory the copy is complete, before the call
 * returns (CUDA's "API synchronization behavior").
 *
 * Work has one order over all streams. Streams that are not CU_STREAM_NON_BLOCKING are ordered
 * against the default stream, number 0.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake.h"

/* A copy, a fill (no from), or a wait (no to). */
struct work {
	struct work *next;
	uint64_t number;
	struct context *context;
	uint64_t stream;
	bool blocking;
	char *to;
	const char *from;
	char *staged; /* from, if it has to be freed */
	size_t size;
	unsigned char value;
	struct context *other_context; /* a wait: for the other stream up to last */
	uint64_t other_stream;
	uint64_t last;
};

static struct work *first_work, **end_of_work = &first_work;
static uint64_t last_number;
static int failed_copy;

uint64_t last_queued(void)
{
	return last_number;
}

unsigned long pending_copies(void)
{
	unsigned long number = 0;

	for (const struct work *work = first_work; work; work = work->next)
		number += work->to != NULL;
	return number;
}

int copy_error(void)
{
	int result = failed_copy;

	failed_copy = 0;
	return result;
}

static int queue(const struct work *new)
{
	struct work *work = malloc(sizeof(*work));

	if (!work) {
		free(new->staged);
		return PS_CUDA_MEMORY_ALLOCATION;
	}
	*work = *new;
	work->next = NULL;
	work->number = ++last_number;
	*end_of_work = work;
	end_of_work = &work->next;
	return 0;
}

int queue_wait(struct context *context, uint64_t stream, bool blocking,
	       struct context *other_context, uint64_t other_stream, uint64_t last)
{
	return queue(&(struct work){
		.context = context,
		.stream = stream,
		.blocking = blocking,
		.other_context = other_context,
		.other_stream = other_stream,
		.last = last,
	});
}

static void move(const struct work *work)
{
	if (!is_mapped((uintptr_t)work->to, work->size) ||
	    (work->from && !is_mapped((uintptr_t)work->from, work->size))) {
		fault("a queued copy of %zu bytes from %p to %p: the memory is gone", work->size,
		      (const void *)work->from, (void *)work->to);
		failed_copy = FAKE_CUDA_ILLEGAL_ADDRESS;
	} else if (work->from) {
		memmove(work->to, work->from, work->size);
	} else {
		memset(work->to, work->value, work->size);
	}
}

static struct work *take(struct work **link)
{
	struct work *work = *link;

	*link = work->next;
	if (!work->next)
		end_of_work = link;
	return work;
}

/* Which work is done: all up to last of a context, or only what one stream's needs. */
struct part {
	const struct context *context;
	bool whole;
	uint64_t stream;
	uint64_t last;
};

static bool is_part(const struct work *work, const struct part *part)
{
	if (work->context != part->context || work->number > part->last)
		return false;
	if (part->whole || work->stream == part->stream)
		return true;
	return !part->stream && work->blocking;
}

/* Recursion ends: a wait is only for earlier work. */
static void finish(const struct part *part) // NOLINT(misc-no-recursion)
{
	struct work **link = &first_work, *work;

	while (*link) {
		if (!is_part(*link, part)) {
			link = &(*link)->next;
			continue;
		}
		work = take(link);
		if (work->to) {
			move(work);
		} else {
			finish_stream(work->other_context, work->other_stream, work->last);
			link = &first_work; /* that changed the list */
		}
		free(work->staged);
		free(work);
	}
}

void finish_stream(struct context *context, uint64_t stream,
		   uint64_t last) // NOLINT(misc-no-recursion)
{
	uint64_t needed = 0;
	bool blocking = false;

	for (const struct work *work = first_work; work; work = work->next)
		if (work->context == context && work->stream == stream && work->number <= last)
			blocking = work->blocking;
	for (const struct work *work = first_work; blocking && work; work = work->next)
		if (work->context == context && !work->stream && work->number <= last)
			needed = work->number;
	if (needed)
		finish(&(struct part){ .context = context, .last = needed });
	finish(&(struct part){ .context = context, .stream = stream, .last = last });
}

void finish_context(const struct context *context)
{
	finish(&(struct part){ .context = context, .whole = true, .last = last_number });
}

void finish_everything(void)
{
	while (first_work)
		finish_context(first_work->context);
}

static int device_allocate(ps_cu_deviceptr *out, size_t size)
{
	struct range range = {
		.size = size,
		.extent = whole_pages(size),
		.kind = RANGE_DEVICE,
		.owner = current_context(),
	};

	if (!out || !size)
		return PS_CUDA_INVALID_VALUE;
	range.memory = pages_new(size, PROT_READ | PROT_WRITE);
	/* Reserved, so that no host memory can have the address. */
	range.base = range.device_pointer = (uintptr_t)pages_new(size, PROT_NONE);
	if (range.memory && range.base && range_add(&range)) {
		*out = range.base;
		return 0;
	}
	if (range.memory)
		munmap(range.memory, range.extent);
	if (range.base)
		munmap((void *)range.base, range.extent);
	return PS_CUDA_MEMORY_ALLOCATION;
}

static int device_release(ps_cu_deviceptr pointer)
{
	struct range *found = range_find(pointer), range;

	if (!pointer)
		return 0;
	if (!found || found->kind != RANGE_DEVICE || found->base != pointer)
		return PS_CUDA_INVALID_VALUE;
	finish_everything();
	range = *found;
	range_remove(found);
	munmap(range.memory, range.extent);
	munmap((void *)range.base, range.extent);
	return 0;
}

/* One side of a copy. */
struct side {
	char *memory;
	bool pinned; /* or the device's: the device can reach it */
};

enum side_kind { ANY, DEVICE, HOST };

/*
 * 1 for a range that is partly registered, or crosses from one registration into the next:
 * "Memory regions requested must be either entirely registered with CUDA, or [...] not registered
 * at all".
 */
static int look_at(struct side *side, uintptr_t address, size_t size, enum side_kind kind)
{
	struct range *range = range_overlap(address, size);
	bool device = range && (range->kind == RANGE_DEVICE || range->kind == RANGE_ALIAS);

	if (!address || address + size < address || (kind == DEVICE && !range) ||
	    (kind == HOST && device))
		return PS_CUDA_INVALID_VALUE;
	if (!range) {
		*side = (struct side){ .memory = (char *)address };
		return 0;
	}
	if (address < range->base || size > range->extent - (address - range->base) ||
	    !range_is_mapped(range, "a copy"))
		return PS_CUDA_INVALID_VALUE;
	side->memory = range->memory + (address - range->base);
	side->pinned = true;
	return 0;
}

struct copy {
	uintptr_t to, from;
	size_t size;
	enum side_kind to_kind, from_kind;
	bool async;
	fake_cu_stream stream;
};

static int do_copy(const struct copy *copy)
{
	struct side to = { 0 }, from = { 0 };
	struct stream_place place;
	struct work work;
	int result = stream_place(copy->stream, &place);

	if (result || !copy->size)
		return result;
	result = look_at(&to, copy->to, copy->size, copy->to_kind);
	if (!result)
		result = look_at(&from, copy->from, copy->size, copy->from_kind);
	if (result || place.capturing)
		return result;
	work = (struct work){
		.context = current_context(),
		.stream = place.id,
		.blocking = place.blocking,
		.to = to.memory,
		.from = from.memory,
		.size = copy->size,
	};
	if (!copy->async || !to.pinned) {
		finish_stream(work.context, place.id, last_number);
		move(&work);
		return copy_error();
	}
	if (!from.pinned) {
		work.staged = malloc(copy->size);
		if (!work.staged)
			return PS_CUDA_MEMORY_ALLOCATION;
		work.from = memcpy(work.staged, from.memory, copy->size);
	}
	return queue(&work);
}

ps_cu_result cuMemAlloc_v2(ps_cu_deviceptr *pointer, size_t size)
{
	static struct call call = { .name = "cuMemAlloc_v2" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result)
		result = device_allocate(pointer, size);
	return leave(&call, result, result ? 0 : *pointer, size, 0);
}

ps_cu_result cuMemFree_v2(ps_cu_deviceptr pointer)
{
	static struct call call = { .name = "cuMemFree_v2" };
	int result = enter(&call, NEEDS_CONTEXT | UNSAFE);

	if (!result)
		result = device_release(pointer);
	return leave(&call, result, pointer, 0, 0);
}

/* A copy between enter and leave; the log has the host's address, or where it goes. */
static int copy_call(struct call *call, const struct copy *copy)
{
	int result = enter(call, NEEDS_CONTEXT);

	if (!result)
		result = do_copy(copy);
	return leave(call, result, copy->from_kind == HOST ? copy->from : copy->to, copy->size, 0);
}

ps_cu_result cuMemcpy(ps_cu_deviceptr to, ps_cu_deviceptr from, size_t size)
{
	static struct call call = { .name = "cuMemcpy" };

	return copy_call(&call, &(struct copy){ .to = to, .from = from, .size = size });
}

ps_cu_result cuMemcpyAsync(ps_cu_deviceptr to, ps_cu_deviceptr from, size_t size,
			   fake_cu_stream stream)
{
	static struct call call = { .name = "cuMemcpyAsync" };

	return copy_call(
		&call,
		&(struct copy){
			.to = to, .from = from, .size = size, .async = true, .stream = stream });
}

ps_cu_result cuMemcpyHtoD_v2(ps_cu_deviceptr to, const void *from, size_t size)
{
	static struct call call = { .name = "cuMemcpyHtoD_v2" };

	return copy_call(&call, &(struct copy){ .to = to,
						.from = (uintptr_t)from,
						.size = size,
						.to_kind = DEVICE,
						.from_kind = HOST });
}

ps_cu_result cuMemcpyDtoH_v2(void *to, ps_cu_deviceptr from, size_t size)
{
	static struct call call = { .name = "cuMemcpyDtoH_v2" };

	return copy_call(&call, &(struct copy){ .to = (uintptr_t)to,
						.from = from,
						.size = size,
						.to_kind = HOST,
						.from_kind = DEVICE });
}

ps_cu_result cuMemcpyDtoD_v2(ps_cu_deviceptr to, ps_cu_deviceptr from, size_t size)
{
	static struct call call = { .name = "cuMemcpyDtoD_v2" };

	return copy_call(&call, &(struct copy){ .to = to,
						.from = from,
						.size = size,
						.to_kind = DEVICE,
						.from_kind = DEVICE });
}

ps_cu_result cuMemcpyHtoDAsync_v2(ps_cu_deviceptr to, const void *from, size_t size,
				  fake_cu_stream stream)
{
	static struct call call = { .name = "cuMemcpyHtoDAsync_v2" };

	return copy_call(&call, &(struct copy){ .to = to,
						.from = (uintptr_t)from,
						.size = size,
						.to_kind = DEVICE,
						.from_kind = HOST,
						.async = true,
						.stream = stream });
}

ps_cu_result cuMemcpyDtoHAsync_v2(void *to, ps_cu_deviceptr from, size_t size,
				  fake_cu_stream stream)
{
	static struct call call = { .name = "cuMemcpyDtoHAsync_v2" };

	return copy_call(&call, &(struct copy){ .to = (uintptr_t)to,
						.from = from,
						.size = size,
						.to_kind = HOST,
						.from_kind = DEVICE,
						.async = true,
						.stream = stream });
}

ps_cu_result cuMemcpyDtoDAsync_v2(ps_cu_deviceptr to, ps_cu_deviceptr from, size_t size,
				  fake_cu_stream stream)
{
	static struct call call = { .name = "cuMemcpyDtoDAsync_v2" };

	return copy_call(&call, &(struct copy){ .to = to,
						.from = from,
						.size = size,
						.to_kind = DEVICE,
						.from_kind = DEVICE,
						.async = true,
						.stream = stream });
}

ps_cu_result cuMemsetD8_v2(ps_cu_deviceptr to, unsigned char value, size_t count)
{
	static struct call call = { .name = "cuMemsetD8_v2" };
	int result = enter(&call, NEEDS_CONTEXT);
	struct stream_place place;
	struct side side = { 0 };

	if (!result)
		result = stream_place(NULL, &place);
	if (!result && count)
		result = look_at(&side, to, count, DEVICE);
	if (!result && count)
		result = queue(&(struct work){
			.context = current_context(),
			.blocking = true,
			.to = side.memory,
			.size = count,
			.value = value,
		});
	return leave(&call, result, to, count, value);
}
