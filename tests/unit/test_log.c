/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * log.h: what reaches descriptor 2, and when nothing may. Each case runs in a process of its own.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "log.h"

static int pipe_end = -1;  /* where what is written can be read, a packet a write */
static char packet[4096];  /* the last one read */
static char file_path[64]; /* of open_file() */

/* Makes descriptor 2 a pipe that keeps each write apart. */
static void catch_stderr(void)
{
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_DIRECT | O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(ends[1], 2), 2);
	close(ends[1]);
	pipe_end = ends[0];
}

/* As a daemon: descriptor 2 is closed when the library starts, and something else later. */
static void start_without_stderr(void)
{
	close(2);
	ps_log_start();
	ps_log(PS_LOG_ERROR, "to nobody");
	ck_assert_int_eq(open("/dev/null", O_RDONLY), 2);
}

static const char *read_packet(void)
{
	ssize_t length = read(pipe_end, packet, sizeof(packet) - 1);

	packet[length > 0 ? length : 0] = '\0';
	return packet;
}

/* Puts an empty file in place of descriptor 2. */
static void open_file(int flags)
{
	int fd;

	strcpy(file_path, "/tmp/test_log.XXXXXX");
	fd = mkstemp(file_path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	fd = open(file_path, O_WRONLY | flags);
	ck_assert_int_eq(dup2(fd, 2), 2);
	close(fd);
}

static size_t file_length(void)
{
	char buffer[4096];
	int fd = open(file_path, O_RDONLY);
	ssize_t length = read(fd, buffer, sizeof(buffer));

	close(fd);
	unlink(file_path);
	ck_assert_int_ge(length, 0);
	return (size_t)length;
}

static const char *prefixed(const char *message)
{
	static char line[2048];

	snprintf(line, sizeof(line), "pinshim[%d]: %s\n", getpid(), message);
	return line;
}

START_TEST(one_line_one_write)
{
	catch_stderr();
	ps_log_start();
	ps_log(PS_LOG_WARN, "mlock of %zu bytes failed: %s", (size_t)4096, "no");
	ps_log(PS_LOG_ERROR, "second");
	ck_assert_str_eq(read_packet(), prefixed("mlock of 4096 bytes failed: no"));
	ck_assert_str_eq(read_packet(), prefixed("second"));
	ck_assert_str_eq(read_packet(), "");
}
END_TEST

START_TEST(levels)
{
	catch_stderr();
	ck_assert_int_eq(ps_log_level, PS_LOG_WARN);
	for (int said = PS_LOG_ERROR; said <= PS_LOG_DEBUG; said++) {
		ps_log_level = (enum ps_log_level)said;
		for (int level = PS_LOG_ERROR; level <= PS_LOG_DEBUG; level++) {
			ps_log((enum ps_log_level)level, "x");
			ck_assert_int_eq(*read_packet() != '\0', level <= said);
		}
	}
}
END_TEST

START_TEST(once)
{
	catch_stderr();
	for (int i = 0; i < 3; i++)
		ps_log_once(PS_LOG_WARN, "first %d", i);
	ps_log_once(PS_LOG_WARN, "second");
	ck_assert_str_eq(read_packet(), prefixed("first 0"));
	ck_assert_str_eq(read_packet(), prefixed("second"));
	ck_assert_str_eq(read_packet(), "");
}
END_TEST

START_TEST(long_line_is_cut)
{
	char message[3000];
	size_t length;

	catch_stderr();
	memset(message, 'a', sizeof(message));
	message[sizeof(message) - 1] = '\0';
	ps_log(PS_LOG_WARN, "%s", message);
	length = strlen(read_packet());
	ck_assert_uint_eq(length, 1023);
	ck_assert_str_eq(packet + length - 5, "a...\n");
	ck_assert_str_eq(read_packet(), "");
}
END_TEST

START_TEST(stays_one_line)
{
	catch_stderr();
	ps_log(PS_LOG_WARN, "%s",
	       "a\nb\033[31m\x7f"
	       "c\xc3\xa9");
	ck_assert_str_eq(read_packet(), prefixed("a?b?[31m?c\xc3\xa9"));
}
END_TEST

START_TEST(before_start)
{
	open_file(0);
	ps_log(PS_LOG_WARN, "early");
	ck_assert_uint_gt(file_length(), 0);
}
END_TEST

START_TEST(same_file_as_at_start)
{
	open_file(0);
	ps_log_start();
	ps_log(PS_LOG_WARN, "x");
	ck_assert_uint_gt(file_length(), 0);
}
END_TEST

/* A daemon closed descriptor 2 and its next open() of a data file got the number. */
START_TEST(other_file_is_left_alone)
{
	catch_stderr();
	ps_log_start();
	open_file(0);
	ps_log(PS_LOG_ERROR, "x");
	ck_assert(!ps_log_raw("report\n", 7));
	ck_assert_uint_eq(file_length(), 0);
}
END_TEST

START_TEST(other_file_of_the_same_disk)
{
	open_file(0);
	ps_log_start();
	unlink(file_path);
	open_file(0);
	ps_log(PS_LOG_ERROR, "x");
	ck_assert_uint_eq(file_length(), 0);
}
END_TEST

START_TEST(closed_at_start_then_a_file)
{
	start_without_stderr();
	open_file(0);
	ps_log(PS_LOG_ERROR, "x");
	ck_assert(!ps_log_raw("report\n", 7));
	ck_assert_uint_eq(file_length(), 0);
}
END_TEST

START_TEST(other_socket_is_left_alone)
{
	int ends[2];

	catch_stderr();
	ps_log_start();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
	dup2(ends[1], 2);
	ps_log(PS_LOG_ERROR, "x");
	ck_assert_int_eq(read(ends[0], packet, 1), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

START_TEST(other_file_to_append_to)
{
	start_without_stderr();
	open_file(O_APPEND);
	ps_log(PS_LOG_WARN, "x");
	ck_assert(ps_log_raw("report\n", 7));
	ck_assert_uint_eq(file_length(), strlen(prefixed("x")) + 7);
}
END_TEST

START_TEST(other_pipe)
{
	start_without_stderr();
	catch_stderr();
	ps_log(PS_LOG_WARN, "x");
	ck_assert_str_eq(read_packet(), prefixed("x"));
}
END_TEST

START_TEST(other_terminal)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);

	ck_assert_int_ge(master, 0);
	ck_assert_int_eq(grantpt(master), 0);
	ck_assert_int_eq(unlockpt(master), 0);
	start_without_stderr();
	ck_assert_int_eq(dup2(open(ptsname(master), O_RDWR | O_NOCTTY), 2), 2);
	ps_log(PS_LOG_WARN, "x");
	ck_assert_int_gt(read(master, packet, sizeof(packet)), 0);
	ck_assert_int_eq(strncmp(packet, "pinshim[", 8), 0);
}
END_TEST

START_TEST(raw_text_is_unchanged)
{
	catch_stderr();
	ps_log_start();
	ps_log_level = PS_LOG_ERROR;
	ck_assert(ps_log_raw("a\nb\n", 4));
	ck_assert_str_eq(read_packet(), "a\nb\n");
}
END_TEST

static void nothing(int signal)
{
	(void)signal;
}

/* A signal ends a write to a full pipe early; the rest of a long report is written all the same. */
START_TEST(raw_text_after_short_write)
{
	static char report[200000];
	const struct itimerval often = { { 0, 2000 }, { 0, 2000 } };
	struct sigaction action = { .sa_handler = nothing };
	size_t total = 0;
	ssize_t got;
	int ends[2], status;
	pid_t reader;

	memset(report, 'r', sizeof(report));
	ck_assert_int_eq(pipe(ends), 0);
	reader = fork();
	if (reader == 0) {
		close(ends[1]);
		usleep(30000);
		while ((got = read(ends[0], packet, sizeof(packet))) > 0)
			total += (size_t)got;
		_exit(total == sizeof(report) ? 0 : 1);
	}
	dup2(ends[1], 2);
	close(ends[1]);
	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
	ck_assert(ps_log_raw(report, sizeof(report)));
	ck_assert_int_eq(setitimer(ITIMER_REAL, &(struct itimerval){ { 0, 0 }, { 0, 0 } }, NULL),
			 0);
	close(2);
	ck_assert_int_eq(waitpid(reader, &status, 0), reader);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(reader_gone)
{
	sigset_t pending, mask;

	catch_stderr();
	signal(SIGPIPE, SIG_DFL);
	ps_log_start();
	close(pipe_end);
	errno = 4711;
	ps_log(PS_LOG_ERROR, "into the void");
	ck_assert_int_eq(errno, 4711);
	sigpending(&pending);
	sigprocmask(SIG_BLOCK, NULL, &mask);
	ck_assert(!sigismember(&pending, SIGPIPE));
	ck_assert(!sigismember(&mask, SIGPIPE));
}
END_TEST

/* A SIGPIPE that the program blocked and has not seen yet is still there for it. */
START_TEST(program_keeps_its_sigpipe)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_BLOCK, &set, NULL);
	catch_stderr();
	close(pipe_end);
	raise(SIGPIPE);
	ps_log(PS_LOG_ERROR, "x");
	sigpending(&set);
	ck_assert(sigismember(&set, SIGPIPE));
	sigprocmask(SIG_BLOCK, NULL, &set);
	ck_assert(sigismember(&set, SIGPIPE));
}
END_TEST

