/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The writer of the table: what is published, when, and what happens where it cannot be.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config.h"
#include "counters.h"
#include "fault.h"
#include "identity.h"
#include "log.h"
#include "os.h"
#include "pinshim_table_reader.h"
#include "scratch.h"
#include "table.h"

#define PAGE UINT64_C(4096)
#define BASE UINT64_C(0x100000000000)
#define FLAGS (PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_HEAP_MALLOC)

static void setup(void)
{
	ps_log_level = PS_LOG_ERROR;
	scratch_enter();
	ps_fault_clear();
}

static void started(void)
{
	setup();
	ck_assert_int_eq(ps_table_start(), 0);
}

/* Opens this process's file and takes a whole copy of it. */
static struct pinshim_reader *read_own(void)
{
	struct pinshim_reader *reader;

	ck_assert_int_eq(pinshim_reader_open(scratch_table(), &reader), 0);
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	return reader;
}

/* How many ranges a reader sees in this process's file. */
static size_t ranges_seen(void)
{
	struct pinshim_reader *reader = read_own();
	size_t count;

	pinshim_reader_ranges(reader, &count);
	pinshim_reader_close(reader);
	return count;
}

START_TEST(no_file_before_the_first_range)
{
	struct pinshim_table *table = ps_table();
	struct stat status;

	ps_count_served(PINSHIM_ENTRY_MALLOC, 100, 128);
	ck_assert_uint_eq(scratch_entries(), 0);
	ck_assert_ptr_null(ps_table_path());
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	ck_assert_uint_eq(scratch_entries(), 1);
	ck_assert_str_eq(ps_table_path(), scratch_table());
	ck_assert_int_eq(stat(scratch_table(), &status), 0);
	ck_assert_uint_eq(status.st_mode, S_IFREG | 0600);
	ck_assert_uint_eq((uint64_t)status.st_blocks * 512, (uint64_t)status.st_size);
	ck_assert_ptr_eq(ps_table(), table);
	ps_table_close();
	ck_assert_uint_eq(scratch_entries(), 0);
}
END_TEST

START_TEST(mode_whatever_the_umask)
{
	struct stat status;

	umask(0777);
	ck_assert_int_eq(ps_table_publish(), 0);
	ck_assert_int_eq(stat(scratch_table(), &status), 0);
	ck_assert_uint_eq(status.st_mode, S_IFREG | 0600);
}
END_TEST

START_TEST(header_says_whose_it_is)
{
	const struct pinshim_table *table;
	struct pinshim_reader *reader;

	setup();
	setenv("SLURM_PROCID", "7", 1);
	setenv("LOCAL_RANK", "3", 1);
	setenv("PMIX_NAMESPACE", "a-name-that-is-much-longer-than-there-is-room-for-in-the-table",
	       1);
	ps_config.backend = PS_BACKEND_CUDA;
	ck_assert_int_eq(ps_table_start(), 0);
	ck_assert_int_eq(ps_table_publish(), 0);
	reader = read_own();
	table = pinshim_reader_table(reader);
	ck_assert_uint_eq(table->pid, (uint32_t)getpid());
	ck_assert_uint_eq(table->uid, geteuid());
	ck_assert_uint_eq(table->start_time, ps_os_start_time(getpid()));
	ck_assert_str_eq(table->program, "test_table");
	ck_assert_str_eq(table->backend, "cuda");
	ck_assert_str_eq(table->rank, "7");
	ck_assert_str_eq(table->local_rank, "3");
	ck_assert_str_eq(table->job, "a-name-that-is-much-longer-than-there-is-room-f");
	ck_assert(pinshim_reader_alive(reader));
	pinshim_reader_close(reader);
}
END_TEST

START_TEST(a_table_that_was_never_started_says_whose_it_is)
{
	setup();
	setenv("RANK", "4", 1);
	ps_table_identify();
	ck_assert_uint_eq(ps_table()->pid, (uint32_t)getpid());
	ck_assert_uint_eq(ps_table()->start_time, ps_os_start_time(getpid()));
	ck_assert_str_eq(ps_table()->program, "test_table");
	ck_assert_str_eq(ps_table()->rank, "4");
}
END_TEST

