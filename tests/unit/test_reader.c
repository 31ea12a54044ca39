/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading tables: never a range that was not pinned, whatever the writer does and whatever the file
 * holds.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counters.h"
#include "fault.h"
#include "log.h"
#include "os.h"
#include "pinshim_table_reader.h"
#include "report.h"
#include "scratch.h"
#include "table.h"

#define PAGE UINT64_C(4096)
#define BASE UINT64_C(0x100000000000)
#define FLAGS PINSHIM_RANGE_LOCKED
#define CHANGES 100000
#define SLOTS 1024

static void setup(void)
{
	ps_log_level = PS_LOG_ERROR;
	scratch_enter();
	ps_fault_clear();
	ck_assert_int_eq(ps_table_start(), 0);
}

/*
 * The writer of these tests keeps SLOTS ranges, each in a part of the addresses of its own, whose
 * length and flags follow from its base: a record that mixes two versions shows. It changes one
 * after the other, in an order that is not the reader's, and the base has the number of the round: a
 * copy that mixes two moments shows.
 */
#define ROUNDS 4096

static uint64_t nth_slot(uint64_t n)
{
	return n * 389 % SLOTS;
}

static uint64_t some_base(uint64_t slot, uint64_t round)
{
	return BASE + (slot << 32) + round % ROUNDS * PAGE;
}

static uint64_t round_of(uint64_t base)
{
	return (base & UINT32_MAX) / PAGE;
}

static uint64_t length_for(uint64_t base)
{
	return (1 + (base * UINT64_C(0x9e3779b97f4a7c15) >> 52)) * PAGE;
}

static uint32_t flags_for(uint64_t base)
{
	return FLAGS | (uint32_t)(base >> 12 & 0x3e);
}

static void write_some(int slot, uint64_t number)
{
	uint64_t base = some_base((uint64_t)slot, number);

	ps_table_set(slot, base, length_for(base), flags_for(base));
}

static void add_all(void)
{
	for (uint64_t slot = 0; slot < SLOTS; slot++) {
		uint64_t base = some_base(slot, 0);

		ck_assert_int_eq(ps_table_add(base, length_for(base), flags_for(base)), (int)slot);
	}
}

/* Ranges of one moment: up to some slot the writer was in one round, from there in the one before. */
static bool is_one_moment(const struct pinshim_range *range)
{
	unsigned steps = 0;

	for (uint64_t n = 1; n < SLOTS; n++) {
		uint64_t round = round_of(range[nth_slot(n)].base);
		uint64_t before = round_of(range[nth_slot(n - 1)].base);

		steps += round != before;
		if (round != before && (round + 1) % ROUNDS != before)
			return false;
	}
	return steps <= 1;
}

static bool are_disjoint(const struct pinshim_range *range, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (range[i].length == 0 || range[i].base + range[i].length < range[i].base)
			return false;
		if (i > 0 && range[i].base < range[i - 1].base + range[i - 1].length)
			return false;
	}
	return true;
}

/* How many ranges a copy has. Each must be right, and all of one moment if the copy is whole. */
static size_t check_copy(const struct pinshim_reader *reader, bool whole)
{
	size_t count, wrong = 0;
	const struct pinshim_range *range = pinshim_reader_ranges(reader, &count);

	/* Not an assertion each: Check notes every one of them in a file. */
	for (size_t i = 0; i < count; i++)
		wrong += range[i].length != length_for(range[i].base) ||
			 range[i].flags != flags_for(range[i].base);
	ck_assert_uint_eq(wrong, 0);
	ck_assert(are_disjoint(range, count));
	ck_assert_uint_le(count, SLOTS);
	if (whole) {
		ck_assert_uint_eq(count, SLOTS);
		ck_assert(is_one_moment(range));
	}
	return count;
}

static atomic_bool written;

/* pause: the reader gets to see whole states also where there is one processor. */
static void change_ranges(uint64_t changes, bool pause)
{
	for (uint64_t i = 0; i < changes; i++) {
		write_some((int)nth_slot(i % SLOTS), 1 + i / SLOTS);
		if (pause && i % 512 == 0)
			usleep(500);
	}
}

static void *write_changes(void *unused)
{
	(void)unused;
	change_ranges(CHANGES, true);
	atomic_store(&written, true);
	return NULL;
}

