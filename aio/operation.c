/* SPDX-License-Identifier: BSD-2-Clause */
#include "operation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "file.h"
#include "os.h"
#include "syscall.h"
#include "text.h"
#include "transfer.h"
#include "worker.h"

#define PUBLIC __attribute__((visibility("default")))

/* Bytes that are compared at a time. */
#define COMPARED ((size_t)1 << 20)

static void fail(struct ps_operation *operation, const char *step, int error)
{
	operation->step = step;
	operation->error = error;
	operation->failed_offset = operation->demand.offset;
	operation->failed_length = operation->demand.length;
}

/* For direct I/O where the file system has it: some refuse, after they created the file. */
static int open_direct(const char *path, int flags)
{
	int fd = ps_os_open(path, flags | O_DIRECT | O_NOCTTY, 0600);

	return fd == -EINVAL ? ps_os_open(path, flags | O_NOCTTY, 0600) : fd;
}

/* A file to be written is opened for reading too, since of a block that is written in part the rest is. */
static int open_path(const struct ps_demand *demand)
{
	struct stat status;
	int fd;

	/* Opening a FIFO waits for somebody at its other end. */
	if (ps_os_stat(demand->path, &status) == 0 && S_ISFIFO(status.st_mode))
		return -ESPIPE;
	if (!demand->write)
		return open_direct(demand->path, O_RDONLY);
	fd = open_direct(demand->path, O_RDWR | O_CREAT);
	if (fd == -EACCES || fd == -EPERM)
		fd = open_direct(demand->path, O_WRONLY | O_CREAT);
	return fd;
}

/*
 * Direct I/O beyond the end of a file is done one request after the other, so the file gets its length
 * first. Never by ftruncate(2), which could undo what somebody else appended just now. Where it cannot
 * be done, or there is not enough space, the writing itself will tell.
 */
static void lengthen(const struct ps_demand *demand, const struct ps_file *file)
{
	const uint64_t end = demand->offset + demand->length;
	const uint64_t begin = demand->offset > file->size ? demand->offset : file->size;
	const uint32_t needed = PS_FILE_DIRECT | PS_FILE_PLAIN | PS_FILE_ASYNC;

	if (demand->write && (file->is & needed) == needed && begin < end)
		(void)ps_os_fallocate(demand->fd, (off_t)begin, (off_t)(end - begin));
}

/* Is the descriptor good for this? 0 or -errno. */
static int look(struct ps_operation *operation)
{
	const bool write = operation->demand.write;
	struct ps_file file;
	int error = ps_file_look(operation->demand.fd, &file);

	if (error)
		return error;
	if (!ps_file_allows(&file, write))
		return -EBADF;
	if (write && file.is & PS_FILE_APPEND)
		return -EINVAL;
	if (!(file.is & (PS_FILE_PLAIN | PS_FILE_DEVICE)) &&
	    ps_syscall3(SYS_lseek, operation->demand.fd, 0, SEEK_CUR) < 0)
		return -ESPIPE; /* it would wait for somebody */
	if (file.is & PS_FILE_DIRECT) {
		operation->memory_align = file.memory_align;
		operation->offset_align = file.offset_align;
	}
	lengthen(&operation->demand, &file);
	return 0;
}

static void open_file(struct ps_operation *operation)
{
	struct ps_demand *demand = &operation->demand;
	int error;

	if ((!demand->buffer && demand->length) || demand->flags & ~PINSHIM_AIO_VALIDATE ||
	    demand->offset > INT64_MAX || demand->length > INT64_MAX - demand->offset) {
		fail(operation, "arguments", EINVAL);
		return;
	}
	if (demand->path) {
		demand->fd = open_path(demand);
		if (demand->fd < 0) {
			fail(operation, "open", -demand->fd);
			return;
		}
		operation->opened = true;
	}
	error = look(operation);
	if (error)
		fail(operation, demand->write ? "write" : "read", -error);
}

struct ps_operation *ps_operation_new(const struct ps_demand *demand, unsigned parts)
{
	const size_t head = sizeof(struct ps_operation) + parts * sizeof(struct ps_part);
	const size_t name = demand->path ? strlen(demand->path) + 1 : 0;
	struct ps_operation *operation = calloc(1, head + name);

	if (!operation)
		return NULL;
	operation->demand = *demand;
	operation->reached = demand->offset;
	operation->memory_align = 1;
	operation->offset_align = 1;
	operation->parts = parts;
	if (demand->path)
		operation->demand.path = memcpy((char *)operation + head, demand->path, name);
	open_file(operation);
	return operation;
}

