/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_CONFIG_H
#define PS_CONFIG_H
/*
 * The settings: every PINSHIM_* variable, read once, validated, never changed afterwards.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"
#include "text.h"

enum ps_backend { PS_BACKEND_NATIVE, PS_BACKEND_CUDA, PS_BACKEND_OFF };
enum ps_on_fail { PS_ON_FAIL_ERROR, PS_ON_FAIL_FALLBACK };
enum ps_hugepages { PS_HUGEPAGES_THP, PS_HUGEPAGES_HUGETLB, PS_HUGEPAGES_OFF };
enum ps_aio { PS_AIO_AUTO, PS_AIO_URING, PS_AIO_LIBAIO, PS_AIO_OFF };
enum ps_aio_repair { PS_AIO_REPAIR_OFF, PS_AIO_REPAIR_ON };
enum ps_deepbind { PS_DEEPBIND_AUTO, PS_DEEPBIND_STRIP, PS_DEEPBIND_KEEP };

#define PS_RANGES_MAX 16

struct ps_size_range {
	size_t low;  /* smallest request served, bytes */
	size_t high; /* largest, inclusive */
};

struct ps_config {
	enum ps_backend backend;                          /* PINSHIM_BACKEND */
	struct ps_size_range malloc_range[PS_RANGES_MAX]; /* PINSHIM_MALLOC, ascending, disjoint */
	unsigned malloc_ranges;                           /* how many; 0: no malloc is served */
	uint64_t limit;              /* PINSHIM_LIMIT, bytes; UINT64_MAX: none */
	uint64_t reserve;            /* PINSHIM_RESERVE, bytes; of RAM if percent */
	unsigned reserve_percent;    /* PINSHIM_RESERVE in percent, else 0: of a cgroup too */
	uint64_t node_limit;         /* PINSHIM_NODE_LIMIT, bytes; UINT64_MAX: none */
	enum ps_on_fail on_fail;     /* PINSHIM_ON_FAIL */
	enum ps_hugepages hugepages; /* PINSHIM_HUGEPAGES */
	unsigned threads;            /* PINSHIM_THREADS, 1 or more */
	uint64_t retain;             /* PINSHIM_RETAIN, bytes */
	const char *stats;           /* PINSHIM_STATS: "stderr", "off", or a path pattern */
	const char *trace;           /* PINSHIM_TRACE: a path pattern; NULL: off */
	enum ps_log_level log;       /* PINSHIM_LOG */
	enum ps_aio aio;             /* PINSHIM_AIO; read by both libraries */
	enum ps_aio_repair
		aio_repair;        /* PINSHIM_AIO_REPAIR: misaligned direct I/O is made to work */
	enum ps_deepbind deepbind; /* PINSHIM_DEEPBIND: whether dlopen clears RTLD_DEEPBIND */
};

/* The settings in force; the defaults until the constructor has read the environment. */
extern struct ps_config ps_config;

/*
 * Reads every setting through get(name), which returns the value or NULL, into *config. ram is the
 * machine's memory in bytes, for values in percent; cores the number of processors.
 * 0; or -EINVAL with one line in *error that names the variable, the value and what is accepted.
 */
int ps_config_read(struct ps_config *config, const char *(*get)(const char *name), uint64_t ram,
		   unsigned cores, struct ps_text *error);

/*
 * Walks environ for PINSHIM_ names that no table knows and calls unknown(name, nearest) for each,
 * nearest being the closest known name or NULL.
 */
void ps_config_unknown(char *const *environment,
		       void (*unknown)(const char *name, const char *nearest));

/* Appends one "NAME=value" line a setting, as understood, for PINSHIM_LOG=debug and doctor. */
void ps_config_print(const struct ps_config *config, struct ps_text *text);

/* MemTotal of /proc/meminfo in bytes; 0 where it cannot be read. */
uint64_t ps_config_ram(void);

/* Processors that this process may run on; 1 where that cannot be told. */
unsigned ps_config_cores(void);

/*
 * Reads the environment, but not that of a set-user-ID program, into ps_config on this machine, and
 * puts PINSHIM_LOG into force. As ps_config_read().
 */
int ps_config_from_environment(struct ps_text *error);

/* Says of each PINSHIM_ name in the environment that is no setting that it has no effect. */
void ps_config_say_unknown(void);

#endif
