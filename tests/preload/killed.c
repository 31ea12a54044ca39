/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pins and unpins without end, in two threads, until it is killed: its table changes all the time.
 * The first line on stdout, its process id, comes when there is a table.
 */
#include <pthread.h>

#include "check.h"

#define M ((size_t)1 << 20)

static char *kept;

static void *churn(void *unused)
{
	for (unsigned i = 0;; i++) {
		char *block = opaque((char *)malloc((17 + i % 8) * M));

		block[0] = 1;
		free(block);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;

	alarm(30);
	kept = opaque((char *)malloc(20 * M));
	if (!kept || pthread_create(&thread, NULL, churn, NULL))
		return 2;
	say("%d\n", (int)getpid());
	churn(NULL);
	return 0;
}
