/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * budget.lock makes claims one after the other. It is held while files of /proc, of cgroups and of
 * /dev/shm are read, others are waited for, and the own table is published (the table's lock); nothing
 * else is logged under it.
 * ps_table() is called before it is taken: in a child of a raw clone that call resets it.
 */
#include "budget.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "capped.h"
#include "cgroup.h"
#include "config.h"
#include "lock.h"
#include "log.h"
#include "os.h"
#include "others.h"
#include "own_stack.h"
#include "syscall.h"
#include "table.h"
#include "trace.h"

#define CREDIT_MAX (UINT64_C(256) << 20)
#define READING_NANOSECONDS UINT64_C(100000000)  /* how long a reading is believed */
#define PATIENCE_NANOSECONDS UINT64_C(250000000) /* how long collisions are waited out */

_Static_assert(PS_LIMITS <= PINSHIM_LIMITS_MAX, "the table has room for every limit");

static struct {
	struct ps_lock lock;
	bool found;                /* the cgroup's place is known */
	uint64_t claimed;          /* bytes */
	uint64_t credit;           /* bytes of memory that may be claimed without a reading */
	uint64_t credit_until;     /* ps_os_now_coarse() */
	uint64_t wish;             /* how much credit to ask for at the next reading */
	struct ps_refusal latched; /* the last refusal for want of memory */
	uint64_t latched_until;    /* claims of its size and above are refused unread till then */
	uint64_t impatient_until;  /* since a wait in vain no collision is waited out */
	struct ps_others others;   /* as they were at the last look */
} budget = { .lock = PS_LOCK_INIT, .wish = CREDIT_MAX };

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
	[PS_LIMIT_KERNEL] = "with ENOMEM and memory free, raise 'sysctl vm.max_map_count' or "
			    "'ulimit -d'; with ENOSYS, have the seccomp filter allow it; and "
			    "look at the kernel's log",
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

/* A value in kB, in bytes; otherwise where it is missing. */
static uint64_t find_kilobytes(const char *text, const char *name, uint64_t otherwise)
{
	const char *value = ps_text_find_field(text, name);
	uint64_t number;

	if (value == NULL || ps_text_parse_size(value, &value, &number) < 0)
		return otherwise;
	return number * 1024;
}

/* Puts a word where other processes see it, in order with whatever is read or written after it. */
static void publish(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
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
	uint64_t present = __atomic_load_n(&ps_table()->present_bytes, __ATOMIC_RELAXED);

	return budget.claimed > present ? budget.claimed - present : 0;
}

static int refuse_unread(struct ps_refusal *why, const char *what, int error)
{
	struct ps_text where = PS_TEXT_INIT(why->where);

	refuse(why, PS_LIMIT_KERNEL, 0, 0, 0);
	why->error = -error;
	ps_text_add(&where, "%s", what);
	return -ENOMEM;
}

/* A claim on its way. */
struct request {
	uint64_t bytes;
	uint64_t fresh;         /* of these: to be taken from free memory */
	uint64_t wish;          /* credit that is asked for with them */
	uint64_t offered;       /* credit that may be had */
	bool by_credit;         /* fresh is covered by credit that was given before */
	struct ps_refusal *why; /* to be filled */
	int answer;             /* 0 or -ENOMEM */
};

/* MemAvailable less PINSHIM_RESERVE; UINT64_MAX where it is not to be had. 0 or -errno. */
static int read_available(uint64_t *available)
{
	char meminfo[256];
	/* Where /proc is not to be had there are no limits; without descriptors they are unknown. */
	int error = read_proc("meminfo", meminfo, sizeof(meminfo));

	*available = UINT64_MAX;
	if (ps_is_shortage(error))
		return error;
	*available = find_kilobytes(meminfo, "MemAvailable", UINT64_MAX);
	if (*available != UINT64_MAX)
		*available = *available > ps_config.reserve ? *available - ps_config.reserve : 0;
	return 0;
}

/* There is room: for credit, too. */
static int offer(struct request *request, uint64_t room)
{
	budget.wish = (room - request->fresh) / 8;
	if (budget.wish > CREDIT_MAX)
		budget.wish = CREDIT_MAX;
	request->offered = budget.wish < request->wish ? budget.wish : request->wish;
	return 0;
}

/*
 * Is there memory for it? 0, with a credit; -ENOMEM, latched; -EAGAIN if there is, but perhaps not
 * besides what was granted and is not all in memory yet, and what others ask for. That was read before,
 * so that what arrives meanwhile counts twice rather than not at all. *why is filled for both.
 */
static int look_at_memory(struct request *request)
{
	const struct ps_others *others = &budget.others;
	const uint64_t own = in_flight(), flying = ps_capped_add(own, others->flying);
	struct ps_refusal *why = request->why;
	struct ps_cgroup_room cgroup;
	uint64_t available, left;
	int error = read_available(&available);

	if (error < 0)
		return refuse_unread(why, "reading /proc/meminfo", error);
	ps_cgroup_room_besides(ps_config.reserve_percent, ps_config.reserve, own, others->flight,
			       others->flights, &cgroup);
	left = ps_capped_sub(available, flying);
	if (available == UINT64_MAX && cgroup.room == UINT64_MAX)
		return 0;
	if (request->fresh <= left && request->fresh <= cgroup.room)
		return offer(request, left < cgroup.room ? left : cgroup.room);
	if (cgroup.room <= left) {
		refuse(why, PS_LIMIT_CGROUP, request->fresh, cgroup.allowed,
		       ps_capped_add(cgroup.used, cgroup.flying));
		memcpy(why->where, cgroup.where, sizeof(why->where));
	} else {
		refuse(why, PS_LIMIT_AVAILABLE, request->fresh, available, flying);
	}
	if (request->fresh <= available && request->fresh <= cgroup.bare)
		return -EAGAIN;
	budget.latched = *why;
	budget.latched_until = ps_os_now_coarse() + READING_NANOSECONDS;
	return -ENOMEM;
}

/* The same of PINSHIM_NODE_LIMIT. */
static int look_at_node(const struct request *request)
{
	const uint64_t limit = ps_config.node_limit;
	const uint64_t used = ps_capped_add(budget.claimed, budget.others.claimed);
	const uint64_t wanted = ps_capped_add(used, request->bytes);
	const uint64_t asking = budget.others.asking;

	if (ps_capped_add(wanted, asking) <= limit)
		return 0;
	if (wanted > limit)
		return refuse(request->why, PS_LIMIT_NODE, request->bytes, limit, used);
	refuse(request->why, PS_LIMIT_NODE, request->bytes, limit, ps_capped_add(used, asking));
	return -EAGAIN;
}

static int refuse_without_tables(const struct request *request, int error)
{
	refuse(request->why, PS_LIMIT_NODE, request->bytes, ps_config.node_limit, 0);
	request->why->error = -error;
	return -ENOMEM;
}

/* Looks at both, after asking. As look_at_memory(). */
static int look(struct request *request)
{
	const bool limited = ps_config.node_limit != UINT64_MAX;
	int error = ps_others_read(&budget.others);

	if (error < 0 && limited)
		return refuse_without_tables(request, error);
	if (ps_is_shortage(error))
		return refuse_unread(request->why, "reading tables", error);
	error = limited ? look_at_node(request) : 0;
	if (error == 0 && request->fresh > 0 && !request->by_credit)
		error = look_at_memory(request);
	return error;
}

/* Longer each time and different in each process, so that those that collided come apart. */
static void step_aside(unsigned try)
{
	uint64_t mixed = (ps_os_now() ^ (uint64_t)ps_process->pid) * UINT64_C(0x9e3779b97f4a7c15);
	uint64_t unit = UINT64_C(100000) << (try < 5 ? try : 5);

	ps_os_sleep(unit + (mixed >> 32) % (2 * unit));
}

/*
 * Asks, that is, publishes what is asked for and then looks: of two processes that do so together at
 * least one sees the other, so no limit is ever exceeded. Both may, and then both step aside and ask
 * again. After some patience that is a refusal, with what the others ask for counted as used: it may be
 * that of a process that was stopped while it asked.
 */
static int ask(struct request *request)
{
	uint64_t *asking = &ps_table()->asking_bytes;
	const uint64_t begun = ps_os_now_coarse();
	int verdict;

	for (unsigned try = 0;; try++) {
		publish(asking, ps_capped_add(request->bytes, request->wish));
		verdict = look(request);
		if (verdict != -EAGAIN)
			break;
		publish(asking, 0);
		if (begun < budget.impatient_until ||
		    ps_os_now_coarse() - begun >= PATIENCE_NANOSECONDS) {
			budget.impatient_until = ps_os_now_coarse() + READING_NANOSECONDS;
			break;
		}
		request->wish = 0;
		step_aside(try);
	}
	return verdict < 0 ? -ENOMEM : 0;
}

/* Others have to see it, so there has to be a table. */
static void publish_and_ask(void *argument)
{
	struct request *request = argument;
	int error = ps_table_publish();

	if (error < 0 && ps_config.node_limit != UINT64_MAX)
		request->answer = refuse_without_tables(request, error);
	else
		request->answer = ask(request);
}

/* Is it refused without looking, since as little was a moment ago? */
static bool is_latched(uint64_t fresh, struct ps_refusal *why)
{
	if (fresh == 0 || fresh < budget.latched.asked ||
	    ps_os_now_coarse() >= budget.latched_until)
		return false;
	*why = budget.latched;
	return true;
}

/* Everything that others have a share in. 0 or -ENOMEM. */
static int claim_shared(struct request *request)
{
	if (is_latched(request->fresh, request->why))
		return -ENOMEM;
	request->by_credit = request->fresh <= budget.credit &&
			     ps_os_now_coarse() < budget.credit_until;
	if (ps_config.node_limit == UINT64_MAX && (request->fresh == 0 || request->by_credit))
		return 0;
	if (request->fresh > 0 && !request->by_credit)
		request->wish = budget.wish;
	/* Paths and files of /proc are too much for the stacks of some threads. */
	ps_on_own_stack(publish_and_ask, request);
	return request->answer;
}

static void set_credit(uint64_t credit)
{
	struct pinshim_table *table = ps_table();

	if (credit == budget.credit)
		return;
	budget.credit = credit;
	publish(&table->credit_until, budget.credit_until);
	publish(&table->credit_bytes, credit);
}

/* It is ours from now on, and what was asked for is asked for no longer: in this order, see others.h. */
static void grant(const struct request *request)
{
	budget.claimed += request->bytes;
	publish(&ps_table()->claimed_bytes, budget.claimed);
	ps_budget_arrived(request->bytes - request->fresh);
	if (request->by_credit) {
		set_credit(budget.credit - request->fresh);
	} else if (request->fresh > 0) {
		budget.credit_until = ps_os_now_coarse() + READING_NANOSECONDS;
		set_credit(request->offered);
	}
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
	budget.found = !ps_is_shortage(ps_cgroup_find());
	ps_cgroup_room(0, 0, &cgroup);
	__atomic_store_n(&retain_most, cgroup.room == UINT64_MAX ? UINT64_MAX : cgroup.allowed / 4,
			 __ATOMIC_RELAXED);
}

int ps_budget_claim_fresh(uint64_t bytes, uint64_t fresh, struct ps_refusal *why)
{
	struct request request = { .bytes = bytes, .fresh = fresh, .why = why };
	int error;

	ps_table();
	ps_lock(&budget.lock);
	find_once();
	error = claim_process(bytes, why);
	if (error == 0)
		error = claim_shared(&request);
	if (error == 0)
		grant(&request);
	publish(&ps_table()->asking_bytes, 0);
	ps_unlock(&budget.lock);
	if (error < 0)
		why->asked = bytes;
	return error;
}

int ps_budget_claim(uint64_t bytes, struct ps_refusal *why)
{
	return ps_budget_claim_fresh(bytes, bytes, why);
}

void ps_budget_arrived(uint64_t bytes)
{
	__atomic_fetch_add(&ps_table()->present_bytes, bytes, __ATOMIC_SEQ_CST);
}

/* It is present no longer before it is claimed no longer: others see it as coming meanwhile. */
void ps_budget_release(uint64_t bytes)
{
	uint64_t *present = &ps_table()->present_bytes;
	uint64_t there;

	ps_lock(&budget.lock);
	there = __atomic_load_n(present, __ATOMIC_RELAXED);
	__atomic_fetch_sub(present, bytes < there ? bytes : there, __ATOMIC_SEQ_CST);
	budget.claimed -= bytes < budget.claimed ? bytes : budget.claimed;
	publish(&ps_table()->claimed_bytes, budget.claimed);
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
	budget.wish = CREDIT_MAX;
}

/* Does this error of this call mean that too much is locked? After mlockall(MCL_FUTURE) mmap(2) locks, too. */
static bool is_of_memlock(const char *call, int error)
{
	if (strcmp(call, "mmap") == 0)
		return error == EAGAIN;
	return strcmp(call, "mlock") == 0 && (error == ENOMEM || error == EPERM || error == EAGAIN);
}

void ps_budget_kernel_refused(const char *call, int error, uint64_t asked, struct ps_refusal *why)
{
	struct ps_text where = PS_TEXT_INIT(why->where);
	char status[2048];
	uint64_t limit;

	refuse(why, PS_LIMIT_KERNEL, asked, 0, 0);
	why->error = error;
	ps_text_add(&where, "%s", call);
	if (!is_of_memlock(call, error))
		return;
	if (ps_os_memlock_limit(&limit) < 0)
		limit = 0;
	/* Where nothing limits it, the kernel means something else. */
	if (limit == UINT64_MAX)
		return;
	(void)read_proc("self/status", status, sizeof(status));
	why->limit = PS_LIMIT_MEMLOCK;
	why->allowed = limit;
	why->used = find_kilobytes(status, "VmLck", 0);
}

static bool has_ipc_lock(void)
{
	char status[2048];
	const char *value;
	uint64_t capabilities = 0;

	(void)read_proc("self/status", status, sizeof(status));
	value = ps_text_find_field(status, "CapEff");
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
	ps_trace_refuse(why);
	if (atomic_flag_test_and_set_explicit(&said[why->limit], memory_order_relaxed))
		return;
	ps_budget_explain(why, fallback, &text);
	ps_log(PS_LOG_WARN, "%s", line);
}