unsigned ps_operation_divide(struct ps_operation *operation, uint64_t block_size)
{
	const uint64_t begin = operation->demand.offset, end = begin + operation->demand.length;
	const uint64_t first = begin / block_size,
		       blocks = (end + block_size - 1) / block_size - first;
	const uint64_t each = (blocks + operation->parts - 1) / operation->parts * block_size;
	uint64_t cursor = begin;
	unsigned i;

	for (i = 0; i < operation->parts && cursor < end; i++) {
		const uint64_t stop = first * block_size + (i + 1) * each;

		operation->part[i] = (struct ps_part){
			.operation = operation,
			.cursor = cursor,
			.end = stop < end ? stop : end,
		};
		cursor = operation->part[i].end;
	}
	operation->parts = i;
	operation->open_parts = i;
	operation->reached = end;
	return i;
}

static char *memory_at(const struct ps_operation *operation, uint64_t offset)
{
	return (char *)operation->demand.buffer + (offset - operation->demand.offset);
}

/* Could direct I/O use the buffer where the byte at this offset of the file is? */
static bool is_aligned(const struct ps_operation *operation, uint64_t offset)
{
	return ((uintptr_t)memory_at(operation, offset) & (operation->memory_align - 1)) == 0;
}

/* Where the request that begins at cursor ends. */
static uint64_t request_end(const struct ps_part *part, uint64_t block_size)
{
	const struct ps_operation *operation = part->operation;
	const uint64_t align = operation->offset_align, cursor = part->cursor;
	const uint64_t block_end = (cursor / block_size + 1) * block_size;
	const uint64_t end = block_end < part->end ? block_end : part->end;
	const uint64_t head = (cursor + align - 1) & -align, tail = end & -align;

	if (head > cursor && head < end && is_aligned(operation, head))
		return head;
	if (head == cursor && tail > cursor && tail < end && is_aligned(operation, cursor))
		return tail;
	return end;
}

size_t ps_operation_ahead(const struct ps_part *part, uint64_t distance, uint64_t block_size,
			  const void **memory)
{
	const uint64_t left = part->end - part->cursor;
	const uint64_t length = left < block_size ? left : block_size;
	const uint64_t at = part->cursor + (distance < left - length ? distance : left - length);

	*memory = memory_at(part->operation, at);
	return is_aligned(part->operation, at) ? (size_t)length : 0;
}

void ps_operation_cut(struct ps_part *part, uint64_t block_size, struct ps_request *request)
{
	struct ps_operation *operation = part->operation;
	const uint64_t end = request_end(part, block_size);

	*request = (struct ps_request){
		.iocb = {
			.aio_data = (uintptr_t)request,
			.aio_lio_opcode = operation->demand.write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
			.aio_fildes = (uint32_t)operation->demand.fd,
			.aio_buf = (uintptr_t)memory_at(operation, part->cursor),
			.aio_nbytes = end - part->cursor,
			.aio_offset = (int64_t)part->cursor,
		},
		.operation = operation,
		.step = operation->demand.write ? "write" : "read",
	};
	operation->in_flight++;
	part->cursor = end;
	if (end == part->end) {
		TAILQ_REMOVE(&part->worker->parts, part, link);
		operation->open_parts--;
	}
}

bool ps_operation_stop(struct ps_operation *operation, uint64_t from)
{
	bool something = false;

	for (struct ps_part *part = operation->part; part < operation->part + operation->parts;
	     part++) {
		if (part->cursor == part->end || part->cursor < from)
			continue;
		if (part->cursor < operation->reached)
			operation->reached = part->cursor;
		part->cursor = part->end;
		TAILQ_REMOVE(&part->worker->parts, part, link);
		operation->open_parts--;
		something = true;
	}
	return something;
}

void ps_operation_account(const struct ps_request *request)
{
	struct ps_operation *operation = request->operation;
	const uint64_t reached = (uint64_t)request->iocb.aio_offset;

	operation->in_flight--;
	if (request->iocb.aio_nbytes == 0)
		return;
	if (reached < operation->reached)
		operation->reached = reached;
	/* What lies before is still of use, so that what was transferred ends where it failed. */
	ps_operation_stop(operation, reached);
	if (request->error && (!operation->error || operation->error == ECANCELED ||
			       reached < operation->failed_offset)) {
		operation->step = request->step;
		operation->error = request->error;
		operation->failed_offset = reached;
		operation->failed_length = request->iocb.aio_nbytes;
	}
}

/* Opens the file again, for reading through the page cache. */
static int open_again(const struct ps_demand *demand)
{
	char path[64];
	struct ps_text text = PS_TEXT_INIT(path);
	int fd;

	ps_text_add(&text, "/proc/self/fd/%d", demand->fd);
	fd = ps_os_open(path, O_RDONLY | O_NOCTTY, 0);
	return fd == -ENOENT && demand->path ? ps_os_open(demand->path, O_RDONLY | O_NOCTTY, 0)
					     : fd;
}

