/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is pinned, from the table.
 *
 * The header of the table's file is mapped at the first look that finds it, and stays at that address
 * for ever, because its generation is loaded without a lock: when the table goes (generation and magic
 * are 0 then) and another comes, that is mapped in its place. The ranges are copied, sorted, when they
 * are asked for and the generation is another than that of the copy. No descriptor is kept: programs
 * close descriptors they do not know.
 *
 * Whose table it is, is looked at whenever the lock is taken, for a child of a raw clone() runs no
 * handler of fork.
 */
#include "pinned.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "held.h"
#include "os.h"
#include "pinshim_table_reader.h"
#include "syscall.h"
#include "table.h"
#include "text.h"

#define LOOK_NANOSECONDS (UINT64_C(50) * 1000000) /* between two looks for a table */
#define HEADER_BYTES ((sizeof(struct pinshim_table) + 4095) & ~(size_t)4095)
#define PRINT_FACTOR UINT64_C(0x9e3779b97f4a7c15)

/* A range of locked heap memory. */
struct range {
	uintptr_t base;
	uintptr_t end;
	uint64_t check; /* of its record, which has its serial */
};

/* Mapped; NULL before the first table was found. Changed with the lock held. */
struct pinshim_table *ps_pinned_header;

static struct {
	struct ps_lock lock;
	uint64_t looked;     /* when a table was last looked for; 0: never */
	pid_t pid;           /* whose all this is; 0: nobody's yet */
	char path[256];      /* of its table; empty: not known yet */
	struct range *range; /* the copy, by address */
	size_t ranges;
	size_t room;         /* ranges that there is memory for */
	uint64_t generation; /* of the copy; 0: there is none */
} view;

/* Forgets a parent's table: its header gives way to zeros, for another thread may be reading it. */
static void forget(pid_t pid)
{
	void *same;

	if (ps_pinned_header != NULL &&
	    ps_os_mmap(ps_pinned_header, HEADER_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0, &same) < 0)
		__atomic_store_n(&ps_pinned_header, NULL, __ATOMIC_RELEASE);
	__atomic_store_n(&view.looked, 0, __ATOMIC_RELAXED);
	view.pid = pid;
	view.path[0] = '\0';
	view.ranges = 0;
	view.generation = 0;
}

static void lock_view(void)
{
	const pid_t pid = ps_os_getpid();

	ps_hold(&view.lock);
	if (view.pid != pid)
		forget(pid);
}

static void unlock_view(void)
{
	ps_let_go(&view.lock);
}

/* The path of this process's table; false where it cannot be told, without /proc. */
static bool know_path(void)
{
	struct ps_text text = PS_TEXT_INIT(view.path);
	uint64_t started;

	if (view.path[0] != '\0')
		return true;
	started = ps_os_start_time(view.pid);
	if (started != 0)
		ps_text_add(&text, "%s/" PINSHIM_TABLE_PREFIX "%d.%lu", ps_table_directory,
			    (int)view.pid, started);
	if (text.cut)
		view.path[0] = '\0';
	return view.path[0] != '\0';
}

/* Is the file long enough for a header, and the owner's? */
static bool may_be_table(int fd)
{
	struct stat status;

	return ps_os_fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
	       status.st_uid == (uid_t)ps_syscall0(SYS_geteuid) &&
	       (uint64_t)status.st_size >= HEADER_BYTES;
}

static bool is_ours(const struct pinshim_table *header)
{
	return ps_pinned_is_table(header) && header->version == PINSHIM_TABLE_VERSION &&
	       header->header_bytes == sizeof(*header) && header->pid == (uint32_t)view.pid;
}

