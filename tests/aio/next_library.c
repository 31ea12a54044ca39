/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library that comes between pinshim's and libaio, as those that trace I/O do: counts what it is asked, and
 * asks libaio. At the end of the process it says how often: "submitted N fetched N".
 */
#include <dlfcn.h>
#include <libaio.h>
#include <stdio.h>
#include <stdlib.h>

static int submitted, fetched;

int io_submit(io_context_t context, long count, struct iocb **iocbs)
{
	static int (*next)(io_context_t, long, struct iocb **);

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "io_submit");
	submitted++;
	return next(context, count, iocbs);
}

int io_getevents(io_context_t context, long least, long most, struct io_event *events,
		 struct timespec *timeout)
{
	static int (*next)(io_context_t, long, long, struct io_event *, struct timespec *);

	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "io_getevents");
	fetched++;
	return next(context, least, most, events, timeout);
}

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("NEXT_LIBRARY_REPORT");
	FILE *file = path != NULL ? fopen(path, "w") : NULL;

	if (file == NULL)
		return;
	fprintf(file, "submitted %d fetched %d\n", submitted, fetched);
	fclose(file);
}