/* Reads until done says so: whole copies have all ranges, others no wrong one. */
static void read_until(bool (*done)(void))
{
	struct pinshim_reader *reader;
	unsigned whole = 0, broken = 0, generations = 0;
	uint64_t generation = 0;
	int rc;

	ck_assert_int_eq(pinshim_reader_open(scratch_table(), &reader), 0);
	while (!done()) {
		rc = pinshim_reader_refresh(reader);
		ck_assert_int_ge(rc, 0);
		check_copy(reader, rc == 0);
		whole += rc == 0;
		broken += rc == 1;
		generations += pinshim_reader_generation(reader) != generation;
		generation = pinshim_reader_generation(reader);
	}
	/* Not idle, and not always in vain. */
	ck_assert_uint_gt(generations, 2);
	ck_assert_uint_gt(whole, broken);
	pinshim_reader_close(reader);
}

static bool is_written(void)
{
	return atomic_load(&written);
}

START_TEST(beside_a_writing_thread)
{
	pthread_t thread;

	add_all();
	ck_assert_int_eq(pthread_create(&thread, NULL, write_changes, NULL), 0);
	read_until(is_written);
	pthread_join(thread, NULL);
}
END_TEST

static int writer;

/* A process that owns a table and changes it: for ever, or CHANGES times. */
static void start_writer(bool for_ever)
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	writer = fork();
	if (writer == 0) {
		for (uint64_t slot = 0; slot < SLOTS; slot++) {
			uint64_t base = some_base(slot, 0);

			if (ps_table_add(base, length_for(base), flags_for(base)) != (int)slot)
				_exit(1);
		}
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		change_ranges(for_ever ? UINT64_MAX : CHANGES, !for_ever);
		_exit(0);
	}
	ck_assert_int_gt(writer, 0);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
}

static bool writer_ended(void)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)writer, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == writer;
}

static struct pinshim_reader *open_writer(void)
{
	struct pinshim_reader *reader;

	ck_assert_int_eq(pinshim_reader_open_pid(scratch, writer, &reader), 0);
	return reader;
}

START_TEST(beside_a_writing_process)
{
	struct pinshim_reader *reader;
	unsigned copies = 0;

	start_writer(false);
	reader = open_writer();
	ck_assert(pinshim_reader_alive(reader));
	while (!writer_ended()) {
		if (pinshim_reader_refresh(reader) == 0) {
			check_copy(reader, true);
			copies++;
		}
	}
	ck_assert_uint_gt(copies, 2);
	/* Not waited for: a zombie, which holds no memory. */
	ck_assert(!pinshim_reader_alive(reader));
	ck_assert_int_eq(scratch_wait(writer), 0);
	ck_assert(!pinshim_reader_alive(reader));
	pinshim_reader_close(reader);
}
END_TEST

static int64_t milliseconds_since(uint64_t began)
{
	return (int64_t)(ps_os_now() - began) / 1000000;
}

START_TEST(the_writer_is_killed)
{
	struct pinshim_reader *reader;
	uint64_t state = 7, began;
	unsigned broken = 0;
	int rc;

	for (int i = 0; i < 200; i++) {
		start_writer(true);
		reader = open_writer();
		usleep((unsigned)(scratch_random(&state) % 1000));
		kill(writer, SIGKILL);
		ck_assert_int_eq(scratch_wait(writer), -SIGKILL);
		began = ps_os_now();
		rc = pinshim_reader_refresh(reader);
		ck_assert_int_lt(milliseconds_since(began), 1000);
		ck_assert_int_ge(rc, 0);
		/* Only the record that was being changed can be missing. */
		ck_assert_uint_ge(check_copy(reader, rc == 0), SLOTS - 1);
		broken += rc == 1;
		pinshim_reader_close(reader);
		ck_assert_int_eq(ps_table_reap(scratch, 0), 1);
	}
	/* Most are killed outside of a change. */
	printf("the writer was in the middle of a change %u times out of 200\n", broken);
}
END_TEST

