/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does what trace.sh looks for in the trace. Usage: trace WAY. With PINSHIM_RETAIN=0 and blocks of 16 MiB
 * served, each of which is pinned by itself.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../../interpose/pinshim.h"
#include "check.h"

#define M ((size_t)1 << 20)

/* Pins and unpins a block; whether there was one. */
static bool block(size_t megabytes)
{
	char *memory = opaque((char *)malloc(megabytes * M));
	const bool got = memory != NULL;

	free(memory);
	return got;
}

/* A block of 16 MiB, 20 that become 24 and 16 again, 64 KiB that stay where they are, and 60 refused. */
static bool way_plain(void)
{
	char *own = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *grown = opaque((char *)malloc(20 * M));
	bool good;

	grown = opaque((char *)realloc(grown, 24 * M));
	grown = opaque((char *)realloc(grown, 16 * M));
	free(grown);
	good = own != MAP_FAILED && pinshim_pin(own, 65536) == 0;
	good = pinshim_unpin(own, 65536) == 0 && good;
	return block(16) && block(60) && good;
}

static bool way_nothing(void)
{
	return block(1);
}

static bool way_fork(void)
{
	int status = -1;
	pid_t child;

	if (!block(16))
		return false;
	child = fork();
	if (child == 0)
		_exit(block(16) && block(18) ? 0 : 1);
	waitpid(child, &status, 0);
	return status == 0 && block(18);
}

static void *pin_some(void *unused)
{
	for (int i = 0; i < 10; i++)
		block(16);
	return unused;
}

static bool way_threads(void)
{
	pthread_t thread[4];

	for (int i = 0; i < 4; i++)
		if (pthread_create(&thread[i], NULL, pin_some, NULL) != 0)
			return false;
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	return true;
}

/* Says when it has begun, and goes on until it is killed. */
static bool way_killed(void)
{
	alarm(30);
	if (!block(16))
		return false;
	say("ready\n");
	for (;;)
		block(16);
}

/* Is refused without end: each request is more than PINSHIM_LIMIT. */
static bool way_refused(void)
{
	for (int i = 0; i < 2000; i++)
		if (!block(60))
			return false;
	return true;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		bool (*go)(void);
	} ways[] = {
		{ "fork", way_fork },   { "killed", way_killed },   { "nothing", way_nothing },
		{ "plain", way_plain }, { "refused", way_refused }, { "threads", way_threads },
	};

	for (size_t i = 0; argc == 2 && i < sizeof(ways) / sizeof(ways[0]); i++)
		if (strcmp(argv[1], ways[i].name) == 0)
			return ways[i].go() ? 0 : 1;
	return 2;
}
