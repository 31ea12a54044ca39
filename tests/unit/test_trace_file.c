/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trace_file.h: what is in the file, and that it is whole whatever goes wrong. Each case runs in a
 * process of its own. tests/preload/trace.sh parses files of real programs.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "fault.h"
#include "os.h"
#include "scratch.h"
#include "table.h"
#include "trace_file.h"

static char content[1 << 20]; /* of the file that was read last */
static char said[4096];       /* on stderr */
static int stderr_end;

static const char *read_trace(const char *name)
{
	long length = scratch_read(scratch_path(name), content, sizeof(content) - 1);

	ck_assert_int_ge(length, 0);
	content[length] = '\0';
	return content;
}

/* How often text is in the content. */
static unsigned times(const char *text)
{
	unsigned found = 0;

	for (const char *at = content; (at = strstr(at, text)) != NULL; at++)
		found++;
	return found;
}

/*
 * Reads a trace and looks that it is an array of events, each on a line. Returns how many of this name
 * there are.
 */
static unsigned events(const char *file, const char *name)
{
	char begin[64];
	unsigned found = 0;
	size_t length = strlen(read_trace(file));

	snprintf(begin, sizeof(begin), "{\"name\":\"%s\",", name);
	ck_assert_msg(strncmp(content, "[\n{\"name\":\"process_name\",\"ph\":\"M\",", 34) == 0,
		      "%s", content);
	ck_assert_str_eq(content + length - 4, "}\n]\n");
	for (const char *line = content + 2; *line != ']'; line = strchr(line, '\n') + 1) {
		const char *end = strchr(line, '\n');

		ck_assert_msg(strncmp(line, "{\"name\":\"", 9) == 0, "%.80s", line);
		ck_assert_msg(end[-1] == (end[1] == ']' ? '}' : ','), "%.300s", line);
		ck_assert_msg(end[1] == ']' || end[-2] == '}', "%.300s", line);
		found += strncmp(line, begin, strlen(begin)) == 0;
	}
	return found;
}

static const char *read_stderr(void)
{
	ssize_t length = read(stderr_end, said, sizeof(said) - 1);

	said[length > 0 ? length : 0] = '\0';
	return said;
}

static void trace_to(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s", scratch_path(name));
	ps_config.trace = path;
}

static void setup(void)
{
	int ends[2];

	scratch_enter();
	ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(ends[1], 2), 2);
	stderr_end = ends[0];
	ck_assert_int_eq(ps_table_start(), 0);
	trace_to("trace");
	ps_fault_clear();
}

static struct ps_trace_span span = { .name = "pin",
				     .address = 0x7f0000200000,
				     .bytes = 4194304,
				     .huge_bytes = 2097152,
				     .flags = PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_HEAP_CUDA,
				     .began = 1234567891,
				     .took = 1002003 };

static struct ps_refusal refusal = { .limit = PS_LIMIT_CGROUP,
				     .asked = 2097152,
				     .allowed = 1000,
				     .used = 900,
				     .error = ENOMEM,
				     .where = "/sys/fs/cgroup/a \"job\"" };

START_TEST(nothing_makes_no_file)
{
	ps_trace_file_fork_child();
	ck_assert_uint_eq(scratch_entries(), 0);
}
END_TEST

START_TEST(a_span)
{
	char expected[512];

	ps_table()->locked_bytes = 6291456;
	ps_table()->foreign_bytes = 4096;
	ps_trace_file_span(&span);
	ck_assert_uint_eq(events("trace", "pin"), 1);
	snprintf(expected, sizeof(expected),
		 "{\"name\":\"pin\",\"ph\":\"X\",\"ts\":1234567.891,\"pid\":%d,\"tid\":%d,"
		 "\"dur\":1002.003,\"args\":{\"address\":\"0x7f0000200000\",\"bytes\":4194304,"
		 "\"memory\":\"cuda_heap\",\"huge_bytes\":2097152}},\n",
		 getpid(), gettid());
	ck_assert_msg(times(expected) == 1, "%s\nis not in\n%s", expected, content);
	ck_assert_uint_eq(times("\"args\":{\"locked_bytes\":6291456,\"foreign_bytes\":4096}"), 1);
	ck_assert_uint_eq(events("trace", "pinned"), 1);
}
END_TEST

