/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader.h"
#include "os.h"

#define SEPARATORS " :" /* of LD_PRELOAD; ld.so has no way to quote them */

/* Where libraries are beside a command that was built, or installed. */
static const char *const places[] = {
	"",
	"/../lib",
	"/../lib64",
#if defined(__x86_64__)
	"/../lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
	"/../lib/aarch64-linux-gnu",
#endif
};

/* The directory of this command. 0 or -errno. */
static int own_directory(char *directory, size_t size)
{
	ssize_t length = ps_os_readlink("/proc/self/exe", directory, size);
	char *slash;

	if (length < 0)
		return (int)length;
	slash = strrchr(directory, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

/* Can it be named in LD_PRELOAD, and loaded? */
static int check_library(const char *path, struct ps_text *why)
{
	struct ps_object object;
	int rc;

	if (path[strcspn(path, SEPARATORS "$")] != '\0') {
		ps_text_add(why,
			    "%s: LD_PRELOAD cannot have a path with a space, a colon or a $: use "
			    "--library with another directory",
			    path);
		return -EINVAL;
	}
	rc = ps_object_open(&object, path);
	if (rc == 0) {
		if (!object.elf.native || object.elf.type != ET_DYN)
			rc = -ELIBBAD;
		ps_object_close(&object);
	}
	if (rc < 0)
		ps_text_add(why, "%s: %s: build it (make), or use --library with its directory",
			    path, strerrordesc_np(rc == -ENOEXEC ? ELIBBAD : -rc));
	return rc;
}

/* The real path of a library in a directory. 0, or -errno where there is none. */
static int find_in(const char *directory, const char *place, const char *name, char *path)
{
	char joined[PATH_MAX];
	struct ps_text text = PS_TEXT_INIT(joined);

	ps_text_add(&text, "%s%s/%s", directory, place, name);
	if (text.cut)
		return -ENAMETOOLONG;
	return realpath(joined, path) ? 0 : -errno;
}

static int find_library(const char *directory, const char *name, char *path, struct ps_text *why)
{
	char own[PATH_MAX] = "";
	int rc = 0;

	if (directory) {
		rc = find_in(directory, "", name, path);
	} else {
		rc = own_directory(own, sizeof(own));
		for (size_t i = 0; rc == 0 && i < sizeof(places) / sizeof(places[0]); i++)
			if (find_in(own, places[i], name, path) == 0)
				return check_library(path, why);
		if (rc == 0)
			rc = -ENOENT;
	}
	if (rc == 0)
		return check_library(path, why);
	ps_text_add(why, "%s: not in %s%s: %s: use --library with its directory", name,
		    directory ? directory : own, directory ? "" : ", ../lib, nor beside that",
		    strerrordesc_np(-rc));
	return rc;
}

int ps_preload_find(struct ps_preload *preload, const char *directory, bool aio,
		    struct ps_text *why)
{
	int rc = find_library(directory, PS_LIBRARY, preload->library, why);

	preload->aio_library[0] = '\0';
	if (rc == 0 && aio)
		rc = find_library(directory, PS_AIO_LIBRARY, preload->aio_library, why);
	return rc;
}

void ps_preload_each(const char *value, bool (*visit)(const char *path, void *context),
		     void *context)
{
	while (value && *value) {
		size_t length = strcspn(value, SEPARATORS);
		char path[PATH_MAX];
		struct ps_text text = PS_TEXT_INIT(path);

		ps_text_add(&text, "%.*s", (int)length, value);
		if (length > 0 && !visit(path, context))
			return;
		value += length;
		value += *value != '\0';
	}
}

struct joining {
	const struct ps_preload *preload;
	struct ps_text *value;
};

static bool join(const char *path, void *context)
{
	struct joining *joining = context;
	const char *name = ps_base_name(path);

	if (!strcmp(name, PS_LIBRARY))
		return true;
	if (joining->preload->aio_library[0] && !strcmp(name, PS_AIO_LIBRARY))
		return true;
	ps_text_add(joining->value, ":%s", path);
	return true;
}

void ps_preload_value(const struct ps_preload *preload, const char *before, struct ps_text *value)
{
	struct joining joining = { preload, value };

	ps_text_add(value, "%s", preload->library);
	if (preload->aio_library[0])
		ps_text_add(value, ":%s", preload->aio_library);
	ps_preload_each(before, join, &joining);
}