/* Every state that a killed writer can leave of one record. */
START_TEST(every_prefix_of_a_change)
{
	const uint64_t old_base = some_base(3, 0), new_base = some_base(3, 9);
	struct pinshim_range old,
		new = { new_base, length_for(new_base), flags_for(new_base), 999, 0 };
	struct pinshim_table *table = ps_table();
	struct pinshim_reader *reader;
	struct pinshim_range *record;

	add_all();
	new.check = pinshim_range_check(&new);
	record = (struct pinshim_range *)((char *)table + table->ranges_offset) + 3;
	old = *record;
	table->sequence++;
	ck_assert_int_eq(pinshim_reader_open(scratch_table(), &reader), 0);
	for (unsigned subset = 0; subset < 32; subset++) {
		size_t expect = subset == 0 || subset == 31 ? SLOTS : SLOTS - 1;

		record->base = subset & 1 ? new.base : old.base;
		record->length = subset & 2 ? new.length : old.length;
		record->flags = subset & 4 ? new.flags : old.flags;
		record->serial = subset & 8 ? new.serial : old.serial;
		record->check = subset & 16 ? new.check : old.check;
		ck_assert_int_eq(pinshim_reader_refresh(reader), 1);
		ck_assert_uint_eq(check_copy(reader, false), expect);
		ck_assert_int_eq(pinshim_reader_covers(reader, old_base, 1, 0), subset == 0);
	}
	table->sequence++;
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	ck_assert_uint_eq(check_copy(reader, false), SLOTS);
	pinshim_reader_close(reader);
}
END_TEST

/* Records whose check is right and that make no sense. */
START_TEST(whole_and_wrong)
{
	static const struct pinshim_range wrong[] = {
		{ .base = BASE, .length = 4 * PAGE },
		{ .base = BASE + 2 * PAGE, .length = 4 * PAGE },
		{ .base = BASE, .length = PAGE },
		{ .base = UINT64_MAX - PAGE + 1, .length = 2 * PAGE },
		{ .base = BASE + 64 * PAGE, .length = UINT64_MAX },
		{ .base = BASE + 8 * PAGE, .length = PAGE },
	};
	struct pinshim_table *table = ps_table();
	const struct pinshim_range *range;
	struct pinshim_range *record;
	struct pinshim_reader *reader;
	size_t count;

	record = (struct pinshim_range *)((char *)table + table->ranges_offset);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_int_eq(ps_table_add(BASE + i, PAGE, FLAGS), (int)i);
		record[i] = wrong[i];
		record[i].check = pinshim_range_check(&wrong[i]);
	}
	ck_assert_int_eq(pinshim_reader_open(scratch_table(), &reader), 0);
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	range = pinshim_reader_ranges(reader, &count);
	ck_assert_uint_eq(count, 2);
	ck_assert_uint_eq(range[0].base, BASE);
	ck_assert_uint_eq(range[1].base, BASE + 8 * PAGE);
	ck_assert(!pinshim_reader_covers(reader, UINT64_MAX, 1, 0));
	ck_assert(!pinshim_reader_covers(reader, BASE + 65 * PAGE, 1, 0));
	pinshim_reader_close(reader);
}
END_TEST

/* The image of a table with some ranges, in memory of its own. */
static char *make_image(size_t *size)
{
	static char image[1 << 20] __attribute__((aligned(64)));

	add_all();
	*size = (size_t)scratch_read(scratch_table(), image, sizeof(image));
	ck_assert_uint_gt(*size, sizeof(struct pinshim_table));
	return image;
}

static int open_image(const void *image, size_t size, struct pinshim_reader **reader)
{
	const char *path = scratch_path("image");

	scratch_write(path, image, (long)size);
	return pinshim_reader_open(path, reader);
}

START_TEST(other_versions_are_refused)
{
	struct pinshim_reader *reader;
	size_t size;
	char *image = make_image(&size);
	struct pinshim_table *table = (struct pinshim_table *)image;

	table->version = PINSHIM_TABLE_VERSION + 1;
	ck_assert_int_eq(open_image(image, size, &reader), -EPROTONOSUPPORT);
	/* Its header may be shorter than ours. */
	ck_assert_int_eq(open_image(image, 64, &reader), -EPROTONOSUPPORT);
	table->version = PINSHIM_TABLE_VERSION;
	ck_assert_int_eq(open_image(image, size, &reader), 0);
	pinshim_reader_close(reader);
	table->magic ^= 1;
	ck_assert_int_eq(open_image(image, size, &reader), -EPROTO);
}
END_TEST

