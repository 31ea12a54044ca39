/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * budget.h and cgroup.h: which claims are granted, over /proc files and cgroup trees that the tests
 * make below a directory of their own. Each case runs in a process of its own.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "budget.h"
#include "cgroup.h"
#include "config.h"
#include "fault.h"
#include "log.h"
#include "names.h"
#include "os.h"
#include "pinshim_table_reader.h"
#include "table.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define V1 "/sys/fs/cgroup/memory"
#define V2 "/sys/fs/cgroup"

static char root[64]; /* what stands before /proc and the mount points */
static struct ps_refusal why;

/* Writes a file below root, making the directories on the way. */
static void __attribute__((format(printf, 2, 3))) put(const char *path, const char *format, ...)
{
	static char content[65536];
	char name[4096];
	va_list arguments;
	int fd, length;

	length = snprintf(name, sizeof(name), "%s%s", root, path);
	for (int i = (int)strlen(root) + 1; i < length; i++) {
		if (name[i] == '/') {
			name[i] = '\0';
			mkdir(name, 0700);
			name[i] = '/';
		}
	}
	va_start(arguments, format);
	length = vsnprintf(content, sizeof(content), format, arguments);
	va_end(arguments);
	fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_msg(fd >= 0, "%s: %s", name, strerror(errno));
	ck_assert_int_eq(write(fd, content, (size_t)length), length);
	close(fd);
}

static void put_available(uint64_t bytes)
{
	put("/proc/meminfo",
	    "MemTotal:       67108864 kB\nMemFree:            1000 kB\nMemAvailable:   %lu kB\n"
	    "Buffers:               1 kB\n",
	    bytes / 1024);
}

/* A version 2 cgroup below its mount. */
static void put_v2(const char *path, const char *max, uint64_t current)
{
	char name[4096];

	snprintf(name, sizeof(name), V2 "%s/memory.max", path);
	put(name, "%s\n", max);
	snprintf(name, sizeof(name), V2 "%s/memory.current", path);
	put(name, "%lu\n", current);
	snprintf(name, sizeof(name), V2 "%s/memory.stat", path);
	put(name, "anon 0\nfile 0\ninactive_file 0\nactive_file 0\n");
}

static void put_v1(const char *path, uint64_t limit, uint64_t usage)
{
	char name[4096];

	snprintf(name, sizeof(name), V1 "%s/memory.limit_in_bytes", path);
	put(name, "%lu\n", limit);
	snprintf(name, sizeof(name), V1 "%s/memory.usage_in_bytes", path);
	put(name, "%lu\n", usage);
	snprintf(name, sizeof(name), V1 "%s/memory.stat", path);
	put(name, "inactive_file 0\nactive_file 0\ntotal_inactive_file 0\ntotal_active_file 0\n");
}

#define NO_LIMIT_V1 UINT64_C(9223372036854771712)
#define MOUNT_V2 "30 23 0:26 / " V2 " rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_V1 "35 31 0:32 / " V1 " rw,relatime shared:9 - cgroup cgroup rw,memory\n"

/* Plenty of memory, no cgroup, no setting; and a directory for the table. */
static void setup(void)
{
	char directory[] = "/tmp/test_budget.XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(root, sizeof(root), "%s", directory);
	ps_cgroup_root = root;
	put_available(64 * GIB);
	put("/proc/self/status", "Name:\tx\nVmLck:\t    6144 kB\nCapEff:\t0000000000000000\n");
	ps_table_directory = root;
	ps_config.reserve_percent = 0;
	ck_assert_int_eq(ps_table_start(), 0);
	ps_fault_clear();
}

static void teardown(void)
{
	char command[128];

	ps_table_close();
	snprintf(command, sizeof(command), "rm -r %s", root);
	ck_assert_int_eq(system(command), 0);
}

static uint64_t table_claim(void)
{
	return __atomic_load_n(&ps_table()->claimed_bytes, __ATOMIC_RELAXED);
}

static void granted(uint64_t bytes)
{
	uint64_t before = ps_budget_claimed();

	ck_assert_msg(ps_budget_claim(bytes, &why) == 0, "%lu refused by %s: %lu of %lu", bytes,
		      pinshim_limit_name(why.limit), why.used, why.allowed);
	ck_assert_uint_eq(ps_budget_claimed(), before + bytes);
	ck_assert_uint_eq(table_claim(), before + bytes);
}

static void refused(uint64_t bytes, enum ps_limit limit, uint64_t allowed, uint64_t used)
{
	uint64_t before = ps_budget_claimed();

	memset(&why, 0x5a, sizeof(why));
	ck_assert_int_eq(ps_budget_claim(bytes, &why), -ENOMEM);
	ck_assert_str_eq(pinshim_limit_name(why.limit), pinshim_limit_name(limit));
	ck_assert_uint_eq(why.asked, bytes);
	ck_assert_uint_eq(why.allowed, allowed);
	ck_assert_uint_eq(why.used, used);
	ck_assert_int_eq(why.error, ENOMEM);
	ck_assert_uint_eq(ps_budget_claimed(), before);
	ck_assert_uint_eq(table_claim(), before);
}

/* The own cgroup allows this much and a page more is refused, with these figures. */
static void cgroup_allows(uint64_t bytes, uint64_t allowed, uint64_t used, const char *where)
{
	char path[4096];

	refused(bytes + 4096, PS_LIMIT_CGROUP, allowed, used);
	snprintf(path, sizeof(path), "%s%s", root, where);
	ck_assert_str_eq(why.where, path);
	granted(bytes);
	ps_budget_release(bytes);
}

START_TEST(limit_names)
{
	ck_assert_str_eq(pinshim_limit_name(PS_LIMIT_PROCESS), "process");
	ck_assert_str_eq(pinshim_limit_name(PS_LIMIT_MEMLOCK), "memlock");
	ck_assert_str_eq(pinshim_limit_name(PS_LIMIT_CGROUP), "cgroup");
	ck_assert_str_eq(pinshim_limit_name(PS_LIMIT_AVAILABLE), "available");
	ck_assert_str_eq(pinshim_limit_name(PS_LIMIT_NODE), "node");
	ck_assert_str_eq(pinshim_limit_name(PS_LIMIT_HUGETLB), "hugetlb");
	ck_assert_str_eq(pinshim_limit_name(PS_LIMIT_WINDOW), "window");
	ck_assert_str_eq(pinshim_limit_name(PS_LIMIT_KERNEL), "kernel");
}
END_TEST

START_TEST(process_limit)
{
	ps_config.limit = 10 * MIB;
	granted(6 * MIB);
	refused(4 * MIB + 1, PS_LIMIT_PROCESS, 10 * MIB, 6 * MIB);
	granted(4 * MIB);
	refused(1, PS_LIMIT_PROCESS, 10 * MIB, 10 * MIB);
	granted(0);
	ps_budget_release(2 * MIB);
	ck_assert_uint_eq(table_claim(), 8 * MIB);
	refused(UINT64_MAX, PS_LIMIT_PROCESS, 10 * MIB, 8 * MIB);
	granted(2 * MIB);
}
END_TEST

START_TEST(process_limit_of_nothing)
{
	ps_config.limit = 0;
	refused(4096, PS_LIMIT_PROCESS, 0, 0);
}
END_TEST

