/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * budget.lock makes claims one after the other. It is held while files of /proc, of cgroups and of
 * /dev/shm are read and the own table is published (the table's lock); nothing is logged under it.
 * ps_table() is called before it is taken: in a child of a raw clone that call resets it.
 */
#include "budget.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "cgroup.h"
#include "config.h"
#include "lock.h"
#include "log.h"
#include "os.h"
#include "pinshim_table_reader.h"
#include "syscall.h"
#include "table.h"

#define CREDIT_MAX (UINT64_C(256) << 20)
#define READING_NANOSECONDS UINT64_C(100000000) /* how long a reading is believed */
#define NODE_TRIES 5

_Static_assert(PS_LIMITS <= PINSHIM_LIMITS_MAX, "the table has room for every limit");

static struct {
	struct ps_lock lock;
	bool found;                /* the cgroup's place is known */
	uint64_t claimed;          /* bytes */
	uint64_t credit;           /* bytes of memory that may be claimed without a reading */
	uint64_t credit_until;     /* ps_os_now_coarse() */
	struct ps_refusal latched; /* the last refusal for want of memory */
	uint64_t latched_until;    /* claims of its size and above are refused unread till then */
	uint64_t node_full_until;  /* since a refusal by the node no collision is waited out */
} budget = { .lock = PS_LOCK_INIT };

/* What can be done about each limit. */
static const char *const remedies[PS_LIMITS] = {
	[PS_LIMIT_PROCESS] = "raise PINSHIM_LIMIT or free pinned memory",
	[PS_LIMIT_MEMLOCK] = "raise it with 'ulimit -l unlimited' or LimitMEMLOCK=infinity, run "
			     "the container with --ulimit memlock=-1 and --cap-add IPC_LOCK, or "
			     "give the program CAP_IPC_LOCK (a non-root user needs it as an "
			     "ambient or file capability)",
	[PS_LIMIT_CGROUP] = "raise memory.max and memory.high or memory.limit_in_bytes there "
			    "(docker --memory, Kubernetes resources.limits.memory, systemd "
			    "MemoryMax=), lower PINSHIM_RESERVE, or pin less",
	[PS_LIMIT_AVAILABLE] = "free memory on this node, lower PINSHIM_RESERVE, or pin less",
	[PS_LIMIT_NODE] = "raise PINSHIM_NODE_LIMIT or end other processes that pin ('pinshim "
			  "stat' lists them)",
	[PS_LIMIT_HUGETLB] = "add pages with 'sysctl vm.nr_hugepages=N' (2 MiB each) and look at "
			     "the hugetlb cgroup's limit, or use PINSHIM_HUGEPAGES=thp",
	[PS_LIMIT_WINDOW] = "free pinned memory, or raise 'ulimit -v'",
	[PS_LIMIT_KERNEL] = "raise 'sysctl vm.max_map_count' if it is ENOMEM with memory free, "
			    "and look at the kernel's log",
};

/* Reads a file of /proc into buffer. 0; or -errno and an empty string. */
static int read_proc(const char *name, char *buffer, size_t size)
{
	char path[256];
	struct ps_text text = PS_TEXT_INIT(path);
	ssize_t length;

	ps_text_add(&text, "%s/proc/%s", ps_cgroup_root, name);
	length = ps_os_read_file(path, buffer, size);
	if (length >= 0)
		return 0;
	buffer[0] = '\0';
	return (int)length;
}

/* Did a call fail for want of something that may be there later, so that it tells nothing? */
static bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* The text after a label at the beginning of a line, spaces skipped; NULL if there is none. */
static const char *find_field(const char *text, const char *label)
{
	size_t length = strlen(label);

	for (; text != NULL; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (strncmp(text, label, length) == 0)
			return text + length + strspn(text + length, " \t");
	}
	return NULL;
}

/* A value in kB, in bytes; otherwise where it is missing. */
static uint64_t find_kilobytes(const char *text, const char *label, uint64_t otherwise)
{
	const char *value = find_field(text, label);
	uint64_t number;

	if (value == NULL || ps_text_parse_size(value, &value, &number) < 0)
		return otherwise;
	return number * 1024;
}

/* Puts the claim where other processes see it, before any of theirs is read. */
static void publish(uint64_t bytes)
{
	__atomic_store_n(&ps_table()->claimed_bytes, bytes, __ATOMIC_SEQ_CST);
	atomic_thread_fence(memory_order_seq_cst);
}

static int refuse(struct ps_refusal *why, enum ps_limit limit, uint64_t asked, uint64_t allowed,
		  uint64_t used)
{
	*why = (struct ps_refusal){
		.limit = limit, .asked = asked, .allowed = allowed, .used = used, .error = ENOMEM
	};
	return -ENOMEM;
}

static int claim_process(uint64_t bytes, struct ps_refusal *why)
{
	if (budget.claimed <= ps_config.limit && bytes <= ps_config.limit - budget.claimed)
		return 0;
	return refuse(why, PS_LIMIT_PROCESS, bytes, ps_config.limit, budget.claimed);
}

/* Bytes claimed whose memory is not there yet, so that no reading shows them as used. */
static uint64_t in_flight(void)
{
	uint64_t pinned = __atomic_load_n(&ps_table()->pinned_bytes, __ATOMIC_RELAXED);

	return budget.claimed > pinned ? budget.claimed - pinned : 0;
}

static int refuse_unread(struct ps_refusal *why, const char *what, int error)
{
	struct ps_text where = PS_TEXT_INIT(why->where);

	refuse(why, PS_LIMIT_KERNEL, 0, 0, 0);
	why->error = -error;
	ps_text_add(&where, "%s", what);
	return -ENOMEM;
}

/* Reads how much memory there is. 0, with a credit; or -ENOMEM, latched. */
static int read_memory(uint64_t fresh, uint64_t now, struct ps_refusal *why)
{
	uint64_t flying = in_flight();
	char meminfo[256];
	struct ps_cgroup_room cgroup;
	uint64_t available, room;
	int error;

	/* Where /proc is not to be had there are no limits; without descriptors they are unknown. */
	error = read_proc("meminfo", meminfo, sizeof(meminfo));
	if (is_shortage(error))
		return refuse_unread(why, "reading /proc/meminfo", error);
	available = find_kilobytes(meminfo, "MemAvailable:", UINT64_MAX);
	if (available != UINT64_MAX)
		available = available > ps_config.reserve ? available - ps_config.reserve : 0;
	ps_cgroup_room(ps_config.reserve_percent, ps_config.reserve, &cgroup);
	room = available < cgroup.room ? available : cgroup.room;
	if (room == UINT64_MAX)
		return 0;
	if (flying <= room && fresh <= room - flying) {
		budget.credit = (room - flying - fresh) / 8;
		if (budget.credit > CREDIT_MAX)
			budget.credit = CREDIT_MAX;
		budget.credit_until = now + READING_NANOSECONDS;
		return 0;
	}
	if (cgroup.room <= available) {
		refuse(why, PS_LIMIT_CGROUP, fresh, cgroup.allowed, cgroup.used + flying);
		memcpy(why->where, cgroup.where, sizeof(why->where));
	} else {
		refuse(why, PS_LIMIT_AVAILABLE, fresh, available, flying);
	}
	budget.latched = *why;
	budget.latched_until = now + READING_NANOSECONDS;
	return -ENOMEM;
}

static int claim_memory(uint64_t fresh, struct ps_refusal *why)
{
	uint64_t now = ps_os_now_coarse();

	if (fresh == 0)
		return 0;
	if (now < budget.latched_until && fresh >= budget.latched.asked) {
		*why = budget.latched;
		return -ENOMEM;
	}
	if (now < budget.credit_until && fresh <= budget.credit) {
		budget.credit -= fresh;
		return 0;
	}
	budget.credit = 0;
	return read_memory(fresh, now, why);
}

struct node_sum {
	pid_t own;
	uint64_t bytes;
};

/* 0, or -errno when the claim of a process that counts cannot be read. */
static int add_claim(const char *path, pid_t pid, void *context)
{
	struct node_sum *sum = context;
	struct pinshim_reader *reader;
	uint64_t claimed;
	int error;

	if (pid == sum->own)
		return 0;
	error = pinshim_reader_open(path, &reader);
	if (error < 0)
		return is_shortage(error) ? error : 0;
	claimed = __atomic_load_n(&pinshim_reader_table(reader)->claimed_bytes, __ATOMIC_SEQ_CST);
	if (pinshim_reader_alive(reader) &&
	    __builtin_add_overflow(sum->bytes, claimed, &sum->bytes))
		sum->bytes = UINT64_MAX;
	pinshim_reader_close(reader);
	return 0;
}

/* Bytes that the other live processes claim. 0 or -errno. */
static int others_claim(uint64_t *bytes)
{
	struct node_sum sum = { ps_process->pid, 0 };
	int error = pinshim_reader_each(ps_table_directory, add_claim, &sum);

	*bytes = sum.bytes;
	return error;
}

/* Longer each time and different in each process, so that those that collided come apart. */
static void step_aside(unsigned try)
{
	uint64_t mixed = (ps_os_now() ^ (uint64_t)ps_process->pid) * UINT64_C(0x9e3779b97f4a7c15);
	uint64_t unit = UINT64_C(100000) << try;
	struct timespec wait = { .tv_nsec = (long)(unit + (mixed >> 32) % (2 * unit)) };

	ps_syscall2(SYS_nanosleep, &wait, NULL);
}

/*
 * Publishes the claim, then adds up: of two processes that do so together at least one sees both,
 * so the limit is never exceeded. Both may, and withdraw; then they try again.
 */
static int claim_node(uint64_t bytes, struct ps_refusal *why)
{
	uint64_t limit = ps_config.node_limit;
	uint64_t now = ps_os_now_coarse();
	uint64_t others = 0;
	int error;

	if (limit == UINT64_MAX)
		return 0;
	error = ps_table_publish();
	for (unsigned try = 0; error == 0; try++) {
		publish(budget.claimed + bytes);
		error = others_claim(&others);
		if (error == 0 && others <= limit && budget.claimed + bytes <= limit - others)
			return 0;
		publish(budget.claimed);
		if (now < budget.node_full_until || try == NODE_TRIES - 1)
			break;
		step_aside(try);
	}
	if (error < 0) {
		refuse(why, PS_LIMIT_NODE, bytes, limit, 0);
		why->error = -error;
		return -ENOMEM;
	}
	budget.node_full_until = ps_os_now_coarse() + READING_NANOSECONDS;
	return refuse(why, PS_LIMIT_NODE, bytes, limit, others + budget.claimed);
}

/* A quarter of the tightest memory cgroup's limit; more than that is not kept for reuse. */
static uint64_t retain_most = UINT64_MAX;

uint64_t ps_budget_retain(void)
{
	const uint64_t most = __atomic_load_n(&retain_most, __ATOMIC_RELAXED);

	return ps_config.retain < most ? ps_config.retain : most;
}

static void find_once(void)
{
	struct ps_cgroup_room cgroup;

	if (budget.found)
		return;
	budget.found = !is_shortage(ps_cgroup_find());
	ps_cgroup_room(0, 0, &cgroup);
	__atomic_store_n(&retain_most, cgroup.room == UINT64_MAX ? UINT64_MAX : cgroup.allowed / 4,
			 __ATOMIC_RELAXED);
}

int ps_budget_claim_fresh(uint64_t bytes, uint64_t fresh, struct ps_refusal *why)
{
	int error;

	ps_table();
	ps_lock(&budget.lock);
	find_once();
	error = claim_process(bytes, why);
	if (error == 0)
		error = claim_memory(fresh, why);
	if (error == 0)
		error = claim_node(bytes, why);
	if (error == 0) {
		budget.claimed += bytes;
		publish(budget.claimed);
	}
	ps_unlock(&budget.lock);
	if (error < 0)
		why->asked = bytes;
	return error;
}

int ps_budget_claim(uint64_t bytes, struct ps_refusal *why)
{
	return ps_budget_claim_fresh(bytes, bytes, why);
}

void ps_budget_release(uint64_t bytes)
{
	ps_table();
	ps_lock(&budget.lock);
	budget.claimed -= bytes < budget.claimed ? bytes : budget.claimed;
	publish(budget.claimed);
	budget.latched_until = 0;
	ps_unlock(&budget.lock);
}

uint64_t ps_budget_claimed(void)
{
	return __atomic_load_n(&budget.claimed, __ATOMIC_RELAXED);
}

void ps_budget_fork_child(void)
{
	/* The table is not touched: the child's begins empty, and ps_table() may be calling us. */
	memset(&budget, 0, sizeof(budget));
}

void ps_budget_kernel_refused(const char *call, int error, uint64_t asked, struct ps_refusal *why)
{
	struct ps_text where = PS_TEXT_INIT(why->where);
	char status[2048];
	uint64_t limit;

	refuse(why, PS_LIMIT_KERNEL, asked, 0, 0);
	why->error = error;
	ps_text_add(&where, "%s", call);
	if (strcmp(call, "mlock") != 0 || (error != ENOMEM && error != EPERM && error != EAGAIN))
		return;
	if (ps_os_memlock_limit(&limit) < 0)
		limit = 0;
	/* Where nothing limits it, the kernel means something else. */
	if (limit == UINT64_MAX)
		return;
	(void)read_proc("self/status", status, sizeof(status));
	why->limit = PS_LIMIT_MEMLOCK;
	why->allowed = limit;
	why->used = find_kilobytes(status, "VmLck:", 0);
}

static bool has_ipc_lock(void)
{
	char status[2048];
	const char *value;
	uint64_t capabilities = 0;

	(void)read_proc("self/status", status, sizeof(status));
	value = find_field(status, "CapEff:");
	if (value == NULL)
		return false;
	for (; *value != '\0' && *value != '\n'; value++)
		capabilities = capabilities << 4 |
			       (uint64_t)(*value <= '9' ? *value - '0' : *value - 'a' + 10);
	return (capabilities >> 14 & 1) != 0; /* CAP_IPC_LOCK */
}

static void add_figures(struct ps_text *text, const char *name, const struct ps_refusal *why)
{
	ps_text_add(text, "%s is ", name);
	ps_text_add_bytes(text, why->allowed);
	ps_text_add(text, " and ");
	ps_text_add_bytes(text, why->used);
	ps_text_add(text, " of it is in use");
}

static void add_reason(struct ps_text *text, const struct ps_refusal *why)
{
	switch (why->limit) {
	case PS_LIMIT_PROCESS:
		add_figures(text, "PINSHIM_LIMIT", why);
		break;
	case PS_LIMIT_MEMLOCK:
		add_figures(text, "RLIMIT_MEMLOCK", why);
		ps_text_add(text, has_ipc_lock() ? " (CAP_IPC_LOCK is effective, but not outside "
						   "this user namespace)"
						 : " (CAP_IPC_LOCK is not effective)");
		break;
	case PS_LIMIT_CGROUP:
		ps_text_add(text, "of memory cgroup %s ", why->where);
		add_figures(text, "the limit less PINSHIM_RESERVE", why);
		break;
	case PS_LIMIT_AVAILABLE:
		add_figures(text, "MemAvailable less PINSHIM_RESERVE", why);
		break;
	case PS_LIMIT_NODE:
		if (why->error == ENOMEM)
			add_figures(text, "PINSHIM_NODE_LIMIT", why);
		else
			ps_text_add(
				text,
				"PINSHIM_NODE_LIMIT cannot be kept, for tables in " PINSHIM_TABLE_DIRECTORY
				" cannot be used: %s",
				strerrordesc_np(why->error));
		break;
	case PS_LIMIT_HUGETLB:
		ps_text_add(text, "the pool of huge pages is empty");
		break;
	case PS_LIMIT_WINDOW:
		ps_text_add(text, "the reserved range of addresses is used up, ");
		ps_text_add_bytes(text, why->allowed);
		break;
	default:
		ps_text_add(text, "%s: %s", why->where, strerrordesc_np(why->error));
		break;
	}
}

void ps_budget_explain(const struct ps_refusal *why, const char *fallback, struct ps_text *text)
{
	ps_text_add(text, "pinning ");
	ps_text_add_bytes(text, why->asked);
	ps_text_add(text, " was refused: ");
	add_reason(text, why);
	ps_text_add(text, ": the program got %s; %s", fallback, remedies[why->limit]);
}

void ps_budget_refuse(const struct ps_refusal *why, const char *fallback)
{
	static atomic_flag said[PS_LIMITS];
	struct pinshim_table *table = ps_table();
	char line[800];
	struct ps_text text = PS_TEXT_INIT(line);

	__atomic_fetch_add(&table->refused[why->limit], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&table->refused_bytes, why->asked, __ATOMIC_RELAXED);
	if (atomic_flag_test_and_set_explicit(&said[why->limit], memory_order_relaxed))
		return;
	ps_budget_explain(why, fallback, &text);
	ps_log(PS_LOG_WARN, "%s", line);
}
