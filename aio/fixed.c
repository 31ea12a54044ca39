/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory.
 *
 * A piece lies in one block of PS_PIECE_MAX aligned addresses, which may have several, with gaps
 * between them; the pieces of a block are on a list that begins at the block's number modulo the
 * number of lists. When memory next to a piece was pinned, the larger piece that a request there needs
 * takes the place of the smaller one, which is not given up before the next batch: requests of this one that
 * were prepared before may name it.
 */
#include "fixed.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "count.h"
#include "log.h"
#include "os.h"

#define LISTS 16384
#define NO_GENERATION UINT64_MAX /* of no table, nor of there being none */
#define NONE 0                   /* ends a list; places are numbered from 1 in it */

struct place {
	struct ps_piece piece; /* length 0: the place is empty */
	uint16_t next;         /* on the list of its block */
	bool refused;          /* not registered: the kernel would not, and is not asked again */
	bool replaced; /* by a larger one: on no list, to be emptied before the next batch */
};

struct ps_places {
	uint16_t list[LISTS];
	struct place place[PS_FIXED_PLACES];
};

static uint16_t *list_of(struct ps_places *places, uintptr_t address)
{
	return &places->list[address / PS_PIECE_MAX % LISTS];
}

static bool contains(const struct ps_piece *piece, uintptr_t address, size_t length)
{
	const uintptr_t offset = address - piece->base;

	return offset < piece->length && length <= piece->length - offset;
}

static void unlink_place(struct ps_places *places, unsigned at)
{
	struct place *place = &places->place[at];
	uint16_t *link = list_of(places, place->piece.base);

	while (*link != at + 1)
		link = &places->place[*link - 1].next;
	*link = place->next;
}

/*
 * Empties a place. Should the kernel not let go, its pages are held until the place gets another piece
 * or the ring is closed, but are not used any more.
 */
static void drop(struct ps_fixed *fixed, struct ps_ring *ring, unsigned at)
{
	struct place *place = &fixed->places->place[at];

	if (!place->replaced)
		unlink_place(fixed->places, at);
	if (!place->refused)
		(void)ps_ring_buffer_set(ring, at, NULL, 0);
	place->piece.length = 0;
	place->replaced = false;
	fixed->full = false;
	fixed->found_length = 0;
}

void ps_fixed_refresh_to(struct ps_fixed *fixed, struct ps_ring *ring, uint64_t generation)
{
	for (unsigned i = 0; i < fixed->used; i++) {
		struct place *place = &fixed->places->place[i];

		if (place->piece.length == 0)
			continue;
		if (!place->replaced) {
			if (ps_pinned_same(&place->piece))
				continue;
			ps_aio_count(PS_AIO(dropped), !place->refused);
		}
		drop(fixed, ring, i);
	}
	ps_pinned_bounds(&fixed->low, &fixed->high);
	/* What has changed since it was asked for is looked at the next time. */
	fixed->generation = generation;
}

/* The memory and the ring's table of places. false where there are none, for good. */
static bool begin(struct ps_fixed *fixed, struct ps_ring *ring)
{
	void *memory;
	int error;

	if (fixed->places != NULL)
		return true;
	error = ps_os_mmap(NULL, sizeof(*fixed->places), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory);
	if (error == 0) {
		error = ps_ring_buffers(ring, PS_FIXED_PLACES);
		if (error < 0)
			ps_os_munmap(memory, sizeof(*fixed->places));
	}
	if (error == 0) {
		fixed->places = memory;
		return true;
	}
	fixed->off = true;
	ps_log_once(
		PS_LOG_INFO,
		"preparing io_uring for registered buffers failed: %s: I/O on pinned memory goes "
		"on without: a kernel of Linux 5.19 or later has them",
		strerrordesc_np(-error));
	return false;
}

static bool find_empty(struct ps_fixed *fixed, unsigned *at)
{
	for (*at = 0; *at < fixed->used; ++*at)
		if (fixed->places->place[*at].piece.length == 0)
			return true;
	fixed->full = *at == PS_FIXED_PLACES;
	return !fixed->full;
}

/* No request finds the pieces of the same block that lie in this new one any more. */
static void replace(struct ps_fixed *fixed, const struct ps_piece *piece)
{
	uint16_t next;

	for (uint16_t i = *list_of(fixed->places, piece->base); i != NONE; i = next) {
		struct place *place = &fixed->places->place[i - 1];

		next = place->next;
		if (!contains(piece, place->piece.base, place->piece.length))
			continue;
		unlink_place(fixed->places, i - 1u);
		place->replaced = true;
		fixed->found_length = 0;
		/* As if the table had changed: all are looked over before the next batch. */
		fixed->generation = NO_GENERATION;
	}
}

static void say_off(size_t length)
{
	ps_log_once(
		PS_LOG_INFO,
		"registering %zu bytes of pinned memory with io_uring failed: out of memory, or "
		"over the limit on locked memory: I/O on it goes on without: raise the limit "
		"(ulimit -l), which registered memory counts against a second time",
		length);
}

/* Registers a piece in an empty place. 0; -ENOMEM: for good; other -errno: not this piece. */
static int enter(struct ps_fixed *fixed, struct ps_ring *ring, unsigned at,
		 const struct ps_piece *piece)
{
	struct place *place = &fixed->places->place[at];
	uint16_t *list = list_of(fixed->places, piece->base);
	const int error = ps_ring_buffer_set(ring, at, (void *)piece->base, piece->length);

	if (error == -ENOMEM) {
		fixed->off = true;
		say_off(piece->length);
		return error;
	}
	if (error == 0)
		replace(fixed, piece);
	*place = (struct place){ .piece = *piece, .next = *list, .refused = error < 0 };
	*list = (uint16_t)(at + 1);
	if (at == fixed->used)
		fixed->used++;
	return error;
}

static int note_found(struct ps_fixed *fixed, int at)
{
	const struct ps_piece *piece = &fixed->places->place[at].piece;

	fixed->found_base = piece->base;
	fixed->found_length = piece->length;
	fixed->found = at;
	return at;
}

/* As ps_fixed_find(), for what lies in no piece. */
static int add(struct ps_fixed *fixed, struct ps_ring *ring, uintptr_t address, size_t length)
{
	struct ps_piece piece;
	unsigned at;

	if (fixed->off || fixed->full || !ps_pinned_piece(address, length, &piece) ||
	    !begin(fixed, ring) || !find_empty(fixed, &at))
		return -1;
	return enter(fixed, ring, at, &piece) < 0 ? -1 : (int)at;
}

int ps_fixed_find_anew(struct ps_fixed *fixed, struct ps_ring *ring, uintptr_t address,
		       size_t length)
{
	bool refused = false;

	if (fixed->places == NULL)
		return add(fixed, ring, address, length);
	for (uint16_t i = *list_of(fixed->places, address); i != NONE;) {
		const struct place *place = &fixed->places->place[i - 1];

		if (contains(&place->piece, address, length)) {
			if (!place->refused)
				return note_found(fixed, i - 1);
			refused = true;
		}
		i = place->next;
	}
	return refused ? -1 : add(fixed, ring, address, length);
}

void ps_fixed_clear(struct ps_fixed *fixed, struct ps_ring *ring)
{
	for (unsigned i = 0; i < fixed->used; i++)
		if (fixed->places->place[i].piece.length != 0)
			drop(fixed, ring, i);
}

void ps_fixed_end(struct ps_fixed *fixed)
{
	if (fixed->places != NULL)
		ps_os_munmap(fixed->places, sizeof(*fixed->places));
	*fixed = (struct ps_fixed){ 0 };
}
