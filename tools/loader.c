/* SPDX-License-Identifier: BSD-2-Clause */
#include "loader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

#define CACHE_MAX ((size_t)16 << 20)
#define CACHE_MAGIC "glibc-ld.so.cache1.1"

/* /etc/ld.so.cache since glibc 2.32, and before that after one of an older form. */
struct cache_header {
	char magic[sizeof(CACHE_MAGIC) - 1];
	uint32_t libraries;
	uint32_t strings_bytes;
	uint32_t unused[5];
};

struct cache_entry {
	int32_t flags;
	uint32_t name; /* offsets from the header's beginning */
	uint32_t path;
	uint32_t unused;
	uint64_t hardware;
};

static const char *const standard_directories[] = { "/lib64", "/usr/lib64", "/lib", "/usr/lib" };

int ps_object_open(struct ps_object *object, const char *path)
{
	struct ps_text text = PS_TEXT_INIT(object->path);
	int fd;

	ps_text_add(&text, "%s", path);
	if (text.cut)
		return -ENAMETOOLONG;
	/* What is called like a library may be a pipe. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? -errno : ps_elf_open(&object->elf, fd);
}

void ps_object_close(struct ps_object *object)
{
	ps_elf_close(&object->elf);
}

/* Opens it if it is a shared object that this machine can load. 0, -ENOENT or -ENOMEM. */
static int open_library(struct ps_object *object, const char *path)
{
	int rc = ps_object_open(object, path);

	if (rc == 0 && object->elf.native && object->elf.type == ET_DYN)
		return 0;
	if (rc == 0)
		ps_object_close(object);
	return rc == -ENOMEM ? rc : -ENOENT;
}

/*
 * Adds a directory of a search path, with $ORIGIN as the directory of the object that has the path.
 * false where another $ is in it, whose meaning ld.so keeps to itself.
 */
static bool add_directory(struct ps_text *text, const char *directory, size_t length,
			  const char *origin)
{
	static const char *const names[] = { "$ORIGIN", "${ORIGIN}" };
	const char *end = directory + length;

	while (directory < end) {
		size_t used = 0;

		for (size_t i = 0; origin && i < 2 && !used; i++)
			if (!strncmp(directory, names[i], strlen(names[i])))
				used = strlen(names[i]);
		if (used)
			ps_text_add(text, "%.*s", (int)(ps_base_name(origin) - origin), origin);
		else if (*directory == '$')
			return false;
		else
			ps_text_add(text, "%c", *directory);
		directory += used ? used : 1;
	}
	return true;
}

/* Searches a list of directories, which any of these separates. 0, -ENOENT or -ENOMEM. */
static int search_list(const char *list, const char *separators, const char *origin,
		       const char *name, struct ps_object *object)
{
	while (list && *list) {
		size_t length = strcspn(list, separators);
		char path[PATH_MAX];
		struct ps_text text = PS_TEXT_INIT(path);
		int rc = -ENOENT;

		if (add_directory(&text, list, length, origin)) {
			ps_text_add(&text, "%s%s", length ? "/" : "", name);
			if (!text.cut)
				rc = open_library(object, path);
		}
		if (rc != -ENOENT)
			return rc;
		list += length;
		list += *list != '\0';
	}
	return -ENOENT;
}

/* The whole cache, ended with NUL; NULL where there is none. Read once. */
static const char *read_cache(size_t *length)
{
	static char *bytes;
	static size_t size;
	static bool tried;
	int fd;

	*length = size;
	if (tried)
		return bytes;
	tried = true;
	fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
	bytes = fd < 0 ? NULL : malloc(CACHE_MAX + 1);
	if (bytes) {
		ssize_t got = read(fd, bytes, CACHE_MAX);

		size = got < 0 ? 0 : (size_t)got;
		bytes[size] = '\0';
	}
	if (fd >= 0)
		close(fd);
	*length = size;
	return bytes;
}

static int search_cache(const char *name, struct ps_object *object)
{
	struct cache_header header;
	size_t length, room;
	const char *file = read_cache(&length);
	const char *cache = file ? memmem(file, length, CACHE_MAGIC, sizeof(header.magic)) : NULL;

	if (!cache)
		return -ENOENT;
	length -= (size_t)(cache - file);
	if (length < sizeof(header))
		return -ENOENT;
	memcpy(&header, cache, sizeof(header));
	room = (length - sizeof(header)) / sizeof(struct cache_entry);
	for (size_t i = 0; i < header.libraries && i < room; i++) {
		struct cache_entry entry;
		int rc;

		memcpy(&entry, cache + sizeof(header) + i * sizeof(entry), sizeof(entry));
		if (entry.name >= length || entry.path >= length ||
		    strcmp(cache + entry.name, name) != 0)
			continue;
		rc = open_library(object, cache + entry.path);
		if (rc != -ENOENT)
			return rc;
	}
	return -ENOENT;
}

static int search_standard(const char *name, struct ps_object *object)
{
	int rc = -ENOENT;

	for (size_t i = 0; rc == -ENOENT && i < sizeof(standard_directories) / sizeof(char *); i++)
		rc = search_list(standard_directories[i], "", NULL, name, object);
	return rc;
}

/* The RPATH of an object, which counts only where it has no RUNPATH. */
static int search_rpath(const struct ps_object *of, const char *name, struct ps_object *object)
{
	if (!of || ps_elf_dynamic_string(&of->elf, DT_RUNPATH, 0))
		return -ENOENT;
	return search_list(ps_elf_dynamic_string(&of->elf, DT_RPATH, 0), ":", of->path, name,
			   object);
}

static int search_runpath(const struct ps_object *of, const char *name, struct ps_object *object)
{
	if (!of)
		return -ENOENT;
	return search_list(ps_elf_dynamic_string(&of->elf, DT_RUNPATH, 0), ":", of->path, name,
			   object);
}

int ps_loader_find(const char *name, const struct ps_needer *needer, struct ps_object *object)
{
	int rc;

	if (strchr(name, '/'))
		return open_library(object, name);
	rc = search_rpath(needer->object, name, object);
	if (rc == -ENOENT)
		rc = search_rpath(needer->main, name, object);
	if (rc == -ENOENT)
		rc = search_list(getenv("LD_LIBRARY_PATH"), ":;", NULL, name, object);
	if (rc == -ENOENT)
		rc = search_runpath(needer->object, name, object);
	if (rc == -ENOENT)
		rc = search_cache(name, object);
	return rc == -ENOENT ? search_standard(name, object) : rc;
}