START_TEST(other_spans)
{
	span.name = "unregister";
	span.huge_bytes = UINT64_MAX;
	span.error = 201;
	span.flags = PINSHIM_RANGE_FOREIGN | PINSHIM_RANGE_REGISTERED;
	ps_trace_file_span(&span);
	ck_assert_uint_eq(events("trace", "unregister"), 1);
	ck_assert_uint_eq(times("\"memory\":\"foreign\",\"error\":201}"), 1);
	ck_assert_uint_eq(times("huge_bytes"), 0);
	span.flags = PINSHIM_RANGE_LOCKED | PINSHIM_RANGE_HEAP_MALLOC;
	ps_trace_file_span(&span);
	read_trace("trace");
	ck_assert_uint_eq(times("\"memory\":\"malloc_heap\",\"error\":201}"), 1);
}
END_TEST

START_TEST(the_process)
{
	struct stat status;

	strcpy(ps_table()->rank, "3\"\n");
	umask(0);
	ps_trace_file_span(&span);
	ck_assert_uint_eq(events("trace", "process_name"), 1);
	ck_assert_uint_eq(
		times("{\"name\":\"test_trace_file (rank 3\\\"\\u000a)\",\"monotonic_ns\":"), 1);
	ck_assert_uint_eq(times("\"realtime_ns\":1"), 1);
	ck_assert_int_eq(stat(scratch_path("trace"), &status), 0);
	ck_assert_uint_eq(status.st_mode & 07777, 0644);
}
END_TEST

START_TEST(a_refusal)
{
	ps_trace_file_refusal(&refusal);
	ck_assert_uint_eq(events("trace", "refuse"), 1);
	ck_assert_uint_eq(
		times("\"s\":\"t\",\"args\":{\"limit\":\"cgroup\",\"asked_bytes\":2097152,"
		      "\"allowed_bytes\":1000,\"used_bytes\":900,"
		      "\"where\":\"/sys/fs/cgroup/a \\\"job\\\"\",\"error\":12,\"refusals\":1}}"),
		1);
}
END_TEST

/* A program may be refused a million mallocs a second. */
START_TEST(many_refusals)
{
	const uint64_t began = ps_os_now();
	unsigned count;

	for (int i = 0; i < 500; i++)
		ps_trace_file_refusal(&refusal);
	count = events("trace", "refuse");
	ck_assert_uint_le(count, 1 + (ps_os_now() - began) / 10000000);
	/* Each limit by itself. */
	refusal.limit = PS_LIMIT_NODE;
	ps_trace_file_refusal(&refusal);
	ck_assert_uint_eq(events("trace", "refuse"), count + 1);
	refusal.limit = PS_LIMIT_CGROUP;
	usleep(11000);
	ps_trace_file_refusal(&refusal);
	if (count == 1) {
		ck_assert_uint_eq(events("trace", "refuse"), 3);
		ck_assert_uint_eq(times("\"refusals\":1}"), 2);
		ck_assert_uint_eq(times("\"refusals\":500}"), 1);
	}
}
END_TEST

/* Every event is counted: those in the file and those that are not make up all. */
static unsigned lost(void)
{
	unsigned sum = 0;

	for (const char *at = content; (at = strstr(at, "\"name\":\"lost\"")) != NULL; at++)
		sum += (unsigned)strtoul(strstr(at, "\"events\":") + 9, NULL, 10);
	return sum;
}

START_TEST(the_file_is_bounded)
{
	struct stat status;
	unsigned written;

	ps_trace_file_most = 20000;
	for (int i = 0; i < 300; i++)
		ps_trace_file_span(&span);
	ck_assert_int_eq(stat(scratch_path("trace"), &status), 0);
	ck_assert_int_le(status.st_size, 20000);
	written = events("trace", "pin");
	ck_assert_uint_gt(written, 20);
	ck_assert_uint_eq(events("trace", "lost"), 1);
	ck_assert_uint_eq(written + lost(), 300);
	ck_assert_ptr_nonnull(strstr(read_stderr(), "/trace (PINSHIM_TRACE) is full: "));
	ck_assert_ptr_eq(strchr(said, '\n') + 1, said + strlen(said));
}
END_TEST

START_TEST(writing_fails_for_a_while)
{
	ps_trace_file_span(&span);
	for (unsigned fails = 1; fails <= 2; fails++) {
		/* The event; then the array's end, too. */
		ps_fault_set(PS_OS_WRITE, 1, fails, ENOSPC);
		ps_trace_file_span(&span);
		ps_fault_clear();
	}
	ps_trace_file_span(&span);
	ps_trace_file_span(&span);
	ck_assert_uint_eq(events("trace", "pin"), 3);
	ck_assert_uint_eq(events("trace", "lost"), 1);
	ck_assert_uint_eq(lost(), 2);
	ck_assert_ptr_nonnull(strstr(read_stderr(), "(PINSHIM_TRACE) failed: No space left"));
	ck_assert_ptr_eq(strchr(said, '\n') + 1, said + strlen(said));
}
END_TEST