START_TEST(claims_do_not_wrap_around)
{
	granted(MIB);
	refused(UINT64_MAX, PS_LIMIT_PROCESS, UINT64_MAX, MIB);
	/* Neither upwards nor downwards. */
	ps_budget_release(2 * MIB);
	ck_assert_uint_eq(ps_budget_claimed(), 0);
	ck_assert_uint_eq(table_claim(), 0);
}
END_TEST

START_TEST(available_less_reserve)
{
	put_available(10 * GIB);
	ps_config.reserve = 3 * GIB;
	refused(7 * GIB + 4096, PS_LIMIT_AVAILABLE, 7 * GIB, 0);
	granted(7 * GIB);
}
END_TEST

START_TEST(reserve_above_available)
{
	put_available(1 * GIB);
	ps_config.reserve = 3 * GIB;
	refused(4096, PS_LIMIT_AVAILABLE, 0, 0);
}
END_TEST

START_TEST(nothing_readable_limits_nothing)
{
	ps_fault_set(PS_OS_OPEN, 1, UINT32_MAX, EACCES);
	granted(GIB);
	ps_fault_clear();
	ps_fault_set(PS_OS_READ, 1, UINT32_MAX, EIO);
	granted(GIB);
}
END_TEST

/* A program at its limit of descriptors: nothing is known, so nothing is granted. */
START_TEST(no_descriptors)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "268435456", 0);
	ps_fault_set(PS_OS_OPEN, 1, UINT32_MAX, EMFILE);
	ck_assert_int_eq(ps_budget_claim(MIB, &why), -ENOMEM);
	ck_assert_int_eq(why.limit, PS_LIMIT_KERNEL);
	ck_assert_int_eq(why.error, EMFILE);
	ck_assert_uint_eq(why.asked, MIB);
	ck_assert_str_eq(why.where, "reading tables");
	ps_fault_clear();
	/* The cgroup is found when there are some again. */
	refused(257 * MIB, PS_LIMIT_CGROUP, 256 * MIB, 0);
	granted(MIB);
	/* Credit expires; then the directory of tables can be read, and meminfo not. */
	usleep(120000);
	ps_fault_set(PS_OS_OPEN, 2, 2, EMFILE);
	ck_assert_int_eq(ps_budget_claim(MIB, &why), -ENOMEM);
	ck_assert_str_eq(why.where, "reading /proc/meminfo");
}
END_TEST

/* What was claimed and is not pinned yet shows in no reading. */
START_TEST(claims_in_flight_count)
{
	put_available(10 * GIB);
	granted(6 * GIB);
	refused(6 * GIB, PS_LIMIT_AVAILABLE, 10 * GIB, 6 * GIB);
	/* Now it is there and does. */
	ps_budget_arrived(6 * GIB);
	put_available(4 * GIB);
	ps_budget_release(0);
	refused(4 * GIB + 4096, PS_LIMIT_AVAILABLE, 4 * GIB, 0);
	granted(4 * GIB);
}
END_TEST

START_TEST(credit_saves_readings)
{
	put_available(16 * GIB + 800 * MIB);
	granted(16 * GIB);
	put_available(0);
	ps_fault_clear();
	/* An eighth of the 800 MiB left. */
	granted(60 * MIB);
	granted(40 * MIB);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_OPEN), 0);
	refused(4096, PS_LIMIT_AVAILABLE, 0, 16 * GIB + 100 * MIB);
	ck_assert_uint_gt(ps_fault_reached(PS_OS_OPEN), 0);
}
END_TEST

START_TEST(credit_is_bounded)
{
	granted(4096);
	ps_fault_clear();
	granted(256 * MIB);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_OPEN), 0);
	granted(4096);
	ck_assert_uint_gt(ps_fault_reached(PS_OS_OPEN), 0);
	ps_fault_clear();
	granted(256 * MIB + 4096);
	ck_assert_uint_gt(ps_fault_reached(PS_OS_OPEN), 0);
}
END_TEST

START_TEST(credit_expires)
{
	granted(4096);
	put_available(0);
	granted(4096);
	usleep(120000);
	refused(4096, PS_LIMIT_AVAILABLE, 0, 8192);
}
END_TEST

START_TEST(refusal_is_latched)
{
	put_available(1 * GIB);
	refused(2 * GIB, PS_LIMIT_AVAILABLE, 1 * GIB, 0);
	put_available(64 * GIB);
	ps_fault_clear();
	refused(2 * GIB, PS_LIMIT_AVAILABLE, 1 * GIB, 0);
	refused(3 * GIB, PS_LIMIT_AVAILABLE, 1 * GIB, 0);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_OPEN), 0);
	/* A smaller one is looked at, and does not let the larger one in. */
	granted(2 * GIB - 4096);
	refused(2 * GIB, PS_LIMIT_AVAILABLE, 1 * GIB, 0);
	usleep(120000);
	granted(2 * GIB);
}
END_TEST

START_TEST(release_clears_the_latch)
{
	put_available(1 * GIB);
	granted(MIB);
	refused(2 * GIB, PS_LIMIT_AVAILABLE, 1 * GIB, MIB);
	put_available(64 * GIB);
	ps_budget_release(MIB);
	granted(2 * GIB);
}
END_TEST

/* Resident pages and those of a hugetlb pool take no free memory, but count as pinned. */
START_TEST(fresh_bytes)
{
	put_available(1 * GIB);
	ps_config.limit = 8 * GIB;
	ck_assert_int_eq(ps_budget_claim_fresh(4 * GIB, 0, &why), 0);
	usleep(120000);
	ck_assert_int_eq(ps_budget_claim_fresh(4096, 0, &why), 0);
	ps_budget_release(4096);
	ck_assert_uint_eq(ps_budget_claimed(), 4 * GIB);
	ck_assert_int_eq(ps_budget_claim_fresh(2 * GIB, 1 * GIB, &why), 0);
	ps_budget_arrived(1 * GIB);
	ck_assert_uint_eq(ps_table()->present_bytes, 6 * GIB);
	ck_assert_int_eq(ps_budget_claim_fresh(2 * GIB, 1 * GIB + 4096, &why), -ENOMEM);
	ck_assert_int_eq(why.limit, PS_LIMIT_AVAILABLE);
	ck_assert_uint_eq(why.asked, 2 * GIB);
	ck_assert_int_eq(ps_budget_claim_fresh(3 * GIB, 0, &why), -ENOMEM);
	ck_assert_int_eq(why.limit, PS_LIMIT_PROCESS);
}
END_TEST

START_TEST(v2_limit)
{
	put("/proc/self/cgroup", "0::/user.slice/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/user.slice/job", "268435456", 100 * MIB);
	put_v2("/user.slice", "max", 500 * MIB);
	cgroup_allows(156 * MIB, 256 * MIB, 100 * MIB, V2 "/user.slice/job");
}
END_TEST

START_TEST(v2_high_below_max)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "268435456", 100 * MIB);
	put(V2 "/job/memory.high", "%lu\n", 200 * MIB);
	cgroup_allows(100 * MIB, 200 * MIB, 100 * MIB, V2 "/job");
}
END_TEST

START_TEST(v2_high_without_max)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "max", 100 * MIB);
	put(V2 "/job/memory.high", "%lu\n", 200 * MIB);
	cgroup_allows(100 * MIB, 200 * MIB, 100 * MIB, V2 "/job");
}
END_TEST

