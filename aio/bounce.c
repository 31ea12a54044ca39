/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One aligned request in place of a misaligned one; the rest of repair.h is in repair.c.
 */
#include <errno.h>
#include <string.h>

#include "repair.h"

/* Copies the parts to *single, or to place if there are more. */
static void keep_parts(struct ps_bounce *bounce, char *place)
{
	struct ps_transfer *wanted = &bounce->wanted;

	if (wanted->parts == 1) {
		bounce->single = *wanted->part;
		return;
	}
	memcpy(place, wanted->part, wanted->parts * sizeof(struct iovec));
	wanted->part = (const struct iovec *)place;
}

/* Its own copy of the parts, wherever the struct is now. */
static struct ps_cursor begin(const struct ps_bounce *bounce)
{
	struct ps_cursor cursor = ps_cursor_of(&bounce->wanted);

	if (cursor.parts == 1)
		cursor.part = &bounce->single;
	return cursor;
}

int ps_bounce_begin(struct ps_bounce *bounce, const struct ps_file *file,
		    const struct ps_transfer *transfer)
{
	const uint64_t block = file->offset_align;
	const uint64_t end = transfer->offset + transfer->length;
	struct ps_cursor cursor;
	size_t length;
	int error;

	bounce->offset = transfer->offset & ~(block - 1);
	bounce->length = ((end + block - 1) & ~(block - 1)) - bounce->offset;
	bounce->wanted = *transfer;
	length = bounce->length +
		 (transfer->parts > 1 ? transfer->parts : 0) * sizeof(struct iovec);
	if (length < file->memory_align)
		length = file->memory_align;
	error = ps_buffer_get(&bounce->buffer, length);
	if (error < 0)
		return error;
	keep_parts(bounce, bounce->buffer.memory + bounce->length);
	cursor = begin(bounce);
	if (transfer->write)
		error = ps_cursor_read(&cursor, bounce->buffer.memory, transfer->length);
	if (error < 0)
		ps_buffer_put(&bounce->buffer);
	return error;
}

int64_t ps_bounce_end(struct ps_bounce *bounce, int64_t result)
{
	const struct ps_transfer *wanted = &bounce->wanted;
	const int64_t skip = (int64_t)(wanted->offset - bounce->offset);
	struct ps_cursor cursor = begin(bounce);

	if (result >= 0) {
		result = result > skip ? result - skip : 0;
		if (result > (int64_t)wanted->length)
			result = (int64_t)wanted->length;
		if (!wanted->write &&
		    ps_cursor_write(&cursor, bounce->buffer.memory + skip, (size_t)result) < 0)
			result = -EFAULT;
	}
	ps_buffer_put(&bounce->buffer);
	return result;
}
