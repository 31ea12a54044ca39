/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that is linked with the handle API: linked DIRECTORY. Compares what a handle reads and
 * writes with pread(2) and pwrite(2), in buffers of its own and of the library, and says so.
 *
 * linked --fill FILE BYTES writes so much and says how much of it arrived, and what went wrong.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pinshim_aio.h"

#define SIZE ((size_t)3 << 20)
#define ROUNDS 60

static char *model, *copy;
static char path[4096];
static int failures;

static void check(const char *name, int good)
{
	printf("%s - %s\n", good ? "ok" : "not ok", name);
	failures += !good;
}

static uint64_t next_random(uint64_t below)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 16) % below;
}

static void fill(char *memory, size_t length)
{
	for (size_t i = 0; i < length; i++)
		memory[i] = (char)next_random(256);
}

/* Is the file what the model says? */
static int agrees(void)
{
	const int fd = open(path, O_RDONLY);
	const ssize_t count = fd < 0 ? -1 : pread(fd, copy, SIZE, 0);

	if (fd >= 0)
		close(fd);
	return count == (ssize_t)SIZE && memcmp(copy, model, SIZE) == 0;
}

/* One operation at some place; whether it did what pread(2) or pwrite(2) would have done. */
static int operate(struct pinshim_aio_handle *handle, char *memory, int direct)
{
	const uint64_t offset = next_random(SIZE / 2), length = next_random(SIZE / 2);
	char *at = memory + next_random(600);
	int64_t id;

	if (next_random(2)) {
		fill(at, length < 5000 ? length : 5000);
		memcpy(model + offset, at, length);
		return pinshim_aio_sync_pwrite(handle, at, length, path, offset, 0, NULL) ==
		       (int64_t)length;
	}
	id = direct >= 0 && next_random(2)
		     ? pinshim_aio_async_pread_fd(handle, at, length, direct, offset, 0)
		     : pinshim_aio_async_pread(handle, at, length, path, offset, 0);
	return pinshim_aio_wait_for(handle, id, NULL) == (int64_t)length &&
	       memcmp(at, model + offset, length) == 0;
}

static void compare(const char *name, struct pinshim_aio_handle *handle, char *memory)
{
	const int direct = open(path, O_RDONLY | O_DIRECT);
	int good = 1;

	for (int i = 0; good && i < ROUNDS; i++)
		good = operate(handle, memory, direct);
	check(name, good && agrees());
	if (direct >= 0)
		close(direct);
}

static int compare_all(const char *directory)
{
	const struct pinshim_aio_options small = { 65536, 8, 0, 1, 2 };
	struct pinshim_aio_handle *handle, *other;
	char *locked = pinshim_aio_new_buffer(SIZE), *own = malloc(SIZE);

	model = malloc(SIZE);
	copy = malloc(SIZE);
	snprintf(path, sizeof(path), "%s/file", directory);
	if (!own || !model || !copy)
		return 1;
	check("a buffer is locked", locked && pinshim_aio_is_pinned(locked + 5, SIZE - 5) == 1);
	check("other memory is not", pinshim_aio_is_pinned(model, SIZE) == 0);
	check("a handle", pinshim_aio_open(&small, sizeof(small), &handle) == 0);
	fill(model, SIZE);
	check("a new file", pinshim_aio_sync_pwrite(handle, model, SIZE, path, 0,
						    PINSHIM_AIO_VALIDATE, NULL) == (int64_t)SIZE &&
				    agrees());
	compare("in a locked buffer", handle, locked);
	compare("in other memory", handle, own);
	check("another handle", pinshim_aio_open(NULL, 0, &other) == 0);
	compare("by another handle", other, locked);
	check("closed", pinshim_aio_close(handle) == 0 && pinshim_aio_close(other) == 0);
	check("the buffer is freed", pinshim_aio_free_buffer(locked) == 0);
	check("and is none any more", pinshim_aio_free_buffer(locked) < 0);
	free(own);
	free(model);
	free(copy);
	unlink(path);
	return failures > 0;
}

static int fill_file(const char *name, uint64_t length)
{
	char *memory = malloc(length);
	struct pinshim_aio_handle *handle;
	struct pinshim_aio_result result;

	if (!memory || pinshim_aio_open(NULL, 0, &handle) < 0)
		return 2;
	memset(memory, 'x', length);
	pinshim_aio_sync_pwrite(handle, memory, length, name, 0, 0, &result);
	printf("%" PRIu64 " %" PRIu64 " %s\n", result.bytes, result.failed_offset, result.reason);
	free(memory);
	return pinshim_aio_close(handle) < 0 ? 2 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "--fill"))
		return fill_file(argv[2], strtoull(argv[3], NULL, 10));
	return argc == 2 ? compare_all(argv[1]) : 2;
}