/* The first that is set; torchrun says "none" for a job without a name. */
START_TEST(a_job_has_the_schedulers_name)
{
	static const char *const variable[] = { "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
						"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID" };
	struct pinshim_table table = { .pid = 1 };
	char number[2] = "";

	clearenv();
	for (unsigned i = 0; i < 4; i++) {
		number[0] = (char)('1' + i);
		setenv(variable[i], number, 1);
		ps_identity_rank(&table);
		ck_assert_str_eq(table.job, number);
	}
	setenv("TORCHELASTIC_RUN_ID", "none", 1);
	ps_identity_rank(&table);
	ck_assert_str_eq(table.job, "3");
	setenv("SLURM_JOB_ID", "", 1);
	ps_identity_rank(&table);
	ck_assert_str_eq(table.job, "2");
	ck_assert_str_eq(table.rank, "");
	setenv("OMPI_COMM_WORLD_RANK", "11", 1);
	setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
	ps_identity_rank(&table);
	ck_assert_str_eq(table.rank, "11");
	ck_assert_str_eq(table.local_rank, "1");
}
END_TEST

START_TEST(counts_before_the_constructor_are_kept)
{
	setup();
	ps_count_served(PINSHIM_ENTRY_CALLOC, 1000, 1024);
	ps_table()->hooks_reached |= 5;
	ck_assert_int_eq(ps_table_start(), 0);
	ck_assert_uint_eq(ps_table()->hooks_reached, 5);
	ck_assert_uint_eq(ps_stripe()->entry[PINSHIM_ENTRY_CALLOC].served_bytes, 1024);
	ck_assert_uint_eq(ps_table()->live_peak_bytes[PINSHIM_ENTRY_CALLOC], 1024);
}
END_TEST

START_TEST(ranges_are_added_changed_and_removed)
{
	const struct pinshim_range *range;
	struct pinshim_reader *reader;
	uint64_t generation;
	size_t count;
	int a = ps_table_add(BASE, PAGE, FLAGS);
	int b = ps_table_add(BASE + 16 * PAGE, 2 * PAGE, FLAGS);

	ck_assert_int_ge(a, 0);
	ck_assert_int_ge(b, 0);
	ck_assert_int_ne(a, b);
	generation = ps_table()->generation;
	ps_table_set(a, BASE, 4 * PAGE, FLAGS | PINSHIM_RANGE_HUGE);
	ck_assert_uint_gt(ps_table()->generation, generation);
	reader = read_own();
	range = pinshim_reader_ranges(reader, &count);
	ck_assert_uint_eq(count, 2);
	ck_assert_uint_eq(range[0].length, 4 * PAGE);
	ck_assert_uint_eq(range[0].flags, FLAGS | PINSHIM_RANGE_HUGE);
	ck_assert_uint_eq(range[1].base, BASE + 16 * PAGE);
	ck_assert_uint_ne(range[0].serial, range[1].serial);

	generation = ps_table()->generation;
	ps_table_remove(a);
	ck_assert_uint_gt(ps_table()->generation, generation);
	ck_assert_uint_eq(ps_table()->sequence % 2, 0);
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	pinshim_reader_ranges(reader, &count);
	ck_assert_uint_eq(count, 1);
	pinshim_reader_close(reader);

	/* What no longer is, or never was, changes nothing. */
	generation = ps_table()->generation;
	ps_table_remove(a);
	ps_table_set(a, BASE, PAGE, FLAGS);
	ps_table_remove(-1);
	ps_table_remove(1000000);
	ck_assert_uint_eq(ps_table()->generation, generation);
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), a);
}
END_TEST

START_TEST(slots_are_used_again)
{
	enum { SLOTS = 1000 };
	uint64_t state = 1;
	int slot[SLOTS];

	for (int i = 0; i < SLOTS; i++)
		slot[i] = ps_table_add(BASE + (uint64_t)i * PAGE, PAGE, FLAGS);
	for (int round = 0; round < 20000; round++) {
		int i = (int)(scratch_random(&state) % SLOTS);

		ps_table_remove(slot[i]);
		slot[i] = ps_table_add(BASE + (uint64_t)i * PAGE, PAGE, FLAGS);
	}
	ck_assert_uint_eq(ps_table()->range_used, SLOTS);
	ck_assert_uint_eq(ranges_seen(), SLOTS);
}
END_TEST

