/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A signal at the instructions of io_submit() and io_getevents(), whose handler uses the very context that they
 * are using, or forks: without the shim these are system calls, which a handler may make. A parent runs the
 * program instruction by instruction, and has the signal delivered some later each turn.
 *
 * "PROGRAM can" tells by its status whether a program may be run like that here. BETWEEN in the environment: how
 * many instructions later the signal comes each turn.
 */
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#include "behaviour.h"

enum { BLOCK = 4096, OWN = 2, REQUESTS = OWN + 1 };

/* One kind of handler. */
struct one {
	const char *name;
	void (*turn)(void);    /* what is interrupted */
	void (*handler)(void); /* by this */
	bool (*end)(void);     /* was all as it should be? */
	enum context_of {
		OF_ALL,
		OF_TURN,
		OF_TURN_USED
	} context;         /* OF_TURN_USED: was used before */
	bool system_calls; /* these alone are interrupted */
};

/* What both see. */
static struct {
	atomic_bool in_turn;
	atomic_bool wrong;
	atomic_ulong signals;
} * shared;

static const struct one *now;
static io_context_t context;
static int direct, buffered;
static char *memory;
static struct iocb iocb[REQUESTS]; /* the last one is the handler's */
static volatile sig_atomic_t submitted[REQUESTS], events[REQUESTS];

static void submit_read(int number, int fd)
{
	struct iocb *list = &iocb[number];

	io_prep_pread(list, fd, memory + (size_t)number * BLOCK, BLOCK, (long long)number * BLOCK);
	submitted[number] = 1;
	if (io_submit(context, 1, &list) != 1)
		submitted[number] = 0;
}

static void take(long least, struct timespec *timeout)
{
	struct io_event event[REQUESTS];
	const int got = io_getevents(context, least, REQUESTS, event, timeout);

	for (int i = 0; i < got; i++) {
		events[event[i].obj - iocb]++;
		if (event[i].res != BLOCK)
			atomic_store(&shared->wrong, true);
	}
}

/* Events that are still to come. */
static int missing(void)
{
	int count = 0;

	for (int i = 0; i < REQUESTS; i++)
		count += submitted[i] - events[i];
	return count;
}

/* io_getevents() of libaio reads memory of the context: it must not end meanwhile. */
static void turn_submitting(void)
{
	for (int i = 0; i < OWN; i++)
		submit_read(i, direct);
}

static void turn_making(void)
{
	io_context_t other = context_for(1);

	io_destroy(other);
}

/* The handler may take what would be waited for. */
static void turn_once(void)
{
	turn_submitting();
	take(1, &(struct timespec){ 0, 1000000 });
}

/* Sleeps until what the handler submits is there, too: for ever if it does not come. */
static void turn_sleeping(void)
{
	turn_submitting();
	take(REQUESTS, NULL);
}

static void submit_and_take(void)
{
	submit_read(OWN, direct);
	take(0, &(struct timespec){ 0 });
}

/* With room for one event, so that the kernel refuses none for want of it. */
static void make_another(void)
{
	io_context_t other = NULL;

	if (io_setup(1, &other) != 0 || io_destroy(other) != 0)
		atomic_store(&shared->wrong, true);
}

static void take_all(void)
{
	take(0, &(struct timespec){ 0 });
}

static void submit_buffered(void)
{
	submit_read(OWN, buffered);
}

static void destroy(void)
{
	if (io_destroy(context) != 0)
		atomic_store(&shared->wrong, true);
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
}

static void fork_a_child(void)
{
	const pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(7);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 7)
		atomic_store(&shared->wrong, true);
}

static bool is_well(void)
{
	while (missing() > 0)
		take(1, NULL);
	take_all();
	for (int i = 0; i < REQUESTS; i++)
		if (events[i] != submitted[i] ||
		    (submitted[i] && !holds_at(memory + i * BLOCK, BLOCK, (uint64_t)i * BLOCK, 1)))
			return false;
	return true;
}

static bool all_is_read(void)
{
	return is_well() && submitted[0] && submitted[1];
}

/* The memory of requests is the program's again when their context has ended. */
static bool memory_is_free(void)
{
	return untouched(memory, (size_t)REQUESTS * BLOCK) && io_destroy(context) == -EINVAL;
}

static const struct one kinds[] = {
	{ "reaps", turn_once, take_all, all_is_read, OF_ALL, false },
	{ "submits and reaps", turn_once, submit_and_take, all_is_read, OF_TURN_USED, false },
	{ "submits what is not direct", turn_sleeping, submit_buffered, all_is_read, OF_TURN,
	  true },
	{ "ends the context", turn_submitting, destroy, memory_is_free, OF_TURN, true },
	{ "ends the context in use", turn_submitting, destroy, memory_is_free, OF_TURN_USED,
	  false },
	{ "forks", turn_once, fork_a_child, all_is_read, OF_ALL, false },
	{ "makes another context", turn_making, make_another, is_well, OF_ALL, false },
	{ "forks while one is made", turn_making, fork_a_child, is_well, OF_ALL, false },
};

static void handle(int number)
{
	(void)number;
	atomic_fetch_add(&shared->signals, 1);
	now->handler();
}

static void forget(void)
{
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	for (int i = 0; i < REQUESTS; i++)
		submitted[i] = events[i] = 0;
}

static void one_turn(void)
{
	char name[120];

	snprintf(name, sizeof(name), "a handler that %s, signal %lu", now->name,
		 atomic_load(&shared->signals));
	watch(name);
	forget();
	if (now->context != OF_ALL)
		context = context_for(REQUESTS);
	if (now->context == OF_TURN_USED) {
		turn_submitting();
		need(all_is_read(), "reading");
		forget();
	}
	atomic_store(&shared->in_turn, true);
	raise(SIGSTOP);
	now->turn();
	atomic_store(&shared->in_turn, false);
	if (!now->end())
		atomic_store(&shared->wrong, true);
	if (now->context != OF_ALL)
		io_destroy(context);
}

