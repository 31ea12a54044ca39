/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One table of options does everything: reading, the text of errors, printing, and which names are
 * known.
 */
#include "config.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os.h"

struct ps_config ps_config = {
	.limit = UINT64_MAX,
	.reserve_percent = 5,
	.node_limit = UINT64_MAX,
	.threads = 1,
	.retain = UINT64_C(1) << 30,
	.stats = "stderr",
	.log = PS_LOG_WARN,
	.aio_repair = PS_AIO_REPAIR_ON,
};

#define PATTERN_BYTES 4096

static char stats_pattern[PATTERN_BYTES], trace_pattern[PATTERN_BYTES];

/* The machine, and where an option's reader says what is wrong. */
struct reading {
	struct ps_config *config;
	uint64_t ram;
	unsigned cores;
	const char *why;
};

struct option {
	const char *name;
	const char *initial;  /* read when the variable is unset or empty; NULL: read elsewhere */
	const char *accepted; /* after "use ", in errors */
	int (*read)(const struct option *option, const char *value, struct reading *reading);
	void (*print)(const struct option *option, const struct ps_config *config,
		      struct ps_text *text);
	size_t field;               /* offset in struct ps_config */
	const char *const *choices; /* of an enum, in its order, ended by NULL */
	char *copy;                 /* of a path pattern: PATTERN_BYTES to keep it in */
	bool none;                  /* a size that may be "none" */
};

static const char *const backends[] = { "native", "cuda", "off", NULL };
static const char *const on_fails[] = { "error", "fallback", NULL };
static const char *const hugepages[] = { "thp", "hugetlb", "off", NULL };
static const char *const log_levels[] = { "error", "warn", "info", "debug", NULL };
static const char *const aios[] = { "auto", "uring", "libaio", "off", NULL };
static const char *const aio_repairs[] = { "0", "1", NULL };
static const char *const deepbinds[] = { "auto", "strip", "keep", NULL };

static void *field(const struct option *option, const struct ps_config *config)
{
	return (char *)config + option->field;
}

static int read_choice(const struct option *option, const char *value, struct reading *reading)
{
	for (unsigned i = 0; option->choices[i] != NULL; i++) {
		if (strcmp(value, option->choices[i]) == 0) {
			memcpy(field(option, reading->config), &i, sizeof(i));
			return 0;
		}
	}
	reading->why = "no such choice";
	return -EINVAL;
}

static void print_choice(const struct option *option, const struct ps_config *config,
			 struct ps_text *text)
{
	unsigned i;

	memcpy(&i, field(option, config), sizeof(i));
	ps_text_add(text, "%s", option->choices[i]);
}

/* "50%" into *percent and the bytes of RAM that makes. */
static int read_percent(const char *value, struct reading *reading, unsigned *percent,
			uint64_t *bytes)
{
	const char *end;
	uint64_t number;

	if (ps_text_parse_size(value, &end, &number) < 0 || strcmp(end, "%") != 0 ||
	    end[-1] > '9') {
		reading->why = "not a size";
		return -EINVAL;
	}
	if (number > 100) {
		reading->why = "more than 100%";
		return -EINVAL;
	}
	*percent = (unsigned)number;
	*bytes = reading->ram / 100 * number + reading->ram % 100 * number / 100;
	return 0;
}

static int read_size(const struct option *option, const char *value, struct reading *reading)
{
	uint64_t *bytes = field(option, reading->config);
	unsigned percent;
	int error;

	if (option->none && strcmp(value, "none") == 0) {
		*bytes = UINT64_MAX;
		return 0;
	}
	error = ps_text_parse_size(value, NULL, bytes);
	if (error == -ERANGE)
		reading->why = "too large";
	if (error != -EINVAL)
		return error;
	if (read_percent(value, reading, &percent, bytes) < 0)
		return -EINVAL;
	if (reading->ram == 0) {
		reading->why = "the machine's memory is unknown, for /proc/meminfo cannot be read";
		return -EINVAL;
	}
	return 0;
}

/* Of a cgroup's limit too if it is a percentage, which is why that is kept. */
static int read_reserve(const struct option *option, const char *value, struct reading *reading)
{
	struct ps_config *config = reading->config;

	config->reserve_percent = 0;
	if (value[strlen(value) - 1] == '%')
		return read_percent(value, reading, &config->reserve_percent, &config->reserve);
	return read_size(option, value, reading);
}

/* As short as it can be said exactly: 65536 is 64K. */
static void add_size(struct ps_text *text, uint64_t bytes)
{
	static const char suffixes[] = "KMGT";
	unsigned unit = 0;

	while (bytes != 0 && bytes % 1024 == 0 && unit < 4) {
		bytes /= 1024;
		unit++;
	}
	ps_text_add(text, "%lu", bytes);
	if (unit > 0)
		ps_text_add(text, "%c", suffixes[unit - 1]);
}