START_TEST(damage_by_others_is_not_followed)
{
	struct pinshim_table *table = ps_table();
	struct pinshim_range *range;
	int a = ps_table_add(BASE, PAGE, FLAGS);

	ck_assert_int_ge(ps_table_add(BASE + PAGE, PAGE, FLAGS), 0);
	ps_table_remove(a);
	range = (struct pinshim_range *)((char *)table + table->ranges_offset);
	range[a].base = 1; /* the slot in use */
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), a);
	ck_assert_int_eq(ps_table_add(BASE + 8 * PAGE, PAGE, FLAGS), 2);
	table->range_used = UINT32_MAX;
	ps_table_remove(1000000000);
	ck_assert_int_eq(ps_table_add(BASE + 9 * PAGE, PAGE, FLAGS), 3);
	ck_assert_uint_eq(ranges_seen(), 4);
}
END_TEST

START_TEST(grows_under_an_open_reader)
{
	enum { MANY = 100000 };
	struct pinshim_table *table = ps_table();
	struct pinshim_reader *reader;
	size_t count;

	ps_count_served(PINSHIM_ENTRY_MALLOC, 100, 128);
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	reader = read_own();
	for (uint64_t i = 1; i < MANY; i++) {
		ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), (int)i);
		if (i % 10000 == 0) {
			ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
			pinshim_reader_ranges(reader, &count);
			ck_assert_uint_eq(count, i + 1);
		}
	}
	ck_assert_ptr_eq(ps_table(), table);
	ck_assert_uint_ge(table->range_capacity, MANY);
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	ck_assert(pinshim_reader_covers(reader, BASE + 2 * (MANY - 1) * PAGE, PAGE, FLAGS));
	ck_assert(!pinshim_reader_covers(reader, BASE + PAGE, 1, FLAGS));
	ck_assert_uint_eq(pinshim_reader_table(reader)
				  ->stripe[ps_thread.stripe - 1]
				  .entry[PINSHIM_ENTRY_MALLOC]
				  .served,
			  1);
	pinshim_reader_close(reader);
}
END_TEST

START_TEST(full_to_the_last_address)
{
	struct rlimit limit = { 0, 0 };
	uint64_t i = 0;
	int slot;

	/* So few addresses that the reservation is halved several times. */
	setup();
	limit.rlim_cur = limit.rlim_max = UINT64_C(4) << 30;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	limit.rlim_cur = limit.rlim_max = RLIM_INFINITY;
#endif
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	ck_assert_int_eq(ps_table_start(), 0);
	do
		slot = ps_table_add(BASE + 2 * i++ * PAGE, PAGE, FLAGS);
	while (slot >= 0);
	ck_assert_int_eq(slot, -ENOMEM);
	ck_assert_uint_ge(ps_table()->range_used, 1000000);
	ps_table_remove(17);
	ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), 17);
	ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), -ENOMEM);
	ck_assert_uint_eq(ranges_seen(), ps_table()->range_used);
}
END_TEST

START_TEST(gauges_keep_the_peak)
{
	struct pinshim_table *table = ps_table();

	ps_table_gauges(1000, 800, 0, 0, 1);
	ps_table_gauges(0, 0, 500, 200, 0);
	ck_assert_uint_eq(table->pinned_bytes, 1500);
	ck_assert_uint_eq(table->pinned_peak_bytes, 1500);
	ps_table_gauges(-1000, -800, 0, -200, -1);
	ck_assert_uint_eq(table->pinned_bytes, 500);
	ck_assert_uint_eq(table->pinned_peak_bytes, 1500);
	ck_assert_uint_eq(table->locked_bytes, 0);
	ck_assert_uint_eq(table->huge_bytes, 0);
	ck_assert_uint_eq(table->registered_bytes, 0);
	ck_assert_uint_eq(table->foreign_bytes, 500);
	ck_assert_uint_eq(table->chunks, 0);
	ck_assert_uint_eq(table->pin_bytes, 1500);
}
END_TEST

static atomic_bool stop_counting;

static void *count_on(void *counted)
{
	uint64_t *count = counted;

	while (!atomic_load(&stop_counting)) {
		ps_count_served(PINSHIM_ENTRY_MALLOC, 3, 5);
		ps_count_freed(PINSHIM_ENTRY_MALLOC, 5);
		ps_count_add(&ps_table()->refused_bytes, 1);
		*count += 1;
	}
	return NULL;
}

