/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "cgroup.h"
#include "doctor.h"
#include "os.h"

#define CAP_IPC_LOCK_BIT 14

#define MORE_LOCKED                                                                                \
	"'ulimit -l unlimited' as root, LimitMEMLOCK=infinity in the systemd unit, docker "        \
	"--ulimit memlock=-1, or CAP_IPC_LOCK (docker --cap-add IPC_LOCK; who is not root needs "  \
	"it as an ambient or file capability)"

/* How this process stands to RLIMIT_MEMLOCK. */
struct lock_rights {
	uint64_t soft, hard; /* UINT64_MAX: unlimited */
	bool initial;        /* user namespace: only there CAP_IPC_LOCK lifts the limit */
	bool effective;      /* CAP_IPC_LOCK is */
	bool bounding;       /* it could be had */
};

static void add_limit(struct ps_text *text, uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		ps_text_add(text, "unlimited");
	else
		ps_text_add_bytes(text, bytes);
}

static bool has_capability(const char *set)
{
	uint64_t bits;

	return ps_doctor_proc("/proc/self/status", set, 16, &bits) &&
	       (bits >> CAP_IPC_LOCK_BIT & 1);
}

/* The initial user namespace maps all ids to themselves. */
static bool is_initial_namespace(void)
{
	char map[256];
	uint64_t number[3] = { 1, 1, 0 };
	const char *at = map;

	if (ps_os_read_file("/proc/self/uid_map", map, sizeof(map)) < 0)
		return true; /* a kernel without user namespaces */
	for (size_t i = 0; i < 3; i++) {
		at += strspn(at, " \t");
		if (ps_text_parse_size(at, &at, &number[i]) < 0)
			return false;
	}
	return number[0] == 0 && number[1] == 0 && number[2] == UINT32_MAX;
}

static void read_rights(struct lock_rights *rights)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	getrlimit(RLIMIT_MEMLOCK, &limit);
	rights->soft = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
	rights->hard = limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
	rights->initial = is_initial_namespace();
	rights->effective = has_capability("CapEff");
	rights->bounding = has_capability("CapBnd");
}

static void check_capability(struct ps_doctor *doctor, const struct lock_rights *rights)
{
	struct ps_findings *findings = &doctor->findings;

	if (rights->initial)
		ps_findings_add(findings, PS_STATE_OK, "user_namespace", NULL, "the initial one");
	else
		ps_findings_add(findings, PS_STATE_NOTE, "user_namespace",
				"set the limits outside, where it is made",
				"not the initial one: capabilities here do not lift "
				"RLIMIT_MEMLOCK");
	if (rights->effective)
		ps_findings_add(findings, PS_STATE_OK, "capability", NULL,
				"CAP_IPC_LOCK is effective%s",
				rights->initial ? "" : ", in this user namespace alone");
	else if (rights->soft == UINT64_MAX)
		ps_findings_add(findings, PS_STATE_OK, "capability", NULL,
				"CAP_IPC_LOCK is not effective, and not needed");
	else
		ps_findings_add(findings, PS_STATE_NOTE, "capability", NULL,
				"CAP_IPC_LOCK is not effective%s",
				rights->bounding ? ", though it could be had (it is in the "
						   "bounding set)"
						 : ", and cannot be had here (it is not in the "
						   "bounding set)");
}

static void check_memlock(struct ps_doctor *doctor, const struct lock_rights *rights)
{
	bool lifted = rights->effective && rights->initial;
	uint64_t most = lifted ? UINT64_MAX : rights->soft;
	bool pool = doctor->config.hugepages == PS_HUGEPAGES_HUGETLB;
	enum ps_state state = ps_doctor_enough_outside_pool(doctor, most);
	struct ps_text found, remedy;

	if (state == PS_STATE_OK && most != UINT64_MAX && !doctor->need)
		state = pool ? PS_STATE_NOTE : PS_STATE_WARNING;
	ps_findings_begin(&doctor->findings, state, "memlock", &found, &remedy);
	ps_text_add(&found, "RLIMIT_MEMLOCK is ");
	add_limit(&found, rights->soft);
	if (rights->soft != UINT64_MAX) {
		ps_text_add(&found, " soft, ");
		add_limit(&found, rights->hard);
		ps_text_add(&found, " hard");
	}
	if (lifted && rights->soft != UINT64_MAX)
		ps_text_add(&found, ", which CAP_IPC_LOCK lifts");
	if (state == PS_STATE_OK)
		return;
	if (most < PS_CHUNK_BYTES || most < doctor->need)
		ps_doctor_add_shortfall(doctor, most, &found);
	else
		ps_text_add(&found, ", and a process can pin no more");
	if (pool)
		ps_text_add(&found, "; the pages of a hugetlb pool need none");
	ps_text_add(&remedy, "raise it: ");
	if (rights->hard == UINT64_MAX)
		ps_text_add(&remedy, "'ulimit -l unlimited' (up to the hard limit anybody may), ");
	else if (rights->hard > rights->soft)
		ps_text_add(&remedy, "'ulimit -l %lu' (up to the hard limit anybody may), ",
			    rights->hard / 1024);
	ps_text_add(&remedy, MORE_LOCKED);
}

