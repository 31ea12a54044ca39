/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every way to make a child, and every way the child can go. Usage: children [locked]
 *
 * "locked" says that pinshim is preloaded and serves 64 KiB and more; without it the same cases
 * describe plain malloc. The process ids of children go to the file CHILDREN_PIDS, "kind pid" a
 * line, so that children.sh can look for their reports.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

#define M ((size_t)1 << 20)

enum { BLOCKS = 8 };

static bool locks;
static char *block[BLOCKS]; /* 64 KiB to 40 MiB, made before any child */
static size_t block_size[BLOCKS];

static void make_blocks(void)
{
	static const size_t sizes[BLOCKS] = { 100,   65536,     100000, M,
					      3 * M, 5 * M + 1, 20 * M, 40 * M };

	for (int i = 0; i < BLOCKS; i++) {
		block_size[i] = sizes[i];
		block[i] = malloc(sizes[i]);
		fill(block[i], sizes[i], (unsigned char)i);
	}
}

static bool blocks_hold(void)
{
	for (int i = 0; i < BLOCKS; i++)
		if (!filled(block[i], block_size[i], block_size[i], (unsigned char)i))
			return false;
	return true;
}

static void note(const char *kind, pid_t pid)
{
	const char *path = getenv("CHILDREN_PIDS");
	int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;

	if (fd >= 0) {
		dprintf(fd, "%s %d\n", kind, (int)pid);
		close(fd);
	}
}

/* Waits for a child; its exit status, or minus the signal that ended it. */
static int await(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1000;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* What a child must be able to do with what it inherited; 0, or the number of what it could not. */
static int use_heap(void)
{
	char *fresh, *grown;

	alarm(20);
	if (locks && locked_bytes() != 0)
		return 10; /* locks are not inherited */
	if (!blocks_hold())
		return 11;
	if (malloc_usable_size(block[4]) < block_size[4])
		return 12;
	grown = realloc(block[3], 2 * M);
	if (!grown || !filled(grown, M, M, 3))
		return 13;
	free(grown);
	free(block[1]);
	free(block[7]);
	fresh = malloc(2 * M);
	fill(fresh, 2 * M, 77);
	if (!filled(fresh, 2 * M, 2 * M, 77))
		return 14;
	if (locks && !is_locked(fresh, 2 * M))
		return 15; /* new blocks are served */
	if (locks && table_count(getpid()) != 1)
		return 16; /* in a table of the child's own */
	if (locks && table_count(getppid()) != 1)
		return 17; /* beside the parent's */
	if (!filled(block[2], block_size[2], block_size[2], 2))
		return 18;
	free(fresh);
	return 0;
}

static void forked(const char *kind, void (*leave)(int))
{
	pid_t pid = fork();
	int result;

	if (pid == 0)
		leave(use_heap());
	note(kind, pid);
	result = await(pid);
	check(result == 0,
	      "a forked child that ends with %s uses what it inherited, and new blocks", kind);
	if (result)
		say("# the child ended with %d\n", result);
	check(table_count(pid) == 0, "a forked child that ends with %s leaves no table", kind);
}

static void forked_exec(void)
{
	char *const empty[] = { NULL };
	char *const argument[] = { (char *)(uintptr_t) "true", NULL };
	pid_t pid = fork();

	if (pid == 0) {
		int result = use_heap();

		if (result == 0)
			execve("/bin/true", argument, empty);
		_exit(result ? result : 1);
	}
	note("exec", pid);
	check(await(pid) == 0, "a forked child uses the heap and then execs");
	check(table_count(pid) == 0, "the exec of a forked child leaves no table");
}

/* A child that touches nothing: Python's and the shell's most common kind. */
static void forked_idle(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(table_count(getpid()));
	note("idle", pid);
	check(await(pid) == 0 && table_count(pid) == 0,
	      "a forked child that allocates nothing has no table");
}

static void forked_twice(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		char *mine = malloc(3 * M);
		pid_t grandchild;

		fill(mine, 3 * M, 55);
		grandchild = fork();
		if (grandchild == 0) {
			if (!filled(mine, 3 * M, 3 * M, 55))
				_exit(30);
			free(mine);
			_exit(use_heap());
		}
		if (await(grandchild) || !filled(mine, 3 * M, 3 * M, 55))
			_exit(1);
		free(mine);
		_exit(blocks_hold() ? 0 : 2);
	}
	check(await(pid) == 0, "a grandchild uses what both its forebears made");
}