/* The memory under eight counting threads is replaced again and again, and nothing gets lost. */
START_TEST(no_count_is_lost_when_the_file_is_made)
{
	enum { THREADS = 8, TIMES = 500 };
	uint64_t counted[THREADS] = { 0 }, all = 0;
	pthread_t thread[THREADS];
	struct pinshim_entry sum;
	struct pinshim_reader *reader;

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, count_on, &counted[i]), 0);
	ck_assert_int_eq(ps_table_publish(), 0);
	for (int i = 0; i < TIMES; i++) {
		ps_table_close();
		sched_yield();
		ps_table_reopen();
		ck_assert_ptr_nonnull(ps_table_path());
	}
	atomic_store(&stop_counting, true);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		all += counted[i];
	}
	reader = read_own();
	ps_count_sum(pinshim_reader_table(reader), PINSHIM_ENTRY_MALLOC, &sum);
	ck_assert_uint_gt(all, 0);
	ck_assert_uint_eq(sum.served, all);
	ck_assert_uint_eq(sum.requested_bytes, 3 * all);
	ck_assert_uint_eq(sum.freed_bytes, 5 * all);
	ck_assert_uint_eq(pinshim_reader_table(reader)->refused_bytes, all);
	pinshim_reader_close(reader);
}
END_TEST

/* What a forked child does with its own empty table. Exit status 0, or the step that failed. */
static int work_of_a_child(const struct pinshim_table *parents)
{
	struct pinshim_entry sum;

	ps_count_served(PINSHIM_ENTRY_MALLOC, 7, 7);
	if (!ps_table_is_ours())
		return 1;
	if (ps_table() != parents || ps_table_path())
		return 2; /* it never moves, and has no file yet */
	ps_count_sum(ps_table(), PINSHIM_ENTRY_MALLOC, &sum);
	if (sum.served != 1 || ps_table()->range_used != 0 || ps_table()->pinned_bytes != 0)
		return 3;
	ps_table_gauges(4096, 0, 0, 0, 1);
	for (uint64_t i = 0; i < 5000; i++)
		if (ps_table_add(BASE + 4 * i * PAGE, PAGE, FLAGS) != (int)i)
			return 4;
	if (!ps_table_path() || strcmp(ps_table_path(), scratch_table()))
		return 5;
	if (strcmp(ps_table()->rank, "5") || ps_table()->pid != (uint32_t)getpid())
		return 6;
	ps_table_close();
	return 0;
}

START_TEST(a_forked_child_has_a_table_of_its_own)
{
	static char before[1 << 20], after[1 << 20];
	const char *path;
	long size;
	int child;

	setup();
	setenv("RANK", "5", 1);
	ck_assert_int_eq(ps_table_start(), 0);
	ps_count_served(PINSHIM_ENTRY_MALLOC, 100, 128);
	for (uint64_t i = 0; i < 3000; i++)
		ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), (int)i);
	ps_table_gauges(1 << 20, 0, 0, 0, 1);
	path = scratch_table();
	size = scratch_read(path, before, sizeof(before));
	for (int i = 0; i < 3; i++) {
		child = fork();
		if (child == 0)
			_exit(work_of_a_child(ps_process->table ? NULL : (void *)ps_table()));
		ck_assert_int_eq(scratch_wait(child), 0);
	}
	ck_assert_int_eq(scratch_read(path, after, sizeof(after)), size);
	ck_assert_mem_eq(before, after, (size_t)size);
	ck_assert_uint_eq(scratch_entries(), 1);
}
END_TEST

static void *count_once(void *unused)
{
	(void)unused;
	ps_count_served(PINSHIM_ENTRY_MALLOC, 1, 1);
	return NULL;
}

/* A child that has threads before it notices: they race, one makes things right. */
static int racing_child(void)
{
	enum { THREADS = 8 };
	pthread_t thread[THREADS];
	struct pinshim_entry sum;

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, count_once, NULL))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ps_count_sum(ps_table(), PINSHIM_ENTRY_MALLOC, &sum);
	return sum.served == THREADS ? 0 : 2;
}

