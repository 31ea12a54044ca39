/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing the table.
 *
 * One lock, inside the window's and the budget's and outside the log's (lock.h). It orders changes of
 * the ranges, the gauges and the memory that the table lies in. Under it only ps_os_* calls and
 * messages. Counters are added to without it.
 *
 * Memory: addresses for the largest table are reserved once, and ps_table() is their beginning for
 * ever. What is mapped there is first shared anonymous memory, later the file, and again anonymous
 * memory where the file cannot grow. Shared and not private, because a second mapping of shared
 * memory can be had: switch_memory() copies the table, replaces the mapping in one system call, and
 * adds what other threads counted between the two, which it reads through the second mapping of the
 * old memory. No count is lost, and nobody has to be stopped.
 *
 * File: made under a temporary name and renamed when it is whole, so no reader ever sees half a
 * table, and rename(2) takes the place of whatever has the name, link or file, without following or
 * opening it; it fails where that belongs to somebody else. No descriptor is kept: programs close
 * descriptors they do not know.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mman.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "counters.h"
#include "heap.h"
#include "identity.h"
#include "lock.h"
#include "log.h"
#include "os.h"
#include "syscall.h"
#include "table.h"
#include "text.h"

#define FIRST_BYTES ((size_t)64 << 10) /* mapped at first; doubles */
#define RESERVED_BYTES (PINSHIM_RANGES_MAX * sizeof(struct pinshim_range))
#define RANGES_OFFSET ((sizeof(struct pinshim_table) + 63) & ~(size_t)63)
#define FIRST_COUNTER (offsetof(struct pinshim_table, pinned_bytes) / sizeof(uint64_t))
#define WORDS (sizeof(struct pinshim_table) / sizeof(uint64_t))
#define NO_SLOT UINT32_MAX
#define REAP_SECONDS 3600 /* dead tables stay readable that long */

/* The page that the kernel wipes in a forked child. */
struct process_page {
	struct ps_process process;
	int noticing; /* the thread that is in ps_table_after_fork() */
};

/* Counts before the constructor, and everything where no memory can be had. */
static union {
	struct pinshim_table table;
	char bytes[FIRST_BYTES];
} early __attribute__((aligned(4096)));

static struct process_page early_page = { .process.table = &early.table };

static struct {
	struct ps_lock lock;
	uint64_t mask;               /* the holder's signal mask before */
	bool forking;                /* held for a fork */
	struct pinshim_table *table; /* where it lies, for ever */
	size_t mapped;               /* bytes of it that are memory */
	size_t reserved;             /* bytes of addresses */
	uint32_t used;               /* slots that were ever used; range_used can be damaged */
	uint32_t first_free;         /* head of the list of unused slots, or NO_SLOT */
	uint32_t serial;             /* of the last record written */
	bool failed;                 /* the file could not be made or grown */
	bool closed;                 /* ps_table_close() was called */
	bool reopen;                 /* and there was a file */
	dev_t device;                /* of the file */
	ino_t inode;
	char path[256]; /* of the file; empty: there is none */
} self = { .table = &early.table, .first_free = NO_SLOT };

struct ps_process *ps_process = &early_page.process;
const char *ps_table_directory = PINSHIM_TABLE_DIRECTORY;

/*
 * With all signals blocked: a handler may call _exit() or exec, which report and withdraw the table,
 * and must not find the lock held by the thread that it interrupted.
 */
static void lock_table(void)
{
	ps_lock_quietly(&self.lock, &self.mask);
}

static void unlock_table(void)
{
	ps_unlock_quietly(&self.lock, self.mask);
}

static struct pinshim_range *range_of(struct pinshim_table *table, uint32_t slot)
{
	return (struct pinshim_range *)((char *)table + RANGES_OFFSET) + slot;
}

static uint32_t capacity_of(size_t bytes)
{
	return (uint32_t)((bytes - RANGES_OFFSET) / sizeof(struct pinshim_range));
}