/* Runs no handler of pthread_atfork: the child has to notice by itself. */
static void raw_clone(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	int result;

	if (pid == 0)
		_exit(use_heap());
	note("clone", pid);
	result = await(pid);
	check(result == 0,
	      "a child of a raw clone(SIGCHLD) uses what it inherited, and new blocks");
	if (result)
		say("# the child ended with %d\n", result);
	check(table_count(pid) == 0, "a child of a raw clone(SIGCHLD) leaves no table");
}

/* The whole of this process's table, to see that nothing changes it. */
struct image {
	size_t length;
	ino_t inode;
	char bytes[1 << 18];
};

static void take_image(struct image *image)
{
	char prefix[32], path[300] = "";
	struct dirent *entry;
	struct stat status;
	DIR *directory = opendir("/dev/shm");
	ssize_t got;
	int fd;

	image->length = 0;
	image->inode = 0;
	snprintf(prefix, sizeof(prefix), "pinshim.%d.", (int)getpid());
	while (directory && (entry = readdir(directory)))
		if (!strncmp(entry->d_name, prefix, strlen(prefix)))
			snprintf(path, sizeof(path), "/dev/shm/%s", entry->d_name);
	if (directory)
		closedir(directory);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (!fstat(fd, &status))
		image->inode = status.st_ino;
	while ((got = read(fd, image->bytes + image->length,
			   sizeof(image->bytes) - image->length)) > 0)
		image->length += (size_t)got;
	close(fd);
}

static struct image before, after;

/* vfork: the child shares our memory under another process id, and must change nothing of ours. */
static void vforked(const char *kind, void (*leave)(void), int expected)
{
	volatile pid_t pid;

	take_image(&before);
	pid = vfork();
	if (pid == 0)
		leave();
	take_image(&after);
	note(kind, pid);
	check(await(pid) == expected, "a vfork child that %s ends as it should", kind);
	check(before.length == after.length && before.inode == after.inode &&
		      !memcmp(before.bytes, after.bytes, before.length),
	      "a vfork child that %s leaves the parent's table as it was", kind);
	check(table_count(pid) == 0, "a vfork child that %s has no table", kind);
	check(!locks || (table_count(getpid()) == 1 && is_locked(block[4], block_size[4])),
	      "the parent of a vfork child that %s keeps its table and its locks", kind);
	check(blocks_hold(), "the parent of a vfork child that %s keeps its blocks", kind);
}

static void leave_by_exit(void)
{
	_exit(3);
}

static void leave_by_exec(void)
{
	static char name[] = "true";
	static char *const argument[] = { name, NULL }, *const empty[] = { NULL };

	execve("/bin/true", argument, empty);
	_exit(4);
}

static void leave_by_failed_exec(void)
{
	static char name[] = "none";
	static char *const argument[] = { name, NULL };

	execv("/nonexistent/program", argument);
	execvp("pinshim-no-such-program", argument);
	_exit(errno == ENOENT ? 5 : 6);
}

static void leave_limited(void)
{
	static const struct rlimit limit = { 1 << 20, 1 << 20 };

	_exit(setrlimit(RLIMIT_AS, &limit) == 0 ? 3 : 4);
}

/* What was not used of the heap's addresses is still the parent's. */
static void parent_of_limited(void)
{
	char *large = malloc(100 * M);

	fill(large, 100 * M, 77);
	check(!locks || is_locked(large, 100 * M),
	      "the parent of a vfork child that limits its addresses is served as before");
	free(large);
}

static int thread_like_child(void *unused)
{
	(void)unused;
	_exit(7);
}

/* clone(CLONE_VM) without CLONE_VFORK: shares our memory while we run on. */
static void clone_vm(void)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	pid_t pid;

	take_image(&before);
	pid = clone(thread_like_child, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	check(await(pid) == 7, "a clone(CLONE_VM) child that _exits ends as it should");
	take_image(&after);
	note("clone-vm", pid);
	check(before.length == after.length && !memcmp(before.bytes, after.bytes, before.length) &&
		      table_count(pid) == 0,
	      "a clone(CLONE_VM) child that _exits leaves the parent's table as it was");
}

