/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading tables.
 *
 * No number of the file is used before it was compared with the file's size, in arithmetic that
 * cannot wrap around, and a file with holes may have any size: no more records are taken than a table
 * can have. A record counts only if its check is right, whatever the sequence says. Memory comes from
 * mmap: libpinshim-aio.so reads tables from inside interposed calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "os.h"
#include "pinshim_table_reader.h"
#include "syscall.h"
#include "text.h"

#define TRIES 100        /* to catch the writer between two changes */
#define TRIES_AT_ONCE 50 /* of these, before waiting between them */
#define WAIT_NANOSECONDS 100000

struct pinshim_reader {
	int fd;
	dev_t device; /* what fd was at open: a program may close descriptors it does not know */
	ino_t inode;
	struct pinshim_table table;
	struct pinshim_range *range; /* of the last refresh */
	size_t ranges;
	size_t room;         /* records that range has memory for */
	bool current;        /* the last refresh was whole */
	uint64_t generation; /* it copied */
};

/* Copies length bytes of the file. 0; -EPROTO if it is shorter; other -errno. */
static int copy_file(int fd, void *to, size_t length, uint64_t offset)
{
	while (length > 0) {
		long got = ps_syscall4(SYS_pread64, fd, to, length, offset);

		if (got == -EINTR)
			continue;
		if (got < 0)
			return (int)got;
		if (got == 0)
			return -EPROTO;
		to = (char *)to + got;
		length -= (size_t)got;
		offset += (uint64_t)got;
	}
	return 0;
}

/* Is there room in a file of this size for all records that the table says it has? */
static int check_size(const struct pinshim_table *table, uint64_t size)
{
	if (table->magic != PINSHIM_TABLE_MAGIC)
		return -EPROTO;
	if (table->version != PINSHIM_TABLE_VERSION)
		return -EPROTONOSUPPORT;
	if (table->header_bytes != sizeof(*table) || table->ranges_offset < sizeof(*table) ||
	    table->ranges_offset > size || table->range_used > table->range_capacity ||
	    table->range_capacity > PINSHIM_RANGES_MAX)
		return -EPROTO;
	if (table->range_capacity > (size - table->ranges_offset) / sizeof(struct pinshim_range))
		return -EPROTO;
	return 0;
}

static void end_strings(struct pinshim_table *table)
{
	table->program[sizeof(table->program) - 1] = '\0';
	table->backend[sizeof(table->backend) - 1] = '\0';
	table->rank[sizeof(table->rank) - 1] = '\0';
	table->local_rank[sizeof(table->local_rank) - 1] = '\0';
	table->job[sizeof(table->job) - 1] = '\0';
}

/* Copies the header and checks it against the file as it is now. */
static int read_header(struct pinshim_reader *reader)
{
	struct pinshim_table *table = &reader->table;
	struct stat status;
	int rc = ps_os_fstat(reader->fd, &status);

	if (rc < 0 || status.st_dev != reader->device || status.st_ino != reader->inode)
		return -EPROTO;
	/* Another version may have a shorter header: first what all versions have. */
	rc = copy_file(reader->fd, table, offsetof(struct pinshim_table, header_bytes), 0);
	if (rc < 0)
		return rc;
	if (table->magic == PINSHIM_TABLE_MAGIC && table->version != PINSHIM_TABLE_VERSION)
		return -EPROTONOSUPPORT;
	rc = copy_file(reader->fd, table, sizeof(*table), 0);
	if (rc < 0)
		return rc;
	end_strings(table);
	return check_size(table, (uint64_t)status.st_size);
}

static int open_file(const char *path, struct stat *status)
{
	uid_t uid = (uid_t)ps_syscall0(SYS_geteuid);
	/* Not blocking, because it may be a FIFO. */
	int fd = ps_os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	int rc;

	if (fd == -ELOOP)
		return -EPROTO;
	if (fd < 0)
		return fd;
	rc = ps_os_fstat(fd, status);
	if (rc == 0 && !S_ISREG(status->st_mode))
		rc = -EPROTO;
	if (rc == 0 && uid != 0 && status->st_uid != uid)
		rc = -EPERM;
	if (rc == 0)
		return fd;
	ps_os_close(fd);
	return rc;
}

