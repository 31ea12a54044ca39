/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config.h: every variable's values and refusals, unknown names, and printing what was understood.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "fault.h"

#define GIB (UINT64_C(1) << 30)
#define RAM (64 * GIB)
#define CORES 16

static const char *names[8], *values[8]; /* the environment */
static unsigned variables;
static struct ps_config config;
static char error_buffer[1024];

static void set(const char *name, const char *value)
{
	names[variables] = name;
	values[variables++] = value;
}

static const char *get(const char *name)
{
	for (unsigned i = variables; i-- > 0;) {
		if (strcmp(names[i], name) == 0)
			return values[i];
	}
	return NULL;
}

static int read_on(uint64_t ram, unsigned cores)
{
	struct ps_text error = PS_TEXT_INIT(error_buffer);

	memset(&config, 0x5a, sizeof(config));
	error_buffer[0] = '\0';
	return ps_config_read(&config, get, ram, cores, &error);
}

static int read_with(const char *name, const char *value)
{
	variables = 0;
	set(name, value);
	return read_on(RAM, CORES);
}

START_TEST(defaults)
{
	ck_assert_int_eq(read_on(RAM, CORES), 0);
	ck_assert_str_eq(error_buffer, "");
	ck_assert_int_eq(config.backend, PS_BACKEND_NATIVE);
	ck_assert_uint_eq(config.malloc_ranges, 0);
	ck_assert_uint_eq(config.limit, UINT64_MAX);
	ck_assert_uint_eq(config.reserve, RAM / 20);
	ck_assert_uint_eq(config.reserve_percent, 5);
	ck_assert_uint_eq(config.node_limit, UINT64_MAX);
	ck_assert_int_eq(config.on_fail, PS_ON_FAIL_ERROR);
	ck_assert_int_eq(config.hugepages, PS_HUGEPAGES_THP);
	ck_assert_uint_eq(config.threads, 8);
	ck_assert_uint_eq(config.retain, GIB);
	ck_assert_str_eq(config.stats, "stderr");
	ck_assert_ptr_null(config.trace);
	ck_assert_int_eq(config.log, PS_LOG_WARN);
	ck_assert_int_eq(config.aio, PS_AIO_AUTO);
	ck_assert_int_eq(config.aio_repair, PS_AIO_REPAIR_ON);
	ck_assert_int_eq(config.deepbind, PS_DEEPBIND_AUTO);
}
END_TEST

/* What is in force before the environment is read: the same, as far as no machine is needed. */
START_TEST(initial_settings_are_the_defaults)
{
	ck_assert_int_eq(read_on(0, 1), 0);
	ck_assert_int_eq(ps_config.backend, config.backend);
	ck_assert_uint_eq(ps_config.malloc_ranges, config.malloc_ranges);
	ck_assert_uint_eq(ps_config.limit, config.limit);
	ck_assert_uint_eq(ps_config.reserve, config.reserve);
	ck_assert_uint_eq(ps_config.reserve_percent, config.reserve_percent);
	ck_assert_uint_eq(ps_config.node_limit, config.node_limit);
	ck_assert_int_eq(ps_config.on_fail, config.on_fail);
	ck_assert_int_eq(ps_config.hugepages, config.hugepages);
	ck_assert_uint_eq(ps_config.threads, config.threads);
	ck_assert_uint_eq(ps_config.retain, config.retain);
	ck_assert_str_eq(ps_config.stats, config.stats);
	ck_assert_ptr_eq(ps_config.trace, config.trace);
	ck_assert_int_eq(ps_config.log, config.log);
	ck_assert_int_eq(ps_config.aio, config.aio);
	ck_assert_int_eq(ps_config.aio_repair, config.aio_repair);
	ck_assert_int_eq(ps_config.deepbind, config.deepbind);
}
END_TEST