START_TEST(v2_without_limit)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "max", 100 * MIB);
	put(V2 "/job/memory.high", "max\n");
	granted(64 * GIB);
}
END_TEST

START_TEST(v2_page_cache_can_be_dropped)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "268435456", 200 * MIB);
	put(V2 "/job/memory.stat",
	    "anon 1\nfile %lu\nshmem 1\ninactive_anon %lu\ninactive_file %lu\nactive_file %lu\n"
	    "workingset_activate_file 99999999999\n",
	    150 * MIB, 70 * MIB, 100 * MIB, 40 * MIB);
	cgroup_allows(196 * MIB, 256 * MIB, 60 * MIB, V2 "/job");
}
END_TEST

START_TEST(v2_without_stat)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put(V2 "/job/memory.max", "268435456\n");
	put(V2 "/job/memory.current", "%lu\n", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2 "/job");
}
END_TEST

/* More page cache than use, as rounding and delays make it, is no room beyond the limit. */
START_TEST(v2_more_cache_than_use)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "268435456", 10 * MIB);
	put(V2 "/job/memory.stat", "inactive_file %lu\n", 20 * MIB);
	cgroup_allows(256 * MIB, 256 * MIB, 0, V2 "/job");
}
END_TEST

START_TEST(v2_over_its_limit)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "268435456", 300 * MIB);
	refused(4096, PS_LIMIT_CGROUP, 256 * MIB, 300 * MIB);
}
END_TEST

START_TEST(v2_parent_is_tighter)
{
	put("/proc/self/cgroup", "0::/a/b/c\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/a/b/c", "1073741824", 0);
	put_v2("/a/b", "max", 0);
	put_v2("/a", "2147483648", 2000 * MIB);
	cgroup_allows(48 * MIB, 2048 * MIB, 2000 * MIB, V2 "/a");
}
END_TEST

START_TEST(v2_top_of_the_mount_counts)
{
	put("/proc/self/cgroup", "0::/\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("", "1073741824", 24 * MIB);
	/* Above the mount are no cgroups. */
	put("/sys/fs/memory.max", "4096\n");
	cgroup_allows(1000 * MIB, 1024 * MIB, 24 * MIB, V2);
}
END_TEST

START_TEST(v2_own_directory_not_visible)
{
	put("/proc/self/cgroup", "0::/a/gone\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/a", "268435456", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2 "/a");
}
END_TEST

/* A container whose mount shows its own cgroup as the top, under the host's names. */
START_TEST(v2_mount_root_is_the_container)
{
	put("/proc/self/cgroup", "0::/docker/abc/job\n");
	put("/proc/self/mountinfo", "30 23 0:26 /docker/abc " V2 " ro - cgroup2 cgroup rw\n");
	put_v2("/job", "max", 0);
	put_v2("", "268435456", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2);
}
END_TEST

START_TEST(v2_mount_root_is_the_own_cgroup)
{
	put("/proc/self/cgroup", "0::/docker/abc\n");
	put("/proc/self/mountinfo", "30 23 0:26 /docker/abc " V2 " ro - cgroup2 cgroup rw\n");
	put_v2("", "268435456", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2);
}
END_TEST

/* /docker/ab is no parent of /docker/abc, whatever the letters say. */
START_TEST(v2_mount_of_another_container)
{
	put("/proc/self/cgroup", "0::/docker/abc\n");
	put("/proc/self/mountinfo", "30 23 0:26 /docker/ab " V2 " ro - cgroup2 cgroup rw\n");
	put_v2("", "4096", 0);
	put_v2("/c", "4096", 0);
	granted(GIB);
}
END_TEST

/* The mount was made outside our cgroup namespace: its top is above us, and we do not know where. */
START_TEST(v2_mount_from_outside_the_namespace)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", "30 23 0:26 /../.. " V2 " ro - cgroup2 cgroup rw\n");
	put_v2("", "268435456", 56 * MIB);
	put_v2("/job", "4096", 0);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2);
}
END_TEST

/* The process was moved out of its cgroup namespace: the mount shows others only. */
START_TEST(v2_process_outside_the_namespace)
{
	put("/proc/self/cgroup", "0::/../other\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("", "4096", 0);
	put_v2("/other", "4096", 0);
	granted(GIB);
}
END_TEST

START_TEST(v2_both_outside_the_namespace)
{
	put("/proc/self/cgroup", "0::/../other\n");
	put("/proc/self/mountinfo", "30 23 0:26 /.. " V2 " ro - cgroup2 cgroup rw\n");
	put_v2("/other", "268435456", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2 "/other");
}
END_TEST

/* Of several mounts the one that shows the most parents. */
START_TEST(v2_bind_mount_of_a_part)
{
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/proc/self/mountinfo", "29 23 0:26 /a /mnt/part rw - cgroup2 cgroup2 rw\n" MOUNT_V2
				    "31 23 0:26 /a/b /mnt/less rw - cgroup2 cgroup2 rw\n");
	put_v2("/a/b", "max", 0);
	put_v2("/a", "max", 0);
	put_v2("", "268435456", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2);
}
END_TEST

START_TEST(v1_limit)
{
	put("/proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/job\n1:name=systemd:/y\n");
	put("/proc/self/mountinfo",
	    "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" MOUNT_V1);
	put_v1("/job", 268435456, 100 * MIB);
	put_v1("", NO_LIMIT_V1, 5 * GIB);
	cgroup_allows(156 * MIB, 256 * MIB, 100 * MIB, V1 "/job");
}
END_TEST

START_TEST(v1_parent_is_tighter)
{
	put("/proc/self/cgroup", "4:memory:/kubepods/pod/one\n");
	put("/proc/self/mountinfo", MOUNT_V1);
	put_v1("/kubepods/pod/one", NO_LIMIT_V1, 10 * MIB);
	put_v1("/kubepods/pod", 256 * MIB, 56 * MIB);
	put_v1("/kubepods", 8 * GIB, 1 * GIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V1 "/kubepods/pod");
}
END_TEST

START_TEST(v1_without_limit)
{
	put("/proc/self/cgroup", "4:memory:/job\n");
	put("/proc/self/mountinfo", MOUNT_V1);
	put_v1("/job", NO_LIMIT_V1, 100 * MIB);
	granted(64 * GIB);
}
END_TEST

/* In version 1 the plain values are of this cgroup only, its use includes those below. */
START_TEST(v1_page_cache_of_the_subtree)
{
	put("/proc/self/cgroup", "4:memory:/job\n");
	put("/proc/self/mountinfo", MOUNT_V1);
	put_v1("/job", 256 * MIB, 200 * MIB);
	put(V1 "/job/memory.stat",
	    "inactive_file 1\nactive_file 2\ntotal_inactive_file %lu\ntotal_active_file %lu\n",
	    100 * MIB, 40 * MIB);
	cgroup_allows(196 * MIB, 256 * MIB, 60 * MIB, V1 "/job");
}
END_TEST

START_TEST(v1_controllers_mounted_together)
{
	put("/proc/self/cgroup", "4:cpuset,memory:/job\n");
	put("/proc/self/mountinfo", "35 31 0:32 / /cg rw - cgroup cgroup rw,cpuset,memory,xattr\n");
	put("/cg/job/memory.limit_in_bytes", "%lu\n", 256 * MIB);
	put("/cg/job/memory.usage_in_bytes", "%lu\n", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, "/cg/job");
}
END_TEST

