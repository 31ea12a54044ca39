/* SPDX-License-Identifier: BSD-2-Clause */
#include "cgroup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "capped.h"
#include "os.h"
#include "text.h"

const char *ps_cgroup_root = "";

#define PATH_BYTES 4096

static struct {
	char path[PATH_BYTES]; /* own directory, then cut to those above; empty: none known */
	size_t length;         /* of the own directory's path */
	size_t top;            /* length of the mount point's path, where the walk ends */
	size_t own_top;        /* length of that directory's path in own */
	bool v1;
	char file[PATH_BYTES];  /* a file in it */
	char own[PATH_BYTES];   /* the path that /proc/self/cgroup says; empty for the root */
	char other[PATH_BYTES]; /* that of another process */
	char buffer[8192];      /* of a file being read */
} cgroup;

/* A file read line by line through cgroup.buffer. Lines that do not fit, no cgroup's, are skipped. */
struct lines {
	int fd;
	size_t begin, end; /* what of the buffer has not been used */
	bool skipping;
};

static int open_lines(struct lines *lines, const char *path)
{
	struct ps_text text = PS_TEXT_INIT(cgroup.file);

	ps_text_add(&text, "%s%s", ps_cgroup_root, path);
	*lines = (struct lines){ .fd = ps_os_open(cgroup.file, O_RDONLY, 0) };
	return lines->fd;
}

/* The next line, without its end; NULL after the last. */
static char *next_line(struct lines *lines)
{
	for (;;) {
		char *line = cgroup.buffer + lines->begin;
		char *end = memchr(line, '\n', lines->end - lines->begin);
		ssize_t got;

		if (end != NULL) {
			bool skip = lines->skipping;

			*end = '\0';
			lines->begin = (size_t)(end + 1 - cgroup.buffer);
			lines->skipping = false;
			if (skip)
				continue;
			return line;
		}
		memmove(cgroup.buffer, line, lines->end - lines->begin);
		lines->end -= lines->begin;
		lines->begin = 0;
		if (lines->end == sizeof(cgroup.buffer)) {
			lines->skipping = true;
			lines->end = 0;
		}
		got = ps_os_read(lines->fd, cgroup.buffer + lines->end,
				 sizeof(cgroup.buffer) - lines->end);
		if (got <= 0)
			return NULL;
		lines->end += (size_t)got;
	}
}

/* Is word one of the words of a list separated by commas? */
static bool lists(const char *list, const char *word)
{
	size_t length = strlen(word);

	while (*list != '\0') {
		size_t item = strcspn(list, ",");

		if (item == length && memcmp(list, word, length) == 0)
			return true;
		list += item;
		list += *list == ',';
	}
	return false;
}

/*
 * Reads a process's path from lines "4:memory:/path" (version 1, and then *v1) and "0::/path" (version
 * 2). A controller is in one hierarchy only, so a memory line of version 1 decides. 0, *found telling
 * whether there is one; -errno.
 */
static int read_path(const char *file, char *path, bool *found, bool *v1)
{
	struct lines lines;
	char *line;

	*found = *v1 = false;
	path[0] = '\0';
	if (open_lines(&lines, file) < 0)
		return lines.fd;
	while (!*v1 && (line = next_line(&lines)) != NULL) {
		char *controllers = strchr(line, ':');
		char *value = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
		struct ps_text text = { path, PATH_BYTES, 0, false };

		if (value == NULL)
			continue;
		*value++ = '\0';
		controllers++;
		*v1 = lists(controllers, "memory");
		if (!*v1 && *controllers != '\0')
			continue;
		ps_text_add(&text, "%s", strcmp(value, "/") == 0 ? "" : value);
		*found = !text.cut;
	}
	ps_os_close(lines.fd);
	return 0;
}

