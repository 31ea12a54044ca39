/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report: what it says, and where it is written.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "counters.h"
#include "fault.h"
#include "log.h"
#include "report.h"
#include "scratch.h"
#include "table.h"

#define MIB (UINT64_C(1) << 20)

static struct pinshim_table made;
static char buffer[64 << 10];
static struct ps_text text;

static void setup(void)
{
	ps_log_level = PS_LOG_ERROR;
	scratch_enter();
	ps_fault_clear();
	ck_assert_int_eq(ps_table_start(), 0);
	made = (struct pinshim_table){ .pid = 4242, .program = "train", .backend = "native" };
	text = (struct ps_text)PS_TEXT_INIT(buffer);
}

/* A table as of a program that did a bit of everything. */
static void fill(void)
{
	struct pinshim_entry *entry;

	strcpy(made.rank, "3");
	made.pinned_bytes = 96 * MIB;
	made.pinned_peak_bytes = 1024 * MIB;
	made.locked_bytes = 64 * MIB;
	made.foreign_bytes = 32 * MIB;
	made.huge_bytes = 64 * MIB;
	made.stripe[2].retained_bytes = 16 * MIB;
	made.pins = 12;
	made.unpins = 3;
	made.pin_bytes = 1200 * MIB;
	made.pin_nanoseconds = 100000000;
	made.refused[1] = 2;
	made.refused[7] = 1;
	made.refused_bytes = 300 * MIB;
	made.hooks_reached = 1 | 4;
	entry = &made.stripe[0].entry[PINSHIM_ENTRY_MALLOC];
	*entry = (struct pinshim_entry){ 10, 8, 1, 1, 1000 * MIB, 1020 * MIB, 6, 900 * MIB };
	made.live_peak_bytes[PINSHIM_ENTRY_MALLOC] = 500 * MIB;
	entry = &made.stripe[5].entry[PINSHIM_ENTRY_MALLOC];
	*entry = (struct pinshim_entry){ 1, 1, 0, 0, MIB, MIB, 0, 0 };
	made.stripe[1].aio = (struct pinshim_aio){ .submitted = 12000,
						   .direct = 300,
						   .fixed = 11700,
						   .bytes = 1024 * MIB,
						   .contexts = 2,
						   .rings = 1 };
	made.stripe[15].aio = (struct pinshim_aio){ .submitted = 345,
						    .fixed = 300,
						    .bounced = 45,
						    .repaired = 40,
						    .failed = 2,
						    .partial = 1,
						    .bytes = 205 * MIB,
						    .settled = 1,
						    .dropped = 3 };
}

START_TEST(text_says_what_a_person_wants_to_know)
{
	static const char expected[] =
		"pinshim[4242]: train, rank 3, backend native: pinned 96.0 MiB now, 1.0 GiB at "
		"peak\n"
		"pinshim[4242]: now: locked 64.0 MiB, huge pages 64.0 MiB, foreign 32.0 MiB, kept "
		"for reuse 16.0 MiB\n"
		"pinshim[4242]: requested 1001.0 MiB, served 1021.0 MiB (1.9 % more)\n"
		"pinshim[4242]:                        calls    served  fallback  failed    live  "
		"live bytes  peak bytes\n"
		"pinshim[4242]: malloc                    11         9         1       1       3   "
		"121.0 MiB   500.0 MiB\n"
		"pinshim[4242]: pinned 12 times, 1.17 GiB in 100 ms (12.5 GB/s), gave back 3\n"
		"pinshim[4242]: refused by limit: memlock 2, kernel 1; asked for 300.0 MiB\n"
		"pinshim[4242]: async I/O: 12345 requests: 12000 fixed, 300 direct, 45 bounced "
		"(40 repaired), 0 passed on; 2 failed, 1 partial; 1.2 GiB; 2 contexts, 1 ring "
		"(1 settled); dropped 3 registrations\n"
		"pinshim[4242]: hooks reached: malloc, dlsym\n"
		"pinshim[4242]: 3 blocks never freed, 121.0 MiB\n";

	fill();
	ps_report_text(&made, &text);
	ck_assert_str_eq(buffer, expected);
}
END_TEST