START_TEST(empty_is_the_default)
{
	static const char *const all[] = {
		"PINSHIM_BACKEND",    "PINSHIM_MALLOC",   "PINSHIM_LIMIT",     "PINSHIM_RESERVE",
		"PINSHIM_NODE_LIMIT", "PINSHIM_ON_FAIL",  "PINSHIM_HUGEPAGES", "PINSHIM_THREADS",
		"PINSHIM_RETAIN",     "PINSHIM_STATS",    "PINSHIM_LOG",       "PINSHIM_AIO",
		"PINSHIM_AIO_REPAIR", "PINSHIM_DEEPBIND", "PINSHIM_TRACE",
	};
	struct ps_config plain;

	ck_assert_int_eq(read_on(RAM, CORES), 0);
	memcpy(&plain, &config, sizeof(config));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		ck_assert_int_eq(read_with(all[i], ""), 0);
		ck_assert_mem_eq(&config, &plain, sizeof(config));
	}
}
END_TEST

START_TEST(choices)
{
	ck_assert_int_eq(read_with("PINSHIM_BACKEND", "native"), 0);
	ck_assert_int_eq(config.backend, PS_BACKEND_NATIVE);
	ck_assert_int_eq(read_with("PINSHIM_BACKEND", "cuda"), 0);
	ck_assert_int_eq(config.backend, PS_BACKEND_CUDA);
	ck_assert_int_eq(read_with("PINSHIM_BACKEND", "off"), 0);
	ck_assert_int_eq(config.backend, PS_BACKEND_OFF);
	ck_assert_int_eq(read_with("PINSHIM_ON_FAIL", "fallback"), 0);
	ck_assert_int_eq(config.on_fail, PS_ON_FAIL_FALLBACK);
	ck_assert_int_eq(read_with("PINSHIM_HUGEPAGES", "hugetlb"), 0);
	ck_assert_int_eq(config.hugepages, PS_HUGEPAGES_HUGETLB);
	ck_assert_int_eq(read_with("PINSHIM_HUGEPAGES", "off"), 0);
	ck_assert_int_eq(config.hugepages, PS_HUGEPAGES_OFF);
	ck_assert_int_eq(read_with("PINSHIM_LOG", "error"), 0);
	ck_assert_int_eq(config.log, PS_LOG_ERROR);
	ck_assert_int_eq(read_with("PINSHIM_LOG", "info"), 0);
	ck_assert_int_eq(config.log, PS_LOG_INFO);
	ck_assert_int_eq(read_with("PINSHIM_LOG", "debug"), 0);
	ck_assert_int_eq(config.log, PS_LOG_DEBUG);
	ck_assert_int_eq(read_with("PINSHIM_AIO", "uring"), 0);
	ck_assert_int_eq(config.aio, PS_AIO_URING);
	ck_assert_int_eq(read_with("PINSHIM_AIO", "libaio"), 0);
	ck_assert_int_eq(config.aio, PS_AIO_LIBAIO);
	ck_assert_int_eq(read_with("PINSHIM_AIO", "off"), 0);
	ck_assert_int_eq(config.aio, PS_AIO_OFF);
	ck_assert_int_eq(read_with("PINSHIM_AIO_REPAIR", "0"), 0);
	ck_assert_int_eq(config.aio_repair, PS_AIO_REPAIR_OFF);
	ck_assert_int_eq(read_with("PINSHIM_AIO_REPAIR", "1"), 0);
	ck_assert_int_eq(config.aio_repair, PS_AIO_REPAIR_ON);
	ck_assert_int_eq(read_with("PINSHIM_DEEPBIND", "keep"), 0);
	ck_assert_int_eq(config.deepbind, PS_DEEPBIND_KEEP);
}
END_TEST