/* Replaces the \040 of mountinfo by the characters they stand for. */
static void unescape(char *string)
{
	char *to = string;

	for (const char *from = string; *from != '\0'; to++) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] != '\0' &&
		    from[3] != '\0') {
			*to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0');
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* Cuts the next word off a line; NULL when there is none. */
static char *next_word(char **line)
{
	char *word = *line;

	if (word == NULL || *word == '\0')
		return NULL;
	*line = strchr(word, ' ');
	if (*line != NULL)
		*(*line)++ = '\0';
	return word;
}

struct mount {
	char *root;  /* the cgroup that is its top, as this process sees it */
	char *point; /* where it is mounted */
};

/*
 * Reads "36 35 98:0 /root /point options [more...] - type source options". false if it is not the
 * hierarchy that has our memory controller.
 */
static bool parse_mount(char *line, struct mount *mount)
{
	const char *type, *options, *word;

	for (int skipped = 0; skipped < 3; skipped++)
		next_word(&line);
	mount->root = next_word(&line);
	mount->point = next_word(&line);
	do
		word = next_word(&line);
	while (word != NULL && strcmp(word, "-") != 0);
	type = next_word(&line);
	next_word(&line);
	options = next_word(&line);
	if (type == NULL)
		return false;
	if (cgroup.v1 &&
	    (strcmp(type, "cgroup") != 0 || options == NULL || !lists(options, "memory")))
		return false;
	if (!cgroup.v1 && strcmp(type, "cgroup2") != 0)
		return false;
	unescape(mount->root);
	unescape(mount->point);
	return true;
}

static bool outside_namespace(const char *path)
{
	return strncmp(path, "/..", 3) == 0 && (path[3] == '/' || path[3] == '\0');
}

/*
 * The own directory below a mount's point: what of the own path is left after the mount's root.
 * NULL where the mount does not show us.
 */
static const char *below_mount(const char *root)
{
	size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);

	if (strncmp(cgroup.own, root, length) == 0 &&
	    (cgroup.own[length] == '/' || cgroup.own[length] == '\0')) {
		if (length == 0 && outside_namespace(cgroup.own))
			return NULL;
		return cgroup.own + length;
	}
	/*
	 * A mount made outside our cgroup namespace shows a cgroup above ours. The way down to ours
	 * is not told; what holds for the one above holds for us.
	 */
	if (outside_namespace(root) && !outside_namespace(cgroup.own))
		return "";
	return NULL;
}

int ps_cgroup_find(void)
{
	size_t best = SIZE_MAX;
	struct lines lines;
	bool found;
	char *line;
	int error;

	cgroup.length = 0;
	error = read_path("/proc/self/cgroup", cgroup.own, &found, &cgroup.v1);
	if (error < 0 || !found)
		return error;
	if (open_lines(&lines, "/proc/self/mountinfo") < 0)
		return lines.fd;
	while ((line = next_line(&lines)) != NULL) {
		struct ps_text path = PS_TEXT_INIT(cgroup.path);
		struct mount mount;
		const char *below;

		if (!parse_mount(line, &mount))
			continue;
		below = below_mount(mount.root);
		/* The mount with the shortest root shows the most of those above us. */
		if (below == NULL || strlen(mount.root) > best)
			continue;
		best = strlen(mount.root);
		ps_text_add(&path, "%s%s", ps_cgroup_root, mount.point);
		cgroup.top = path.length;
		ps_text_add(&path, "%s", below);
		cgroup.length = path.cut ? 0 : path.length;
		/* Of what lies above our namespace everything may be part. */
		cgroup.own_top = outside_namespace(mount.root) && !outside_namespace(cgroup.own)
					 ? 0
					 : strlen(cgroup.own) - strlen(below);
	}
	ps_os_close(lines.fd);
	return 0;
}

unsigned ps_cgroup_version(void)
{
	if (cgroup.length == 0)
		return 0;
	return cgroup.v1 ? 1 : 2;
}

/* Names a file in the cgroup whose path is the first length bytes of ours. */
static const char *file_in(size_t length, const char *name)
{
	struct ps_text text = PS_TEXT_INIT(cgroup.file);

	ps_text_add(&text, "%.*s/%s", (int)length, cgroup.path, name);
	return cgroup.file;
}

/* A number in a file of its own; otherwise where there is none, or the word max. */
static uint64_t read_number(size_t length, const char *name, uint64_t otherwise)
{
	char value[32];
	const char *end;
	uint64_t number;

	if (ps_os_read_file(file_in(length, name), value, sizeof(value)) < 0)
		return otherwise;
	if (ps_text_parse_size(value, &end, &number) < 0)
		return otherwise;
	return number;
}

/* The value of one key of memory.stat, which is in cgroup.buffer. */
static uint64_t stat_value(const char *key)
{
	size_t length = strlen(key);
	const char *line = cgroup.buffer;
	uint64_t value;

	for (; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, length) != 0 || line[length] != ' ')
			continue;
		return ps_text_parse_size(line + length + 1, &line, &value) == 0 ? value : 0;
	}
	return 0;
}