static int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	need(directory != NULL, "/proc/self/fd");
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

/* The program that is run by the parent. */
static void run(const struct one *kind)
{
	int before;

	now = kind;
	signal(SIGUSR1, handle);
	need(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
	direct = open_file("data", O_RDONLY | O_DIRECT);
	buffered = open_file("data", O_RDONLY);
	memory = buffer((size_t)REQUESTS * BLOCK);
	if (kind->context == OF_ALL)
		context = context_for(REQUESTS);
	one_turn();
	/* What a context had is given back, or used by the next ones. */
	for (before = descriptors(); !atomic_load(&shared->wrong); one_turn())
		if (descriptors() > before + 4)
			atomic_store(&shared->wrong, true);
	_exit(1);
}

/* Lets it go on until it stops or ends. What is stopped for other signals has them. */
static bool stops(pid_t pid, int request, int number)
{
	int status;

	do {
		if (ptrace(request, pid, NULL, (void *)(intptr_t)number) < 0 ||
		    waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			return false;
		number = WSTOPSIG(status);
	} while (number != SIGSTOP && number != SIGTRAP);
	return true;
}

/* Is a system call the next instruction? */
static bool at_system_call(pid_t pid)
{
	struct user_regs_struct registers;
	struct iovec all = { &registers, sizeof(registers) };

	need(ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &all) == 0, "PTRACE_GETREGSET");
#if defined(__x86_64__)
	return (ptrace(PTRACE_PEEKTEXT, pid, (void *)registers.rip, NULL) & 0xffff) == 0x050f;
#else
	return (uint32_t)ptrace(PTRACE_PEEKTEXT, pid, (void *)registers.pc, NULL) == 0xd4000001;
#endif
}

/* Is it asleep in a turn? */
static bool sleeps(pid_t pid)
{
	char path[64], line[512] = "", *state;
	int fd;

	if (!atomic_load(&shared->in_turn))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open_file(path, O_RDONLY);
	need(read(fd, line, sizeof(line) - 1) > 0, path);
	close(fd);
	state = strrchr(line, ')');
	return state && !strncmp(state, ") S", 3);
}

/* One instruction; false where the turn is over, or sleeps for good. */
static bool steps(pid_t pid, bool may_sleep)
{
	int status;

	if (!may_sleep)
		return stops(pid, PTRACE_SINGLESTEP, 0) && atomic_load(&shared->in_turn);
	need(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0, "PTRACE_SINGLESTEP");
	while (waitpid(pid, &status, WNOHANG) == 0)
		if (sleeps(pid))
			return false;
	return WIFSTOPPED(status);
}

/*
 * A signal after so many instructions of a turn, or before a system call after so many others; false where the
 * turn was over before.
 */
static bool interrupt_after(pid_t pid, unsigned long count, bool system_calls)
{
	while (count > 0 || (system_calls && !at_system_call(pid))) {
		count -= !system_calls || at_system_call(pid);
		if (!steps(pid, now->turn == turn_sleeping))
			return false;
	}
	return stops(pid, PTRACE_CONT, SIGUSR1);
}

static void one_kind(const struct one *kind, unsigned long between)
{
	unsigned long count = 0;
	int status = 0;
	pid_t pid;

	atomic_store(&shared->wrong, false);
	atomic_store(&shared->signals, 0);
	atomic_store(&shared->in_turn, false);
	pid = fork();
	if (pid == 0)
		run(kind);
	now = kind;
	need(pid > 0 && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status),
	     "a child that stops");
	while (interrupt_after(pid, count, kind->system_calls) && !atomic_load(&shared->wrong))
		count += kind->system_calls ? 1 : between;
	/* It is stopped, unless it has come to an end that it should not have. */
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (!check(!atomic_load(&shared->wrong) && atomic_load(&shared->signals) > 1 &&
			   WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		   "a handler that %s, whatever it interrupts: each request has its event and its bytes",
		   kind->name))
		say("# interrupted after %lu, status %x\n", count, status);
}

static void destroy_only(void)
{
	say("a handler ends a context that is waited for: %d\n", io_destroy(context));
}

static void end_while_waiting(void)
{
	static const struct one waiting = { .handler = destroy_only };
	struct io_event event;
	pid_t pid;

	watch("a handler that ends a context that is waited for");
	atomic_store(&shared->in_turn, false);
	pid = fork_watched();
	if (pid == 0) {
		now = &waiting;
		signal(SIGUSR1, handle);
		context = context_for(1);
		atomic_store(&shared->in_turn, true);
		gives("which is waited for", io_getevents(context, 1, 1, &event, NULL));
		_exit(0);
	}
	while (!sleeps(pid))
		sched_yield();
	kill(pid, SIGUSR1);
	check(child_ends(pid) == 0, "a handler that ends a context that is waited for");
}

static bool can_step(void)
{
	const pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(1);
		raise(SIGSTOP);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return false;
	return ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid &&
	       kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid;
}

int main(int argc, char **argv)
{
	const char *given = getenv("BETWEEN");
	const unsigned long between = given ? strtoul(given, NULL, 10) : 1;

	if (argc == 2 && !strcmp(argv[1], "can"))
		return !can_step();
	begin(argc, argv);
	alarm(0);
	make_file("data", (size_t)REQUESTS * BLOCK, 1);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	need(shared != MAP_FAILED, "mmap");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		one_kind(&kinds[i], between);
	end_while_waiting();
	return check_end();
}