/* The parts of an empty table that do not need /proc, which costs too much for every process. */
static void begin_table(struct pinshim_table *table, int pid)
{
	table->magic = PINSHIM_TABLE_MAGIC;
	table->version = PINSHIM_TABLE_VERSION;
	table->header_bytes = sizeof(*table);
	table->pid = (uint32_t)pid;
	table->uid = (uint32_t)ps_syscall0(SYS_geteuid);
	table->created = ps_os_wall_clock();
	table->ranges_offset = RANGES_OFFSET;
	table->range_capacity = capacity_of(FIRST_BYTES);
	self.mapped = FIRST_BYTES;
	self.used = 0;
	self.first_free = NO_SLOT;
}

void ps_table_identify(void)
{
	struct pinshim_table *table = ps_table();

	/* Where nothing is to be pinned, nobody started it, and it counts all the same. */
	if (table->pid == 0) {
		table->pid = (uint32_t)ps_os_getpid();
		ps_identity_rank(table);
	}
	ps_identity_process(table);
}

/*
 * The word that may be added to in the place of this one: stripes of one thread are left to it, and the
 * first that is shared has the same words.
 */
static size_t shared_word(size_t word)
{
	const size_t first = offsetof(struct pinshim_table, stripe) / sizeof(uint64_t);
	const size_t length = sizeof(struct pinshim_stripe) / sizeof(uint64_t);

	if (word < first || word >= first + PS_STRIPES_OWN * length)
		return word;
	return first + PS_STRIPES_OWN * length + (word - first) % length;
}

/* Is it one that counts nothing, of an entry point: when to look, which is copied and not added up? */
static bool is_look(size_t word)
{
	const size_t first = offsetof(struct pinshim_table, stripe) / sizeof(uint64_t);
	const size_t length = sizeof(struct pinshim_stripe) / sizeof(uint64_t);
	const size_t entry = sizeof(struct pinshim_entry) / sizeof(uint64_t);
	const size_t in_stripe = (word - first) % length;

	return word >= first && in_stripe < PINSHIM_ENTRIES_MAX * entry && in_stripe % entry == 0;
}

/* Is it a word that is stored, not added to? */
static bool is_stored(const uint64_t *word)
{
	return word == &self.table->claimed_bytes || word == &self.table->asking_bytes ||
	       word == &self.table->credit_bytes || word == &self.table->credit_until;
}

/*
 * Adds to a word of the table what was counted in the same word of other memory since it was `was`.
 */
