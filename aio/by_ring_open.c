/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rings, their slots and what else belongs to them: made for a context, and kept for the next one. Lock:
 * make, of context.c.
 */
#include <sys/mman.h>

#include "by_ring.h"
#include "os.h"

#define SLOTS_MAX 32768 /* contexts for more requests use the kernel's AIO */
#define IDLE 8          /* rings that are kept for the next contexts */

atomic_int ps_by_ring_syncing;

/* A ring and what belongs to it. */
struct parts {
	struct ps_ring ring;
	struct ps_fixed fixed;
	struct ps_slot *slot; /* NULL: there is none */
	struct ps_bounce *bounce;
	uint32_t slots;
	pid_t maker;
};

/* Rings without a context. Lock: make, of context.c. */
static struct parts idle[IDLE];

static size_t slot_bytes(uint32_t slots)
{
	return slots * (sizeof(struct ps_slot) + sizeof(struct io_event));
}

static void end_parts(struct parts *parts)
{
	ps_ring_close(&parts->ring);
	ps_fixed_end(&parts->fixed);
	if (parts->bounce != NULL)
		ps_os_munmap(parts->bounce, parts->slots * sizeof(*parts->bounce));
	ps_os_munmap(parts->slot, slot_bytes(parts->slots));
	parts->slot = NULL;
}

/* false where everything is taken. */
static bool keep_idle(struct parts *parts)
{
	for (unsigned i = 0; i < IDLE; i++) {
		if (idle[i].slot != NULL)
			continue;
		ps_fixed_clear(&parts->fixed, &parts->ring);
		idle[i] = *parts;
		return true;
	}
	return false;
}

/* Gives the context a ring that was kept, if one is fit for it. */
static bool take_idle(struct ps_context *context, enum ps_ring_kind kind)
{
	for (unsigned i = 0; i < IDLE; i++) {
		struct parts *kept = &idle[i];

		if (kept->slot == NULL || kept->slots < context->most || kept->ring.kind != kind ||
		    (kind == PS_RING_DEFERRED && kept->maker != ps_os_gettid()))
			continue;
		context->ring = kept->ring;
		context->fixed = kept->fixed;
		context->slot = kept->slot;
		context->bounce = kept->bounce;
		context->slots = kept->slots;
		context->maker = kept->maker;
		kept->slot = NULL;
		return true;
	}
	return false;
}

static int open_ring(struct ps_context *context, enum ps_ring_kind kind)
{
	uint32_t slots = 1;
	void *memory;
	int error;

	while (slots < context->most)
		slots *= 2;
	error = ps_os_mmap(NULL, slot_bytes(slots), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory);
	if (error < 0)
		return error;
	error = ps_ring_open(&context->ring, slots < PS_RING_BATCH ? slots : PS_RING_BATCH, slots,
			     kind);
	if (error < 0) {
		ps_os_munmap(memory, slot_bytes(slots));
		return error;
	}
	context->fixed = (struct ps_fixed){ .generation = 0 };
	context->slot = memory;
	context->slots = slots;
	context->maker = ps_os_gettid();
	return 0;
}

int ps_by_ring_begin(struct ps_context *context, enum ps_ring_kind kind)
{
	int error;

	if (context->most > SLOTS_MAX)
		return -E2BIG;
	if (!take_idle(context, kind)) {
		error = open_ring(context, kind);
		if (error < 0)
			return error;
	}
	context->done = (struct io_event *)(context->slot + context->slots);
	for (uint32_t i = 0; i < context->slots; i++)
		context->slot[i].free = i;
	atomic_store(&context->in_hand, 0);
	atomic_store(&context->taken, 0);
	atomic_store(&context->given, context->slots);
	return 0;
}

/* Takes the ring from the context: whoever still looks for completions finds none. */
static struct parts detach(struct ps_context *context)
{
	struct parts parts;

	ps_completion_lock(context);
	parts = (struct parts){ context->ring,   context->fixed, context->slot,
				context->bounce, context->slots, context->maker };
	context->slot = NULL;
	context->bounce = NULL;
	context->done = NULL;
	context->done_first = 0;
	atomic_store(&context->done_count, 0);
	atomic_store(&context->slots, 0);
	/* What is in flight all the same is no longer ours to see. */
	ps_by_ring_add_syncing(context, -atomic_load(&context->syncing));
	ps_completion_unlock(context);
	return parts;
}

void ps_by_ring_end(struct ps_context *context, bool forked)
{
	const bool keep = !forked && !context->owned && ps_by_ring_in_flight(context) == 0;
	struct parts parts;

	if (context->slot == NULL)
		return;
	parts = detach(context);
	if (!keep || !keep_idle(&parts))
		end_parts(&parts);
}

void ps_by_ring_fork_child(void)
{
	for (unsigned i = 0; i < IDLE; i++)
		if (idle[i].slot != NULL)
			end_parts(&idle[i]);
}