START_TEST(text_leaves_out_what_did_not_happen)
{
	ps_report_text(&made, &text);
	ck_assert_str_eq(buffer,
			 "pinshim[4242]: train, backend native: pinned 0 B now, 0 B at peak\n");
}
END_TEST

/* A context that was never used, and I/O whose context another thread counted. */
START_TEST(text_of_little_asynchronous_io)
{
	made.stripe[3].aio.contexts = 1;
	ps_report_text(&made, &text);
	ck_assert_ptr_nonnull(strstr(buffer, "]: async I/O: 0 requests: 0 fixed, "));
	ck_assert_ptr_nonnull(strstr(buffer, " partial; 0 B; 1 context\n"));
	text.length = 0;
	made.stripe[3].aio = (struct pinshim_aio){ .submitted = 1, .passed = 1, .bytes = 512 };
	ps_report_text(&made, &text);
	ck_assert_ptr_nonnull(strstr(buffer, "]: async I/O: 1 request: 0 fixed, 0 direct, "));
	ck_assert_ptr_nonnull(strstr(buffer, ", 1 passed on; 0 failed, 0 partial; 512 B\n"));
	text.length = 0;
	made.stripe[3].aio = (struct pinshim_aio){ .failed = 1 };
	ps_report_text(&made, &text);
	ck_assert_ptr_null(strstr(buffer, "async"));
}
END_TEST

START_TEST(locked_is_not_registered)
{
	static const char warning[] = "locked, not registered with a CUDA driver";
	struct pinshim_entry *entry = &made.stripe[0].entry[PINSHIM_ENTRY_CUDA_HOST_ALLOC];

	fill();
	*entry = (struct pinshim_entry){ .served = 1, .served_bytes = MIB };
	ps_report_text(&made, &text);
	ck_assert_ptr_nonnull(strstr(buffer, warning));
	text.length = 0;
	made.registered_bytes = MIB;
	ps_report_text(&made, &text);
	ck_assert_ptr_null(strstr(buffer, warning));
	ck_assert_ptr_nonnull(strstr(buffer, "registered 1.0 MiB"));
}
END_TEST

/* Every number as large as it can be, every name as long. */
static void fill_up(void)
{
	memset(&made, 0xff, sizeof(made));
	memset(made.program, '"', sizeof(made.program));
	memset(made.rank, '\\', sizeof(made.rank));
	memset(made.job, '\n', sizeof(made.job));
}

START_TEST(the_largest_report_fits)
{
	fill_up();
	ps_report_text(&made, &text);
	ck_assert(!text.cut);
	ck_assert_uint_lt(text.length, sizeof(buffer) / 4);
	text = (struct ps_text)PS_TEXT_INIT(buffer);
	ps_report_json(&made, &text);
	ck_assert(!text.cut);
	ck_assert_uint_lt(text.length, sizeof(buffer) / 4);
}
END_TEST

static bool has(const char *part)
{
	return strstr(buffer, part) != NULL;
}

START_TEST(json_has_everything)
{
	fill();
	ps_report_json(&made, &text);
	ck_assert(has("{\"schema\": 1, \"pid\": 4242, "));
	ck_assert(has("\"program\": \"train\""));
	ck_assert(has("\"rank\": \"3\", \"local_rank\": \"\", \"job\": \"\""));
	ck_assert(has("\"pinned_bytes\": 100663296, \"pinned_peak_bytes\": 1073741824"));
	ck_assert(has("\"registered_bytes\": 0"));
	ck_assert(has("\"pin_ns\": 100000000, \"pin_bytes\": 1258291200"));
	ck_assert(
		has("\"malloc\": {\"calls\": 11, \"served\": 9, \"fallback\": 1, \"failed\": 1, "
		    "\"requested_bytes\": 1049624576, \"served_bytes\": 1070596096, \"freed\": 6, "
		    "\"freed_bytes\": 943718400, \"live_blocks\": 3, \"live_bytes\": 126877696, "
		    "\"live_peak_bytes\": 524288000}"));
	ck_assert(has("\"cudaHostAlloc\": {\"calls\": 0"));
	ck_assert(has("\"aio\": {\"submitted\": 12345, \"direct\": 300, \"fixed\": 12000, "
		      "\"bounced\": 45, \"passed\": 0, \"repaired\": 40, \"failed\": 2, "
		      "\"partial\": 1, \"bytes\": 1288699904, \"contexts\": 2, \"rings\": 1, "
		      "\"settled\": 1, \"dropped\": 3}"));
	ck_assert(has("\"refused\": {\"process\": 0, \"memlock\": 2, "));
	ck_assert(has("\"hooks_reached\": {\"malloc\": true, \"cuda_runtime\": false, "));
	ck_assert_str_eq(buffer + text.length - 4, "e}}\n");
}
END_TEST

