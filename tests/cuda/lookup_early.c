/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library whose constructor looks symbols up. A program's libraries are initialised before the
 * preloaded ones.
 */
#include <stdlib.h>

#include "lookup.h"

/* The program reads these: where each was found. */
void *early_next, *early_default, *early_handle, *early_driver, *early_missing;
int early_started;

/* By the name that the program gives its copy of the driver. */
static __attribute__((constructor)) void look_up_early(void)
{
	const char *driver = getenv("EARLY_DRIVER");
	void *libc = dlopen("libc.so.6", RTLD_NOW);

	early_next = dlsym(RTLD_NEXT, "getlogin");
	early_default = dlsym(RTLD_DEFAULT, "getlogin");
	early_handle = dlsym(libc, "getlogin");
	early_missing = dlsym(libc, "cuMemHostNone");
	if (driver != NULL)
		early_driver = dlsym(dlopen(driver, RTLD_NOW | RTLD_LOCAL), "cuMemHostAlloc");
	early_started = 1;
}