START_TEST(every_truncation_is_refused)
{
	struct pinshim_reader *reader;
	size_t size;
	char *image = make_image(&size);

	for (size_t length = 0; length < size - 32; length += length < 256 ? 1 : 997)
		ck_assert_int_eq(open_image(image, length, &reader), -EPROTO);
	ck_assert_int_eq(open_image(image, size, &reader), 0);
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	ck_assert_int_eq(truncate(scratch_path("image"), 30000), 0);
	ck_assert_int_eq(pinshim_reader_refresh(reader), -EPROTO);
	ck_assert(!pinshim_reader_covers(reader, some_base(0, 0), 1, 0));
	ck_assert_int_eq(truncate(scratch_path("image"), 0), 0);
	ck_assert_int_eq(pinshim_reader_refresh(reader), -EPROTO);
	pinshim_reader_close(reader);
}
END_TEST

START_TEST(numbers_that_lead_astray)
{
	static const struct {
		size_t offset;
		uint64_t value;
		unsigned size;
	} wrong[] = {
#define FIELD(name, value)                                                                         \
	{ offsetof(struct pinshim_table, name), (value), sizeof(((struct pinshim_table *)0)->name) }
		FIELD(ranges_offset, 0),           FIELD(ranges_offset, 8),
		FIELD(ranges_offset, UINT64_MAX),  FIELD(ranges_offset, UINT64_MAX - 31),
		FIELD(ranges_offset, INT64_MAX),   FIELD(ranges_offset, 65536 - 32),
		FIELD(range_capacity, UINT32_MAX), FIELD(range_capacity, 0),
		FIELD(range_capacity, 2000),       FIELD(range_used, UINT32_MAX),
		FIELD(range_used, 5000),           FIELD(header_bytes, 0),
		FIELD(header_bytes, UINT32_MAX),
#undef FIELD
	};
	struct pinshim_reader *reader;
	char image[1 << 17];
	size_t size;
	char *good = make_image(&size);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		memcpy(image, good, size);
		memcpy(image + wrong[i].offset, &wrong[i].value, wrong[i].size);
		ck_assert_msg(open_image(image, size, &reader) == -EPROTO, "number %zu", i);
	}
}
END_TEST

/* A file may have holes: it costs nothing to claim any number of ranges. */
START_TEST(more_ranges_than_a_table_has)
{
	struct pinshim_reader *reader;
	size_t size, count;
	char *image = make_image(&size);
	struct pinshim_table *table = (struct pinshim_table *)image;
	off_t full = (off_t)(table->ranges_offset +
			     PINSHIM_RANGES_MAX * sizeof(struct pinshim_range));

	table->range_capacity = table->range_used = PINSHIM_RANGES_MAX;
	scratch_write(scratch_path("image"), image, (long)size);
	ck_assert_int_eq(truncate(scratch_path("image"), full), 0);
	ck_assert_int_eq(pinshim_reader_open(scratch_path("image"), &reader), 0);
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	pinshim_reader_ranges(reader, &count);
	ck_assert_uint_eq(count, SLOTS);
	pinshim_reader_close(reader);
	table->range_capacity++;
	scratch_write(scratch_path("image"), image, (long)size);
	ck_assert_int_eq(truncate(scratch_path("image"), full + (off_t)PAGE), 0);
	ck_assert_int_eq(pinshim_reader_open(scratch_path("image"), &reader), -EPROTO);
	table->range_capacity = table->range_used = UINT32_MAX;
	scratch_write(scratch_path("image"), image, (long)size);
	ck_assert_int_eq(truncate(scratch_path("image"), (off_t)1 << 40), 0);
	ck_assert_int_eq(pinshim_reader_open(scratch_path("image"), &reader), -EPROTO);
}
END_TEST

/* Reports are made of whatever a header holds. */
static void report_damaged(const struct pinshim_table *table)
{
	static char report[64 << 10];
	struct ps_text text = PS_TEXT_INIT(report);
	struct pinshim_aio aio;

	ps_report_text(table, &text);
	ck_assert(!text.cut);
	text = (struct ps_text)PS_TEXT_INIT(report);
	ps_report_json(table, &text);
	ck_assert(!text.cut);
	ck_assert_str_eq(report + text.length - 3, "}}\n");
	ps_count_aio_sum(table, &aio);
}