static void fold(size_t word, uint64_t was, uint64_t now)
{
	const size_t peaks = offsetof(struct pinshim_table, live_peak_bytes) / sizeof(uint64_t);
	uint64_t *to = (uint64_t *)self.table + shared_word(word);

	if (now == was || is_look(word))
		return;
	if (to == &self.table->hooks_reached)
		__atomic_fetch_or(to, now, __ATOMIC_RELAXED);
	else if (word - peaks < PINSHIM_ENTRIES_MAX)
		ps_count_peak(to, now);
	else if (is_stored(to))
		/* A later store in the new memory stands. */
		__atomic_compare_exchange_n(to, &was, now, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	else
		ps_count_add(to, now - was);
}

/* Counts from before the constructor, and from forked children that had not noticed. */
static void fold_early(void)
{
	uint64_t *from = (uint64_t *)&early.table;

	if (self.table == &early.table)
		return;
	for (size_t i = FIRST_COUNTER; i < WORDS; i++)
		if (ps_count_get(from + i))
			fold(i, 0, __atomic_exchange_n(from + i, 0, __ATOMIC_RELAXED));
}

static long remap(void *from, size_t old_bytes, size_t bytes, int flags, void *to)
{
	return ps_syscall5(SYS_mremap, from, old_bytes, bytes, MREMAP_MAYMOVE | flags, to);
}

/*
 * Memory that was the table is none any more: libpinshim-aio.so has the file mapped, too, and would
 * wait for ever for it to change; and a file that cannot be removed must not mislead.
 */
static void retire(struct pinshim_table *old)
{
	__atomic_store_n(&old->magic, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&old->generation, 0, __ATOMIC_RELEASE);
}

/*
 * Puts fresh memory in the place of the table's: of the file fd, or anonymous if fd is -1. Calls
 * ready, if given, when it is filled and before it is used. 0, or -errno with nothing changed.
 */
static int switch_memory(int fd, int (*ready)(void))
{
	void *fresh, *before;
	char *old;
	int rc;

	rc = ps_os_mmap(NULL, self.mapped, PROT_READ | PROT_WRITE,
			MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0, &fresh);
	if (rc < 0)
		return rc;
	rc = ps_os_mmap(NULL, FIRST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0, &before);
	if (rc < 0)
		goto err_fresh;
	/* An old length of 0 asks for a second mapping of the same shared memory. */
	old = (char *)remap(self.table, 0, FIRST_BYTES, 0, NULL);
	rc = (int)(long)old;
	if ((unsigned long)old > -4096ul)
		goto err_before;

	memcpy(before, old, FIRST_BYTES);
	memcpy(fresh, before, FIRST_BYTES);
	memcpy((char *)fresh + FIRST_BYTES, (char *)self.table + FIRST_BYTES,
	       self.mapped - FIRST_BYTES);
	rc = ready ? ready() : 0;
	if (rc < 0)
		goto err_old;
	rc = (int)remap(fresh, self.mapped, self.mapped, MREMAP_FIXED, self.table);
	if (rc < 0 && rc > -4096)
		goto err_old;
	fresh = NULL;
	retire((struct pinshim_table *)old);
	for (size_t i = FIRST_COUNTER; i < WORDS; i++)
		fold(i, ((uint64_t *)before)[i], ps_count_get((uint64_t *)old + i));
	rc = 0;
err_old:
	ps_os_munmap(old, FIRST_BYTES);
err_before:
	ps_os_munmap(before, FIRST_BYTES);
err_fresh:
	if (fresh)
		ps_os_munmap(fresh, self.mapped);
	return rc;
}

/* Reserves the addresses, halving on failure (RLIMIT_AS counts them), and maps the beginning. */
static int reserve(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	size_t bytes = RESERVED_BYTES;
	void *base, *same;
	int rc;

	while ((rc = ps_os_mmap(NULL, bytes, PROT_NONE, flags, -1, 0, &base)) < 0) {
		bytes /= 2;
		if (bytes < FIRST_BYTES)
			return rc;
	}
	rc = ps_os_mmap(base, FIRST_BYTES, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0, &same);
	if (rc < 0) {
		ps_os_munmap(base, bytes);
		return rc;
	}
	self.table = base;
	self.reserved = bytes;
	return 0;
}

/* A page that is wiped in a forked child; the static one, which is not, if there is none. */
static void make_process_page(void)
{
	void *page;

	if (ps_os_mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0,
		       &page) < 0)
		return;
	if (ps_os_madvise(page, 4096, MADV_WIPEONFORK) < 0) {
		ps_os_munmap(page, 4096);
		return;
	}
	ps_process = page;
}

/* From here on the process pid counts in the table. */
static void begin_counting(int pid)
{
	ps_process->pid = pid;
	for (unsigned i = 0; i < PS_STRIPES_OWN; i++)
		__atomic_store_n(&ps_process->own[1 + i], &self.table->stripe[i], __ATOMIC_RELAXED);
	__atomic_store_n(&ps_process->table, self.table, __ATOMIC_RELEASE);
}

int ps_table_start(void)
{
	int pid = ps_os_getpid();
	int rc = reserve();

	make_process_page();
	begin_table(self.table, pid);
	ps_identity_rank(self.table);
	fold_early();
	begin_counting(pid);
	return rc < 0 ? -ENOMEM : 0;
}

bool ps_table_notices_clones(void)
{
	return ps_process != &early_page.process;
}

bool ps_table_is_ours(void)
{
	(void)ps_table();
	return ps_process->pid == ps_os_getpid();
}

/* Says once why there is no file, and what that means. */
static void say_unpublished(int error)
{
	const char *hint = "mount a writable tmpfs there";

	if (error == -ENOSYS)
		hint = "a seccomp filter forbids it: allow the system calls that pinshim(7) lists";
	else if (error == -ENOMEM)
		hint = "raise the limit on address space (ulimit -v), or make room there (see df)";
	else if (error == -ENOSPC)
		hint = "make room in it (see df), or mount it with a larger size";
	else if (error == -EDQUOT)
		hint = "this user's quota there is used up";
	else if (error == -ESRCH)
		hint = "mount /proc, which has the process's start time";
	ps_log_once(PS_LOG_WARN,
		    "publishing the table in %s failed: %s: pinning goes on, but pinshim stat, "
		    "PINSHIM_NODE_LIMIT and other processes do not see it: %s",
		    ps_table_directory, strerrordesc_np(-error), hint);
}

