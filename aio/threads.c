/* SPDX-License-Identifier: BSD-2-Clause */
#include "threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>

#include "os.h"
#include "text.h"

/* As getdents64(2) has it. */
struct entry {
	uint64_t inode;
	int64_t offset;
	uint16_t length; /* bytes of this entry */
	uint8_t type;
	char name[];
};

/* Threads that the kernel has in the process to do what io_uring could not do at once. */
static bool is_worker(const char *id)
{
	char path[64], name[32];
	struct ps_text text = PS_TEXT_INIT(path);

	ps_text_add(&text, "/proc/self/task/%s/comm", id);
	return ps_os_read_file(path, name, sizeof(name)) > 0 && strncmp(name, "iou-", 4) == 0;
}

/* Program's threads among the entries, counted up to 2. */
static unsigned count(const char *entries, ssize_t bytes)
{
	unsigned threads = 0;

	for (ssize_t at = 0; at < bytes && threads < 2;) {
		const struct entry *entry = (const struct entry *)(entries + at);

		threads += entry->name[0] != '.' && !is_worker(entry->name);
		at += entry->length;
	}
	return threads;
}

bool ps_threads_single(void)
{
	_Alignas(struct entry) char entries[1024];
	unsigned threads = 0;
	ssize_t bytes;
	int fd = ps_os_open("/proc/self/task", O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return false;
	while (threads < 2 && (bytes = ps_os_getdents(fd, entries, sizeof(entries))) > 0)
		threads += count(entries, bytes);
	ps_os_close(fd);
	return threads == 1;
}