static void print_size(const struct option *option, const struct ps_config *config,
		       struct ps_text *text)
{
	const uint64_t *bytes = field(option, config);

	if (option->none && *bytes == UINT64_MAX)
		ps_text_add(text, "none");
	else
		add_size(text, *bytes);
}

static void print_reserve(const struct option *option, const struct ps_config *config,
			  struct ps_text *text)
{
	if (config->reserve_percent != 0)
		ps_text_add(text, "%u%%", config->reserve_percent);
	else
		print_size(option, config, text);
}

static int read_threads(const struct option *option, const char *value, struct reading *reading)
{
	unsigned *threads = field(option, reading->config);
	uint64_t number;
	const char *end;

	if (*value == '\0') {
		*threads = reading->cores > 8 ? 8 : reading->cores;
		*threads += *threads == 0;
		return 0;
	}
	if (ps_text_parse_size(value, &end, &number) < 0 || *end != '\0' || end[-1] > '9') {
		reading->why = "not a number";
		return -EINVAL;
	}
	if (number < 1 || number > 256) {
		reading->why = "out of range";
		return -EINVAL;
	}
	*threads = (unsigned)number;
	return 0;
}

static void print_threads(const struct option *option, const struct ps_config *config,
			  struct ps_text *text)
{
	const unsigned *threads = field(option, config);

	ps_text_add(text, "%u", *threads);
}

/* One "64K-1M" or "16M-". Returns what follows it, or NULL with why. */
static const char *read_range(const char *value, struct ps_size_range *range, const char **why)
{
	uint64_t low, high = SIZE_MAX;

	*why = "not a range of sizes";
	if (*value == '-')
		*why = "a range begins with its smallest size";
	if (ps_text_parse_size(value, &value, &low) < 0 || *value++ != '-')
		return NULL;
	if (*value != '\0' && *value != ',' && ps_text_parse_size(value, &value, &high) < 0)
		return NULL;
	if (high < low) {
		*why = "a range ends below its beginning";
		return NULL;
	}
	range->low = low;
	range->high = high;
	return value;
}

/* Sorts, and merges those that overlap or touch. Returns how many are left. */
static unsigned tidy_ranges(struct ps_size_range *range, unsigned count)
{
	unsigned kept = 0;

	for (unsigned i = 1; i < count; i++) {
		struct ps_size_range one = range[i];
		unsigned j = i;

		for (; j > 0 && range[j - 1].low > one.low; j--)
			range[j] = range[j - 1];
		range[j] = one;
	}
	for (unsigned i = 0; i < count; i++) {
		struct ps_size_range *last = kept > 0 ? &range[kept - 1] : NULL;

		if (last == NULL || (last->high != SIZE_MAX && range[i].low > last->high + 1))
			range[kept++] = range[i];
		else if (range[i].high > last->high)
			last->high = range[i].high;
	}
	return kept;
}

static int read_ranges(const struct option *option, const char *value, struct reading *reading)
{
	struct ps_size_range *range = field(option, reading->config);
	unsigned count = 0;

	while (*value != '\0') {
		if (count == PS_RANGES_MAX) {
			reading->why = "more than 16 ranges";
			return -EINVAL;
		}
		value = read_range(value, &range[count++], &reading->why);
		if (value == NULL)
			return -EINVAL;
		if (*value != '\0' && (*value++ != ',' || *value == '\0')) {
			reading->why = "not a range of sizes";
			return -EINVAL;
		}
	}
	reading->config->malloc_ranges = tidy_ranges(range, count);
	return 0;
}

static void print_ranges(const struct option *option, const struct ps_config *config,
			 struct ps_text *text)
{
	const struct ps_size_range *range = field(option, config);

	for (unsigned i = 0; i < config->malloc_ranges; i++) {
		if (i > 0)
			ps_text_add(text, ",");
		add_size(text, range[i].low);
		ps_text_add(text, "-");
		if (range[i].high != SIZE_MAX)
			add_size(text, range[i].high);
	}
}

/* A copy: setenv and programs that set their title overwrite the environment. */
static int read_pattern(const struct option *option, const char *value, struct reading *reading)
{
	const char **pattern = field(option, reading->config);
	char expanded[PATTERN_BYTES];
	struct ps_text text = PS_TEXT_INIT(expanded);

	if (ps_text_add_pattern(&text, value) < 0) {
		reading->why = "not a path pattern";
		return -EINVAL;
	}
	if (strlen(value) >= PATTERN_BYTES || text.cut) {
		reading->why = "the path is longer than 4095 bytes";
		return -EINVAL;
	}
	memcpy(option->copy, value, strlen(value) + 1);
	*pattern = option->copy;
	return 0;
}