int pinshim_reader_open(const char *path, struct pinshim_reader **reader)
{
	struct pinshim_reader *made;
	struct stat status;
	void *memory;
	int fd = open_file(path, &status);
	int rc;

	if (fd < 0)
		return fd;
	rc = ps_os_mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0, &memory);
	if (rc < 0) {
		ps_os_close(fd);
		return rc;
	}
	made = memory;
	made->fd = fd;
	made->device = status.st_dev;
	made->inode = status.st_ino;
	rc = read_header(made);
	if (rc == 0 && !pinshim_reader_may_speak_for(status.st_uid, (pid_t)made->table.pid))
		rc = -EPROTO;
	if (rc < 0) {
		pinshim_reader_close(made);
		return rc;
	}
	*reader = made;
	return 0;
}

void pinshim_reader_close(struct pinshim_reader *reader)
{
	struct stat status;

	if (!reader)
		return;
	if (ps_os_fstat(reader->fd, &status) == 0 && status.st_dev == reader->device &&
	    status.st_ino == reader->inode)
		ps_os_close(reader->fd);
	if (reader->room)
		ps_os_munmap(reader->range, reader->room * sizeof(*reader->range));
	ps_os_munmap(reader, sizeof(*reader));
}

const struct pinshim_table *pinshim_reader_table(const struct pinshim_reader *reader)
{
	return &reader->table;
}

/* The field'th field of /proc/PID/stat from the third on, or NULL; stat begins at the third. */
static const char *stat_field(const char *stat, unsigned field)
{
	for (unsigned i = 3; i < field; i++) {
		stat = strchr(stat, ' ');
		if (!stat)
			return NULL;
		stat++;
	}
	return stat;
}

bool pinshim_reader_process_alive(pid_t pid, uint64_t start_time)
{
	char content[1024];
	char path[32];
	struct ps_text text = PS_TEXT_INIT(path);
	const char *stat, *threads, *started;
	uint64_t value;
	ssize_t length;

	if (pid <= 0)
		return false;
	ps_text_add(&text, "/proc/%d/stat", (int)pid);
	length = ps_os_read_file(path, content, sizeof(content));
	/* Out of descriptors, say: whoever cannot look must not take a living process for dead. */
	if (length < 0)
		return length != -ENOENT && length != -ESRCH;
	/* The program's name stands in parentheses and may itself have spaces and parentheses. */
	stat = strrchr(content, ')');
	if (!stat || strlen(stat) < 3)
		return false;
	stat += 2;
	threads = stat_field(stat, 20);
	started = stat_field(stat, 22);
	if (!started || ps_text_parse_size(started, &started, &value) < 0 || value != start_time)
		return false;
	/* A main thread that ended before the others is a zombie too, but then there are others. */
	if (*stat == 'Z' || *stat == 'X')
		return ps_text_parse_size(threads, &threads, &value) == 0 && value > 1;
	return true;
}

bool pinshim_reader_may_speak_for(uid_t owner, pid_t pid)
{
	char content[1024];
	char path[32];
	struct ps_text text = PS_TEXT_INIT(path);
	const char *user;
	uint64_t value;

	if (owner == 0 || pid <= 0)
		return true;
	ps_text_add(&text, "/proc/%d/status", (int)pid);
	if (ps_os_read_file(path, content, sizeof(content)) < 0)
		return true;
	/* The real, effective, saved and file system's: it may have made its table as any of them. */
	user = ps_text_find_field(content, "Uid");
	for (; user && *user && *user != '\n'; user += *user == '\t')
		if (ps_text_parse_size(user, &user, &value) < 0 || value == owner)
			return true;
	return user == NULL;
}

bool pinshim_reader_alive(const struct pinshim_reader *reader)
{
	return pinshim_reader_process_alive((pid_t)reader->table.pid, reader->table.start_time);
}

/* Makes room for records. 0 or -ENOMEM. */
static int make_room(struct pinshim_reader *reader, size_t records)
{
	void *memory;
	size_t room = (records + 2047) & ~(size_t)2047;

	if (records <= reader->room)
		return 0;
	if (ps_os_mmap(NULL, room * sizeof(*reader->range), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory) < 0)
		return -ENOMEM;
	if (reader->room)
		ps_os_munmap(reader->range, reader->room * sizeof(*reader->range));
	reader->range = memory;
	reader->room = room;
	return 0;
}

static void sift_down(struct pinshim_range *range, size_t root, size_t count)
{
	struct pinshim_range moved = range[root];

	for (size_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
		if (child + 1 < count && range[child + 1].base > range[child].base)
			child++;
		if (range[child].base <= moved.base)
			break;
		range[root] = range[child];
		root = child;
	}
	range[root] = moved;
}