/* A part of an event is written: it goes again. Check writes a file too, so not under the limit. */
START_TEST(the_disk_is_full_in_the_middle)
{
	struct stat before, after;
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	ps_trace_file_span(&span);
	ck_assert_int_eq(stat(scratch_path("trace"), &before), 0);
	limit.rlim_cur = (rlim_t)before.st_size + 100;
	setrlimit(RLIMIT_FSIZE, &limit);
	ps_trace_file_span(&span);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
	ck_assert_int_eq(stat(scratch_path("trace"), &after), 0);
	ck_assert_int_eq(after.st_size, before.st_size);
	ck_assert_uint_eq(events("trace", "pin"), 1);
	ps_trace_file_span(&span);
	ck_assert_uint_eq(events("trace", "pin"), 2);
	ck_assert_uint_eq(lost(), 1);
}
END_TEST

START_TEST(it_cannot_be_made_at_first)
{
	trace_to("directory/trace");
	ps_trace_file_span(&span);
	ps_trace_file_refusal(&refusal);
	ck_assert_ptr_nonnull(
		strstr(read_stderr(), "/directory/trace (PINSHIM_TRACE) failed: No such file"));
	ck_assert_ptr_eq(strchr(said, '\n') + 1, said + strlen(said));
	ck_assert_int_eq(mkdir(scratch_path("directory"), 0700), 0);
	for (int i = 1; i <= 3; i++) {
		/* Looking, opening, looking at it. */
		ps_fault_set(i == 2 ? PS_OS_OPEN : PS_OS_FSTAT, i == 3 ? 2 : 1, UINT32_MAX, EMFILE);
		ps_trace_file_span(&span);
		ps_fault_clear();
	}
	ps_trace_file_span(&span);
	ck_assert_uint_ge(events("directory/trace", "pin"), 1);
	ck_assert_uint_eq(events("directory/trace", "pin") + lost(), 6);
	ck_assert_uint_eq(events("directory/trace", "refuse"), 0);
}
END_TEST

/* Another process took the name: it keeps its file. */
START_TEST(the_file_is_replaced)
{
	ps_trace_file_span(&span);
	scratch_write(scratch_path("other"), "other", 5);
	ck_assert_int_eq(rename(scratch_path("other"), scratch_path("trace")), 0);
	ps_trace_file_span(&span);
	ck_assert_str_eq(read_trace("trace"), "other");
	ck_assert_ptr_nonnull(strstr(read_stderr(), "use %p in its name"));
	ck_assert_int_eq(unlink(scratch_path("trace")), 0);
	ps_trace_file_span(&span);
	ck_assert_uint_eq(scratch_entries(), 0);
}
END_TEST

START_TEST(what_is_there_is_replaced)
{
	scratch_write(scratch_path("target"), "target", 6);
	ck_assert_int_eq(symlink(scratch_path("target"), scratch_path("trace")), 0);
	ps_trace_file_span(&span);
	ck_assert_uint_eq(events("trace", "pin"), 1);
	ck_assert_str_eq(read_trace("target"), "target");
	ps_trace_file_fork_child();
	trace_to("target");
	ck_assert_int_eq(unlink(scratch_path("trace")), 0);
}
END_TEST

START_TEST(what_is_no_file)
{
	ps_config.trace = "/dev/null";
	for (int i = 0; i < 3; i++)
		ps_trace_file_span(&span);
	ck_assert_int_eq(access("/dev/null", W_OK), 0);
	ck_assert_str_eq(read_stderr(), "");
}
END_TEST

START_TEST(the_directory_is_left)
{
	ck_assert_int_eq(chdir(scratch), 0);
	ps_config.trace = "trace.json";
	ps_trace_file_span(&span);
	ck_assert_int_eq(chdir("/"), 0);
	ps_trace_file_span(&span);
	ck_assert_uint_eq(events("trace.json", "pin"), 2);
	ck_assert_uint_eq(scratch_entries(), 1);
}
END_TEST

/* Descriptors stay as they were: nothing is kept open. */
START_TEST(no_descriptor_is_kept)
{
	int before = dup(0), after;

	close(before);
	ps_trace_file_span(&span);
	ps_trace_file_span(&span);
	after = dup(0);
	ck_assert_int_eq(after, before);
}
END_TEST