static int read_stats(const struct option *option, const char *value, struct reading *reading)
{
	const char **stats = field(option, reading->config);

	if (strcmp(value, "stderr") == 0 || strcmp(value, "off") == 0) {
		*stats = *value == 's' ? "stderr" : "off";
		return 0;
	}
	return read_pattern(option, value, reading);
}

static void print_stats(const struct option *option, const struct ps_config *config,
			struct ps_text *text)
{
	ps_text_add(text, "%s", *(const char **)field(option, config));
}

static int read_trace(const struct option *option, const char *value, struct reading *reading)
{
	if (strcmp(value, "off") != 0)
		return read_pattern(option, value, reading);
	*(const char **)field(option, reading->config) = NULL;
	return 0;
}

static void print_trace(const struct option *option, const struct ps_config *config,
			struct ps_text *text)
{
	const char *trace = *(const char **)field(option, config);

	ps_text_add(text, "%s", trace != NULL ? trace : "off");
}

#define FIELD(member) .field = offsetof(struct ps_config, member)
#define CHOICE(list) .read = read_choice, .print = print_choice, .choices = (list)
#define SIZE_FORM .accepted = "bytes with K, M, G or T (8G), or a percentage of RAM (50%)"
#define PATTERN_FORM                                                                               \
	"a file's path, in which %p is the process id, %h the host, %e the program, %r the rank "  \
	"and %% a percent sign"
#define SIZE .read = read_size, .print = print_size, SIZE_FORM

static const struct option options[] = {
	{ .name = "PINSHIM_BACKEND", .initial = "native", FIELD(backend), CHOICE(backends) },
	{ .name = "PINSHIM_MALLOC",
	  .initial = "",
	  FIELD(malloc_range),
	  .read = read_ranges,
	  .print = print_ranges,
	  .accepted = "ranges of sizes LOW-HIGH or LOW-, separated by commas (64K-1M,16M-)" },
	{ .name = "PINSHIM_LIMIT", .initial = "none", FIELD(limit), SIZE, .none = true },
	{ .name = "PINSHIM_RESERVE",
	  .initial = "5%",
	  FIELD(reserve),
	  .read = read_reserve,
	  .print = print_reserve,
	  SIZE_FORM },
	{ .name = "PINSHIM_NODE_LIMIT", .initial = "none", FIELD(node_limit), SIZE, .none = true },
	{ .name = "PINSHIM_ON_FAIL", .initial = "error", FIELD(on_fail), CHOICE(on_fails) },
	{ .name = "PINSHIM_HUGEPAGES", .initial = "thp", FIELD(hugepages), CHOICE(hugepages) },
	{ .name = "PINSHIM_THREADS",
	  .initial = "",
	  FIELD(threads),
	  .read = read_threads,
	  .print = print_threads,
	  .accepted = "a number from 1 to 256" },
	{ .name = "PINSHIM_RETAIN", .initial = "1G", FIELD(retain), SIZE },
	{ .name = "PINSHIM_STATS",
	  .initial = "stderr",
	  FIELD(stats),
	  .read = read_stats,
	  .print = print_stats,
	  .copy = stats_pattern,
	  .accepted = "stderr, off, or " PATTERN_FORM },
	{ .name = "PINSHIM_LOG", .initial = "warn", FIELD(log), CHOICE(log_levels) },
	{ .name = "PINSHIM_AIO", .initial = "auto", FIELD(aio), CHOICE(aios) },
	{ .name = "PINSHIM_AIO_REPAIR", .initial = "1", FIELD(aio_repair), CHOICE(aio_repairs) },
	{ .name = "PINSHIM_DEEPBIND", .initial = "auto", FIELD(deepbind), CHOICE(deepbinds) },
	{ .name = "PINSHIM_TRACE",
	  .initial = "off",
	  FIELD(trace),
	  .read = read_trace,
	  .print = print_trace,
	  .copy = trace_pattern,
	  .accepted = "off, or " PATTERN_FORM },
	{ .name = "PINSHIM_FAULT" },
};

#define OPTIONS (sizeof(options) / sizeof(options[0]))