static int temporary_path(char *path, size_t size)
{
	struct ps_text text = { path, size, 0, false };

	ps_text_add(&text, "%s" PS_TABLE_TEMPORARY, self.path);
	return text.cut ? -ENAMETOOLONG : 0;
}

/* The last step of making the file: its name. */
static int rename_into_place(void)
{
	char temporary[sizeof(self.path) + 8];

	temporary_path(temporary, sizeof(temporary));
	return (int)ps_syscall5(SYS_renameat2, AT_FDCWD, temporary, AT_FDCWD, self.path, 0);
}

/* Creates a file that was not there, mode 0600 whatever the umask. The descriptor, or -errno. */
static int create_file(const char *path)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
	int fd = ps_os_open(path, flags, 0600);

	if (fd == -EEXIST && ps_os_unlink(path) == 0)
		fd = ps_os_open(path, flags, 0600);
	if (fd >= 0)
		ps_syscall2(SYS_fchmod, fd, 0600);
	return fd;
}

static int fill_file(int fd)
{
	struct stat status;
	int rc = ps_os_fallocate(fd, 0, (off_t)self.mapped);

	if (rc < 0)
		return rc;
	rc = ps_os_fstat(fd, &status);
	if (rc < 0)
		return rc;
	self.device = status.st_dev;
	self.inode = status.st_ino;
	return switch_memory(fd, rename_into_place);
}

static int make_file(void)
{
	struct ps_text text = PS_TEXT_INIT(self.path);
	char temporary[sizeof(self.path) + 8];
	int fd, rc;

	ps_table_identify();
	ps_text_add(&text, "%s/" PINSHIM_TABLE_PREFIX "%u.%lu", ps_table_directory, self.table->pid,
		    self.table->start_time);
	rc = text.cut ? -ENAMETOOLONG : temporary_path(temporary, sizeof(temporary));
	if (self.table->start_time == 0)
		rc = -ESRCH;
	if (rc < 0)
		goto err;
	fd = create_file(temporary);
	rc = fd;
	if (fd < 0)
		goto err;
	rc = fill_file(fd);
	ps_os_close(fd);
	if (rc == 0)
		return 0;
	ps_os_unlink(temporary);
	ps_os_unlink(self.path); /* if the last step failed */
err:
	self.path[0] = '\0';
	return rc;
}

/* Makes the file unless there is one. 1 if it was made now, 0, or -errno. */
static int publish(void)
{
	int rc;

	if (self.path[0])
		return 0;
	if (self.closed)
		return -ESHUTDOWN;
	fold_early();
	rc = self.table == &early.table ? -ENOMEM : make_file();
	if (rc == -ENOSPC && ps_table_reap(ps_table_directory, 0) > 0)
		rc = make_file();
	self.failed = rc < 0;
	if (rc < 0)
		say_unpublished(rc);
	return rc < 0 ? rc : 1;
}

int ps_table_publish(void)
{
	int rc;

	(void)ps_table();
	lock_table();
	rc = publish();
	unlock_table();
	if (rc > 0)
		ps_table_reap(ps_table_directory, REAP_SECONDS);
	return rc < 0 ? rc : 0;
}

/* Makes the file, its name and the mapping twice as long. */
static int grow_file(void)
{
	struct stat status;
	void *same;
	int fd = ps_os_open(self.path, O_RDWR | O_NOFOLLOW, 0);
	int rc = fd;

	if (fd < 0)
		return rc;
	rc = ps_os_fstat(fd, &status);
	if (rc == 0 && (status.st_dev != self.device || status.st_ino != self.inode))
		rc = -ESTALE;
	if (rc == 0)
		rc = ps_os_fallocate(fd, (off_t)self.mapped, (off_t)self.mapped);
	if (rc == 0)
		rc = ps_os_mmap((char *)self.table + self.mapped, self.mapped,
				PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
				(off_t)self.mapped, &same);
	ps_os_close(fd);
	return rc;
}

/* Withdraws a file that cannot hold all ranges: half a table would mislead. */
static int leave_file(int why)
{
	int rc = switch_memory(-1, NULL);

	if (rc < 0)
		return rc;
	ps_os_unlink(self.path);
	self.path[0] = '\0';
	self.failed = true;
	say_unpublished(why);
	return 0;
}