START_TEST(threads_of_a_child_that_has_not_noticed)
{
	ck_assert_int_eq(ps_table_publish(), 0);
	for (int i = 0; i < 100; i++) {
		int child = fork();

		if (child == 0)
			_exit(racing_child());
		ck_assert_int_eq(scratch_wait(child), 0);
	}
}
END_TEST

START_TEST(a_child_without_memory_leaves_the_parent_alone)
{
	static char before[1 << 20], after[1 << 20];
	long size;
	int child;

	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	size = scratch_read(scratch_table(), before, sizeof(before));
	child = fork();
	if (child == 0) {
		ps_fault_set(PS_OS_MMAP, 1, 1000, ENOMEM);
		ps_count_served(PINSHIM_ENTRY_MALLOC, 7, 7);
		if (ps_table_add(BASE, 2 * PAGE, FLAGS) != 0 || ps_table_path())
			_exit(1);
		ps_fault_clear();
		_exit(work_of_a_child(ps_table()) == 3 ? 0 : 2);
	}
	ck_assert_int_eq(scratch_wait(child), 0);
	ck_assert_int_eq(scratch_read(scratch_table(), after, sizeof(after)), size);
	ck_assert_mem_eq(before, after, (size_t)size);
}
END_TEST

START_TEST(a_vfork_child_is_not_the_owner)
{
	int child;

#ifdef __SANITIZE_THREAD__
	return; /* it makes every vfork() a fork() */
#endif
	ck_assert(ps_table_is_ours());
	ck_assert_int_eq(ps_table_publish(), 0);
	child = vfork();
	if (child == 0) {
		ps_table_close();
		_exit(ps_table_is_ours());
	}
	ck_assert_int_eq(scratch_wait(child), 0);
	ck_assert_uint_eq(scratch_entries(), 1);
}
END_TEST

static const struct {
	enum ps_os_call call;
	int error;
} making_fault[] = {
	{ PS_OS_OPEN, EACCES }, { PS_OS_FALLOCATE, ENOSPC }, { PS_OS_FALLOCATE, EOPNOTSUPP },
	{ PS_OS_FSTAT, EIO },   { PS_OS_MMAP, ENOMEM },
};

#define MAKING_FAULTS (int)(sizeof(making_fault) / sizeof(making_fault[0]))

/* Whichever call fails, pinning goes on, no trace is left, and it can be tried again. */
START_TEST(the_file_cannot_be_made)
{
	struct pinshim_entry sum;
	size_t count = 0;

	for (unsigned nth = 1; nth < 20; nth++) {
		ps_fault_set(making_fault[_i].call, nth, nth, making_fault[_i].error);
		ps_count_served(PINSHIM_ENTRY_MALLOC, 1, 1);
		ck_assert_int_eq(ps_table_add(BASE + nth * PAGE, PAGE, FLAGS), (int)nth - 1);
		if (ps_table_path()) {
			count = nth;
			break;
		}
		ck_assert_uint_eq(scratch_entries(), 0);
		ps_fault_clear();
		ps_fault_set(making_fault[_i].call, nth, nth, making_fault[_i].error);
		ck_assert_int_lt(ps_table_publish(), 0);
		ck_assert_uint_eq(scratch_entries(), 0);
		ps_fault_clear();
		if (ps_table_publish() == 0) {
			count = nth;
			break;
		}
	}
	ck_assert_uint_gt(count, 0);
	ck_assert_uint_eq(ranges_seen(), count);
	ps_count_sum(ps_table(), PINSHIM_ENTRY_MALLOC, &sum);
	ck_assert_uint_eq(sum.served, count);
}
END_TEST

START_TEST(the_file_cannot_grow)
{
	static const struct {
		enum ps_os_call call;
		int error;
	} fault[] = { { PS_OS_OPEN, EMFILE }, { PS_OS_FALLOCATE, ENOSPC }, { PS_OS_MMAP, ENOMEM } };
	uint64_t first, i;

	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	ps_count_served(PINSHIM_ENTRY_MALLOC, 1, 1);
	first = ps_table()->range_capacity;
	for (i = 1; i < first; i++)
		ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), (int)i);
	ps_fault_set(fault[_i].call, 1, 1, fault[_i].error);
	for (; i < 3 * first; i++)
		ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), (int)i);
	ps_fault_clear();
	/* Withdrawn, because half a table would mislead; and can be had again. */
	ck_assert_ptr_null(ps_table_path());
	ck_assert_uint_eq(scratch_entries(), 0);
	ck_assert_int_eq(ps_table_publish(), 0);
	ck_assert_uint_eq(ranges_seen(), 3 * first);
	ck_assert_uint_eq(ps_stripe()->entry[PINSHIM_ENTRY_MALLOC].served, 1);
}
END_TEST

