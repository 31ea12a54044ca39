/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading the claims of other processes. No lock; called with the budget's held. Neither maps the
 * files nor reads more of them than the few words it is about, for all tables are read before a chunk is
 * pinned: with 200 of them that has to stay well below what pinning takes.
 */
#include "others.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>

#include "capped.h"
#include "os.h"
#include "pinshim_table_reader.h"
#include "syscall.h"
#include "table.h"

/*
 * Credit is believed a little longer than its owner uses it, who may have looked at the clock just
 * before.
 */
#define GRACE_NANOSECONDS UINT64_C(20000000)

/* The words that are read, in this order. */
static const size_t words[] = {
	offsetof(struct pinshim_table, asking_bytes),
	offsetof(struct pinshim_table, credit_bytes),
	offsetof(struct pinshim_table, credit_until),
	offsetof(struct pinshim_table, present_bytes),
	offsetof(struct pinshim_table, claimed_bytes),
	offsetof(struct pinshim_table, present_bytes),
};

enum word { ASKING, CREDIT, CREDIT_UNTIL, PRESENT_BEFORE, CLAIMED, PRESENT_AFTER, WORDS };

/* What stands before the strings of a table. */
struct head {
	uint64_t magic;
	uint32_t version, header_bytes, pid, uid;
	uint64_t start_time;
};

struct sum {
	pid_t own;
	uid_t user;
	struct ps_others *others;
};

static bool read_at(int fd, void *to, size_t length, size_t offset)
{
	return ps_syscall4(SYS_pread64, fd, to, length, offset) == (long)length;
}

/* What a process is about to take. */
static uint64_t flying(const uint64_t *word)
{
	const uint64_t before = word[PRESENT_BEFORE], after = word[PRESENT_AFTER];
	const uint64_t present = before < after ? before : after;
	uint64_t bytes = word[ASKING];

	if (word[CLAIMED] > present)
		bytes = ps_capped_add(bytes, word[CLAIMED] - present);
	if (ps_os_now_coarse() < word[CREDIT_UNTIL] + GRACE_NANOSECONDS)
		bytes = ps_capped_add(bytes, word[CREDIT]);
	return bytes;
}

static void add_flight(struct ps_others *others, pid_t pid, uint64_t bytes)
{
	struct ps_flight *last = &others->flight[PS_FLIGHTS - 1];

	others->flying = ps_capped_add(others->flying, bytes);
	if (others->flights < PS_FLIGHTS) {
		others->flight[others->flights++] = (struct ps_flight){ bytes,
									ps_cgroup_shared(pid) };
	} else {
		last->bytes = ps_capped_add(last->bytes, bytes);
		last->shared = SIZE_MAX;
	}
}

static void add_words(struct ps_others *others, pid_t pid, const uint64_t *word, bool same_user)
{
	const uint64_t bytes = flying(word);

	others->claimed = ps_capped_add(others->claimed, word[CLAIMED]);
	others->asking = ps_capped_add(others->asking, word[ASKING]);
	if (same_user && bytes > 0)
		add_flight(others, pid, bytes);
}

/* Reads what the table in fd says. false if it is none. */
static bool read_table(int fd, const struct sum *sum, struct stat *status, struct head *head,
		       uint64_t *word)
{
	if (ps_os_fstat(fd, status) < 0 || !S_ISREG(status->st_mode) ||
	    (sum->user != 0 && status->st_uid != sum->user))
		return false;
	if (!read_at(fd, head, sizeof(*head), 0) || head->magic != PINSHIM_TABLE_MAGIC ||
	    head->version != PINSHIM_TABLE_VERSION ||
	    head->header_bytes != sizeof(struct pinshim_table))
		return false;
	for (unsigned i = 0; i < WORDS; i++) {
		if (!read_at(fd, &word[i], sizeof(word[i]), words[i]))
			return false;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	}
	return true;
}

static int add_file(const char *path, pid_t pid, void *context)
{
	struct sum *sum = context;
	uint64_t word[WORDS];
	struct stat status;
	struct head head;
	bool good;
	int fd;

	if (pid == sum->own)
		return 0;
	/* Not blocking, because it may be a FIFO. */
	fd = ps_os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return ps_is_shortage(fd) ? fd : 0;
	good = read_table(fd, sum, &status, &head, word);
	ps_os_close(fd);
	/* Most have nothing, for a process that is gone has a table only if it was killed. */
	if (good && (word[ASKING] | word[CREDIT] | word[CLAIMED]) != 0 &&
	    pinshim_reader_process_alive((pid_t)head.pid, head.start_time) &&
	    (status.st_uid == sum->user ||
	     pinshim_reader_may_speak_for(status.st_uid, (pid_t)head.pid)))
		add_words(sum->others, (pid_t)head.pid, word, status.st_uid == sum->user);
	return 0;
}

int ps_others_read(struct ps_others *others)
{
	struct sum sum = { ps_process->pid, (uid_t)ps_syscall0(SYS_geteuid), others };

	others->claimed = others->asking = others->flying = 0;
	others->flights = 0;
	return pinshim_reader_each(ps_table_directory, add_file, &sum);
}