START_TEST(v1_docker_with_host_names)
{
	put("/proc/self/cgroup", "4:memory:/docker/abc\n0::/docker/abc\n");
	put("/proc/self/mountinfo", "35 31 0:32 /docker/abc " V1 " ro - cgroup cgroup rw,memory\n");
	put_v1("", 256 * MIB, 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V1);
}
END_TEST

/* Both versions at once, as on the machine this was written on: memory is where its line says. */
START_TEST(hybrid)
{
	put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/api/one\n3:cpuset:/\n0::/v2\n");
	put("/proc/self/mountinfo",
	    "31 23 0:28 / " V2 " rw,relatime - tmpfs tmpfs rw,mode=755\n"
	    "38 31 0:38 / " V2 "/unified rw,relatime - cgroup2 cgroup2 rw\n" MOUNT_V1);
	put_v1("/api/one", 256 * MIB, 56 * MIB);
	put(V2 "/unified/v2/memory.max", "4096\n");
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V1 "/api/one");
}
END_TEST

/* Version 1 for all but memory. */
START_TEST(hybrid_with_memory_in_v2)
{
	put("/proc/self/cgroup", "9:name=systemd:/\n3:cpuset:/\n0::/job\n");
	put("/proc/self/mountinfo",
	    "34 31 0:31 / /sys/cpuset rw - cgroup cgroup rw,cpuset\n" MOUNT_V2);
	put_v2("/job", "268435456", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2 "/job");
}
END_TEST

START_TEST(mount_point_with_spaces)
{
	put("/proc/self/cgroup", "0::/my job\n");
	put("/proc/self/mountinfo", "30 23 0:26 / /odd\\040\\134place rw - cgroup2 cgroup2 rw\n");
	put("/odd \\place/my job/memory.max", "268435456\n");
	put("/odd \\place/my job/memory.current", "%lu\n", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, "/odd \\place/my job");
}
END_TEST

/* An overlay's line may be longer than any buffer; it must not hide those after it. */
START_TEST(long_lines_in_mountinfo)
{
	static char layers[20000];

	memset(layers, 'l', sizeof(layers) - 1);
	put("/proc/self/cgroup", "0::/job:1\n");
	put("/proc/self/mountinfo", "27 1 0:9 / / rw - overlay overlay rw,lowerdir=%s\n%s", layers,
	    MOUNT_V2);
	put_v2("/job:1", "268435456", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2 "/job:1");
}
END_TEST

START_TEST(damaged_lines_are_survived)
{
	put("/proc/self/cgroup", "\n:\n::\nx\n4\n0::/job\n");
	put("/proc/self/mountinfo",
	    "\n \n1 2 3\n1 2 3 / /x\n1 2 3 / /x rw -\n1 2 3 / /x rw - cgroup\n"
	    "1 2 3 / /x rw - cgroup2\n%s",
	    MOUNT_V2);
	put_v2("/job", "268435456", 56 * MIB);
	cgroup_allows(200 * MIB, 256 * MIB, 56 * MIB, V2 "/job");
}
END_TEST

START_TEST(no_line_for_memory)
{
	put("/proc/self/cgroup", "3:cpuset:/\n");
	put("/proc/self/mountinfo", MOUNT_V1 MOUNT_V2);
	put_v1("", 4096, 0);
	put_v2("", "4096", 0);
	granted(GIB);
}
END_TEST

START_TEST(long_place_keeps_its_end)
{
	char name[301];

	memset(name, 'n', sizeof(name) - 1);
	name[0] = name[150] = '/';
	name[300] = '\0';
	put("/proc/self/cgroup", "0::%s\n", name);
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2(name, "4096", 0);
	refused(8192, PS_LIMIT_CGROUP, 4096, 0);
	ck_assert_uint_eq(strlen(why.where), sizeof(why.where) - 1);
	ck_assert_int_eq(strncmp(why.where, "...", 3), 0);
	ck_assert_str_eq(why.where + 3, name + strlen(name) - (sizeof(why.where) - 4));
}
END_TEST

START_TEST(reserve_in_percent_of_the_cgroup)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "1048576000", 100 * MIB);
	ps_config.reserve = 3 * GIB;
	ps_config.reserve_percent = 5;
	cgroup_allows(850 * MIB, 950 * MIB, 100 * MIB, V2 "/job");
}
END_TEST

START_TEST(reserve_in_bytes_of_the_cgroup)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "268435456", 100 * MIB);
	ps_config.reserve = 56 * MIB;
	cgroup_allows(100 * MIB, 200 * MIB, 100 * MIB, V2 "/job");
	ps_config.reserve = 300 * MIB;
	refused(4096, PS_LIMIT_CGROUP, 0, 100 * MIB);
}
END_TEST

START_TEST(node_tighter_than_cgroup)
{
	put("/proc/self/cgroup", "0::/job\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/job", "268435456", 0);
	put_available(100 * MIB);
	refused(101 * MIB, PS_LIMIT_AVAILABLE, 100 * MIB, 0);
	ck_assert_str_eq(why.where, "");
}
END_TEST

START_TEST(this_machine)
{
	ps_cgroup_root = "";
	ps_config.reserve_percent = 5;
	granted(4096);
	ps_budget_release(4096);
	ck_assert_int_eq(ps_budget_claim(UINT64_C(1) << 60, &why), -ENOMEM);
	ck_assert(why.limit == PS_LIMIT_AVAILABLE || why.limit == PS_LIMIT_CGROUP);
	ck_assert_uint_gt(why.allowed, 0);
}
END_TEST

static struct ps_refusal kernel(const char *call, int error)
{
	struct ps_refusal refusal;

	memset(&refusal, 0x5a, sizeof(refusal));
	ps_budget_kernel_refused(call, error, 4 * MIB, &refusal);
	ck_assert_uint_eq(refusal.asked, 4 * MIB);
	ck_assert_int_eq(refusal.error, error);
	ck_assert_str_eq(refusal.where, call);
	return refusal;
}

START_TEST(kernel_refuses_mlock)
{
	static const int errors[] = { ENOMEM, EPERM, EAGAIN };
	struct rlimit limit;
	struct ps_refusal refusal;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	limit.rlim_cur = 65536;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	for (int i = 0; i < 3; i++) {
		refusal = kernel("mlock", errors[i]);
		ck_assert_int_eq(refusal.limit, PS_LIMIT_MEMLOCK);
		ck_assert_uint_eq(refusal.allowed, 65536);
		ck_assert_uint_eq(refusal.used, 6 * MIB);
	}
	/* After mlockall(MCL_FUTURE). */
	ck_assert_int_eq(kernel("mmap", EAGAIN).limit, PS_LIMIT_MEMLOCK);
	put("/proc/self/status", "Name:\tx\n");
	ck_assert_uint_eq(kernel("mlock", ENOMEM).used, 0);
	ps_fault_set(PS_OS_GETRLIMIT, 1, 1, EPERM);
	ck_assert_uint_eq(kernel("mlock", ENOMEM).allowed, 0);
}
END_TEST

