/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The older half of libaio: io_queue_init(), io_queue_release(), and callbacks by io_queue_run().
 */
#include "behaviour.h"

enum { REQUESTS = 16, BLOCK = 4096 };

static char *memory;
static struct iocb iocb[REQUESTS];
static io_context_t expected_context;
static int calls, wrong, again;

static void callback(io_context_t context, struct iocb *request, long result, long result2)
{
	calls++;
	wrong += context != expected_context || request < iocb || request >= iocb + REQUESTS ||
		 result != BLOCK || result2 != 0;
	/* A callback may submit. */
	if (again > 0) {
		again--;
		wrong += submit(context, request) != 1;
	}
}

static void count_errors(io_context_t context, struct iocb *request, long result, long result2)
{
	(void)context;
	(void)request;
	calls++;
	wrong += result != -EFAULT || result2 != 0;
}

static void run(const struct way *way, io_context_t context, int fd)
{
	struct iocb *list[REQUESTS];
	int got = 0;

	calls = wrong = 0;
	expected_context = context;
	watch("io_queue_run");
	gives("io_queue_run of nothing", io_queue_run(context));
	memset(memory, 0xee, (size_t)REQUESTS * BLOCK);
	for (int i = 0; i < REQUESTS; i++) {
		io_prep_pread(&iocb[i], fd, memory + (size_t)i * BLOCK, BLOCK,
			      (long long)i * BLOCK);
		io_set_callback(&iocb[i], callback);
		list[i] = &iocb[i];
	}
	need(io_submit(context, REQUESTS, list) == REQUESTS, "io_submit");
	while (calls < REQUESTS && got == 0)
		got = io_queue_run(context);
	check(got == 0 && calls == REQUESTS && wrong == 0 &&
		      holds_at(memory, (size_t)REQUESTS * BLOCK, 0, 1),
	      "%s: io_queue_run() calls back for each request", way->name);
	calls = 0;
	again = 50;
	need(io_submit(context, 1, list) == 1, "io_submit");
	while (calls < 51 && got == 0)
		got = io_queue_run(context);
	check(got == 0 && calls == 51 && wrong == 0, "%s: a callback may submit again", way->name);
	calls = 0;
	io_prep_pread(&iocb[0], fd, NULL, BLOCK, 0);
	io_set_callback(&iocb[0], count_errors);
	need(io_submit(context, 1, list) == 1, "io_submit");
	while (calls < 1 && got == 0)
		got = io_queue_run(context);
	check(got == 0 && calls == 1 && wrong == 0, "%s: a callback is told of errors", way->name);
	gives("io_queue_run of nothing, after all", io_queue_run(context));
	check(calls == 1, "%s: nobody is called twice", way->name);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	memory = buffer((size_t)REQUESTS * BLOCK);
	gives("io_queue_run of no context", io_queue_run(NULL));
	FOR_EACH_WAY(way)
	{
		int fd = file_with("callbacks", (size_t)REQUESTS * BLOCK, 1, way->flags);
		io_context_t context = NULL;

		gives("io_queue_init", io_queue_init(REQUESTS, &context));
		run(way, context, fd);
		gives("io_queue_release", io_queue_release(context));
		close(fd);
	}
	return check_end();
}