START_TEST(sizes)
{
	ck_assert_int_eq(read_with("PINSHIM_LIMIT", "8G"), 0);
	ck_assert_uint_eq(config.limit, 8 * GIB);
	ck_assert_int_eq(read_with("PINSHIM_LIMIT", "0"), 0);
	ck_assert_uint_eq(config.limit, 0);
	ck_assert_int_eq(read_with("PINSHIM_LIMIT", "none"), 0);
	ck_assert_uint_eq(config.limit, UINT64_MAX);
	ck_assert_int_eq(read_with("PINSHIM_LIMIT", "50%"), 0);
	ck_assert_uint_eq(config.limit, RAM / 2);
	ck_assert_int_eq(read_with("PINSHIM_LIMIT", "100%"), 0);
	ck_assert_uint_eq(config.limit, RAM);
	ck_assert_int_eq(read_with("PINSHIM_LIMIT", "0%"), 0);
	ck_assert_uint_eq(config.limit, 0);
	ck_assert_int_eq(read_with("PINSHIM_NODE_LIMIT", "none"), 0);
	ck_assert_uint_eq(config.node_limit, UINT64_MAX);
	ck_assert_int_eq(read_with("PINSHIM_NODE_LIMIT", "3t"), 0);
	ck_assert_uint_eq(config.node_limit, 3072 * GIB);
	ck_assert_int_eq(read_with("PINSHIM_RETAIN", "25%"), 0);
	ck_assert_uint_eq(config.retain, RAM / 4);
	ck_assert_int_eq(read_with("PINSHIM_RETAIN", "0"), 0);
	ck_assert_uint_eq(config.retain, 0);
}
END_TEST

START_TEST(reserve_keeps_its_percentage)
{
	ck_assert_int_eq(read_with("PINSHIM_RESERVE", "10%"), 0);
	ck_assert_uint_eq(config.reserve, RAM / 10);
	ck_assert_uint_eq(config.reserve_percent, 10);
	ck_assert_int_eq(read_with("PINSHIM_RESERVE", "2G"), 0);
	ck_assert_uint_eq(config.reserve, 2 * GIB);
	ck_assert_uint_eq(config.reserve_percent, 0);
	ck_assert_int_eq(read_with("PINSHIM_RESERVE", "0"), 0);
	ck_assert_uint_eq(config.reserve, 0);
	ck_assert_uint_eq(config.reserve_percent, 0);
}
END_TEST

START_TEST(percent_without_known_ram)
{
	set("PINSHIM_LIMIT", "50%");
	ck_assert_int_eq(read_on(0, 1), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error_buffer, "/proc/meminfo"));
	/* A reserve still means something, to a cgroup. */
	variables = 0;
	set("PINSHIM_RESERVE", "7%");
	ck_assert_int_eq(read_on(0, 1), 0);
	ck_assert_uint_eq(config.reserve_percent, 7);
}
END_TEST

START_TEST(odd_ram_is_not_lost_or_overflowed)
{
	set("PINSHIM_LIMIT", "50%");
	ck_assert_int_eq(read_on(199, 1), 0);
	ck_assert_uint_eq(config.limit, 99);
	ck_assert_int_eq(read_on(UINT64_MAX, 1), 0);
	ck_assert_uint_eq(config.limit, UINT64_MAX / 2);
}
END_TEST

START_TEST(threads)
{
	ck_assert_int_eq(read_with("PINSHIM_THREADS", "1"), 0);
	ck_assert_uint_eq(config.threads, 1);
	ck_assert_int_eq(read_with("PINSHIM_THREADS", "256"), 0);
	ck_assert_uint_eq(config.threads, 256);
	variables = 0;
	ck_assert_int_eq(read_on(RAM, 3), 0);
	ck_assert_uint_eq(config.threads, 3);
	ck_assert_int_eq(read_on(RAM, 0), 0);
	ck_assert_uint_eq(config.threads, 1);
}
END_TEST

static const struct {
	const char *value;
	const char *understood;
} ranges[] = {
	{ "64K-1M", "64K-1M" },
	{ "64K-1M,16M-", "64K-1M,16M-" },
	{ "128K-", "128K-" },
	{ "0-100", "0-100" },
	{ "4096-4096", "4K-4K" },
	{ "16M-,64K-1M", "64K-1M,16M-" },   /* sorted */
	{ "64K-1M,512K-2M", "64K-2M" },     /* overlapping */
	{ "64K-8M,1M-2M", "64K-8M" },       /* inside another */
	{ "0-99,100-200", "0-200" },        /* touching */
	{ "0-99,101-200", "0-99,101-200" }, /* one size between them */
	{ "1M-,64K-", "64K-" },             /* both without end */
	{ "5-6,3-4,1-2", "1-6" },
	{ "0-18446744073709551615", "0-" },
	{ "1-1,3-3,5-5,7-7,9-9,11-11,13-13,15-15,17-17,19-19,21-21,23-23,25-25,27-27,29-29,31-31",
	  "1-1,3-3,5-5,7-7,9-9,11-11,13-13,15-15,17-17,19-19,21-21,23-23,25-25,27-27,29-29,31-31" },
};

