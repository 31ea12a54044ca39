/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Start-up: settings, window, and whether rerouting can work at all.
 *
 * The constructor runs after those of the libraries that the program needs; what they allocated
 * before passed through. It costs well under a millisecond, as every shell command of a session pays
 * it: no table, no jemalloc, no thread before something is pinned.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "fault.h"
#include "log.h"
#include "malloc.h"
#include "next.h"
#include "os.h"
#include "process.h"
#include "table.h"
#include "window.h"

/* Status of a process that was ended for a bad setting: EX_CONFIG of sysexits.h. */
#define EXIT_BAD_SETTING 78

/*
 * Present in programs built with these sanitizers, which bring an allocator of their own. The leak sanitizer takes
 * for lost what only a block of ours points to.
 */
extern void __asan_init(void) __attribute__((weak));
extern void __tsan_init(void) __attribute__((weak));
extern void __msan_init(void) __attribute__((weak));
extern void __lsan_init(void) __attribute__((weak));

/* dlopen.S: what is left of the mode, and where it goes. */
extern unsigned int ps_dlopen_mask;
extern void *(*ps_dlopen_next)(const char *file, int mode);

static void *first_dlopen(const char *file, int mode)
{
	ps_next_resolve();
	return ps_next.dlopen(file, mode);
}

unsigned int ps_dlopen_mask = ~0u;
void *(*ps_dlopen_next)(const char *file, int mode) = first_dlopen;

static void say_settings(void)
{
	char lines[2048];
	struct ps_text text = PS_TEXT_INIT(lines);

	ps_config_print(&ps_config, &text);
	for (char *line = lines, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
		ps_log(PS_LOG_DEBUG, "%.*s", (int)(end - line), line);
}

/* Reads the settings; ends the process where one is wrong. */
static void read_settings(void)
{
	char line[512];
	struct ps_text error = PS_TEXT_INIT(line);

	if (ps_config_from_environment(&error) < 0) {
		ps_log(PS_LOG_ERROR, "%s", line);
		ps_next._exit(EXIT_BAD_SETTING);
	}
	ps_config_say_unknown();
	if (ps_log_level >= PS_LOG_DEBUG)
		say_settings();
}

/*
 * Why malloc cannot be served here although the settings want it, or NULL. A block of ours that
 * somebody else's free() gets would be the end of the program.
 */
static const char *malloc_obstacle(void)
{
	if (__asan_init != NULL || __tsan_init != NULL || __msan_init != NULL ||
	    __lsan_init != NULL)
		return "the program is built with a sanitizer that brings its own malloc: run a "
		       "build without it";
	if (!ps_malloc_is_ours())
		return "another allocator comes first: put libpinshim.so first in LD_PRELOAD, and "
		       "preload it rather than dlopen() it";
	return NULL;
}

static void start_malloc(void)
{
	const char *obstacle;

	if (ps_config.malloc_ranges == 0)
		return;
	obstacle = malloc_obstacle();
	if (obstacle != NULL) {
		ps_log(PS_LOG_WARN, "PINSHIM_MALLOC is set but no malloc is served: %s", obstacle);
		return;
	}
	if (ps_config.deepbind == PS_DEEPBIND_AUTO)
		ps_dlopen_mask = ~(unsigned int)RTLD_DEEPBIND;
	ps_malloc_start(&ps_config);
}

/* Reserves what the heap needs. Without it the library is inert, and says so. */
static bool start_heap(void)
{
	ps_table_start();
	if (ps_window_reserve(ps_config_ram()) == 0)
		return true;
	ps_log(PS_LOG_WARN,
	       "nothing will be pinned: reserving addresses for the heap failed: raise the limit "
	       "on address space (ulimit -v)");
	return false;
}

static __attribute__((constructor)) void start(void)
{
	ps_next_resolve();
	ps_dlopen_next = ps_next.dlopen;
	ps_log_start();
#ifdef PS_FAULT_INJECTION
	ps_fault_from_environment();
#endif
	read_settings();
	if (ps_config.backend == PS_BACKEND_OFF || !start_heap())
		return;
	if (ps_config.deepbind == PS_DEEPBIND_STRIP)
		ps_dlopen_mask = ~(unsigned int)RTLD_DEEPBIND;
	ps_process_start();
	start_malloc();
}