START_TEST(no_memory_to_grow)
{
	uint64_t capacity, i;

	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	capacity = ps_table()->range_capacity;
	for (i = 1; i < capacity; i++)
		ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), (int)i);
	ps_fault_set(PS_OS_MMAP, 1, 1000, ENOMEM);
	ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), -ENOMEM);
	ps_fault_clear();
	ck_assert_uint_eq(ranges_seen(), capacity);
	ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), (int)i);
	ck_assert_uint_eq(ranges_seen(), capacity + 1);
}
END_TEST

START_TEST(somebody_removed_the_file)
{
	uint64_t capacity;

	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	ck_assert_int_eq(unlink(scratch_table()), 0);
	scratch_write(scratch_table(), "not ours", 8);
	capacity = ps_table()->range_capacity;
	for (uint64_t i = 1; i <= capacity; i++)
		ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), (int)i);
	ck_assert_ptr_null(ps_table_path());
	ck_assert_uint_eq(ps_table()->range_used, capacity + 1);
}
END_TEST

/* It started as root, so the file is root's and stays. */
START_TEST(the_program_changed_its_user)
{
	struct pinshim_reader *reader;
	uint64_t capacity;
	int child;

	setup();
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(chmod(scratch, 01777), 0);
	child = fork();
	if (child == 0) {
		if (ps_table_start() || ps_table_add(BASE, PAGE, FLAGS) != 0 ||
		    setresuid(65534, 65534, 65534))
			_exit(1);
		capacity = ps_table()->range_capacity;
		for (uint64_t i = 1; i <= capacity; i++)
			if (ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS) != (int)i)
				_exit(2);
		_exit(ps_table_path() ? 3 : ps_table()->magic != PINSHIM_TABLE_MAGIC);
	}
	ck_assert_int_eq(scratch_wait(child), 0);
	ck_assert_uint_eq(scratch_entries(), 1);
	ck_assert_int_eq(pinshim_reader_open_pid(scratch, child, &reader), -EPROTO);
}
END_TEST

START_TEST(no_memory_at_start)
{
	setup();
	ps_fault_set(_i ? PS_OS_MADVISE : PS_OS_MMAP, 1, 1000, ENOMEM);
	ck_assert_int_eq(ps_table_start(), _i ? 0 : -ENOMEM);
	ps_fault_clear();
	ps_count_served(PINSHIM_ENTRY_MALLOC, 1, 1);
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	ck_assert_int_eq(ps_table_add(BASE + PAGE, PAGE, FLAGS), 1);
	ck_assert_int_eq(ps_table_publish(), _i ? 0 : -ENOMEM);
	ck_assert_uint_eq(ps_table()->range_used, 2);
	ck_assert_uint_eq(ps_stripe()->entry[PINSHIM_ENTRY_MALLOC].served, 1);
	ps_table_fork_child();
	ck_assert_uint_eq(ps_table()->range_used, 2); /* not a child */
	ps_process->pid = 1;                          /* the handler of fork() in one */
	ps_table_fork_child();
	ck_assert_uint_eq(ps_table()->range_used, 0);
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
}
END_TEST

START_TEST(links_and_leftovers_in_its_place)
{
	const char *victim;
	char temporary[544], content[8];

	victim = scratch_path("victim");
	snprintf(temporary, sizeof(temporary), "%s.tmp", scratch_table());
	scratch_write(victim, "precious", 8);
	ck_assert_int_eq(symlink(victim, scratch_table()), 0);
	ck_assert_int_eq(symlink(victim, temporary), 0);
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	ck_assert_uint_eq(ranges_seen(), 1);
	ck_assert_int_eq(scratch_read(victim, content, 8), 8);
	ck_assert_mem_eq(content, "precious", 8);
	ck_assert_uint_eq(scratch_entries(), 2);
}
END_TEST