/* Heapsort, because libc's qsort() may allocate. */
static void sort(struct pinshim_range *range, size_t count)
{
	for (size_t i = count / 2; i-- > 0;)
		sift_down(range, i, count);
	for (size_t left = count; left > 1; left--) {
		struct pinshim_range last = range[left - 1];

		range[left - 1] = range[0];
		range[0] = last;
		sift_down(range, 0, left - 1);
	}
}

static bool is_whole(const struct pinshim_range *range)
{
	return range->length != 0 && range->base <= UINT64_MAX - range->length &&
	       range->check == pinshim_range_check(range);
}

/*
 * Keeps the whole records, sorted. Of two that overlap, which a copy made during changes can have,
 * the second is left out.
 */
static size_t keep_whole(struct pinshim_range *range, size_t count)
{
	size_t whole = 0, kept = 0;

	for (size_t i = 0; i < count; i++)
		if (is_whole(&range[i]))
			range[whole++] = range[i];
	sort(range, whole);
	for (size_t i = 0; i < whole; i++)
		if (kept == 0 || range[i].base - range[kept - 1].base >= range[kept - 1].length)
			range[kept++] = range[i];
	return kept;
}

/* One copy of header and records. 1 if the writer changed them meanwhile, 0, or -errno. */
static int try_copy(struct pinshim_reader *reader)
{
	uint64_t before, after;
	int rc = read_header(reader);

	if (rc < 0)
		return rc;
	before = reader->table.sequence;
	rc = make_room(reader, reader->table.range_used);
	if (rc < 0)
		return rc;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	rc = copy_file(reader->fd, reader->range, reader->table.range_used * sizeof(*reader->range),
		       reader->table.ranges_offset);
	if (rc < 0)
		return rc;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	rc = copy_file(reader->fd, &after, sizeof(after), offsetof(struct pinshim_table, sequence));
	if (rc < 0)
		return rc;
	return before != after || before & 1;
}

/* Waits a moment for the writer. */
static void give_way(unsigned try)
{
	const struct timespec moment = { 0, WAIT_NANOSECONDS };

	if (try < TRIES_AT_ONCE)
		ps_syscall0(SYS_sched_yield);
	else
		ps_syscall2(SYS_nanosleep, &moment, NULL);
}

/* Copies until a copy is whole. 0; 1 if after the last try it still is not; or -errno. */
static int copy_ranges(struct pinshim_reader *reader)
{
	int rc = 1;

	for (unsigned try = 0; try < TRIES && rc == 1; try++) {
		if (try > 0)
			give_way(try);
		rc = try_copy(reader);
		/* Nobody will finish what a dead writer began. */
		if (rc == 1 && try == TRIES_AT_ONCE && !pinshim_reader_alive(reader))
			break;
	}
	return rc;
}

int pinshim_reader_refresh(struct pinshim_reader *reader)
{
	uint64_t copied = reader->generation;
	int rc = read_header(reader);

	if (rc == 0 && reader->current && !(reader->table.sequence & 1) &&
	    reader->table.generation == copied)
		return 0;
	reader->current = false;
	reader->ranges = 0;
	if (rc == 0)
		rc = copy_ranges(reader);
	if (rc < 0)
		return rc == -ENOMEM ? rc : -EPROTO;
	reader->ranges = keep_whole(reader->range, reader->table.range_used);
	reader->generation = reader->table.generation;
	reader->current = rc == 0;
	return rc;
}

const struct pinshim_range *pinshim_reader_ranges(const struct pinshim_reader *reader,
						  size_t *count)
{
	*count = reader->ranges;
	return reader->range;
}

uint64_t pinshim_reader_generation(const struct pinshim_reader *reader)
{
	return reader->generation;
}

/* The last range that begins at or below address, or NULL. */
static const struct pinshim_range *find(const struct pinshim_reader *reader, uint64_t address)
{
	size_t low = 0, high = reader->ranges;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (reader->range[middle].base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 ? &reader->range[low - 1] : NULL;
}

bool pinshim_reader_covers(const struct pinshim_reader *reader, uint64_t address, uint64_t length,
			   uint32_t flags)
{
	const struct pinshim_range *range = find(reader, address);
	const struct pinshim_range *end = reader->range + reader->ranges;

	if (length == 0)
		length = 1;
	if (!range || address > UINT64_MAX - length)
		return false;
	for (; range < end && range->base <= address; range++) {
		uint64_t left = range->length - (address - range->base);

		if (address - range->base >= range->length || (range->flags & flags) != flags)
			return false;
		if (left >= length)
			return true;
		address += left;
		length -= left;
	}
	return false;
}