static const char *printed(const char *name)
{
	static char buffer[8192];
	struct ps_text text = PS_TEXT_INIT(buffer);
	char *found;

	ps_config_print(&config, &text);
	ck_assert(!text.cut);
	for (found = buffer; found != NULL; found = strchr(found, '\n')) {
		found += *found == '\n';
		if (strncmp(found, name, strlen(name)) == 0 && found[strlen(name)] == '=') {
			found += strlen(name) + 1;
			found[strcspn(found, "\n")] = '\0';
			return found;
		}
	}
	return NULL;
}

START_TEST(malloc_ranges)
{
	ck_assert_int_eq(read_with("PINSHIM_MALLOC", ranges[_i].value), 0);
	ck_assert_str_eq(printed("PINSHIM_MALLOC"), ranges[_i].understood);
}
END_TEST

START_TEST(malloc_range_bounds)
{
	ck_assert_int_eq(read_with("PINSHIM_MALLOC", "64K-1M,16M-"), 0);
	ck_assert_uint_eq(config.malloc_ranges, 2);
	ck_assert_uint_eq(config.malloc_range[0].low, 65536);
	ck_assert_uint_eq(config.malloc_range[0].high, 1 << 20);
	ck_assert_uint_eq(config.malloc_range[1].low, 16 << 20);
	ck_assert_uint_eq(config.malloc_range[1].high, SIZE_MAX);
}
END_TEST