static void change_begin(struct pinshim_table *table)
{
	__atomic_store_n(&table->sequence, table->sequence + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static void change_end(struct pinshim_table *table)
{
	__atomic_store_n(&table->sequence, table->sequence + 1, __ATOMIC_RELEASE);
}

static int grow(void)
{
	void *same;
	int rc;

	if (self.table == &early.table || 2 * self.mapped > self.reserved)
		return -ENOMEM;
	if (self.path[0]) {
		rc = grow_file();
		if (rc < 0 && leave_file(rc) < 0)
			return -ENOMEM;
	}
	if (!self.path[0]) {
		rc = ps_os_mmap((char *)self.table + self.mapped, self.mapped,
				PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1,
				0, &same);
		if (rc < 0)
			return -ENOMEM;
	}
	self.mapped *= 2;
	change_begin(self.table);
	__atomic_store_n(&self.table->range_capacity, capacity_of(self.mapped), __ATOMIC_RELAXED);
	change_end(self.table);
	return 0;
}

/* Writes one record; a writer killed anywhere in here leaves a check that is wrong. */
static void write_range(uint32_t slot, uint64_t base, uint64_t length, uint32_t flags)
{
	struct pinshim_range *to = range_of(self.table, slot);
	struct pinshim_range range = { base, length, flags, ++self.serial, 0 };

	range.check = pinshim_range_check(&range);
	change_begin(self.table);
	__atomic_store_n(&to->base, range.base, __ATOMIC_RELAXED);
	__atomic_store_n(&to->length, range.length, __ATOMIC_RELAXED);
	__atomic_store_n(&to->flags, range.flags, __ATOMIC_RELAXED);
	__atomic_store_n(&to->serial, range.serial, __ATOMIC_RELAXED);
	__atomic_store_n(&to->check, range.check, __ATOMIC_RELAXED);
	if (slot >= self.used)
		self.used = slot + 1;
	__atomic_store_n(&self.table->range_used, self.used, __ATOMIC_RELAXED);
	__atomic_store_n(&self.table->generation, self.table->generation + 1, __ATOMIC_RELAXED);
	change_end(self.table);
}

/* An unused slot, or NO_SLOT. The list goes through memory others can write: it is not trusted. */
static uint32_t take_slot(void)
{
	uint32_t slot = self.first_free;
	const struct pinshim_range *range;

	if (slot < self.used) {
		range = range_of(self.table, slot);
		if (range->length == 0) {
			self.first_free = range->base < NO_SLOT ? (uint32_t)range->base : NO_SLOT;
			return slot;
		}
	}
	self.first_free = NO_SLOT;
	slot = self.used;
	if (slot >= capacity_of(self.mapped) && grow() < 0)
		return NO_SLOT;
	return slot;
}

int ps_table_add(uintptr_t base, size_t length, uint32_t flags)
{
	uint32_t slot;
	int made = 0;

	(void)ps_table();
	lock_table();
	if (!self.path[0] && !self.failed)
		made = publish();
	slot = take_slot();
	if (slot != NO_SLOT)
		write_range(slot, base, length, flags);
	unlock_table();
	if (made > 0)
		ps_table_reap(ps_table_directory, REAP_SECONDS);
	return slot == NO_SLOT ? -ENOMEM : (int)slot;
}

static bool slot_in_use(int slot)
{
	return slot >= 0 && (uint32_t)slot < self.used &&
	       range_of(self.table, (uint32_t)slot)->length != 0;
}

void ps_table_set(int slot, uintptr_t base, size_t length, uint32_t flags)
{
	(void)ps_table();
	lock_table();
	if (slot_in_use(slot))
		write_range((uint32_t)slot, base, length, flags);
	unlock_table();
}

void ps_table_remove(int slot)
{
	(void)ps_table();
	lock_table();
	if (slot_in_use(slot)) {
		write_range((uint32_t)slot, self.first_free, 0, 0);
		self.first_free = (uint32_t)slot;
	}
	unlock_table();
}

void ps_table_gauges(int64_t locked, int64_t huge, int64_t foreign, int64_t registered,
		     int64_t chunks)
{
	struct pinshim_table *table = ps_table();
	uint64_t pinned;

	lock_table();
	ps_count_add(&table->locked_bytes, (uint64_t)locked);
	ps_count_add(&table->huge_bytes, (uint64_t)huge);
	ps_count_add(&table->foreign_bytes, (uint64_t)foreign);
	ps_count_add(&table->registered_bytes, (uint64_t)registered);
	ps_count_add(&table->chunks, (uint64_t)chunks);
	ps_count_add(&table->pin_bytes, (uint64_t)(locked > 0 ? locked : 0));
	ps_count_add(&table->pin_bytes, (uint64_t)(foreign > 0 ? foreign : 0));
	pinned = table->locked_bytes + table->foreign_bytes;
	__atomic_store_n(&table->pinned_bytes, pinned, __ATOMIC_RELAXED);
	ps_count_peak(&table->pinned_peak_bytes, pinned);
	unlock_table();
}

void ps_table_close(void)
{
	if (!ps_table_is_ours())
		return;
	lock_table();
	self.reopen = self.path[0];
	/* Where it cannot be removed, after setresuid() or chroot(), it is made no table any more. */
	if (self.path[0] && ps_os_unlink(self.path) < 0)
		(void)switch_memory(-1, NULL);
	self.path[0] = '\0'; /* and so the mapping is nobody's but ours */
	self.closed = true;
	unlock_table();
}

void ps_table_reopen(void)
{
	if (!ps_table_is_ours())
		return;
	lock_table();
	self.closed = false;
	if (!self.failed && (self.reopen || self.used))
		publish();
	self.reopen = false;
	unlock_table();
}

const char *ps_table_path(void)
{
	return self.path[0] ? self.path : NULL;
}

void ps_table_fork_prepare(void)
{
	lock_table();
	self.forking = true;
}

void ps_table_fork_parent(void)
{
	self.forking = false;
	unlock_table();
}

/* Replaces the mapping of the parent's table by empty memory. 0, or -errno with nothing changed. */
static int replace_parents(void)
{
	const int none = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	void *fresh, *same;
	long rc;

	rc = ps_os_mmap(NULL, FIRST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			0, &fresh);
	if (rc < 0)
		return (int)rc;
	memcpy(((struct pinshim_table *)fresh)->rank, self.table->rank,
	       offsetof(struct pinshim_table, reserved_a) - offsetof(struct pinshim_table, rank));
	rc = self.mapped == FIRST_BYTES
		     ? 0
		     : ps_os_mmap((char *)self.table + FIRST_BYTES, self.mapped - FIRST_BYTES,
				  PROT_NONE, none, -1, 0, &same);
	if (rc == 0)
		rc = remap(fresh, FIRST_BYTES, FIRST_BYTES, MREMAP_FIXED, self.table);
	if (rc < 0 && rc > -4096) {
		ps_os_munmap(fresh, FIRST_BYTES);
		return (int)rc;
	}
	return 0;
}

void ps_table_fork_child(void)
{
	int pid = ps_os_getpid();

	if (ps_process->table && ps_process->pid == pid)
		return; /* ps_table_after_fork() was here first */
	ps_lock_reset(&self.lock);
	if (self.forking)
		ps_signals_restore(self.mask);
	self.forking = false;
	self.failed = false;
	self.closed = false;
	self.path[0] = '\0';
	if (self.table != &early.table && replace_parents() < 0)
		self.table = &early.table; /* and leave the parent's mapping alone */
	if (self.table == &early.table)
		memset(&early, 0, sizeof(early));
	begin_table(self.table, pid);
	begin_counting(pid);
}

/*
 * The page was wiped: this is a forked child. One thread makes things right; meanwhile it counts in
 * the early table, which is added up when the file is made, and others wait for it.
 */
struct pinshim_table *ps_table_after_fork(void)
{
	struct process_page *page = (struct process_page *)ps_process;
	int tid = ps_os_gettid();
	int nobody = 0;

	if (__atomic_compare_exchange_n(&page->noticing, &nobody, tid, false, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED)) {
		ps_fork_child();
		ps_table_fork_child();
	} else if (nobody == tid) {
		return &early.table;
	}
	while (!__atomic_load_n(&page->process.table, __ATOMIC_ACQUIRE))
		ps_syscall0(SYS_sched_yield);
	return page->process.table;
}