static const struct {
	const char *pattern;
	const char *name; /* that the parent's file has, without its id at the end */
	bool has_id;
} names[] = { { "trace", "trace", false },
	      { "100%%p", "100%p", false },
	      { "trace.%p", "trace", true } };

START_TEST(a_child_has_its_own)
{
	char own[128];
	pid_t child;

	trace_to(names[_i].pattern);
	ps_trace_file_span(&span);
	child = fork();
	if (child == 0) {
		ps_table_fork_child();
		ps_trace_file_fork_child();
		ps_trace_file_span(&span);
		ps_trace_file_span(&span);
		_exit(0);
	}
	ck_assert_int_eq(scratch_wait(child), 0);
	ps_trace_file_span(&span);
	snprintf(own, sizeof(own), "%s.%d", names[_i].name, getpid());
	ck_assert_uint_eq(events(names[_i].has_id ? own : names[_i].name, "pin"), 2);
	snprintf(own, sizeof(own), "%s.%d", names[_i].name, child);
	ck_assert_uint_eq(events(own, "pin"), 2);
	snprintf(own, sizeof(own), "\"pid\":%d,", child);
	ck_assert_uint_eq(times(own), 5);
	ck_assert_uint_eq(scratch_entries(), 2);
}
END_TEST

#define THREADS 4
#define PER_THREAD 200

static void *write_spans(void *unused)
{
	for (int i = 0; i < PER_THREAD; i++) {
		struct ps_trace_span mine = span;

		mine.began = ps_os_now();
		ps_trace_file_span(&mine);
	}
	return unused;
}

START_TEST(threads_write_together)
{
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, write_spans, NULL), 0);
	/* At any time the file is whole, or is not there yet. */
	for (int i = 0; i < 50; i++)
		if (access(scratch_path("trace"), R_OK) == 0 && read_trace("trace")[0] != '\0')
			ck_assert_int_eq(strncmp(content, "[\n{", 3), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_eq(events("trace", "pin"), THREADS * PER_THREAD);
	ck_assert_uint_eq(events("trace", "lost"), 0);
}
END_TEST

/* A child of a process whose other thread was writing. */
START_TEST(forked_while_writing)
{
	pthread_t thread;
	pid_t child;
	char own[64];

#ifdef __SANITIZE_THREAD__
	puts("skip - forked_while_writing: the sanitizer takes a child's memory for its parent's");
	return;
#endif
	ck_assert_int_eq(pthread_create(&thread, NULL, write_spans, NULL), 0);
	for (int i = 0; i < 20; i++) {
		child = fork();
		if (child == 0) {
			alarm(20);
			ps_table_fork_child();
			ps_trace_file_fork_child();
			ps_trace_file_span(&span);
			_exit(0);
		}
		ck_assert_int_eq(scratch_wait(child), 0);
		snprintf(own, sizeof(own), "trace.%d", child);
		ck_assert_uint_eq(events(own, "pin"), 1);
	}
	pthread_join(thread, NULL);
	ck_assert_uint_eq(events("trace", "pin"), PER_THREAD);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("trace_file");
	TCase *tcase = tcase_create("trace_file");
	SRunner *runner;
	int failed;

	tcase_add_unchecked_fixture(tcase, scratch_begin, scratch_end);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, nothing_makes_no_file);
	tcase_add_test(tcase, a_span);
	tcase_add_test(tcase, other_spans);
	tcase_add_test(tcase, the_process);
	tcase_add_test(tcase, a_refusal);
	tcase_add_test(tcase, many_refusals);
	tcase_add_test(tcase, the_file_is_bounded);
	tcase_add_test(tcase, writing_fails_for_a_while);
	tcase_add_test(tcase, the_disk_is_full_in_the_middle);
	tcase_add_test(tcase, it_cannot_be_made_at_first);
	tcase_add_test(tcase, the_file_is_replaced);
	tcase_add_test(tcase, what_is_there_is_replaced);
	tcase_add_test(tcase, what_is_no_file);
	tcase_add_test(tcase, the_directory_is_left);
	tcase_add_test(tcase, no_descriptor_is_kept);
	tcase_add_loop_test(tcase, a_child_has_its_own, 0, sizeof(names) / sizeof(names[0]));
	tcase_add_test(tcase, threads_write_together);
	tcase_add_test(tcase, forked_while_writing);
	tcase_set_timeout(tcase, 30);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
