/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * spawn COUNT PROGRAM [NAME=VALUE ...]
 *
 * Starts PROGRAM COUNT times with this environment and COUNT times with NAME=VALUE added, in turn,
 * and waits for each. Prints two lines of COUNT numbers: microseconds from start to end, without
 * and with. The two take turns in one process, so that both see the same machine.
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP 5

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double run(char *program, char **environment)
{
	char *arguments[] = { program, NULL };
	double begin = now_us();
	int status, error;
	pid_t pid;

	error = posix_spawn(&pid, program, NULL, NULL, arguments, environment);
	if (error) {
		fprintf(stderr, "spawn: %s: %s\n", program, strerror(error));
		exit(1);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0) {
		fprintf(stderr, "spawn: %s ended with status %d\n", program, status);
		exit(1);
	}
	return now_us() - begin;
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[1]) : 0;
	int inherited = 0, added = argc > 3 ? argc - 3 : 0;
	double *without, *with;
	char **environment;

	if (count < 1) {
		fprintf(stderr, "usage: spawn COUNT PROGRAM [NAME=VALUE ...]\n");
		return 2;
	}
	while (environ[inherited])
		inherited++;
	environment = calloc((size_t)(inherited + added) + 1, sizeof(*environment));
	without = calloc((size_t)count, sizeof(*without));
	with = calloc((size_t)count, sizeof(*with));
	if (!environment || !without || !with)
		return 1;
	memcpy(environment, environ, (size_t)inherited * sizeof(*environment));
	if (added)
		memcpy(environment + inherited, argv + 3, (size_t)added * sizeof(*environment));

	for (int i = 0; i < WARM_UP; i++) {
		run(argv[2], environ);
		run(argv[2], environment);
	}
	for (int i = 0; i < count; i++) {
		without[i] = run(argv[2], environ);
		with[i] = run(argv[2], environment);
	}
	for (int i = 0; i < count; i++)
		printf("%.1f ", without[i]);
	printf("\n");
	for (int i = 0; i < count; i++)
		printf("%.1f ", with[i]);
	printf("\n");
	return 0;
}