START_TEST(a_directory_in_its_place)
{
	ck_assert_int_eq(mkdir(scratch_table(), 0700), 0);
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	ck_assert_ptr_null(ps_table_path());
	ck_assert_uint_eq(scratch_entries(), 1);
	ck_assert_int_eq(ps_table_publish(), -EISDIR);
}
END_TEST

START_TEST(somebody_elses_file_in_its_place)
{
	int child;

	setup();
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(chmod(scratch, 01777), 0);
	child = fork();
	if (child == 0) {
		scratch_write(scratch_table(), "precious", 8);
		if (setresuid(65534, 65534, 65534) || ps_table_start() ||
		    ps_table_add(BASE, PAGE, FLAGS) != 0)
			_exit(1);
		_exit(ps_table_path() ? 2 : 0);
	}
	ck_assert_int_eq(scratch_wait(child), 0);
	ck_assert_uint_eq(scratch_entries(), 1);
}
END_TEST

START_TEST(a_full_file_system)
{
	setup();
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", scratch, "tmpfs", 0, "size=128k"))
		return; /* not allowed here; fault injection has it too */
	ck_assert_int_eq(ps_table_start(), 0);
	for (uint64_t i = 0; i < 10000; i++)
		ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), (int)i);
	ck_assert_ptr_null(ps_table_path());
	ck_assert_uint_eq(scratch_entries(), 0);
	ck_assert_int_eq(ps_table_publish(), -ENOSPC);
	ck_assert_int_eq(mount("none", scratch, NULL, MS_REMOUNT, "size=4m"), 0);
	ck_assert_int_eq(ps_table_publish(), 0);
	ck_assert_uint_eq(ranges_seen(), 10000);
}
END_TEST

START_TEST(closed_for_good)
{
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	ps_table_close();
	ck_assert_int_eq(ps_table_publish(), -ESHUTDOWN);
	for (uint64_t i = 1; i < 5000; i++)
		ck_assert_int_eq(ps_table_add(BASE + 2 * i * PAGE, PAGE, FLAGS), (int)i);
	ps_table_remove(7);
	ck_assert_uint_eq(scratch_entries(), 0);
	ps_table_reopen();
	ck_assert_uint_eq(ranges_seen(), 4999);
}
END_TEST

START_TEST(reopening_makes_no_file_that_was_not)
{
	ps_table_close();
	ps_table_reopen();
	ck_assert_uint_eq(scratch_entries(), 0);
	ck_assert_int_eq(ps_table_publish(), 0);
}
END_TEST

/* Makes a file as of a process that is gone, last written so many seconds ago. */
static void leave(const char *name, long seconds)
{
	struct timespec time[2] = { { 0, 0 }, { 0, 0 } };

	scratch_write(scratch_path(name), "", 0);
	clock_gettime(CLOCK_REALTIME, &time[0]);
	time[0].tv_sec -= seconds;
	time[1] = time[0];
	ck_assert_int_eq(utimensat(AT_FDCWD, scratch_path(name), time, 0), 0);
}

static bool exists(const char *name)
{
	struct stat status;

	return lstat(scratch_path(name), &status) == 0;
}

START_TEST(reaps_the_dead_and_nothing_else)
{
	char recycled[64];

	snprintf(recycled, sizeof(recycled), "pinshim.%d.1", (int)getpid());
	leave("pinshim.4000000.77", 1000);
	leave(recycled, 1000);
	leave("pinshim.4000001.77", 10);
	leave("pinshim.4000004.77.tmp", 1000);
	leave("pinshim.4000000.77x", 1000);
	leave("pinshim.4000000", 1000);
	leave("pinshim.-4.5", 1000);
	leave("pinshim.04.5", 1000);
	leave("xpinshim.4000000.77", 1000);
	ck_assert_int_eq(symlink("/etc/passwd", scratch_path("pinshim.4000002.3")), 0);
	ck_assert_int_eq(mkdir(scratch_path("pinshim.4000003.3"), 0700), 0);
	ck_assert_int_eq(ps_table_publish(), 0);
	ck_assert_int_eq(ps_table_reap(scratch, 100), 3);
	ck_assert(!exists("pinshim.4000000.77"));
	ck_assert(!exists("pinshim.4000004.77.tmp"));
	ck_assert(!exists(recycled));
	ck_assert_uint_eq(scratch_entries(), 9);
	ck_assert_int_eq(ps_table_reap(scratch, 5), 1);
	ck_assert(!exists("pinshim.4000001.77"));
	ck_assert_uint_eq(scratch_entries(), 8);
}
END_TEST