static const struct {
	const char *name;
	const char *value;
	const char *error; /* all of it after NAME=value: */
} refused[] = {
	{ "PINSHIM_BACKEND", "Native", "no such choice: use native, cuda or off" },
	{ "PINSHIM_BACKEND", "native ", "no such choice: use native, cuda or off" },
	{ "PINSHIM_ON_FAIL", "warn", "no such choice: use error or fallback" },
	{ "PINSHIM_HUGEPAGES", "1", "no such choice: use thp, hugetlb or off" },
	{ "PINSHIM_LOG", "verbose", "no such choice: use error, warn, info or debug" },
	{ "PINSHIM_AIO", "io_uring", "no such choice: use auto, uring, libaio or off" },
	{ "PINSHIM_AIO_REPAIR", "yes", "no such choice: use 0 or 1" },
	{ "PINSHIM_DEEPBIND", "yes", "no such choice: use auto, strip or keep" },
#define SIZE_FORM "bytes with K, M, G or T (8G), or a percentage of RAM (50%)"
	{ "PINSHIM_LIMIT", "abc", "not a size: use none, " SIZE_FORM },
	{ "PINSHIM_LIMIT", "8GB", "not a size: use none, " SIZE_FORM },
	{ "PINSHIM_LIMIT", "-1", "not a size: use none, " SIZE_FORM },
	{ "PINSHIM_LIMIT", "%", "not a size: use none, " SIZE_FORM },
	{ "PINSHIM_LIMIT", "1K%", "not a size: use none, " SIZE_FORM },
	{ "PINSHIM_LIMIT", "50%%", "not a size: use none, " SIZE_FORM },
	{ "PINSHIM_LIMIT", "12.5%", "not a size: use none, " SIZE_FORM },
	{ "PINSHIM_LIMIT", "101%", "more than 100%: use none, " SIZE_FORM },
	{ "PINSHIM_LIMIT", "18446744073709551616", "too large: use none, " SIZE_FORM },
	{ "PINSHIM_LIMIT", "99999999999T", "too large: use none, " SIZE_FORM },
	{ "PINSHIM_NODE_LIMIT", "all", "not a size: use none, " SIZE_FORM },
	{ "PINSHIM_RESERVE", "none", "not a size: use " SIZE_FORM },
	{ "PINSHIM_RESERVE", "200%", "more than 100%: use " SIZE_FORM },
	{ "PINSHIM_RESERVE", "x%", "not a size: use " SIZE_FORM },
	{ "PINSHIM_RETAIN", "none", "not a size: use " SIZE_FORM },
	{ "PINSHIM_THREADS", "0", "out of range: use a number from 1 to 256" },
	{ "PINSHIM_THREADS", "257", "out of range: use a number from 1 to 256" },
	{ "PINSHIM_THREADS", "1K", "not a number: use a number from 1 to 256" },
	{ "PINSHIM_THREADS", "two", "not a number: use a number from 1 to 256" },
	{ "PINSHIM_THREADS", "-1", "not a number: use a number from 1 to 256" },
#define RANGE_FORM "ranges of sizes LOW-HIGH or LOW-, separated by commas (64K-1M,16M-)"
	{ "PINSHIM_MALLOC", "64K", "not a range of sizes: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", "-1M", "a range begins with its smallest size: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", "-", "a range begins with its smallest size: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", "1M-64K", "a range ends below its beginning: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", "64K-1M,", "not a range of sizes: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", ",64K-1M", "not a range of sizes: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", "64K-1M;2M-", "not a range of sizes: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", "64K-1M 2M-", "not a range of sizes: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", "64K-1M-2M", "not a range of sizes: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", "on", "not a range of sizes: use " RANGE_FORM },
	{ "PINSHIM_MALLOC", "1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8,9-9,1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8",
	  "more than 16 ranges: use " RANGE_FORM },
#define PATTERN_FORM                                                                               \
	"a file's path, in which %p is the process id, %h the host, %e the program, %r the rank "  \
	"and %% a percent sign"
#define PATH_FORM "stderr, off, or " PATTERN_FORM
	{ "PINSHIM_STATS", "/tmp/%q", "not a path pattern: use " PATH_FORM },
	{ "PINSHIM_STATS", "/tmp/100%", "not a path pattern: use " PATH_FORM },
	{ "PINSHIM_TRACE", "/tmp/%q", "not a path pattern: use off, or " PATTERN_FORM },
};

START_TEST(bad_values)
{
	char expected[1024];

	ck_assert_int_eq(read_with(refused[_i].name, refused[_i].value), -EINVAL);
	snprintf(expected, sizeof(expected), "%s=%s: %s", refused[_i].name, refused[_i].value,
		 refused[_i].error);
	ck_assert_str_eq(error_buffer, expected);
}
END_TEST

START_TEST(long_bad_value_is_shortened)
{
	char value[2000];

	memset(value, 'z', sizeof(value));
	value[sizeof(value) - 1] = '\0';
	ck_assert_int_eq(read_with("PINSHIM_LOG", value), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error_buffer, "zzz...: no such choice: use error, warn"));
}
END_TEST

START_TEST(stats_paths)
{
	ck_assert_int_eq(read_with("PINSHIM_STATS", "off"), 0);
	ck_assert_str_eq(config.stats, "off");
	ck_assert_int_eq(read_with("PINSHIM_STATS", "stderr"), 0);
	ck_assert_str_eq(config.stats, "stderr");
	ck_assert_int_eq(read_with("PINSHIM_STATS", "/var/log/%h-%e-%p-%r-%%.json"), 0);
	ck_assert_str_eq(config.stats, "/var/log/%h-%e-%p-%r-%%.json");
}
END_TEST

START_TEST(trace_paths)
{
	ck_assert_int_eq(read_with("PINSHIM_TRACE", "off"), 0);
	ck_assert_ptr_null(config.trace);
	ck_assert_int_eq(read_with("PINSHIM_TRACE", "stderr"), 0);
	ck_assert_str_eq(config.trace, "stderr");
	set("PINSHIM_STATS", "/tmp/report");
	set("PINSHIM_TRACE", "/var/log/%h-%e-%p-%r-%%.json");
	ck_assert_int_eq(read_on(RAM, CORES), 0);
	ck_assert_str_eq(config.trace, "/var/log/%h-%e-%p-%r-%%.json");
	ck_assert_str_eq(config.stats, "/tmp/report");
}
END_TEST