START_TEST(kernel_refuses_otherwise)
{
	ck_assert_int_eq(kernel("mlock", EINVAL).limit, PS_LIMIT_KERNEL);
	ck_assert_int_eq(kernel("mprotect", ENOMEM).limit, PS_LIMIT_KERNEL);
	ck_assert_uint_eq(kernel("mprotect", ENOMEM).allowed, 0);
	ck_assert_uint_eq(kernel("mmap", ENOMEM).used, 0);
}
END_TEST

START_TEST(kernel_refuses_mlock_without_limit)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0) {
		puts("skip - kernel_refuses_mlock_without_limit: the limit cannot be raised here");
		return;
	}
	ck_assert_int_eq(kernel("mlock", ENOMEM).limit, PS_LIMIT_KERNEL);
}
END_TEST

static const char *explained(struct ps_refusal refusal)
{
	static char line[1024];
	struct ps_text text = PS_TEXT_INIT(line);

	ps_budget_explain(&refusal, "ordinary memory", &text);
	ck_assert(!text.cut);
	ck_assert_ptr_null(strchr(line, '\n'));
	return line;
}

#define MEMLOCK_REMEDY                                                                             \
	": the program got ordinary memory; raise it with 'ulimit -l unlimited' or "               \
	"LimitMEMLOCK=infinity, run the container with --ulimit memlock=-1 and --cap-add "         \
	"IPC_LOCK, or give the program CAP_IPC_LOCK (a non-root user needs it as an ambient or "   \
	"file capability)"

START_TEST(explain_memlock)
{
	struct ps_refusal refusal = { .limit = PS_LIMIT_MEMLOCK,
				      .asked = 4 * MIB,
				      .allowed = 8 * MIB,
				      .used = 6 * MIB,
				      .error = ENOMEM,
				      .where = "mlock" };

	ck_assert_str_eq(
		explained(refusal),
		"pinning 4.0 MiB was refused: RLIMIT_MEMLOCK is 8.0 MiB and 6.0 MiB of it is in "
		"use (CAP_IPC_LOCK is not effective)" MEMLOCK_REMEDY);
	/* Every capability but that one. */
	put("/proc/self/status", "VmLck:\t 0 kB\nCapEff:\t000001ffffffbfff\n");
	ck_assert_ptr_nonnull(strstr(explained(refusal), "(CAP_IPC_LOCK is not effective)"));
	/* Root of a user namespace has it, and the kernel does not ask for that one. */
	put("/proc/self/status", "VmLck:\t 0 kB\nCapEff:\t0000000000004000\n");
	ck_assert_ptr_nonnull(strstr(explained(refusal),
				     "(CAP_IPC_LOCK is effective, but not outside "
				     "this user namespace)"));
	put("/proc/self/status", "%s", "");
	ck_assert_ptr_nonnull(strstr(explained(refusal), "(CAP_IPC_LOCK is not effective)"));
}
END_TEST

static const struct {
	struct ps_refusal refusal;
	const char *text; /* between "was refused: " and the fallback */
	const char *remedy;
} explanations[] = {
	{ { PS_LIMIT_PROCESS, 4096, GIB, 900 * MIB, ENOMEM, "" },
	  "PINSHIM_LIMIT is 1.0 GiB and 900.0 MiB of it is in use",
	  "PINSHIM_LIMIT" },
	{ { PS_LIMIT_CGROUP, 4096, GIB, 900 * MIB, ENOMEM, "/sys/fs/cgroup/job" },
	  "of memory cgroup /sys/fs/cgroup/job the limit less PINSHIM_RESERVE is 1.0 GiB and 900.0 MiB "
	  "of it is in use",
	  "memory.max" },
	{ { PS_LIMIT_AVAILABLE, 4096, GIB, 0, ENOMEM, "" },
	  "MemAvailable less PINSHIM_RESERVE is 1.0 GiB and 0 B of it is in use",
	  "free memory" },
	{ { PS_LIMIT_NODE, 4096, GIB, 900 * MIB, ENOMEM, "" },
	  "PINSHIM_NODE_LIMIT is 1.0 GiB and 900.0 MiB of it is in use",
	  "'pinshim stat'" },
	{ { PS_LIMIT_NODE, 4096, GIB, 0, EACCES, "" },
	  "PINSHIM_NODE_LIMIT cannot be kept, for tables in /dev/shm cannot be used: Permission denied",
	  "PINSHIM_NODE_LIMIT" },
	{ { PS_LIMIT_HUGETLB, 4096, 0, 0, ENOMEM, "mmap" },
	  "the pool of huge pages is empty",
	  "vm.nr_hugepages" },
	{ { PS_LIMIT_WINDOW, 4096, 1024 * GIB, 0, ENOMEM, "" },
	  "the reserved range of addresses is used up, 1.0 TiB",
	  "'ulimit -v'" },
	{ { PS_LIMIT_KERNEL, 4096, 0, 0, EINVAL, "mprotect" },
	  "mprotect: Invalid argument",
	  "vm.max_map_count" },
};

START_TEST(explain_others)
{
	const char *line = explained(explanations[_i].refusal);
	char expected[512];

	snprintf(expected, sizeof(expected),
		 "pinning 4.0 KiB was refused: %s: the program got ordinary memory; ",
		 explanations[_i].text);
	ck_assert_msg(strncmp(line, expected, strlen(expected)) == 0, "%s", line);
	ck_assert_ptr_nonnull(strstr(line + strlen(expected), explanations[_i].remedy));
}
END_TEST

START_TEST(refusals_are_counted_and_said_once)
{
	struct ps_refusal process = { .limit = PS_LIMIT_PROCESS, .asked = MIB };
	struct ps_refusal window = { .limit = PS_LIMIT_WINDOW, .asked = 2 * MIB };
	char said[4096];
	ssize_t length;
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
	dup2(ends[1], 2);
	for (int i = 0; i < 5; i++)
		ps_budget_refuse(&process, "an error");
	ps_budget_refuse(&window, "ordinary memory");
	ck_assert_uint_eq(ps_table()->refused[PS_LIMIT_PROCESS], 5);
	ck_assert_uint_eq(ps_table()->refused[PS_LIMIT_WINDOW], 1);
	ck_assert_uint_eq(ps_table()->refused[PS_LIMIT_MEMLOCK], 0);
	ck_assert_uint_eq(ps_table()->refused_bytes, 7 * MIB);
	length = read(ends[0], said, sizeof(said) - 1);
	ck_assert_int_gt(length, 0);
	said[length] = '\0';
	ck_assert_ptr_nonnull(strstr(said, "pinning 1.0 MiB was refused: PINSHIM_LIMIT"));
	ck_assert_ptr_nonnull(strstr(said, "the program got an error; "));
	ck_assert_ptr_nonnull(strstr(said, "pinning 2.0 MiB was refused: the reserved range"));
	ck_assert_ptr_eq(strrchr(said, '\n'), said + length - 1);
	ck_assert_ptr_eq(strchr(strchr(said, '\n') + 1, '\n'), said + length - 1);
}
END_TEST