START_TEST(reaps_when_it_makes_its_own)
{
	leave("pinshim.4000000.77", 4000);
	leave("pinshim.4000001.77", 3000);
	ck_assert_int_eq(ps_table_add(BASE, PAGE, FLAGS), 0);
	ck_assert(!exists("pinshim.4000000.77"));
	ck_assert(exists("pinshim.4000001.77"));
}
END_TEST

/* As by a process of another container, whose id is nobody's here. */
START_TEST(does_not_reap_what_is_mapped)
{
	void *memory;
	int fd;

	leave("pinshim.4000000.77", 1000);
	ck_assert_int_eq(truncate(scratch_path("pinshim.4000000.77"), 4096), 0);
	fd = open(scratch_path("pinshim.4000000.77"), O_RDWR | O_CLOEXEC);
	memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	close(fd);
	leave("pinshim.4000001.77", 1000);
	ck_assert_int_eq(ps_table_reap(scratch, 0), 1);
	ck_assert(exists("pinshim.4000000.77"));
	munmap(memory, 4096);
	ck_assert_int_eq(ps_table_reap(scratch, 0), 1);
	ck_assert_uint_eq(scratch_entries(), 0);
}
END_TEST

static TCase *add_case(Suite *suite, const char *name, void (*enter)(void))
{
	TCase *tcase = tcase_create(name);

	tcase_add_unchecked_fixture(tcase, scratch_begin, scratch_end);
	tcase_add_checked_fixture(tcase, enter, NULL);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return tcase;
}

static void nothing(void)
{
}

int main(void)
{
	Suite *suite = suite_create("table");
	TCase *running = add_case(suite, "running", started);
	TCase *starting = add_case(suite, "starting", nothing);
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(running, no_file_before_the_first_range);
	tcase_add_test(running, mode_whatever_the_umask);
	tcase_add_test(starting, header_says_whose_it_is);
	tcase_add_test(starting, a_table_that_was_never_started_says_whose_it_is);
	tcase_add_test(starting, a_job_has_the_schedulers_name);
	tcase_add_test(starting, counts_before_the_constructor_are_kept);
	tcase_add_test(running, ranges_are_added_changed_and_removed);
	tcase_add_test(running, slots_are_used_again);
	tcase_add_test(running, damage_by_others_is_not_followed);
	tcase_add_test(running, grows_under_an_open_reader);
	tcase_add_test(starting, full_to_the_last_address);
	tcase_add_test(running, gauges_keep_the_peak);
	tcase_add_test(running, no_count_is_lost_when_the_file_is_made);
	tcase_add_test(starting, a_forked_child_has_a_table_of_its_own);
	tcase_add_test(running, threads_of_a_child_that_has_not_noticed);
	tcase_add_test(running, a_child_without_memory_leaves_the_parent_alone);
	tcase_add_test(running, a_vfork_child_is_not_the_owner);
	tcase_add_loop_test(running, the_file_cannot_be_made, 0, MAKING_FAULTS);
	tcase_add_loop_test(running, the_file_cannot_grow, 0, 3);
	tcase_add_test(running, no_memory_to_grow);
	tcase_add_test(running, somebody_removed_the_file);
	tcase_add_test(starting, the_program_changed_its_user);
	tcase_add_loop_test(starting, no_memory_at_start, 0, 2);
	tcase_add_test(running, links_and_leftovers_in_its_place);
	tcase_add_test(running, a_directory_in_its_place);
	tcase_add_test(starting, somebody_elses_file_in_its_place);
	tcase_add_test(starting, a_full_file_system);
	tcase_add_test(running, closed_for_good);
	tcase_add_test(running, reopening_makes_no_file_that_was_not);
	tcase_add_test(running, reaps_the_dead_and_nothing_else);
	tcase_add_test(running, reaps_when_it_makes_its_own);
	tcase_add_test(running, does_not_reap_what_is_mapped);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