/* Whatever a refresh found in a damaged file must be ranges that its writer could have written. */
static void check_damaged(struct pinshim_reader *reader)
{
	size_t count, wrong = 0;
	const struct pinshim_range *range;

	if (pinshim_reader_refresh(reader) < 0) {
		pinshim_reader_ranges(reader, &count);
		ck_assert_uint_eq(count, 0);
		return;
	}
	range = pinshim_reader_ranges(reader, &count);
	for (size_t i = 0; i < count; i++)
		wrong += range[i].check != pinshim_range_check(&range[i]) ||
			 !pinshim_reader_covers(reader, range[i].base, range[i].length, 0);
	ck_assert_uint_eq(wrong, 0);
	ck_assert(are_disjoint(range, count));
	pinshim_reader_covers(reader, UINT64_MAX, UINT64_MAX, 0);
	pinshim_reader_alive(reader);
	ck_assert_uint_lt(strlen(pinshim_reader_table(reader)->program), 64);
	ck_assert_uint_lt(strlen(pinshim_reader_table(reader)->job), 48);
	report_damaged(pinshim_reader_table(reader));
}

/* Damages some bytes; mostly header and first records, and with numbers that matter. */
static void damage(char *image, size_t size, uint64_t *state)
{
	static const uint64_t extreme[] = { 0, 1, 0xff, UINT32_MAX, INT64_MAX, UINT64_MAX, 65536 };
	unsigned times = 1 + (unsigned)(scratch_random(state) % 8);

	while (times-- > 0) {
		uint64_t where = scratch_random(state), what = scratch_random(state);
		size_t length = what % 3 == 0 ? 1 : what % 3 == 1 ? 4 : 8;

		where = where % 4 == 0   ? (where >> 8) % size
			: where % 4 == 1 ? (where >> 8) % 400
			: where % 4 == 2
				? offsetof(struct pinshim_table, sequence) + (where >> 8) % 32
				: sizeof(struct pinshim_table) + (where >> 8) % 2048;
		if (what & 8)
			what = extreme[(what >> 8) % (sizeof(extreme) / sizeof(extreme[0]))];
		if (where + length <= size)
			memcpy(image + where, &what, length);
	}
}

START_TEST(damaged_files_crash_nobody)
{
	struct pinshim_reader *reader;
	char image[1 << 17];
	unsigned opened = 0;
	uint64_t state = 1234567;
	size_t size;
	char *good = make_image(&size);

	/* It is nobody's, so that no time is spent waiting for a writer to finish. */
	((struct pinshim_table *)good)->start_time = 1;
	for (int i = 0; i < 5000; i++) {
		size_t length = i % 16 ? size : scratch_random(&state) % size;

		memcpy(image, good, size);
		damage(image, size, &state);
		if (open_image(image, length, &reader) < 0)
			continue;
		opened++;
		check_damaged(reader);
		/* And while it is open. */
		damage(image, size, &state);
		scratch_write(scratch_path("image"), image, (long)size);
		check_damaged(reader);
		pinshim_reader_close(reader);
	}
	ck_assert_uint_gt(opened, 500);
	ck_assert_uint_lt(opened, 5000);
}
END_TEST

/* Something named like a table that is none. */
static void put_something_else(const char *path, uint64_t kind)
{
	if (kind == 0)
		ck_assert_int_eq(mkdir(path, 0700), 0);
	else if (kind == 1)
		ck_assert_int_eq(mkfifo(path, 0600), 0);
	else if (kind == 2)
		ck_assert_int_eq(symlink(scratch_table(), path), 0);
	else if (kind == 3)
		ck_assert_int_eq(symlink("/nowhere", path), 0);
	else
		scratch_write(path, "", 0);
}

static int read_one(const char *path, pid_t pid, void *context)
{
	struct pinshim_reader *reader;
	unsigned *opened = context;

	ck_assert_int_gt(pid, 0);
	if (pinshim_reader_open(path, &reader) < 0)
		return 0;
	check_damaged(reader);
	pinshim_reader_close(reader);
	++*opened;
	return 0;
}