START_TEST(failing_calls_are_survived)
{
	catch_stderr();
	ps_log_start();
	ps_fault_set(PS_OS_WRITE, 1, 1, EIO);
	ps_log(PS_LOG_ERROR, "lost");
	ps_fault_set(PS_OS_FSTAT, 1, 1, EBADF);
	ps_log(PS_LOG_ERROR, "not tried");
	ps_log(PS_LOG_ERROR, "there");
	ck_assert_str_eq(read_packet(), prefixed("there"));
	ps_fault_clear();
}
END_TEST

START_TEST(abort_says_why)
{
	int status;
	pid_t child;

	catch_stderr();
	child = fork();
	if (child == 0) {
		ps_log_level = PS_LOG_ERROR;
		ps_log_abort("free(): %p is no block", (void *)0x10);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGABRT);
	ck_assert_ptr_nonnull(strstr(read_packet(), "]: free(): 0x10 is no block\n"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tcase = tcase_create("log");
	SRunner *runner;
	int failed;

	tcase_add_test(tcase, one_line_one_write);
	tcase_add_test(tcase, levels);
	tcase_add_test(tcase, once);
	tcase_add_test(tcase, long_line_is_cut);
	tcase_add_test(tcase, stays_one_line);
	tcase_add_test(tcase, before_start);
	tcase_add_test(tcase, same_file_as_at_start);
	tcase_add_test(tcase, other_file_is_left_alone);
	tcase_add_test(tcase, other_file_of_the_same_disk);
	tcase_add_test(tcase, closed_at_start_then_a_file);
	tcase_add_test(tcase, other_socket_is_left_alone);
	tcase_add_test(tcase, other_file_to_append_to);
	tcase_add_test(tcase, other_pipe);
	tcase_add_test(tcase, other_terminal);
	tcase_add_test(tcase, raw_text_is_unchanged);
	tcase_add_test(tcase, raw_text_after_short_write);
	tcase_add_test(tcase, reader_gone);
	tcase_add_test(tcase, program_keeps_its_sigpipe);
	tcase_add_test(tcase, failing_calls_are_survived);
	tcase_add_test(tcase, abort_says_why);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
