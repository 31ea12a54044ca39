/* SPDX-License-Identifier: BSD-2-Clause */
#include "buffer.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "held.h"
#include "memory.h"
#include "os.h"

#define LEAST ((size_t)4096)
#define ALIGN_MAX ((size_t)2 << 20)

/* Four sizes to each doubling, so that a block more than a power of two wastes a fifth, not half. */
#define SIZES 64

/* A buffer that is kept; the struct is in it. */
struct kept {
	struct kept *next;
	struct ps_buffer buffer;
};

static struct {
	struct ps_lock lock;
	size_t held; /* bytes of all buffers, used and kept */
	struct kept *kept[SIZES];
} pool;

/* The size of which a buffer of this length is, and its number. length is at most PS_BOUNCE_MAX. */
static size_t size_of(size_t length, unsigned *number)
{
	unsigned shift;
	size_t step;

	if (length <= 4 * LEAST) {
		*number = (unsigned)((length + LEAST - 1) / LEAST) - 1;
		return (*number + 1) * LEAST;
	}
	shift = 63 - (unsigned)__builtin_clzl(length - 1);
	step = (size_t)1 << (shift - 2);
	length = (length + step - 1) & ~(step - 1);
	*number = 4 * (shift - 14) + (unsigned)((length - 1) >> (shift - 2));
	return length;
}

static size_t align_of(size_t length)
{
	const size_t power = (size_t)1 << (63 - __builtin_clzl(length));

	return power < ALIGN_MAX ? power : ALIGN_MAX;
}

static void release(const struct ps_buffer *buffer)
{
	ps_memory_free_any(buffer->memory, buffer->length, buffer->pinned);
}

static void release_all(struct kept *list)
{
	while (list != NULL) {
		const struct ps_buffer buffer = list->buffer;

		list = list->next;
		release(&buffer);
	}
}

/* Takes kept buffers out until another of this length fits, the largest first. Returns them. */
static struct kept *make_room(size_t length)
{
	struct kept *list = NULL;

	for (unsigned i = SIZES; i-- > 0;) {
		while (pool.held + length > PS_BOUNCE_MAX && pool.kept[i] != NULL) {
			struct kept *kept = pool.kept[i];

			pool.kept[i] = kept->next;
			pool.held -= kept->buffer.length;
			kept->next = list;
			list = kept;
		}
	}
	return list;
}

/* Takes a kept one, or room for a new one, whose memory is then NULL. false: used up. */
static bool take(struct ps_buffer *buffer, unsigned number)
{
	struct kept *kept, *list = NULL;
	bool room = true;

	ps_hold(&pool.lock);
	kept = pool.kept[number];
	if (kept != NULL) {
		pool.kept[number] = kept->next;
		*buffer = kept->buffer;
	} else {
		list = make_room(buffer->length);
		room = pool.held + buffer->length <= PS_BOUNCE_MAX;
		pool.held += room ? buffer->length : 0;
	}
	ps_let_go(&pool.lock);
	release_all(list);
	return room;
}

int ps_buffer_get(struct ps_buffer *buffer, size_t length)
{
	unsigned number;

	if (length > PS_BOUNCE_MAX)
		return -ENOMEM;
	*buffer = (struct ps_buffer){ .length = size_of(length, &number) };
	if (!take(buffer, number))
		return -ENOMEM;
	if (buffer->memory == NULL)
		buffer->memory = ps_memory_alloc_any(buffer->length, align_of(buffer->length),
						     &buffer->pinned);
	if (buffer->memory != NULL)
		return 0;
	ps_hold(&pool.lock);
	pool.held -= buffer->length;
	ps_let_go(&pool.lock);
	return -ENOMEM;
}

int ps_buffer_get_extra(struct ps_buffer *buffer, size_t length)
{
	void *memory;

	*buffer = (struct ps_buffer){ .length = (length + LEAST - 1) & -LEAST, .extra = true };
	if (ps_os_mmap(NULL, buffer->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0, &memory) < 0)
		return -ENOMEM;
	buffer->memory = memory;
	return 0;
}

void ps_buffer_put(struct ps_buffer *buffer)
{
	struct kept *kept = (struct kept *)buffer->memory;
	unsigned number;

	if (buffer->extra) {
		ps_os_munmap(buffer->memory, buffer->length);
		return;
	}
	size_of(buffer->length, &number);
	kept->buffer = *buffer;
	ps_hold(&pool.lock);
	kept->next = pool.kept[number];
	pool.kept[number] = kept;
	ps_let_go(&pool.lock);
}

void ps_buffer_fork_prepare(void)
{
	ps_hold(&pool.lock);
}

void ps_buffer_fork_parent(void)
{
	ps_let_go(&pool.lock);
}

void ps_buffer_fork_child(void)
{
	memset(&pool, 0, sizeof(pool));
}