/* Maps the header of the table at view.path, in the place of the one before if there was one. */
static void map_header(void)
{
	const int fd = ps_os_open(view.path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	void *fresh;
	long moved;

	if (fd < 0)
		return;
	if (!may_be_table(fd) ||
	    ps_os_mmap(NULL, HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0, &fresh) < 0) {
		ps_os_close(fd);
		return;
	}
	ps_os_close(fd);
	if (!is_ours(fresh)) {
		ps_os_munmap(fresh, HEADER_BYTES);
	} else if (ps_pinned_header == NULL) {
		__atomic_store_n(&ps_pinned_header, fresh, __ATOMIC_RELEASE);
	} else {
		moved = ps_syscall5(SYS_mremap, fresh, HEADER_BYTES, HEADER_BYTES,
				    MREMAP_MAYMOVE | MREMAP_FIXED, ps_pinned_header);
		if (moved < 0 && moved > -4096)
			ps_os_munmap(fresh, HEADER_BYTES);
	}
}

/* Looks for a table unless there is one, or there was a look just now. Lock held. */
static void look(void)
{
	const uint64_t now = ps_os_now_coarse();

	if (ps_pinned_table() != NULL || (view.looked != 0 && now - view.looked < LOOK_NANOSECONDS))
		return;
	__atomic_store_n(&view.looked, now, __ATOMIC_RELAXED);
	if (know_path())
		map_header();
}

/* The generation now; looks for a table if there is none. Lock held. */
static uint64_t generation(void)
{
	look();
	return ps_pinned_generation_of_found();
}

uint64_t ps_pinned_generation_of_new(void)
{
	const uint64_t looked = __atomic_load_n(&view.looked, __ATOMIC_RELAXED);
	uint64_t found;

	if (looked != 0 && ps_os_now_coarse() - looked < LOOK_NANOSECONDS)
		return 0;
	lock_view();
	found = generation();
	unlock_view();
	return found;
}

/* 0 or -ENOMEM. A fork may happen anywhere in here, and the child goes on with what is there. */
static int make_room(size_t ranges)
{
	const size_t room = (ranges + 1023) & ~(size_t)1023, before = view.room;
	struct range *old = view.range;
	void *memory;

	if (ranges <= before)
		return 0;
	if (ps_os_mmap(NULL, room * sizeof(*view.range), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &memory) < 0)
		return -ENOMEM;
	view.range = memory;
	view.room = room;
	if (before > 0)
		ps_os_munmap(old, before * sizeof(*old));
	return 0;
}

static bool counts(const struct pinshim_range *range)
{
	return (range->flags & (PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_FOREIGN)) ==
	       PINSHIM_RANGE_LOCKED;
}

static void copy_from(const struct pinshim_reader *reader)
{
	size_t count;
	const struct pinshim_range *from = pinshim_reader_ranges(reader, &count);

	if (make_room(count) < 0)
		return;
	for (size_t i = 0; i < count; i++)
		if (counts(&from[i]))
			view.range[view.ranges++] = (struct range){ from[i].base,
								    from[i].base + from[i].length,
								    from[i].check };
	view.generation = pinshim_reader_generation(reader);
}

/* Brings the copy up to date. Without a table, and where it cannot be read whole, nothing is pinned. */
static void refresh(void)
{
	const uint64_t now = generation();
	struct pinshim_reader *reader;

	if (now != 0 && now == view.generation)
		return;
	view.ranges = 0;
	view.generation = 0;
	if (now == 0 || pinshim_reader_open(view.path, &reader) < 0)
		return;
	if (pinshim_reader_refresh(reader) == 0)
		copy_from(reader);
	pinshim_reader_close(reader);
}

/* The first range that ends above address; view.range + view.ranges if there is none. */
static const struct range *above(uintptr_t address)
{
	size_t low = 0, high = view.ranges;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (view.range[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return view.range + low;
}

static const struct range *no_more(void)
{
	return view.range + view.ranges;
}

/* The range that address lies in, or NULL. */
static const struct range *around(uintptr_t address)
{
	const struct range *range = above(address);

	return range < no_more() && range->base <= address ? range : NULL;
}

/* The end of the run that range is part of, or limit if that is below. */
static uintptr_t run_end(const struct range *range, uintptr_t limit)
{
	while (range->end < limit && range + 1 < no_more() && range[1].base == range->end)
		range++;
	return range->end < limit ? range->end : limit;
}

static uintptr_t run_base(const struct range *range, uintptr_t limit)
{
	while (range->base > limit && range > view.range && range[-1].end == range->base)
		range--;
	return range->base > limit ? range->base : limit;
}

/* Of every range that has a byte in [base, end). */
static uint64_t print_of(uintptr_t base, uintptr_t end)
{
	uint64_t print = 0;

	for (const struct range *range = above(base); range < no_more() && range->base < end;
	     range++) {
		print = (print ^ range->check) * PRINT_FACTOR;
		print ^= print >> 32;
	}
	return print;
}

/* The last byte's address; false if there is none because it wraps around. */
static bool last_byte(uintptr_t address, size_t length, uintptr_t *last)
{
	*last = address + (length > 0 ? length - 1 : 0);
	return *last >= address;
}

bool ps_pinned_piece(uintptr_t address, size_t length, struct ps_piece *piece)
{
	const uintptr_t block = address & ~(uintptr_t)(PS_PIECE_MAX - 1);
	const struct range *range;
	uintptr_t last, end;
	bool whole = false;

	if (!last_byte(address, length, &last))
		return false;
	lock_view();
	refresh();
	range = around(address);
	if (range != NULL) {
		end = run_end(range, block + PS_PIECE_MAX);
		piece->base = run_base(range, block);
		piece->length = end - piece->base;
		piece->generation = view.generation;
		piece->print = print_of(piece->base, end);
		whole = last < end;
	}
	unlock_view();
	return whole;
}

bool ps_pinned_same(struct ps_piece *piece)
{
	bool same;

	lock_view();
	refresh();
	same = view.generation != 0 &&
	       (piece->generation == view.generation ||
		piece->print == print_of(piece->base, piece->base + piece->length));
	if (same)
		piece->generation = view.generation;
	unlock_view();
	return same;
}

void ps_pinned_bounds(uintptr_t *low, uintptr_t *high)
{
	lock_view();
	refresh();
	*low = view.ranges > 0 ? view.range[0].base : 0;
	*high = view.ranges > 0 ? view.range[view.ranges - 1].end : 0;
	unlock_view();
}

void ps_pinned_look(void)
{
	if (ps_pinned_table() != NULL)
		return;
	lock_view();
	__atomic_store_n(&view.looked, 0, __ATOMIC_RELAXED);
	look();
	unlock_view();
}

void ps_pinned_fork_child(void)
{
	ps_lock_reset(&view.lock);
	lock_view();
	unlock_view();
}