/* The offset of the first byte that is not as in the buffer; reached if all are. -errno if it fails. */
static int64_t compare(const struct ps_operation *operation, int fd, char *memory)
{
	for (uint64_t at = operation->demand.offset; at < operation->reached;) {
		const char *wanted = memory_at(operation, at);
		const uint64_t left = operation->reached - at;
		struct iovec part = { memory, left < COMPARED ? left : COMPARED };
		int64_t count = ps_transfer_parts(fd, &part, 1, at, 0, false);

		if (count <= 0)
			return count < 0 ? count : (int64_t)at;
		if (memcmp(memory, wanted, (size_t)count) != 0) {
			for (size_t i = 0; memory[i] == wanted[i]; i++)
				at++;
			return (int64_t)at;
		}
		at += (uint64_t)count;
	}
	return (int64_t)operation->reached;
}

static void validate(struct ps_operation *operation)
{
	int64_t same;
	void *memory;
	int fd = open_again(&operation->demand);
	int error = fd < 0 ? fd
			   : ps_os_mmap(NULL, COMPARED, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory);

	if (!error) {
		same = compare(operation, fd, memory);
		error = same < 0 ? (int)same : 0;
		ps_os_munmap(memory, COMPARED);
	}
	if (fd >= 0)
		ps_file_close(fd);
	if (error) {
		fail(operation, "validate", -error);
	} else if ((uint64_t)same != operation->reached) {
		operation->step = "validate";
		operation->error = EBADMSG;
		operation->failed_offset = (uint64_t)same;
		operation->failed_length = operation->reached - (uint64_t)same;
		operation->reached = (uint64_t)same;
	}
}

void ps_operation_end(struct ps_operation *operation)
{
	int error;

	if (!operation->error && operation->demand.flags & PINSHIM_AIO_VALIDATE)
		validate(operation);
	if (!operation->opened)
		return;
	/* Some file systems tell only now what they could not write. */
	error = ps_file_close(operation->demand.fd);
	operation->opened = false;
	if (error < 0 && error != -EINTR && !operation->error)
		fail(operation, "close", -error);
}

/* Appends a path; of one that is too long, the end. */
static void add_path(struct ps_text *text, const char *path)
{
	const size_t room = text->size - text->length - 1, length = strlen(path);

	if (length > room)
		ps_text_add(text, "...%s", path + length - (room - 3));
	else
		ps_text_add(text, "%s", path);
}

static void describe_file(const struct ps_demand *demand, struct ps_text *text)
{
	char link[64], path[4096];
	struct ps_text name = PS_TEXT_INIT(link);

	if (demand->path) {
		add_path(text, demand->path);
		return;
	}
	ps_text_add(text, "descriptor %d", demand->fd);
	ps_text_add(&name, "/proc/self/fd/%d", demand->fd);
	if (ps_os_readlink(link, path, sizeof(path)) > 0) {
		ps_text_add(text, " ");
		add_path(text, path);
	}
}

static void describe_error(const struct ps_operation *operation, struct ps_text *text)
{
	const char *said = strerrordesc_np(operation->error);

	if (!operation->error)
		return;
	if (operation->error == ECANCELED) {
		ps_text_add(text, "cancelled");
		return;
	}
	ps_text_add(text, "%s: ", operation->step);
	if (operation->error == EBADMSG && !strcmp(operation->step, "validate"))
		ps_text_add(text, "the file has other data than the buffer");
	else if (said)
		ps_text_add(text, "%s", said);
	else
		ps_text_add(text, "error %d", operation->error);
	if (operation->error == EAGAIN && !strcmp(operation->step, "io_setup"))
		ps_text_add(text, ": fs.aio-max-nr (sysctl) is used up");
}

int64_t ps_operation_describe(const struct ps_operation *operation,
			      struct pinshim_aio_result *result)
{
	const struct ps_demand *demand = &operation->demand;
	const uint64_t bytes = operation->reached - demand->offset;
	struct ps_text file, reason;

	if (result) {
		*result = (struct pinshim_aio_result){
			.id = operation->id,
			.bytes = bytes,
			.offset = demand->offset,
			.length = demand->length,
			.error = operation->error,
			.write = demand->write,
		};
		file = (struct ps_text)PS_TEXT_INIT(result->file);
		reason = (struct ps_text)PS_TEXT_INIT(result->reason);
		describe_file(demand, &file);
		if (operation->error == ECANCELED) {
			result->failed_offset = operation->reached;
			result->failed_length = demand->length - bytes;
		} else if (operation->error) {
			result->failed_offset = operation->failed_offset;
			result->failed_length = operation->failed_length;
		}
		describe_error(operation, &reason);
	}
	return operation->error ? -operation->error : (int64_t)bytes;
}

void ps_operation_free(struct ps_operation *operation)
{
	if (operation->opened) /* it was not started */
		ps_file_close(operation->demand.fd);
	free(operation);
}

PUBLIC int64_t pinshim_aio_alignment(const char *path)
{
	struct ps_file file;
	int fd = open_direct(path, O_RDONLY | O_NONBLOCK);
	int error;

	if (fd < 0)
		return fd;
	error = ps_file_look(fd, &file);
	ps_file_close(fd);
	if (error)
		return error;
	if (!(file.is & PS_FILE_DIRECT))
		return 1;
	return file.memory_align > file.offset_align ? file.memory_align : file.offset_align;
}