/* A directory in which anybody may have put anything, whose good tables are found all the same. */
START_TEST(a_directory_of_damaged_files)
{
	enum { FILES = 200 };
	struct pinshim_reader *reader;
	char image[1 << 17], name[64];
	uint64_t state = 987654321;
	unsigned opened = 0;
	size_t size;
	char *good = make_image(&size);

	((struct pinshim_table *)good)->start_time = 1;
	for (unsigned i = 0; i < FILES; i++) {
		const uint64_t what = scratch_random(&state);

		snprintf(name, sizeof(name), "pinshim.%u.%u", 4000000 + i, i + 1);
		memcpy(image, good, size);
		damage(image, size, &state);
		if (what % 4 == 0)
			put_something_else(scratch_path(name), (what >> 8) % 5);
		else
			scratch_write(scratch_path(name), image,
				      what % 4 == 1 ? (long)((what >> 8) % size) : (long)size);
	}
	ck_assert_int_eq(pinshim_reader_each(scratch, read_one, &opened), 0);
	ck_assert_uint_gt(opened, 20);
	ck_assert_uint_lt(opened, FILES);
	ck_assert_int_eq(pinshim_reader_open_pid(scratch, getpid(), &reader), 0);
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	ck_assert_uint_eq(check_copy(reader, true), SLOTS);
	pinshim_reader_close(reader);
	/* They are nobody's, and what is no file is left alone. */
	ck_assert_int_gt(ps_table_reap(scratch, 0), FILES / 2);
	for (unsigned i = 0; i < FILES; i++) {
		struct stat status;

		snprintf(name, sizeof(name), "pinshim.%u.%u", 4000000 + i, i + 1);
		ck_assert(lstat(scratch_path(name), &status) < 0 || !S_ISREG(status.st_mode));
	}
}
END_TEST

START_TEST(what_is_no_file)
{
	struct pinshim_reader *reader;
	const char *link;

	ck_assert_int_eq(pinshim_reader_open(scratch_path("none"), &reader), -ENOENT);
	ck_assert_int_eq(pinshim_reader_open(scratch, &reader), -EPROTO);
	ck_assert_int_eq(mkfifo(scratch_path("fifo"), 0600), 0);
	ck_assert_int_eq(pinshim_reader_open(scratch_path("fifo"), &reader), -EPROTO);
	ck_assert_int_eq(ps_table_publish(), 0);
	link = scratch_path("link");
	ck_assert_int_eq(symlink(scratch_table(), link), 0);
	ck_assert_int_eq(pinshim_reader_open(link, &reader), -EPROTO);
	ck_assert_int_eq(pinshim_reader_open_pid(scratch, 1, &reader), -ENOENT);
	ck_assert_int_eq(pinshim_reader_open_pid("/nowhere", 1, &reader), -ENOENT);
	ck_assert_int_eq(pinshim_reader_open_pid(scratch, getpid(), &reader), 0);
	pinshim_reader_close(reader);
}
END_TEST

START_TEST(what_is_somebody_elses)
{
	struct pinshim_reader *reader;
	const char *path;
	int child;

	if (geteuid() != 0)
		return;
	ck_assert_int_eq(ps_table_publish(), 0);
	path = scratch_table();
	ck_assert_int_eq(chmod(scratch, 0755), 0);
	for (int readable = 0; readable < 2; readable++) {
		child = fork();
		if (child == 0) {
			if (setresuid(65534, 65534, 65534))
				_exit(1);
			_exit(-pinshim_reader_open(path, &reader));
		}
		ck_assert_int_eq(scratch_wait(child), readable ? EPERM : EACCES);
		ck_assert_int_eq(chmod(path, 0644), 0);
	}
}
END_TEST

START_TEST(calls_that_fail)
{
	static const enum ps_os_call call[] = { PS_OS_OPEN, PS_OS_FSTAT, PS_OS_MMAP };
	struct pinshim_reader *reader;

	add_all();
	for (size_t i = 0; i < 3; i++) {
		for (unsigned nth = 1; nth < 4; nth++) {
			ps_fault_clear();
			ps_fault_set(call[i], nth, nth, ENOMEM);
			if (pinshim_reader_open(scratch_table(), &reader) < 0)
				continue;
			if (pinshim_reader_refresh(reader) < 0)
				ck_assert(!pinshim_reader_covers(reader, some_base(0, 0), 1, 0));
			ps_fault_clear();
			ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
			check_copy(reader, true);
			pinshim_reader_close(reader);
		}
	}
}
END_TEST