static void explain(const struct option *option, const char *value, const char *why,
		    struct ps_text *error)
{
	ps_text_add(error, "%s=%.200s%s: %s: use ", option->name, value,
		    strlen(value) > 200 ? "..." : "", why);
	if (option->none)
		ps_text_add(error, "none, ");
	if (option->choices == NULL) {
		ps_text_add(error, "%s", option->accepted);
		return;
	}
	for (unsigned i = 0; option->choices[i] != NULL; i++) {
		const char *before = i == 0 ? "" : option->choices[i + 1] == NULL ? " or " : ", ";

		ps_text_add(error, "%s%s", before, option->choices[i]);
	}
}

int ps_config_read(struct ps_config *config, const char *(*get)(const char *name), uint64_t ram,
		   unsigned cores, struct ps_text *error)
{
	struct reading reading = { config, ram, cores, NULL };

	memset(config, 0, sizeof(*config));
	for (size_t i = 0; i < OPTIONS; i++) {
		const struct option *option = &options[i];
		const char *value;

		if (option->read == NULL)
			continue;
		value = get(option->name);
		if (value == NULL || *value == '\0')
			value = option->initial;
		if (option->read(option, value, &reading) < 0) {
			explain(option, value, reading.why, error);
			return -EINVAL;
		}
	}
	return 0;
}

/* Names longer than this are no slip of the pen. */
#define NAME_MAX_LENGTH 32

/* The fewest insertions, deletions and changes of a character that make one the other. */
static unsigned distance(const char *from, const char *to)
{
	unsigned row[NAME_MAX_LENGTH + 1];
	size_t length = strlen(to);

	for (unsigned j = 0; j <= length; j++)
		row[j] = j;
	for (unsigned i = 0; from[i] != '\0'; i++) {
		unsigned corner = row[0]++;

		for (unsigned j = 0; j < length; j++) {
			unsigned best = corner + (from[i] != to[j]);

			corner = row[j + 1];
			if (corner + 1 < best)
				best = corner + 1;
			if (row[j] + 1 < best)
				best = row[j] + 1;
			row[j + 1] = best;
		}
	}
	return row[length];
}

/* At most a third of the letters after PINSHIM_ may be wrong. */
static const char *nearest_option(const char *name)
{
	const char *nearest = NULL;
	unsigned best = UINT32_MAX;

	for (size_t i = 0; i < OPTIONS; i++) {
		unsigned far = distance(name, options[i].name);

		if (far < best && 3 * far <= strlen(options[i].name) - strlen("PINSHIM_")) {
			best = far;
			nearest = options[i].name;
		}
	}
	return nearest;
}

static bool is_known(const char *name)
{
	for (size_t i = 0; i < OPTIONS; i++) {
		if (strcmp(name, options[i].name) == 0)
			return true;
	}
	return false;
}

void ps_config_unknown(char *const *environment,
		       void (*unknown)(const char *name, const char *nearest))
{
	for (; environment != NULL && *environment != NULL; environment++) {
		char name[128];
		struct ps_text text = PS_TEXT_INIT(name);

		if (strncmp(*environment, "PINSHIM_", strlen("PINSHIM_")) != 0)
			continue;
		ps_text_add(&text, "%.*s", (int)strcspn(*environment, "="), *environment);
		if (!is_known(name))
			unknown(name, nearest_option(name));
	}
}

void ps_config_print(const struct ps_config *config, struct ps_text *text)
{
	for (size_t i = 0; i < OPTIONS; i++) {
		if (options[i].read == NULL)
			continue;
		ps_text_add(text, "%s=", options[i].name);
		options[i].print(&options[i], config, text);
		ps_text_add(text, "\n");
	}
}

uint64_t ps_config_ram(void)
{
	char meminfo[256];
	const char *value;
	uint64_t kibibytes;

	if (ps_os_read_file("/proc/meminfo", meminfo, sizeof(meminfo)) < 0)
		return 0;
	value = ps_text_find_field(meminfo, "MemTotal");
	if (value == NULL || ps_text_parse_size(value, &value, &kibibytes) < 0)
		return 0;
	return kibibytes * 1024;
}

unsigned ps_config_cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

static const char *variable(const char *name)
{
	return secure_getenv(name);
}

int ps_config_from_environment(struct ps_text *error)
{
	int result = ps_config_read(&ps_config, variable, ps_config_ram(), ps_config_cores(),
				    error);

	if (result == 0)
		ps_log_level = ps_config.log;
	return result;
}

static void say_unknown(const char *name, const char *nearest)
{
	if (nearest != NULL)
		ps_log(PS_LOG_WARN, "%s: no such setting: it has no effect: did you mean %s?", name,
		       nearest);
	else
		ps_log(PS_LOG_WARN, "%s: no such setting: it has no effect: see pinshim(7)", name);
}

void ps_config_say_unknown(void)
{
	ps_config_unknown(environ, say_unknown);
}