static void (*leave_bare)(void);

static int bare_child(void *unused)
{
	(void)unused;
	leave_bare();
	return 8;
}

/* As Chromium's sandbox makes a child: like vfork(), but its thread area is nothing but zeros. */
static void without_thread_area(const char *kind, void (*leave)(void), int expected)
{
	static char stack[1 << 16] __attribute__((aligned(16))),
		area[1 << 14] __attribute__((aligned(64)));
	pid_t pid;

	memset(area, 0, sizeof(area));
	leave_bare = leave;
	take_image(&before);
	pid = clone(bare_child, stack + sizeof(stack),
		    CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD, NULL, NULL,
		    area + sizeof(area) / 2, NULL);
	take_image(&after);
	note(kind, pid);
	check(await(pid) == expected, "a child without a thread area that %s ends as it should",
	      kind);
	check(before.length == after.length && !memcmp(before.bytes, after.bytes, before.length) &&
		      table_count(pid) == 0,
	      "a child without a thread area that %s leaves the parent's table as it was", kind);
}

static void spawned(void)
{
	char name[] = "true", shell[] = "sh", option[] = "-c", command[] = "exit 9";
	char *const argument[] = { name, NULL }, *const empty[] = { NULL };
	char *const shell_argument[] = { shell, option, command, NULL };
	pid_t pid = 0;
	FILE *pipe;
	char line[32] = "";

	take_image(&before);
	check(posix_spawn(&pid, "/bin/true", NULL, NULL, argument, empty) == 0,
	      "posix_spawn starts a program");
	take_image(&after);
	note("spawn", pid);
	check(await(pid) == 0, "a spawned program ends as it should");
	check(before.length == after.length && !memcmp(before.bytes, after.bytes, before.length),
	      "posix_spawn leaves the parent's table as it was");
	check(posix_spawn(&pid, "/nonexistent", NULL, NULL, argument, empty) == ENOENT,
	      "posix_spawn of what is not there says ENOENT");
	check(posix_spawnp(&pid, "sh", NULL, NULL, shell_argument, environ) == 0 && await(pid) == 9,
	      "posix_spawnp finds a program by PATH, with the environment");
	check(system("exit 6") == 6 << 8, "system() works");
	pipe = popen("echo words", "r");
	check(pipe && fgets(line, sizeof(line), pipe) && !strcmp(line, "words\n") &&
		      pclose(pipe) == 0,
	      "popen() works");
	check(blocks_hold(), "the blocks of a program that spawned others hold");
}

/* A thread other than the main one forks: its child has that thread alone. */
static void *fork_in_thread(void *unused)
{
	pid_t pid = fork();

	(void)unused;
	if (pid == 0)
		_exit(use_heap());
	check(await(pid) == 0, "a child forked by a second thread uses what it inherited");
	return NULL;
}

int main(int count, char **argument)
{
	pthread_t thread;

	locks = count > 1 && !strcmp(argument[1], "locked");
	alarm(60);
	make_blocks();
	forked("exit", exit);
	forked("_exit", _exit);
	forked_exec();
	forked_idle();
	forked_twice();
	raw_clone();
	vforked("_exits", leave_by_exit, 3);
	vforked("execs", leave_by_exec, 0);
	vforked("fails to exec", leave_by_failed_exec, 5);
	vforked("limits its addresses", leave_limited, 3);
	parent_of_limited();
	without_thread_area("just _exits", leave_by_exit, 3);
	without_thread_area("just execs", leave_by_exec, 0);
	clone_vm();
	spawned();
	if (!pthread_create(&thread, NULL, fork_in_thread, NULL))
		pthread_join(thread, NULL);
	check(blocks_hold(), "the parent's blocks are as they were");
	check(!locks || is_locked(block[7], block_size[7]), "and still locked");
	for (int i = 0; i < BLOCKS; i++)
		free(block[i]);
	return check_end();
}