static uint64_t limit_of(size_t length)
{
	uint64_t max, high;

	if (cgroup.v1) {
		max = read_number(length, "memory.limit_in_bytes", UINT64_MAX);
		/* No limit is said as the largest number of pages, in bytes. */
		return max >= UINT64_C(1) << 62 ? UINT64_MAX : max;
	}
	max = read_number(length, "memory.max", UINT64_MAX);
	high = read_number(length, "memory.high", UINT64_MAX);
	return max < high ? max : high;
}

static uint64_t used_of(size_t length)
{
	uint64_t use, cache;

	use = read_number(length, cgroup.v1 ? "memory.usage_in_bytes" : "memory.current", 0);
	if (ps_os_read_file(file_in(length, "memory.stat"), cgroup.buffer, sizeof(cgroup.buffer)) <
	    0)
		return use;
	/* In version 1 only the total_ values include the cgroups below. */
	cache = cgroup.v1 ? stat_value("total_inactive_file") + stat_value("total_active_file")
			  : stat_value("inactive_file") + stat_value("active_file");
	return use > cache ? use - cache : 0;
}

static void set_where(size_t length, struct ps_cgroup_room *room)
{
	struct ps_text where = PS_TEXT_INIT(room->where);
	size_t shown = length;

	if (length >= sizeof(room->where)) {
		shown = sizeof(room->where) - sizeof("...");
		ps_text_add(&where, "...");
	}
	ps_text_add(&where, "%.*s", (int)shown, cgroup.path + length - shown);
}

size_t ps_cgroup_shared(pid_t pid)
{
	char file[32];
	struct ps_text text = PS_TEXT_INIT(file);
	bool found, v1;
	size_t i = 0;

	ps_text_add(&text, "/proc/%d/cgroup", (int)pid);
	if (read_path(file, cgroup.other, &found, &v1) < 0 || !found)
		return SIZE_MAX;
	while (cgroup.own[i] != '\0' && cgroup.own[i] == cgroup.other[i])
		i++;
	/* Whole names only. */
	if ((cgroup.own[i] == '\0' || cgroup.own[i] == '/') &&
	    (cgroup.other[i] == '\0' || cgroup.other[i] == '/'))
		return i;
	while (i > 0 && cgroup.own[i] != '/')
		i--;
	return i;
}

/* What is about to be taken from a cgroup of ours. */
static uint64_t flying_in(size_t length, uint64_t own, const struct ps_flight *flight,
			  unsigned flights)
{
	const size_t path = cgroup.own_top + (length - cgroup.top);

	for (unsigned i = 0; i < flights; i++)
		if (flight[i].shared >= path)
			own = ps_capped_add(own, flight[i].bytes);
	return own;
}

/* Looks at one: the tightest is noted in *room. */
static void look_at(size_t length, unsigned percent, uint64_t bytes, uint64_t flying,
		    struct ps_cgroup_room *room)
{
	const uint64_t limit = limit_of(length);
	uint64_t allowed, used, bare;

	if (limit == UINT64_MAX)
		return;
	allowed = ps_capped_sub(limit, percent > 0 ? limit / 100 * percent : bytes);
	used = used_of(length);
	bare = ps_capped_sub(allowed, used);
	if (bare < room->bare)
		room->bare = bare;
	if (ps_capped_sub(bare, flying) >= room->room)
		return;
	room->room = ps_capped_sub(bare, flying);
	room->allowed = allowed;
	room->used = used;
	room->flying = flying;
	set_where(length, room);
}

void ps_cgroup_room_besides(unsigned percent, uint64_t bytes, uint64_t own,
			    const struct ps_flight *flight, unsigned flights,
			    struct ps_cgroup_room *room)
{
	size_t length = cgroup.length;

	*room = (struct ps_cgroup_room){ .room = UINT64_MAX, .bare = UINT64_MAX };
	while (length > 0) {
		look_at(length, percent, bytes, flying_in(length, own, flight, flights), room);
		if (length <= cgroup.top)
			break;
		while (length > cgroup.top && cgroup.path[length - 1] != '/')
			length--;
		length -= length > cgroup.top;
	}
}

void ps_cgroup_room(unsigned percent, uint64_t bytes, struct ps_cgroup_room *room)
{
	ps_cgroup_room_besides(percent, bytes, 0, NULL, 0, room);
}