START_TEST(stats_outlives_the_environment)
{
	char value[] = "/tmp/report.%p";

	ck_assert_int_eq(read_with("PINSHIM_STATS", value), 0);
	memset(value, 'x', sizeof(value) - 1);
	ck_assert_str_eq(config.stats, "/tmp/report.%p");
}
END_TEST

START_TEST(stats_path_too_long)
{
	static char value[5000];

	memset(value, 'a', sizeof(value) - 1);
	ck_assert_int_eq(read_with("PINSHIM_STATS", value), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error_buffer, "longer than 4095 bytes"));
	value[4095] = '\0';
	ck_assert_int_eq(read_with("PINSHIM_STATS", value), 0);
	ck_assert_str_eq(config.stats, value);
	/* What the pattern becomes counts too. */
	memcpy(value, "%p%p", 4);
	ck_assert_int_eq(read_with("PINSHIM_STATS", value), getpid() < 100 ? 0 : -EINVAL);
}
END_TEST

/* What is printed, read again, is the same configuration. */
START_TEST(print_and_read_again)
{
	struct ps_config before;
	static char kept[16][256];
	static const char *const all[] = {
		"PINSHIM_BACKEND",    "PINSHIM_MALLOC", "PINSHIM_LIMIT",   "PINSHIM_RESERVE",
		"PINSHIM_NODE_LIMIT", "PINSHIM_RETAIN", "PINSHIM_THREADS", "PINSHIM_LOG",
	};

	set("PINSHIM_BACKEND", "cuda");
	set("PINSHIM_MALLOC", "100-65536,1M-");
	set("PINSHIM_LIMIT", "1000000");
	set("PINSHIM_RESERVE", "3%");
	set("PINSHIM_NODE_LIMIT", "none");
	set("PINSHIM_RETAIN", "512M");
	set("PINSHIM_THREADS", "5");
	set("PINSHIM_LOG", "debug");
	ck_assert_int_eq(read_on(RAM, CORES), 0);
	before = config;
	ck_assert_str_eq(printed("PINSHIM_LIMIT"), "1000000");
	ck_assert_str_eq(printed("PINSHIM_RESERVE"), "3%");
	ck_assert_str_eq(printed("PINSHIM_NODE_LIMIT"), "none");
	ck_assert_str_eq(printed("PINSHIM_RETAIN"), "512M");
	ck_assert_str_eq(printed("PINSHIM_STATS"), "stderr");
	ck_assert_str_eq(printed("PINSHIM_TRACE"), "off");
	ck_assert_str_eq(printed("PINSHIM_DEEPBIND"), "auto");
	for (unsigned i = 0; i < 8; i++) {
		snprintf(kept[i], sizeof(kept[i]), "%s", printed(all[i]));
		names[i] = all[i];
		values[i] = kept[i];
	}
	ck_assert_int_eq(read_on(RAM, CORES), 0);
	ck_assert_mem_eq(&config, &before, sizeof(config));
	/* Read elsewhere, so not a setting of ours. */
	ck_assert_ptr_null(printed("PINSHIM_FAULT"));
}
END_TEST

static char unknown_names[8][200], unknown_nearest[8][64];
static unsigned unknowns;

static void unknown(const char *name, const char *nearest)
{
	snprintf(unknown_names[unknowns], sizeof(unknown_names[0]), "%s", name);
	snprintf(unknown_nearest[unknowns++], sizeof(unknown_nearest[0]), "%s",
		 nearest != NULL ? nearest : "(none)");
}