START_TEST(child_begins_with_nothing)
{
	int status;
	pid_t child;

	ps_config.limit = 10 * MIB;
	put_available(1 * GIB);
	granted(8 * MIB);
	child = fork();
	if (child == 0) {
		ps_budget_fork_child();
		alarm(5);
		if (ps_budget_claimed() != 0 || ps_budget_claim(10 * MIB, &why) != 0)
			_exit(1);
		ps_budget_release(20 * MIB);
		_exit(ps_budget_claimed() == 0 ? 0 : 2);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(ps_budget_claimed(), 8 * MIB);
}
END_TEST

static atomic_ulong held, worst;

static void *claim_and_release(void *unused)
{
	struct ps_refusal refusal;

	for (int i = 0; i < 3000; i++) {
		uint64_t bytes = (uint64_t)(i % 5 + 1) * MIB, sum;

		if (ps_budget_claim(bytes, &refusal) < 0)
			continue;
		sum = atomic_fetch_add(&held, bytes) + bytes;
		for (uint64_t seen = atomic_load(&worst); sum > seen;) {
			if (atomic_compare_exchange_weak(&worst, &seen, sum))
				break;
		}
		atomic_fetch_sub(&held, bytes);
		ps_budget_release(bytes);
	}
	return unused;
}

START_TEST(threads_claim_together)
{
	pthread_t thread[4];

	ps_config.limit = 8 * MIB;
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, claim_and_release, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_le(atomic_load(&worst), 8 * MIB);
	ck_assert_uint_eq(ps_budget_claimed(), 0);
	ck_assert_uint_eq(table_claim(), 0);
}
END_TEST

static pid_t holders[16];
static uid_t holders_user;              /* that it may run as, too; 0: none */
static int go[2], answers[2], leave[2]; /* pipes: start together, say how it went, end */

/* A process of its own that claims when told to, says 1 or 0, and holds it until told to end. */
static void start_holder(int i, uint64_t bytes)
{
	char byte;

	holders[i] = fork();
	if (holders[i] != 0)
		return;
	close(go[1]);
	close(leave[1]);
	if (ps_table_start() < 0 || read(go[0], &byte, 1) < 0)
		_exit(1);
	if (holders_user != 0 && setresuid((uid_t)-1, (uid_t)-1, holders_user) < 0)
		_exit(1);
	byte = ps_budget_claim(bytes, &why) == 0 ? 1 : 0;
	if (byte == 0 &&
	    why.limit != (ps_config.node_limit == UINT64_MAX ? PS_LIMIT_AVAILABLE : PS_LIMIT_NODE))
		byte = 2;
	if (write(answers[1], &byte, 1) != 1 || read(leave[0], &byte, 1) < 0)
		_exit(1);
	ps_table_close();
	_exit(0);
}

static void prepare_holders(void)
{
	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(answers), 0);
	ck_assert_int_eq(pipe(leave), 0);
}

static int release_holders(int count)
{
	int granted_count = 0, status;
	char answer;

	close(go[1]);
	for (int i = 0; i < count; i++) {
		ck_assert_int_eq(read(answers[0], &answer, 1), 1);
		ck_assert_int_ne(answer, 2);
		granted_count += answer;
	}
	close(leave[1]);
	for (int i = 0; i < count; i++) {
		ck_assert_int_eq(waitpid(holders[i], &status, 0), holders[i]);
		ck_assert_int_eq(status, 0);
	}
	return granted_count;
}

/* As many as fit get theirs, never one more. */
START_TEST(node_limit_in_a_race)
{
	ps_config.node_limit = 1 * GIB;
	prepare_holders();
	for (int i = 0; i < 8; i++)
		start_holder(i, 300 * MIB);
	ck_assert_int_eq(release_holders(8), 3);
}
END_TEST

/* The same of memory that is there, which nobody has set a limit to. */
START_TEST(memory_in_a_race)
{
	put_available(1 * GIB);
	prepare_holders();
	for (int i = 0; i < 8; i++)
		start_holder(i, 300 * MIB);
	ck_assert_int_eq(release_holders(8), 3);
}
END_TEST

static struct pinshim_table *other; /* another process's table, which lives */