/* Python reads it back, if there is one. */
START_TEST(json_is_json)
{
	char command[600];

	if (system("python3 -c '' 2>/dev/null") != 0)
		return;
	fill_up();
	if (_i == 0)
		fill();
	ps_report_json(&made, &text);
	scratch_write(scratch_path("json"), buffer, (long)text.length);
	snprintf(command, sizeof(command),
		 "python3 -c 'import json,sys; r=json.load(open(sys.argv[1])); "
		 "sys.exit(r[\"schema\"] != 1 or len(r[\"entry_points\"]) != %d or "
		 "len(r[\"aio\"]) != %zu)' %s",
		 PINSHIM_ENTRIES, PS_AIO_WORDS, scratch_path("json"));
	ck_assert_int_eq(system(command), 0);
}
END_TEST

static bool is_empty(void)
{
	return scratch_entries() == 0;
}

static int pipes[2];

static void stderr_is_a_pipe(void)
{
	ck_assert_int_eq(pipe2(pipes, O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(pipes[1], 2), 2);
}

START_TEST(nothing_is_written_where_nothing_was_asked_for)
{
	char byte;

	stderr_is_a_pipe();
	ck_assert_int_eq(ps_report_write("off"), 0);
	ck_assert_int_eq(ps_report_write("stderr"), 0); /* nothing was pinned */
	ck_assert_int_eq(read(pipes[0], &byte, 1), -1);
	ps_table_gauges(4096, 0, 0, 0, 1);
	ps_table_gauges(-4096, 0, 0, 0, -1);
	ck_assert_int_eq(ps_report_write("off"), 0);
	ck_assert_int_eq(read(pipes[0], &byte, 1), -1);
	ck_assert_int_eq(ps_report_write("stderr"), 0);
	ck_assert_int_gt(read(pipes[0], buffer, sizeof(buffer)), 0);
	ck_assert(has("]: test_report, backend native: pinned 0 B now, 4.0 KiB at peak\n"));
	ck_assert(is_empty());
}
END_TEST

START_TEST(asynchronous_io_alone_is_reported)
{
	stderr_is_a_pipe();
	ps_table()->stripe[4].aio.submitted = 1;
	ck_assert_int_eq(ps_report_write("stderr"), 0);
	ck_assert_int_gt(read(pipes[0], buffer, sizeof(buffer) - 1), 0);
	ck_assert(has("]: async I/O: 1 request: "));
	ck_assert(has("]: test_report, backend native: pinned 0 B now, 0 B at peak\n"));
}
END_TEST

START_TEST(a_file_by_its_pattern)
{
	char pattern[128], name[128];
	struct stat status;

	snprintf(pattern, sizeof(pattern), "%s/%%e-%%p%%%%.json", scratch);
	snprintf(name, sizeof(name), "test_report-%d%%.json", (int)getpid());
	ck_assert_int_eq(ps_report_write(pattern), 0); /* though nothing was pinned */
	ck_assert_int_eq(ps_report_write(pattern), 0); /* replaces it */
	ck_assert_uint_eq(scratch_entries(), 1);
	ck_assert_int_eq(stat(scratch_path(name), &status), 0);
	ck_assert_int_gt(scratch_read(scratch_path(name), buffer, sizeof(buffer)), 1000);
	ck_assert(has("{\"schema\": 1, "));
	ck_assert(has("\"program\": \"test_report\""));
}
END_TEST

START_TEST(what_is_no_file_is_written_into)
{
	const char *link;
	struct stat status;
	int fifo;

	link = scratch_path("null");
	ck_assert_int_eq(symlink("/dev/null", link), 0);
	ck_assert_int_eq(ps_report_write(link), 0);
	ck_assert_int_eq(lstat(link, &status), 0);
	ck_assert(S_ISLNK(status.st_mode));
	ck_assert_int_eq(stat("/dev/null", &status), 0);
	ck_assert(S_ISCHR(status.st_mode));

	link = scratch_path("fifo");
	ck_assert_int_eq(mkfifo(link, 0600), 0);
	ck_assert_int_eq(ps_report_write(link), -ENXIO); /* nobody reads: no hanging */
	fifo = open(link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_eq(ps_report_write(link), 0);
	ck_assert_int_gt(read(fifo, buffer, sizeof(buffer)), 1000);
	ck_assert_uint_eq(scratch_entries(), 2);
}
END_TEST

START_TEST(a_report_that_cannot_be_written)
{
	const char *path;

	ck_assert_int_eq(ps_report_write(scratch_path("none/there")), -ENOENT);
	ck_assert_int_eq(ps_report_write(scratch), -EISDIR);
	ck_assert_int_eq(ps_report_write("%"), -EINVAL);
	path = scratch_path("report");
	scratch_write(path, "the one before", 14);
	ps_fault_set(PS_OS_WRITE, 1, 1, ENOSPC);
	ck_assert_int_eq(ps_report_write(path), -ENOSPC);
	ps_fault_clear();
	ps_fault_set(PS_OS_OPEN, 1, 3, EACCES);
	ck_assert_int_lt(ps_report_write(path), 0);
	ps_fault_clear();
	ps_fault_set(PS_OS_MMAP, 1, 1, ENOMEM);
	ck_assert_int_eq(ps_report_write(path), -ENOMEM);
	ps_fault_clear();
	ck_assert_int_eq(scratch_read(path, buffer, sizeof(buffer)), 14);
	ck_assert_uint_eq(scratch_entries(), 1);
}
END_TEST

/* Somebody guessed the temporary name. */
START_TEST(a_link_at_the_temporary_name)
{
	const char *path, *victim;
	char temporary[544];

	path = scratch_path("report");
	victim = scratch_path("victim");
	snprintf(temporary, sizeof(temporary), "%s.%d.tmp", path, (int)getpid());
	scratch_write(victim, "precious", 8);
	ck_assert_int_eq(symlink(victim, temporary), 0);
	ck_assert_int_eq(ps_report_write(path), 0);
	ck_assert_int_eq(scratch_read(victim, buffer, sizeof(buffer)), 8);
	ck_assert_uint_eq(scratch_entries(), 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("report");
	TCase *tcase = tcase_create("report");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_unchecked_fixture(tcase, scratch_begin, scratch_end);
	tcase_add_checked_fixture(tcase, setup, NULL);
	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, text_says_what_a_person_wants_to_know);
	tcase_add_test(tcase, text_leaves_out_what_did_not_happen);
	tcase_add_test(tcase, text_of_little_asynchronous_io);
	tcase_add_test(tcase, locked_is_not_registered);
	tcase_add_test(tcase, the_largest_report_fits);
	tcase_add_test(tcase, json_has_everything);
	tcase_add_loop_test(tcase, json_is_json, 0, 2);
	tcase_add_test(tcase, nothing_is_written_where_nothing_was_asked_for);
	tcase_add_test(tcase, asynchronous_io_alone_is_reported);
	tcase_add_test(tcase, a_file_by_its_pattern);
	tcase_add_test(tcase, what_is_no_file_is_written_into);
	tcase_add_test(tcase, a_report_that_cannot_be_written);
	tcase_add_test(tcase, a_link_at_the_temporary_name);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