START_TEST(unknown_names_and_the_nearest)
{
	const char *environment[] = {
		"PATH=/bin",           "PINSHIM_MALOC=64K-", "PINSHIM_LIMIT=1G",
		"PINSHIM_HUGE_PAGES=", "PINSHIM_COLOUR=red", "pinshim_limit=1",
		"PINSHIM_NODELIMIT",   "XPINSHIM_LIMITS=1",  NULL
	};

	ps_config_unknown((char *const *)environment, unknown);
	ck_assert_uint_eq(unknowns, 4);
	ck_assert_str_eq(unknown_names[0], "PINSHIM_MALOC");
	ck_assert_str_eq(unknown_nearest[0], "PINSHIM_MALLOC");
	ck_assert_str_eq(unknown_names[1], "PINSHIM_HUGE_PAGES");
	ck_assert_str_eq(unknown_nearest[1], "PINSHIM_HUGEPAGES");
	ck_assert_str_eq(unknown_names[2], "PINSHIM_COLOUR");
	ck_assert_str_eq(unknown_nearest[2], "(none)");
	ck_assert_str_eq(unknown_names[3], "PINSHIM_NODELIMIT");
	ck_assert_str_eq(unknown_nearest[3], "PINSHIM_NODE_LIMIT");
}
END_TEST

START_TEST(names_read_elsewhere_are_known)
{
	const char *environment[] = { "PINSHIM_FAULT=x", NULL };

	ps_config_unknown((char *const *)environment, unknown);
	ck_assert_uint_eq(unknowns, 0);
	ps_config_unknown(NULL, unknown);
	ck_assert_uint_eq(unknowns, 0);
}
END_TEST

START_TEST(very_long_unknown_name)
{
	static char name[5000];
	char *environment[] = { name, NULL };

	memset(name, 'A', sizeof(name) - 1);
	memcpy(name, "PINSHIM_", 8);
	ps_config_unknown(environment, unknown);
	ck_assert_uint_eq(unknowns, 1);
	ck_assert_uint_eq(strlen(unknown_names[0]), 127);
	ck_assert_str_eq(unknown_nearest[0], "(none)");
}
END_TEST

START_TEST(machine_memory)
{
	uint64_t ram = ps_config_ram();

	/* The kernel counts what it gave to itself out of it. */
	ck_assert_uint_gt(ram, 64 << 20);
	ck_assert_uint_eq(ram % 1024, 0);
	ck_assert_uint_le(ram, (uint64_t)sysconf(_SC_PHYS_PAGES) * 4096 + GIB);
	ck_assert_uint_ge(ram, (uint64_t)sysconf(_SC_PHYS_PAGES) * 4096 / 2);
	ps_fault_set(PS_OS_OPEN, 1, 1, ENOENT);
	ck_assert_uint_eq(ps_config_ram(), 0);
	ps_fault_set(PS_OS_READ, 1, 1, EIO);
	ck_assert_uint_eq(ps_config_ram(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tcase = tcase_create("config");
	SRunner *runner;
	int failed;

	tcase_add_test(tcase, defaults);
	tcase_add_test(tcase, initial_settings_are_the_defaults);
	tcase_add_test(tcase, empty_is_the_default);
	tcase_add_test(tcase, choices);
	tcase_add_test(tcase, sizes);
	tcase_add_test(tcase, reserve_keeps_its_percentage);
	tcase_add_test(tcase, percent_without_known_ram);
	tcase_add_test(tcase, odd_ram_is_not_lost_or_overflowed);
	tcase_add_test(tcase, threads);
	tcase_add_loop_test(tcase, malloc_ranges, 0, sizeof(ranges) / sizeof(ranges[0]));
	tcase_add_test(tcase, malloc_range_bounds);
	tcase_add_loop_test(tcase, bad_values, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_test(tcase, long_bad_value_is_shortened);
	tcase_add_test(tcase, stats_paths);
	tcase_add_test(tcase, trace_paths);
	tcase_add_test(tcase, stats_outlives_the_environment);
	tcase_add_test(tcase, stats_path_too_long);
	tcase_add_test(tcase, print_and_read_again);
	tcase_add_test(tcase, unknown_names_and_the_nearest);
	tcase_add_test(tcase, names_read_elsewhere_are_known);
	tcase_add_test(tcase, very_long_unknown_name);
	tcase_add_test(tcase, machine_memory);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
