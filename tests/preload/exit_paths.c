/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pins something and leaves. Usage: exit_paths WAY; exit_paths.sh looks at what is reported.
 *
 * The first line on stdout is the process id. A block of 1 MiB is freed and one of 2 MiB kept, so a
 * report counts 2 served in all; ways that go on after a first report serve one more.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "check.h"

#define M ((size_t)1 << 20)

static void pin_two(void)
{
	char *kept = malloc(2 * M), *freed = malloc(M);

	fill(opaque(kept), 2 * M, 1);
	fill(opaque(freed), M, 2);
	free(opaque(freed));
}

/* One more served block. */
static void pin_one(void)
{
	char *block = opaque((char *)malloc(M));

	fill(block, M, 3);
	if (!filled(block, M, M, 3))
		abort();
	free(block);
}

/* What the exec ways become: echo, so that the report must be out before its line. */
static char name[] = "echo", word[] = "after-exec";
static char *const argument[] = { name, word, NULL };
static char *const empty[] = { NULL };

static void way_exit(void)
{
	exit(0);
}

static void way__exit(void)
{
	_exit(0);
}

static void way__Exit(void)
{
	_Exit(0);
}

static void way_quick_exit(void)
{
	quick_exit(0);
}

static void way_return(void)
{
}

static void *sleeper(void *unused)
{
	pause();
	return unused;
}

/* exit() while another thread is in a system call. */
static void way_exit_beside_thread(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, sleeper, NULL))
		exit(0);
}

static void *exiter(void *barrier)
{
	pthread_barrier_wait(barrier);
	exit(0);
}

static void *quick_exiter(void *barrier)
{
	pthread_barrier_wait(barrier);
	_exit(0);
}

/* Two threads leave at once; either may be the one that reports. */
static void leave_twice(void *(*first)(void *), void *(*second)(void *))
{
	pthread_barrier_t barrier;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	if (!pthread_create(&thread, NULL, first, &barrier))
		second(&barrier);
}

static void way_two_exits(void)
{
	leave_twice(exiter, exiter);
}

static void way_two__exits(void)
{
	leave_twice(quick_exiter, quick_exiter);
}

static void way_exit_and__exit(void)
{
	leave_twice(exiter, quick_exiter);
}

/* The main thread ends first; the process ends with the last. */
static void *last_thread(void *main_thread)
{
	pthread_join((pthread_t)main_thread, NULL);
	pin_one();
	return NULL;
}

static void way_pthread_exit(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, last_thread, (void *)pthread_self()))
		pthread_exit(NULL);
}

static void way_execl(void)
{
	execl("/bin/echo", name, word, NULL);
}

static void way_execlp(void)
{
	execlp("echo", name, word, NULL);
}

static void way_execle(void)
{
	execle("/bin/echo", name, word, NULL, empty);
}

static void way_execv(void)
{
	execv("/bin/echo", argument);
}

static void way_execvp(void)
{
	execvp("echo", argument);
}

static void way_execvpe(void)
{
	execvpe("echo", argument, empty);
}

static void way_execve(void)
{
	execve("/bin/echo", argument, empty);
}

static void way_fexecve(void)
{
	fexecve(open("/bin/echo", O_RDONLY), argument, empty);
}

static void way_execveat(void)
{
	execveat(AT_FDCWD, "/bin/echo", argument, empty, 0);
}

/* Execs of what is not there or not executable: shells try one directory after the other. */
static void way_failed_exec(void)
{
	errno = 0;
	if (execl("/nonexistent/program", name, NULL) != -1 || errno != ENOENT)
		abort();
	errno = 0;
	if (execvp("pinshim-no-such-program", argument) != -1 || errno != ENOENT)
		abort();
	errno = 0;
	if (execv("/etc/passwd", argument) != -1 || errno != EACCES)
		abort();
	pin_one();
}

/* Execs that only the kernel finds fault with, after a report: the next one counts what follows. */
static void way_late_failed_exec(void)
{
	errno = 0;
	if (execve("/", argument, empty) != -1 || errno != EACCES)
		abort();
	if (fexecve(-1, argument, empty) != -1)
		abort();
	if (execveat(AT_FDCWD, "/nonexistent", argument, empty, 0) != -1 || errno != ENOENT)
		abort();
	pin_one();
	if (table_count(getpid()) > 1)
		abort();
}

static void at_exit(void)
{
	pin_one();
}

static void way_atexit(void)
{
	if (atexit(at_exit))
		abort();
}

static void way_at_quick_exit(void)
{
	if (at_quick_exit(at_exit))
		abort();
	quick_exit(0);
}

static bool in_destructor;

__attribute__((destructor(101))) static void destructor(void)
{
	if (!in_destructor)
		return;
	for (int i = 0; i < 100; i++)
		pin_one();
	say("destructor\n");
}

static void way_destructor(void)
{
	in_destructor = true;
}

/* A daemon closes descriptor 2, and its data file gets the number. */
static void way_stderr_reused(void)
{
	int fd;

	close(STDERR_FILENO);
	fd = open(getenv("DATA_FILE"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd != STDERR_FILENO || write(fd, "data\n", 5) != 5)
		abort();
	pin_one();
}

static void way_stderr_closed(void)
{
	close(STDERR_FILENO);
	pin_one();
}

/* The other way to be a daemon: a log file as descriptor 2. */
static void way_stderr_log(void)
{
	int fd = open(getenv("DATA_FILE"), O_WRONLY | O_CREAT | O_APPEND, 0600);

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		abort();
	close(fd);
}

/* Everything closed, as before an exec; the report goes to a file of its own. */
static void way_all_closed(void)
{
	closefrom(0);
}

static void way_killed(void)
{
	raise(SIGKILL);
}

/* Leaves with a status of its own, which the report must not change. */
static void way_status(void)
{
	exit(42);
}

/* Pins nothing at all. */
static void way_nothing(void)
{
}

static const struct way {
	const char *name;
	void (*go)(void);
} ways[] = {
	{ "exit", way_exit },
	{ "_exit", way__exit },
	{ "_Exit", way__Exit },
	{ "quick_exit", way_quick_exit },
	{ "return", way_return },
	{ "exit_beside_thread", way_exit_beside_thread },
	{ "two_exits", way_two_exits },
	{ "two__exits", way_two__exits },
	{ "exit_and__exit", way_exit_and__exit },
	{ "pthread_exit", way_pthread_exit },
	{ "execl", way_execl },
	{ "execlp", way_execlp },
	{ "execle", way_execle },
	{ "execv", way_execv },
	{ "execvp", way_execvp },
	{ "execvpe", way_execvpe },
	{ "execve", way_execve },
	{ "fexecve", way_fexecve },
	{ "execveat", way_execveat },
	{ "failed_exec", way_failed_exec },
	{ "late_failed_exec", way_late_failed_exec },
	{ "atexit", way_atexit },
	{ "at_quick_exit", way_at_quick_exit },
	{ "destructor", way_destructor },
	{ "stderr_reused", way_stderr_reused },
	{ "stderr_closed", way_stderr_closed },
	{ "stderr_log", way_stderr_log },
	{ "all_closed", way_all_closed },
	{ "killed", way_killed },
	{ "status", way_status },
	{ "nothing", way_nothing },
};

int main(int count, char **arguments)
{
	alarm(20);
	say("%d\n", (int)getpid());
	for (size_t i = 0; count == 2 && i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (strcmp(arguments[1], ways[i].name))
			continue;
		if (ways[i].go != way_nothing)
			pin_two();
		ways[i].go();
		return 0;
	}
	return 2;
}