static int map_other(const char *path, pid_t pid, void *unused)
{
	int fd;

	(void)unused;
	if (pid != holders[0])
		return 0;
	fd = open(path, O_RDWR);
	other = mmap(NULL, sizeof(*other), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(other, MAP_FAILED);
	close(fd);
	return 1;
}

static void start_other(void)
{
	prepare_holders();
	start_holder(0, 4096);
	close(go[1]);
	ck_assert_int_eq(read(answers[0], &(char){ 0 }, 1), 1);
	ck_assert_int_eq(pinshim_reader_each(ps_table_directory, map_other, NULL), 1);
	other->claimed_bytes = 0;
	other->present_bytes = 0;
	other->credit_bytes = 0;
}

static void end_other(void)
{
	close(leave[1]);
	ck_assert_int_eq(waitpid(holders[0], NULL, 0), holders[0]);
}

static void give_up(int unused)
{
	(void)unused;
	__atomic_store_n(&other->asking_bytes, 0, __ATOMIC_SEQ_CST);
}

/* Calls handler in a while, in any case: a busy machine does not hold up a signal. */
static void after_a_moment(void (*handler)(int))
{
	const struct sigaction action = { .sa_handler = handler };
	const struct itimerval soon = { .it_value = { .tv_usec = 10000 } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
}

/* What others only ask for is waited out. */
static void waits_for_the_other(void)
{
	start_other();
	other->asking_bytes = 1 * GIB;
	after_a_moment(give_up);
	granted(500 * MIB);
	ck_assert_uint_eq(other->asking_bytes, 0);
	ck_assert_uint_eq(ps_table()->asking_bytes, 0);
	end_other();
}

START_TEST(node_limit_collision)
{
	ps_config.node_limit = 1 * GIB;
	waits_for_the_other();
}
END_TEST

START_TEST(memory_collision)
{
	put_available(1 * GIB);
	waits_for_the_other();
}
END_TEST

/* A process that was stopped while it asked: not for ever, and the figures say so. */
START_TEST(collision_without_end)
{
	ps_config.node_limit = 1 * GIB;
	start_other();
	other->claimed_bytes = 300 * MIB;
	other->asking_bytes = 400 * MIB;
	refused(500 * MIB, PS_LIMIT_NODE, 1 * GIB, 700 * MIB);
	granted(100 * MIB);
	ck_assert_uint_eq(ps_table()->asking_bytes, 0);
	end_other();
}
END_TEST

/* What others hold is not waited for: one look at the tables, and the figures have what is held only. */
START_TEST(node_full_is_seen_at_once)
{
	ps_config.node_limit = 1 * GIB;
	start_other();
	granted(4096);
	other->claimed_bytes = 600 * MIB;
	other->asking_bytes = 100 * MIB;
	ps_fault_clear();
	refused(500 * MIB, PS_LIMIT_NODE, 1 * GIB, 600 * MIB + 4096);
	/* The directory, the table, and whether its process lives and where. */
	ck_assert_uint_eq(ps_fault_reached(PS_OS_OPEN), 4);
	end_other();
}
END_TEST

/* What others were granted takes memory, though it shows in no reading before it is there. */
START_TEST(others_are_about_to_pin)
{
	put_available(1 * GIB);
	start_other();
	other->claimed_bytes = 600 * MIB;
	other->present_bytes = 200 * MIB;
	refused(700 * MIB, PS_LIMIT_AVAILABLE, 1 * GIB, 400 * MIB);
	granted(600 * MIB);
	ps_budget_release(600 * MIB);
	other->present_bytes = 600 * MIB;
	granted(1 * GIB);
	ps_budget_release(1 * GIB);
	/* More there than claimed, as seen for a moment, is no room. */
	other->present_bytes = 700 * MIB;
	refused(1 * GIB + 4096, PS_LIMIT_AVAILABLE, 1 * GIB, 0);
	end_other();
}
END_TEST

static void arrive(int unused)
{
	(void)unused;
	__atomic_store_n(&other->present_bytes, 600 * MIB, __ATOMIC_SEQ_CST);
}

/* What they pin is used, and is still on its way: until that is over nobody knows whether there is room. */
START_TEST(others_are_pinning)
{
	put_available(800 * MIB);
	start_other();
	other->claimed_bytes = 600 * MIB;
	after_a_moment(arrive);
	granted(700 * MIB);
	ck_assert_uint_eq(other->present_bytes, 600 * MIB);
	end_other();
}
END_TEST

static void put_cgroup_of(pid_t pid, const char *path)
{
	char name[64];

	snprintf(name, sizeof(name), "/proc/%d/cgroup", pid);
	put(name, "0::%s\n", path);
}

static const struct {
	const char *own, *other;
	const char *root; /* of the mount */
	bool shared;      /* is the other in /job, which has a limit? */
} places[] = {
	{ "/job", "/job", "/", true },
	{ "/job", "/job/part", "/", true },
	{ "/job/part", "/job", "/", true },
	{ "/job/part", "/job/other", "/", true },
	{ "/job/part", "/", "/", false },
	{ "/job", "/jobs", "/", false },
	{ "/jobs", "/job", "/", false },
	{ "/job", "/", "/", false },
	{ "/job", "/other", "/", false },
	/* A container's mount, that shows its own as the top. */
	{ "/docker/abc/job", "/docker/abc/job/part", "/docker/abc", true },
	{ "/docker/abc/job", "/docker/abc", "/docker/abc", false },
	{ "/docker/abc/job", "/docker/abd/job", "/docker/abc", false },
};

/* What others are about to take counts where it will be. */
START_TEST(others_in_cgroups)
{
	const char *own = places[_i].own, *below = strstr(own, "/job");
	char limited[64] = "/job";

	if (strncmp(below, "/jobs", 5) == 0)
		strcpy(limited, "/jobs");
	put_available(64 * GIB);
	put("/proc/self/cgroup", "0::%s\n", own);
	put("/proc/self/mountinfo", "30 23 0:26 %s " V2 " rw - cgroup2 cgroup2 rw\n",
	    places[_i].root);
	put_v2(limited, "1073741824", 24 * MIB);
	start_other();
	put_cgroup_of(holders[0], places[_i].other);
	other->claimed_bytes = 600 * MIB;
	if (places[_i].shared)
		refused(500 * MIB, PS_LIMIT_CGROUP, 1 * GIB, 624 * MIB);
	granted(400 * MIB);
	ps_budget_release(400 * MIB);
	other->present_bytes = 600 * MIB;
	granted(1000 * MIB);
	end_other();
}
END_TEST

/* Each level by itself: the inner one has more room than the outer, but for what others take. */
START_TEST(others_in_one_of_two_cgroups)
{
	put("/proc/self/cgroup", "0::/outer/inner\n");
	put("/proc/self/mountinfo", MOUNT_V2);
	put_v2("/outer", "1073741824", 0);
	put_v2("/outer/inner", "524288000", 0);
	start_other();
	put_cgroup_of(holders[0], "/outer/else");
	other->claimed_bytes = 400 * MIB;
	granted(500 * MIB);
	ps_budget_release(500 * MIB);
	other->claimed_bytes = 700 * MIB;
	refused(400 * MIB, PS_LIMIT_CGROUP, 1 * GIB, 700 * MIB);
	put_cgroup_of(holders[0], "/outer/inner");
	other->claimed_bytes = 400 * MIB;
	usleep(120000); /* no patience right after the last time */
	refused(200 * MIB, PS_LIMIT_CGROUP, 500 * MIB, 400 * MIB);
	granted(100 * MIB);
	end_other();
}
END_TEST

START_TEST(credit_of_others)
{
	put_available(1 * GIB);
	start_other();
	other->credit_bytes = 200 * MIB;
	other->credit_until = UINT64_MAX / 2;
	refused(900 * MIB, PS_LIMIT_AVAILABLE, 1 * GIB, 200 * MIB);
	granted(800 * MIB);
	ps_budget_release(800 * MIB);
	/* What is out of date is none. */
	other->credit_until = ps_os_now_coarse() - 1000000000;
	granted(1 * GIB);
	end_other();
}
END_TEST

/* The credit that we have ourselves is there for others to see, and goes as it is used. */
START_TEST(credit_is_published)
{
	struct pinshim_table *table = ps_table();

	put_available(16 * GIB + 800 * MIB);
	granted(16 * GIB);
	ck_assert_uint_eq(table->credit_bytes, 100 * MIB);
	ck_assert_uint_gt(table->credit_until, ps_os_now_coarse());
	ck_assert_uint_eq(table->asking_bytes, 0);
	granted(60 * MIB);
	ck_assert_uint_eq(table->credit_bytes, 40 * MIB);
}
END_TEST

/*
 * A table of another user counts for PINSHIM_NODE_LIMIT, but must not keep us from our memory; and it
 * counts for nothing if its process is not that user's, for then anybody could say what root has.
 */
START_TEST(table_of_another_user)
{
	const bool claims_roots = _i == 1;
	char path[512];

	if (geteuid() != 0) {
		puts("skip - table_of_another_user: needs root");
		return;
	}
	put_available(1 * GIB);
	holders_user = claims_roots ? 0 : 65534;
	start_other();
	snprintf(path, sizeof(path), "%s/" PINSHIM_TABLE_PREFIX "%d.%lu", root, holders[0],
		 other->start_time);
	ck_assert_int_eq(chown(path, 65534, 65534), 0);
	other->claimed_bytes = UINT64_MAX - 5;
	other->asking_bytes = UINT64_MAX;
	granted(1 * GIB);
	ps_budget_release(1 * GIB);
	ps_config.node_limit = 1 * GIB;
	if (claims_roots)
		granted(1 * GIB);
	else
		refused(4096, PS_LIMIT_NODE, 1 * GIB, UINT64_MAX - 5);
	end_other();
}
END_TEST

static int count_one(const char *path, pid_t pid, void *count)
{
	(void)path;
	(void)pid;
	++*(int *)count;
	return 0;
}

START_TEST(node_limit_counts_others)
{
	char byte;
	int tables = 0, status;

	ps_config.node_limit = 1 * GIB;
	prepare_holders();
	start_holder(0, 600 * MIB);
	close(go[1]);
	ck_assert_int_eq(read(answers[0], &byte, 1), 1);
	ck_assert_int_eq(byte, 1);
	refused(500 * MIB, PS_LIMIT_NODE, 1 * GIB, 600 * MIB);
	granted(400 * MIB);
	refused(100 * MIB, PS_LIMIT_NODE, 1 * GIB, 1000 * MIB);
	pinshim_reader_each(ps_table_directory, count_one, &tables);
	ck_assert_int_eq(tables, 2);
	/* A claim that cannot be read is not taken for none: meminfo, the directory, the table. */
	usleep(120000);
	ps_fault_set(PS_OS_OPEN, _i, _i, EMFILE);
	if (ps_budget_claim(500 * MIB, &why) == 0)
		ck_abort_msg("granted with open number %d failing", _i);
	ps_fault_clear();
	ck_assert_uint_eq(table_claim(), 400 * MIB);
	/* Killed, it holds nothing, though its table still says so. */
	kill(holders[0], SIGKILL);
	ck_assert_int_eq(waitpid(holders[0], &status, 0), holders[0]);
	granted(500 * MIB);
	ps_budget_release(900 * MIB);
	ck_assert_uint_eq(table_claim(), 0);
}
END_TEST

/* Others have to see what is asked for, so the table comes first; where it cannot, they do not. */
START_TEST(claims_are_published)
{
	int tables = 0;

	granted(100 * MIB);
	pinshim_reader_each(ps_table_directory, count_one, &tables);
	ck_assert_int_eq(tables, 1);
	ck_assert_uint_eq(table_claim(), 100 * MIB);
}
END_TEST

START_TEST(no_table_and_no_node_limit)
{
	int null = open("/dev/null", O_WRONLY);

	dup2(null, 2);
	ps_table_directory = "/nonexistent";
	granted(100 * MIB);
	granted(300 * MIB);
	ck_assert_ptr_null(ps_table_path());
}
END_TEST

START_TEST(node_limit_without_a_table)
{
	int null = open("/dev/null", O_WRONLY);

	dup2(null, 2);
	ps_table_directory = "/nonexistent";
	ps_config.node_limit = 1 * GIB;
	ck_assert_int_eq(ps_budget_claim(MIB, &why), -ENOMEM);
	ck_assert_int_eq(why.limit, PS_LIMIT_NODE);
	ck_assert_int_eq(why.error, ENOENT);
	ck_assert_uint_eq(ps_budget_claimed(), 0);
}
END_TEST

static TCase *cgroup_cases(void)
{
	TCase *tcase = tcase_create("cgroup");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, v2_limit);
	tcase_add_test(tcase, v2_high_below_max);
	tcase_add_test(tcase, v2_high_without_max);
	tcase_add_test(tcase, v2_without_limit);
	tcase_add_test(tcase, v2_page_cache_can_be_dropped);
	tcase_add_test(tcase, v2_without_stat);
	tcase_add_test(tcase, v2_more_cache_than_use);
	tcase_add_test(tcase, v2_over_its_limit);
	tcase_add_test(tcase, v2_parent_is_tighter);
	tcase_add_test(tcase, v2_top_of_the_mount_counts);
	tcase_add_test(tcase, v2_own_directory_not_visible);
	tcase_add_test(tcase, v2_mount_root_is_the_container);
	tcase_add_test(tcase, v2_mount_root_is_the_own_cgroup);
	tcase_add_test(tcase, v2_mount_of_another_container);
	tcase_add_test(tcase, v2_mount_from_outside_the_namespace);
	tcase_add_test(tcase, v2_process_outside_the_namespace);
	tcase_add_test(tcase, v2_both_outside_the_namespace);
	tcase_add_test(tcase, v2_bind_mount_of_a_part);
	tcase_add_test(tcase, v1_limit);
	tcase_add_test(tcase, v1_parent_is_tighter);
	tcase_add_test(tcase, v1_without_limit);
	tcase_add_test(tcase, v1_page_cache_of_the_subtree);
	tcase_add_test(tcase, v1_controllers_mounted_together);
	tcase_add_test(tcase, v1_docker_with_host_names);
	tcase_add_test(tcase, hybrid);
	tcase_add_test(tcase, hybrid_with_memory_in_v2);
	tcase_add_test(tcase, mount_point_with_spaces);
	tcase_add_test(tcase, long_lines_in_mountinfo);
	tcase_add_test(tcase, damaged_lines_are_survived);
	tcase_add_test(tcase, no_line_for_memory);
	tcase_add_test(tcase, long_place_keeps_its_end);
	tcase_add_test(tcase, reserve_in_percent_of_the_cgroup);
	tcase_add_test(tcase, reserve_in_bytes_of_the_cgroup);
	tcase_add_test(tcase, node_tighter_than_cgroup);
	tcase_add_test(tcase, this_machine);
	return tcase;
}

static TCase *claim_cases(void)
{
	TCase *tcase = tcase_create("claims");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, limit_names);
	tcase_add_test(tcase, process_limit);
	tcase_add_test(tcase, process_limit_of_nothing);
	tcase_add_test(tcase, claims_do_not_wrap_around);
	tcase_add_test(tcase, available_less_reserve);
	tcase_add_test(tcase, reserve_above_available);
	tcase_add_test(tcase, nothing_readable_limits_nothing);
	tcase_add_test(tcase, no_descriptors);
	tcase_add_test(tcase, claims_in_flight_count);
	tcase_add_test(tcase, credit_saves_readings);
	tcase_add_test(tcase, credit_is_bounded);
	tcase_add_test(tcase, credit_expires);
	tcase_add_test(tcase, refusal_is_latched);
	tcase_add_test(tcase, release_clears_the_latch);
	tcase_add_test(tcase, fresh_bytes);
	tcase_add_test(tcase, child_begins_with_nothing);
	tcase_add_test(tcase, threads_claim_together);
	tcase_add_loop_test(tcase, node_limit_in_a_race, 0, 5);
	tcase_add_loop_test(tcase, memory_in_a_race, 0, 5);
	tcase_add_test(tcase, node_limit_collision);
	tcase_add_test(tcase, memory_collision);
	tcase_add_test(tcase, collision_without_end);
	tcase_add_test(tcase, node_full_is_seen_at_once);
	tcase_add_test(tcase, others_are_about_to_pin);
	tcase_add_test(tcase, others_are_pinning);
	tcase_add_loop_test(tcase, others_in_cgroups, 0, sizeof(places) / sizeof(places[0]));
	tcase_add_test(tcase, others_in_one_of_two_cgroups);
	tcase_add_test(tcase, credit_of_others);
	tcase_add_test(tcase, credit_is_published);
	tcase_add_loop_test(tcase, table_of_another_user, 0, 2);
	tcase_add_loop_test(tcase, node_limit_counts_others, 1, 12);
	tcase_add_test(tcase, claims_are_published);
	tcase_add_test(tcase, no_table_and_no_node_limit);
	tcase_add_test(tcase, node_limit_without_a_table);
	tcase_set_timeout(tcase, 30);
	return tcase;
}

static TCase *refusal_cases(void)
{
	TCase *tcase = tcase_create("refusals");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, kernel_refuses_mlock);
	tcase_add_test(tcase, kernel_refuses_otherwise);
	tcase_add_test(tcase, kernel_refuses_mlock_without_limit);
	tcase_add_test(tcase, explain_memlock);
	tcase_add_loop_test(tcase, explain_others, 0,
			    sizeof(explanations) / sizeof(explanations[0]));
	tcase_add_test(tcase, refusals_are_counted_and_said_once);
	return tcase;
}

int main(void)
{
	Suite *suite = suite_create("budget");
	SRunner *runner;
	int failed;

	suite_add_tcase(suite, claim_cases());
	suite_add_tcase(suite, cgroup_cases());
	suite_add_tcase(suite, refusal_cases());
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