static void check_addresses(struct ps_doctor *doctor)
{
	uint64_t bytes;
	struct ps_text found, remedy;

	if (ps_os_address_limit(&bytes) < 0 || bytes == UINT64_MAX)
		return;
	ps_findings_begin(&doctor->findings, PS_STATE_NOTE, "address_space", &found, &remedy);
	ps_text_add(&found, "the limit on addresses is ");
	ps_text_add_bytes(&found, bytes);
	ps_text_add(&found, ", of which the heap reserves a part");
	ps_text_add(&remedy, "'ulimit -v unlimited'");
}

static void check_limit(struct ps_doctor *doctor)
{
	uint64_t limit = doctor->config.limit;
	struct ps_text found, remedy;
	enum ps_state state = ps_doctor_enough(doctor, limit);

	if (limit == UINT64_MAX)
		return;
	ps_findings_begin(&doctor->findings, state, "limit", &found, &remedy);
	ps_text_add(&found, "PINSHIM_LIMIT is ");
	ps_text_add_bytes(&found, limit);
	ps_doctor_add_shortfall(doctor, limit, &found);
	if (state != PS_STATE_OK)
		ps_text_add(&remedy, "raise it");
}

static void check_cgroup(struct ps_doctor *doctor)
{
	struct ps_cgroup_room room;
	struct ps_text found, remedy;
	enum ps_state state;
	int rc = ps_cgroup_find();
	unsigned version = ps_cgroup_version();

	ps_cgroup_room(doctor->config.reserve_percent, doctor->config.reserve, &room);
	state = rc < 0 ? PS_STATE_NOTE : ps_doctor_enough_outside_pool(doctor, room.room);
	ps_findings_begin(&doctor->findings, state, "cgroup", &found, &remedy);
	if (rc < 0) {
		ps_text_add(&found, "cannot be found: %s", strerrordesc_np(-rc));
		return;
	}
	if (version == 0) {
		ps_text_add(&found, "none that limits memory");
		return;
	}
	if (room.room == UINT64_MAX) {
		ps_text_add(&found, "version %u, no limit", version);
		return;
	}
	ps_text_add(&found, "version %u, the tightest is %s: the limit less PINSHIM_RESERVE is ",
		    version, room.where);
	ps_text_add_bytes(&found, room.allowed);
	ps_text_add(&found, ", ");
	ps_text_add_bytes(&found, room.used);
	ps_text_add(&found, " of it is in use, ");
	ps_text_add_bytes(&found, room.room);
	ps_text_add(&found, " can be pinned");
	ps_doctor_add_shortfall(doctor, room.room, &found);
	if (state != PS_STATE_OK)
		ps_text_add(&remedy, "raise memory.max and memory.high, or memory.limit_in_bytes, "
				     "there (docker --memory, Kubernetes resources.limits.memory, "
				     "systemd MemoryMax=), or lower PINSHIM_RESERVE");
}

static void check_available(struct ps_doctor *doctor)
{
	uint64_t available, total = ps_config_ram(), reserve = doctor->config.reserve, room;
	struct ps_text found, remedy;
	enum ps_state state;

	if (!ps_doctor_proc("/proc/meminfo", "MemAvailable", 10, &available)) {
		ps_findings_add(&doctor->findings, PS_STATE_NOTE, "available", "mount /proc",
				"/proc/meminfo has no MemAvailable: nothing keeps to it");
		return;
	}
	available *= 1024;
	room = available > reserve ? available - reserve : 0;
	state = ps_doctor_enough_outside_pool(doctor, room);
	ps_findings_begin(&doctor->findings, state, "available", &found, &remedy);
	ps_text_add_bytes(&found, available);
	ps_text_add(&found, " of ");
	ps_text_add_bytes(&found, total);
	ps_text_add(&found, " are available, and PINSHIM_RESERVE keeps ");
	ps_text_add_bytes(&found, reserve);
	ps_text_add(&found, ": ");
	ps_text_add_bytes(&found, room);
	ps_text_add(&found, " can be pinned");
	ps_doctor_add_shortfall(doctor, room, &found);
	if (state != PS_STATE_OK)
		ps_text_add(&remedy, "free memory on this node, or lower PINSHIM_RESERVE");
}

void ps_doctor_limits(struct ps_doctor *doctor)
{
	struct lock_rights rights;

	read_rights(&rights);
	check_limit(doctor);
	check_memlock(doctor, &rights);
	check_capability(doctor, &rights);
	check_addresses(doctor);
	check_cgroup(doctor);
	check_available(doctor);
}
