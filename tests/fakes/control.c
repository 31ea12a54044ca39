/* SPDX-License-Identifier: BSD-2-Clause */
/* The lock, the log, failing on demand, faults, and what is said at exit. */
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

#define LOG_LENGTH ((size_t)1 << 18)
#define RULES 32

struct rule {
	char call[48];
	unsigned long first, last; /* of those made since seen was; last 0: no end */
	unsigned long seen;
	int code;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct call *calls;
static struct rule rules[RULES];
static struct fake_cuda_entry *log_entries; /* pages that are touched as they fill */
static size_t log_length;
static unsigned long fault_count;
static pid_t owner; /* the process that called cuInit, 0 before */
static bool ended, no_driver;
static _Thread_local pid_t thread_id;

bool fake_initialised;
int fake_device_count = 1;

static bool elsewhere(void)
{
	return owner && owner != getpid();
}

void fault(const char *format, ...)
{
	char text[256];
	va_list arguments;

	fault_count++;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	dprintf(STDERR_FILENO, "fake cuda: %s\n", text);
	if (getenv("FAKE_CUDA_ABORT"))
		abort();
}

/* The code a rule wants, or 0. */
static int failure(const char *name)
{
	for (size_t i = 0; i < RULES; i++) {
		struct rule *rule = &rules[i];

		if (!rule->first || strcmp(rule->call, name) != 0)
			continue;
		rule->seen++;
		if (rule->seen >= rule->first && (!rule->last || rule->seen <= rule->last))
			return rule->code;
	}
	return 0;
}

static void count(struct call *call)
{
	call->count++;
	if (call->listed)
		return;
	call->listed = true;
	call->next = calls;
	calls = call;
}

static void record(const char *name, int result, uintptr_t pointer, size_t size, unsigned flags)
{
	if (!log_entries || log_length == LOG_LENGTH)
		return;
	if (!thread_id)
		thread_id = gettid();
	log_entries[log_length++] = (struct fake_cuda_entry){
		.call = name,
		.thread = thread_id,
		.result = result,
		.pointer = pointer,
		.size = size,
		.flags = flags,
	};
}

int enter(struct call *call, int needs)
{
	int result;

	if (elsewhere())
		return PS_CUDA_NOT_INITIALIZED;
	if (ended)
		return PS_CUDA_DEINITIALIZED;
	pthread_mutex_lock(&lock);
	count(call);
	result = failure(call->name);
	if (!result && !(needs & BEFORE_INIT) && !fake_initialised)
		result = PS_CUDA_NOT_INITIALIZED;
	if (!result && (needs & NEEDS_CONTEXT))
		result = check_context();
	if (!result && (needs & UNSAFE))
		result = check_capture();
	return result;
}

int leave(struct call *call, int result, uintptr_t pointer, size_t size, unsigned flags)
{
	if (elsewhere() || ended)
		return result;
	record(call->name, result, pointer, size, flags);
	pthread_mutex_unlock(&lock);
	return result;
}

ps_cu_result cuInit(unsigned flags)
{
	static struct call call = { .name = "cuInit" };
	int result = enter(&call, BEFORE_INIT);

	if (!result && flags)
		result = PS_CUDA_INVALID_VALUE;
	if (!result && (no_driver || !fake_device_count))
		result = PS_CUDA_NO_DEVICE;
	if (!result) {
		fake_initialised = true;
		owner = getpid();
	}
	return leave(&call, result, 0, 0, flags);
}

int fake_cuda_runtime_call(const char *name)
{
	struct call *call;
	int result = 0;

	if (elsewhere() || ended)
		return 0;
	pthread_mutex_lock(&lock);
	for (call = calls; call && strcmp(call->name, name) != 0; call = call->next)
		;
	/* A copy of the name, since the runtime may be unloaded. */
	if (!call && (call = calloc(1, sizeof(*call))) && !(call->name = strdup(name))) {
		free(call);
		call = NULL;
	}
	if (call) {
		count(call);
		result = failure(name);
		record(call->name, result, 0, 0, 0);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

unsigned long fake_cuda_calls(const char *name)
{
	unsigned long total = 0;

	pthread_mutex_lock(&lock);
	for (const struct call *call = calls; call; call = call->next)
		if (!name || !strcmp(call->name, name))
			total += call->count;
	pthread_mutex_unlock(&lock);
	return total;
}

unsigned long fake_cuda_thread_calls(const char *name)
{
	unsigned long total = 0;
	pid_t thread = gettid();

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < log_length; i++)
		if (log_entries[i].thread == thread &&
		    (!name || !strcmp(log_entries[i].call, name)))
			total++;
	pthread_mutex_unlock(&lock);
	return total;
}

void fake_cuda_fail(const char *call, unsigned long first, unsigned long last, int code)
{
	struct rule *free_rule = NULL;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < RULES; i++) {
		if (rules[i].first && !strcmp(rules[i].call, call))
			rules[i].first = 0;
		if (!rules[i].first && !free_rule)
			free_rule = &rules[i];
	}
	if (first && free_rule && strlen(call) < sizeof(free_rule->call)) {
		*free_rule = (struct rule){ .first = first, .last = last, .code = code };
		memcpy(free_rule->call, call, strlen(call) + 1);
	} else if (first) {
		fault("no room for the rule about %s", call);
	}
	pthread_mutex_unlock(&lock);
}

static void totals(enum range_kind kind, unsigned long *number, size_t *bytes)
{
	pthread_mutex_lock(&lock);
	range_totals(kind, number, bytes);
	pthread_mutex_unlock(&lock);
}

unsigned long fake_cuda_registrations(void)
{
	unsigned long number;
	size_t bytes;

	totals(RANGE_REGISTERED, &number, &bytes);
	return number;
}

size_t fake_cuda_registered_bytes(void)
{
	unsigned long number;
	size_t bytes;

	totals(RANGE_REGISTERED, &number, &bytes);
	return bytes;
}

unsigned long fake_cuda_allocations(void)
{
	unsigned long number;
	size_t bytes;

	totals(RANGE_ALLOCATED, &number, &bytes);
	return number;
}

size_t fake_cuda_allocated_bytes(void)
{
	unsigned long number;
	size_t bytes;

	totals(RANGE_ALLOCATED, &number, &bytes);
	return bytes;
}

static bool within(enum range_kind kind, const void *pointer, size_t length)
{
	uintptr_t base = (uintptr_t)pointer;
	const struct range *range;
	bool is;

	pthread_mutex_lock(&lock);
	range = range_find(base);
	is = range && range->kind == kind && length <= range->base + range->extent - base;
	pthread_mutex_unlock(&lock);
	return is;
}

bool fake_cuda_is_registered(const void *pointer, size_t length)
{
	return within(RANGE_REGISTERED, pointer, length);
}

bool fake_cuda_is_allocated(const void *pointer, size_t length)
{
	return within(RANGE_ALLOCATED, pointer, length);
}

unsigned long fake_cuda_pending(void)
{
	unsigned long number;

	pthread_mutex_lock(&lock);
	number = pending_copies();
	pthread_mutex_unlock(&lock);
	return number;
}

unsigned long fake_cuda_faults(void)
{
	unsigned long number;

	pthread_mutex_lock(&lock);
	range_check_all();
	number = fault_count;
	pthread_mutex_unlock(&lock);
	return number;
}

size_t fake_cuda_log_length(void)
{
	size_t length;

	pthread_mutex_lock(&lock);
	length = log_length;
	pthread_mutex_unlock(&lock);
	return length;
}

const struct fake_cuda_entry *fake_cuda_log_entry(size_t index)
{
	return index < fake_cuda_log_length() ? &log_entries[index] : NULL;
}

/* "CALL:FIRST[-[LAST]]:CODE,...", which is checked: a mistyped rule would let a test pass. */
static void parse_rules(const char *text)
{
	while (*text) {
		char call[48];
		unsigned long first, last;
		const char *colon = strchr(text, ':');
		char *end;
		long code;

		if (!colon || (size_t)(colon - text) >= sizeof(call))
			goto bad;
		memcpy(call, text, (size_t)(colon - text));
		call[colon - text] = '\0';
		first = last = strtoul(colon + 1, &end, 10);
		if (*end == '-')
			last = strtoul(end + 1, &end, 10); /* 0 if it is not there */
		if (!first || *end != ':')
			goto bad;
		code = strtol(end + 1, &end, 10);
		if (!code || (*end && *end != ','))
			goto bad;
		fake_cuda_fail(call, first, last, (int)code);
		text = *end ? end + 1 : end;
	}
	return;
bad:
	dprintf(STDERR_FILENO, "fake cuda: FAKE_CUDA_FAIL: cannot read \"%s\"\n", text);
	_exit(78);
}

static void child_after_fork(void)
{
	pthread_mutex_init(&lock, NULL); /* another thread of the parent may have held it */
	thread_id = 0;
}

static __attribute__((constructor)) void start(void)
{
	const char *text = getenv("FAKE_CUDA_DEVICES");
	void *pages = mmap(NULL, LOG_LENGTH * sizeof(*log_entries), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (pages != MAP_FAILED)
		log_entries = pages;
	if (text && text[0] >= '0' && text[0] <= '2' && !text[1])
		fake_device_count = text[0] - '0';
	text = getenv("FAKE_CUDA_NO_DRIVER");
	no_driver = text && !strcmp(text, "1");
	text = getenv("FAKE_CUDA_FAIL");
	if (text)
		parse_rules(text);
	pthread_atfork(NULL, NULL, child_after_fork);
}

static void write_log(const char *path)
{
	FILE *file = fopen(path, "ae");

	if (!file) {
		dprintf(STDERR_FILENO, "fake cuda: cannot write %s\n", path);
		return;
	}
	for (size_t i = 0; i < log_length; i++) {
		const struct fake_cuda_entry *entry = &log_entries[i];

		fprintf(file, "%d %d %s(%#lx, %zu, %u) = %d\n", (int)getpid(), (int)entry->thread,
			entry->call, (unsigned long)entry->pointer, entry->size, entry->flags,
			entry->result);
	}
	if (fclose(file))
		dprintf(STDERR_FILENO, "fake cuda: cannot write %s\n", path);
}

/* Nothing is freed: a later destructor's calls get 4, and the addresses they have stay good. */
static __attribute__((destructor)) void end(void)
{
	const char *leaks = getenv("FAKE_CUDA_LEAKS"), *path = getenv("FAKE_CUDA_LOG");
	unsigned long number;
	size_t bytes;

	if (elsewhere())
		return;
	pthread_mutex_lock(&lock);
	range_check_all();
	range_totals(RANGE_REGISTERED, &number, &bytes);
	if (number && !(leaks && !strcmp(leaks, "off")))
		dprintf(STDERR_FILENO, "fake cuda: %lu registration(s) of %zu bytes left at exit\n",
			number, bytes);
	if (path)
		write_log(path);
	ended = true;
	pthread_mutex_unlock(&lock);
}
