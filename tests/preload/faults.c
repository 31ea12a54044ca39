/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program whose every line of output is fixed, to be run while calls of the system fail under the
 * library. Lines with a number are process ids. At its end it has freed everything, asks the library to unpin it, and prints what the
 * kernel still counts as locked.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#include "check.h"

#define M ((size_t)1 << 20)

static const size_t sizes[] = { 65536, 100000, M, 3 * M + 7, 24 * M };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Makes, grows, shrinks and frees a block of each size. */
static bool round_trip(unsigned char seed)
{
	char *block[SIZES];
	bool good = true;

	for (size_t i = 0; i < SIZES; i++) {
		block[i] = i % 2 ? malloc(sizes[i]) : memalign(8192, sizes[i]);
		fill(block[i], sizes[i], (unsigned char)(seed + i));
	}
	for (size_t i = 0; i < SIZES; i++) {
		size_t more = sizes[i] + sizes[i] / 2;

		block[i] = realloc(block[i], more);
		good &= filled(block[i], sizes[i], sizes[i], (unsigned char)(seed + i));
		fill(block[i], more, (unsigned char)(seed + i));
		block[i] = realloc(block[i], 1000);
		good &= filled(block[i], 1000, more, (unsigned char)(seed + i));
		free(block[i]);
		block[i] = calloc(1, sizes[i]);
		for (size_t j = 0; j < sizes[i]; j += 4096)
			good &= block[i][j] == 0;
		memset(block[i], 0xff, sizes[i]);
	}
	for (size_t i = 0; i < SIZES; i++)
		free(block[i]);
	return good;
}

static void *round_trip_in_thread(void *unused)
{
	(void)unused;
	return round_trip(101) ? (void *)1 : NULL;
}

int main(void)
{
	size_t (*trim)(size_t) = (size_t(*)(size_t))dlsym(RTLD_DEFAULT, "pinshim_trim");
	bool (*pinned)(const void *, size_t) = (bool (*)(const void *, size_t))dlsym(
		RTLD_DEFAULT, "pinshim_is_pinned");
	pthread_t thread[2];
	bool good = true, honest = true;
	pid_t child;
	int status;

	alarm(60);
	say("%d\n", (int)getpid());
	check(round_trip(1), "blocks of the ranges hold");
	for (int i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, round_trip_in_thread, NULL))
			return 2;
	for (int i = 0; i < 2; i++) {
		void *result = NULL;

		pthread_join(thread[i], &result);
		good &= result != NULL;
	}
	check(good, "in threads too");
	child = fork();
	if (child == 0) {
		say("%d\n", (int)getpid());
		_exit(round_trip(51) ? 0 : 1);
	}
	check(waitpid(child, &status, 0) == child && status == 0, "and in a forked child");
	for (size_t i = 0; pinned && i < SIZES; i++) {
		char *block = malloc(sizes[i]);

		honest &= pinned(block, sizes[i]) == is_locked(block, sizes[i]);
		free(block);
	}
	check(honest, "pinshim_is_pinned says what the kernel says");
	if (trim)
		trim(0);
	say("locked %ld\n", locked_bytes());
	return check_end();
}
