/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H
/*
 * Cases of a preload test program: each prints "ok - name" or "not ok - name"; main ends with
 * return check_end(). Lines go out with one write(2) each and without stdio, so that forked children
 * repeat nothing and printing does not itself exercise what is tested.
 *
 * Whether memory is locked is asked of the kernel (/proc/self/smaps), never of the library.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int check_failures;

/* Hides a value from the optimiser, which otherwise drops unused blocks and the overflow tests. */
#define opaque(value)                                                                              \
	({                                                                                         \
		__typeof__(value) opaque_value = (value);                                          \
		__asm__ volatile("" : "+r"(opaque_value) : : "memory");                            \
		opaque_value;                                                                      \
	})

static inline void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void say(const char *format, ...)
{
	char line[512];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (length > 0 && write(STDOUT_FILENO, line, (size_t)length) != length)
		_exit(99);
}

static inline bool check(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool check(bool good, const char *format, ...)
{
	char name[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(name, sizeof(name), format, arguments);
	va_end(arguments);
	say("%s - %s\n", good ? "ok" : "not ok", name);
	if (!good)
		atomic_fetch_add(&check_failures, 1);
	return good;
}

static inline int check_end(void)
{
	return atomic_load(&check_failures) ? 1 : 0;
}

/* The value in bytes of a "Name:   123 kB" line of a /proc file, -1 where there is none. */
static inline long proc_bytes(const char *path, const char *name)
{
	static _Thread_local char text[8192];
	ssize_t length;
	char *found;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0)
		return -1;
	text[length] = '\0';
	found = strstr(text, name);
	return found ? atol(found + strlen(name)) * 1024 : -1;
}

/* Bytes that the kernel counts as locked for this process. */
static inline long locked_bytes(void)
{
	return proc_bytes("/proc/self/status", "VmLck:");
}

/*
 * Is every byte of [pointer, pointer+length) in mappings with the kernel's "locked" flag?
 * Reads smaps through a buffer of its own: a few milliseconds, so not for inner loops.
 */
static inline bool is_locked(const void *pointer, size_t length)
{
	static _Thread_local char buffer[1 << 16];
	uintptr_t from = (uintptr_t)pointer, to = from + (length ? length : 1);
	unsigned long low = 0, high = 0;
	size_t kept = 0;
	ssize_t got;
	int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	while (from < to && (got = read(fd, buffer + kept, sizeof(buffer) - kept - 1)) > 0) {
		char *line = buffer, *end;

		kept += (size_t)got;
		buffer[kept] = '\0';
		for (; (end = strchr(line, '\n')); line = end + 1) {
			unsigned long a, b;
			char dash;

			*end = '\0';
			if (sscanf(line, "%lx%c%lx ", &a, &dash, &b) == 3 && dash == '-') {
				low = a;
				high = b;
			} else if (!strncmp(line, "VmFlags:", 8) && low <= from && from < high) {
				if (!strstr(line, " lo"))
					goto out;
				from = high;
			}
		}
		kept -= (size_t)(line - buffer);
		memmove(buffer, line, kept);
	}
out:
	close(fd);
	return from >= to;
}

/* How many tables a process has in /dev/shm. */
static inline int table_count(pid_t pid)
{
	char prefix[32];
	struct dirent *entry;
	int count = 0;
	DIR *directory = opendir("/dev/shm");

	snprintf(prefix, sizeof(prefix), "pinshim.%d.", (int)pid);
	while (directory && (entry = readdir(directory)))
		count += !strncmp(entry->d_name, prefix, strlen(prefix));
	if (directory)
		closedir(directory);
	return count;
}

/* Fills a block with a pattern of its own, sparsely in large ones: the ends and each 512 bytes. */
static inline void fill(void *pointer, size_t length, unsigned char seed)
{
	unsigned char *bytes = pointer;

	for (size_t i = 0; i < length; i += 512)
		bytes[i] = (unsigned char)(seed + i / 512);
	if (length)
		bytes[length - 1] = (unsigned char)~seed;
}

/* Does the first length bytes of a block of whole bytes filled with fill() still hold? */
static inline bool filled(const void *pointer, size_t length, size_t whole, unsigned char seed)
{
	const unsigned char *bytes = pointer;

	for (size_t i = 0; i < length; i += 512)
		if (i + 1 != whole && bytes[i] != (unsigned char)(seed + i / 512))
			return false;
	return length != whole || !whole || bytes[whole - 1] == (unsigned char)~seed;
}

#endif