START_TEST(the_program_closes_the_descriptor)
{
	struct pinshim_reader *reader, *other;
	size_t size, count;
	char *image = make_image(&size);
	int mine;

	ck_assert_int_eq(pinshim_reader_open(scratch_table(), &reader), 0);
	ck_assert_int_eq(open_image(image, size, &other), 0);
	mine = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* The readers' descriptors, of which the first becomes another table, and then none. */
	ck_assert_int_eq(dup2(mine - 1, mine - 2), mine - 2);
	ck_assert_int_eq(pinshim_reader_refresh(reader), -EPROTO);
	pinshim_reader_ranges(reader, &count);
	ck_assert_uint_eq(count, 0);
	close(mine - 1);
	ck_assert_int_eq(pinshim_reader_refresh(other), -EPROTO);
	pinshim_reader_close(reader);
	pinshim_reader_close(other);
	ck_assert_int_ge(fcntl(mine - 2, F_GETFD), 0); /* not the reader's to close */
}
END_TEST

START_TEST(covers_whole_ranges_only)
{
	struct pinshim_reader *reader;

	ps_table_add(BASE + 8 * PAGE, 4 * PAGE, FLAGS | PINSHIM_RANGE_HUGE);
	ps_table_add(BASE, 8 * PAGE, FLAGS);
	ps_table_add(BASE + 13 * PAGE, PAGE, FLAGS);
	ps_table_add(UINT64_MAX - PAGE + 1 - PAGE, PAGE, FLAGS);
	ck_assert_int_eq(pinshim_reader_open(scratch_table(), &reader), 0);
	ck_assert(!pinshim_reader_covers(reader, BASE, 1, 0)); /* not yet refreshed */
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	ck_assert(pinshim_reader_covers(reader, BASE, 12 * PAGE, FLAGS));
	ck_assert(pinshim_reader_covers(reader, BASE + 12 * PAGE - 1, 1, FLAGS));
	ck_assert(pinshim_reader_covers(reader, BASE, 0, FLAGS));
	ck_assert(!pinshim_reader_covers(reader, BASE, 12 * PAGE + 1, FLAGS));
	ck_assert(!pinshim_reader_covers(reader, BASE + 12 * PAGE, 0, FLAGS));
	ck_assert(!pinshim_reader_covers(reader, BASE + 11 * PAGE, 3 * PAGE, FLAGS));
	ck_assert(!pinshim_reader_covers(reader, BASE - 1, 2, FLAGS));
	ck_assert(!pinshim_reader_covers(reader, BASE, 9 * PAGE, FLAGS | PINSHIM_RANGE_HUGE));
	ck_assert(pinshim_reader_covers(reader, BASE + 8 * PAGE, PAGE, PINSHIM_RANGE_HUGE));
	ck_assert(!pinshim_reader_covers(reader, BASE, UINT64_MAX, FLAGS));
	ck_assert(!pinshim_reader_covers(reader, BASE, UINT64_MAX - BASE + 1, FLAGS));
	ck_assert(!pinshim_reader_covers(reader, 0, 1, FLAGS));
	ck_assert(pinshim_reader_covers(reader, UINT64_MAX - 2 * PAGE + 1, PAGE, FLAGS));
	ck_assert(!pinshim_reader_covers(reader, UINT64_MAX - 2 * PAGE + 1, PAGE + 1, FLAGS));
	pinshim_reader_close(reader);
}
END_TEST

START_TEST(many_ranges_are_sorted)
{
	enum { MANY = 50000 };
	const struct pinshim_range *range;
	struct pinshim_reader *reader;
	size_t count;

	/* 7919 is prime to MANY: every index once, in a wild order. */
	for (uint64_t i = 0; i < MANY; i++)
		ck_assert_int_ge(ps_table_add(BASE + 2 * (i * 7919 % MANY) * PAGE, PAGE, FLAGS), 0);
	ck_assert_int_eq(pinshim_reader_open(scratch_table(), &reader), 0);
	ck_assert_int_eq(pinshim_reader_refresh(reader), 0);
	range = pinshim_reader_ranges(reader, &count);
	ck_assert_uint_eq(count, MANY);
	for (uint64_t i = 0; i < MANY; i++)
		ck_assert_uint_eq(range[i].base, BASE + 2 * i * PAGE);
	pinshim_reader_close(reader);
}
END_TEST

START_TEST(names_of_tables)
{
	uint64_t time;
	pid_t pid;

	ck_assert(pinshim_reader_parse_name("pinshim.12.345", &pid, &time));
	ck_assert_int_eq(pid, 12);
	ck_assert_uint_eq(time, 345);
	ck_assert(pinshim_reader_parse_name("pinshim.12.18446744073709551615", NULL, NULL));
	ck_assert(!pinshim_reader_parse_name("pinshim.12.18446744073709551616", NULL, NULL));
	ck_assert(!pinshim_reader_parse_name("pinshim.2147483648.1", NULL, NULL));
	ck_assert(!pinshim_reader_parse_name("pinshim.12.345.tmp", NULL, NULL));
	ck_assert(!pinshim_reader_parse_name("pinshim.12.", NULL, NULL));
	ck_assert(!pinshim_reader_parse_name("pinshim..1", NULL, NULL));
	ck_assert(!pinshim_reader_parse_name("pinshim.+1.1", NULL, NULL));
	ck_assert(!pinshim_reader_parse_name("pinshim.1.01", NULL, NULL));
	ck_assert(!pinshim_reader_parse_name("pinshim", NULL, NULL));
	ck_assert(!pinshim_reader_parse_name("", NULL, NULL));
}
END_TEST

static void *outlive_main_thread(void *pipe)
{
	char byte;

	return read(*(int *)pipe, &byte, 1) ? NULL : pipe;
}

START_TEST(alive_without_its_main_thread)
{
	int keep[2], child;
	uint64_t started;

#ifdef __SANITIZE_THREAD__
	return; /* its threads cannot outlive the main thread of a forked child */
#endif
	ck_assert_int_eq(pipe(keep), 0);
	child = fork();
	if (child == 0) {
		pthread_t thread;

		close(keep[1]);
		pthread_create(&thread, NULL, outlive_main_thread, &keep[0]);
		pthread_exit(NULL);
	}
	started = ps_os_start_time(child);
	usleep(50000);
	ck_assert(pinshim_reader_process_alive(child, started));
	ck_assert(!pinshim_reader_process_alive(child, started + 1));
	ck_assert(!pinshim_reader_process_alive(0, 0));
	ck_assert(!pinshim_reader_process_alive(-1, 0));
	close(keep[1]);
	scratch_wait(child);
	ck_assert(!pinshim_reader_process_alive(child, started));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reader");
	TCase *tcase = tcase_create("reader");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_unchecked_fixture(tcase, scratch_begin, scratch_end);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, beside_a_writing_thread);
	tcase_add_test(tcase, beside_a_writing_process);
	tcase_add_test(tcase, the_writer_is_killed);
	tcase_add_test(tcase, every_prefix_of_a_change);
	tcase_add_test(tcase, whole_and_wrong);
	tcase_add_test(tcase, other_versions_are_refused);
	tcase_add_test(tcase, every_truncation_is_refused);
	tcase_add_test(tcase, numbers_that_lead_astray);
	tcase_add_test(tcase, more_ranges_than_a_table_has);
	tcase_add_test(tcase, damaged_files_crash_nobody);
	tcase_add_test(tcase, a_directory_of_damaged_files);
	tcase_add_test(tcase, what_is_no_file);
	tcase_add_test(tcase, what_is_somebody_elses);
	tcase_add_test(tcase, calls_that_fail);
	tcase_add_test(tcase, the_program_closes_the_descriptor);
	tcase_add_test(tcase, covers_whole_ranges_only);
	tcase_add_test(tcase, many_ranges_are_sorted);
	tcase_add_test(tcase, names_of_tables);
	tcase_add_test(tcase, alive_without_its_main_thread);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
