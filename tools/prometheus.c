/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The text exposition format of Prometheus, for the node exporter's textfile collector. Names follow
 * its conventions: base units, their name at the end, _total for what only grows.
 *
 * All lines of a metric stand together, so the metrics are the outer loop. Only the living have
 * lines of their own: a name, a process id and the rest together then stand for one process. A job
 * is called job_id, for job is what Prometheus calls its own.
 */
#include <ctype.h>
#include <inttypes.h>

#include "counters.h"
#include "formats.h"
#include "names.h"
#include "report.h"

struct metric {
	const char *name;
	const char *type;
	const char *help;
	/* What to write for a living process; offset is for those that write one number of it. */
	void (*write)(FILE *to, const struct ps_holder *holder, const struct metric *metric);
	size_t offset;
};

/* ASCII only, so that no byte can make the text invalid. */
static void write_label(FILE *to, const char *separator, const char *name, const char *value)
{
	fprintf(to, "%s%s=\"", separator, name);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			putc('\\', to);
		putc(isascii((unsigned char)*value) && isprint((unsigned char)*value) ? *value
										      : '?',
		     to);
	}
	putc('"', to);
}

static void write_head(FILE *to, const char *name, const char *type, const char *help)
{
	fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A metric's name and the labels that every line of a process has; more may follow. */
static void write_name(FILE *to, const char *name, const struct ps_holder *holder)
{
	fprintf(to, "%s{pid=\"%" PRIu32 "\"", name, holder->table->pid);
	write_label(to, ",", "program", holder->table->program);
	write_label(to, ",", "job_id", holder->table->job);
	write_label(to, ",", "rank", holder->table->rank);
}

static void write_info(FILE *to, const struct ps_holder *holder, const struct metric *metric)
{
	write_name(to, metric->name, holder);
	write_label(to, ",", "local_rank", holder->table->local_rank);
	write_label(to, ",", "backend", holder->table->backend);
	fprintf(to, ",uid=\"%" PRIu32 "\"} 1\n", holder->table->uid);
}

static void write_figure(FILE *to, const struct ps_holder *holder, const struct metric *metric)
{
	const bool is_aio = metric->offset >= offsetof(struct ps_figures, aio);

	if (is_aio && !ps_report_has_aio(&holder->figures.aio))
		return;
	write_name(to, metric->name, holder);
	fprintf(to, "} %" PRIu64 "\n",
		*(const uint64_t *)((const char *)&holder->figures + metric->offset));
}

static void write_word(FILE *to, const struct ps_holder *holder, const struct metric *metric)
{
	write_name(to, metric->name, holder);
	fprintf(to, "} %" PRIu64 "\n",
		*(const uint64_t *)((const char *)holder->table + metric->offset));
}

static void write_pin_seconds(FILE *to, const struct ps_holder *holder, const struct metric *metric)
{
	const uint64_t nanoseconds = holder->table->pin_nanoseconds;

	write_name(to, metric->name, holder);
	fprintf(to, "} %" PRIu64 ".%09" PRIu64 "\n", nanoseconds / 1000000000,
		nanoseconds % 1000000000);
}

static void write_refusals(FILE *to, const struct ps_holder *holder, const struct metric *metric)
{
	for (unsigned i = 0; pinshim_limit_name(i); i++) {
		write_name(to, metric->name, holder);
		write_label(to, ",", "limit", pinshim_limit_name(i));
		fprintf(to, "} %" PRIu64 "\n", holder->table->refused[i]);
	}
}

/* Of the entry points that were ever called, so that there are not a hundred lines a process. */
static void write_requests(FILE *to, const struct ps_holder *holder, const struct metric *metric)
{
	static const struct {
		const char *name;
		size_t offset;
	} result[] = {
		{ "served", offsetof(struct pinshim_entry, served) },
		{ "fallback", offsetof(struct pinshim_entry, fallback) },
		{ "failed", offsetof(struct pinshim_entry, failed) },
	};
	struct pinshim_entry sum;

	for (unsigned i = 0; i < PINSHIM_ENTRIES; i++) {
		ps_count_sum(holder->table, i, &sum);
		for (size_t j = 0; ps_count_calls(&sum) && j < sizeof(result) / sizeof(result[0]);
		     j++) {
			write_name(to, metric->name, holder);
			write_label(to, ",", "entry_point", ps_entry_name(i));
			write_label(to, ",", "result", result[j].name);
			fprintf(to, "} %" PRIu64 "\n",
				*(uint64_t *)((char *)&sum + result[j].offset));
		}
	}
}

/* A request is one of these. */
static void write_aio_requests(FILE *to, const struct ps_holder *holder,
			       const struct metric *metric)
{
	static const struct {
		const char *name;
		size_t offset;
	} way[] = {
		{ "fixed", offsetof(struct pinshim_aio, fixed) },
		{ "direct", offsetof(struct pinshim_aio, direct) },
		{ "bounced", offsetof(struct pinshim_aio, bounced) },
		{ "passed", offsetof(struct pinshim_aio, passed) },
	};

	if (!ps_report_has_aio(&holder->figures.aio))
		return;
	for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
		write_name(to, metric->name, holder);
		write_label(to, ",", "way", way[i].name);
		fprintf(to, "} %" PRIu64 "\n",
			*(const uint64_t *)((const char *)&holder->figures.aio + way[i].offset));
	}
}

#define WORD(name, type, member, help)                                                             \
	{                                                                                          \
		name, type, help, write_word, offsetof(struct pinshim_table, member)               \
	}
#define FIGURE(name, type, member, help)                                                           \
	{                                                                                          \
		name, type, help, write_figure, offsetof(struct ps_figures, member)                \
	}

static const struct metric metrics[] = {
	{ "pinshim_process_info", "gauge", "What is known about a process; the value is 1.",
	  write_info, 0 },
	{ "pinshim_pin_seconds_total", "counter", "Time spent pinning.", write_pin_seconds, 0 },
	{ "pinshim_refused_total", "counter", "Requests for pinned memory that a limit refused.",
	  write_refusals, 0 },
	{ "pinshim_requests_total", "counter", "Requests by entry point, and what became of them.",
	  write_requests, 0 },
	{ "pinshim_aio_requests_total", "counter", "Asynchronous requests by the way they took.",
	  write_aio_requests, 0 },
	WORD("pinshim_pinned_bytes", "gauge", pinned_bytes, "Memory that is pinned now."),
	WORD("pinshim_pinned_peak_bytes", "gauge", pinned_peak_bytes,
	     "The most memory that was ever pinned."),
	WORD("pinshim_locked_bytes", "gauge", locked_bytes, "Locked memory of the pinned heap."),
	WORD("pinshim_registered_bytes", "gauge", registered_bytes,
	     "Memory that is registered with the CUDA driver."),
	WORD("pinshim_huge_bytes", "gauge", huge_bytes, "Pinned heap in huge pages."),
	WORD("pinshim_foreign_bytes", "gauge", foreign_bytes,
	     "The program's own memory, pinned where it is."),
	WORD("pinshim_claimed_bytes", "gauge", claimed_bytes,
	     "Memory that is pinned or about to be, as PINSHIM_NODE_LIMIT counts it."),
	WORD("pinshim_chunks", "gauge", chunks, "Units of pinning of the heap."),
	WORD("pinshim_pins_total", "counter", pins, "Chunks and ranges that were pinned."),
	WORD("pinshim_unpins_total", "counter", unpins, "Chunks and ranges that were given back."),
	WORD("pinshim_pin_bytes_total", "counter", pin_bytes, "Memory that was pinned."),
	WORD("pinshim_refused_bytes_total", "counter", refused_bytes,
	     "Memory that was asked for and that a limit refused."),
	WORD("pinshim_fork_children_total", "counter", fork_children,
	     "Forked children that inherited pinned blocks."),
	FIGURE("pinshim_retained_bytes", "gauge", retained,
	       "Freed memory that is kept pinned for reuse."),
	FIGURE("pinshim_live_blocks", "gauge", blocks, "Blocks that were served and not freed."),
	FIGURE("pinshim_aio_repaired_total", "counter", aio.repaired,
	       "Asynchronous requests that the file system would have refused as misaligned."),
	FIGURE("pinshim_aio_failed_total", "counter", aio.failed,
	       "Asynchronous requests that completed with an error."),
	FIGURE("pinshim_aio_partial_total", "counter", aio.partial,
	       "Asynchronous requests that transferred less than was asked for."),
	FIGURE("pinshim_aio_bytes_total", "counter", aio.bytes,
	       "Bytes that asynchronous requests transferred."),
	FIGURE("pinshim_aio_contexts_total", "counter", aio.contexts,
	       "Contexts that were set up for asynchronous requests."),
	FIGURE("pinshim_aio_rings_total", "counter", aio.rings,
	       "Contexts that began with an io_uring."),
	FIGURE("pinshim_aio_settled_total", "counter", aio.settled,
	       "Contexts that left their io_uring for the kernel's AIO."),
	FIGURE("pinshim_aio_dropped_total", "counter", aio.dropped,
	       "Registrations with an io_uring that were dropped because the memory was unpinned."),
};

/* Written always, so that whoever looks sees that this was. */
static void write_node(FILE *to, const struct ps_jobs *jobs)
{
	write_head(to, "pinshim_processes", "gauge",
		   "Processes that have a table; the dead ended without tidying up.");
	fprintf(to, "pinshim_processes{state=\"alive\"} %zu\n", jobs->total.alive);
	fprintf(to, "pinshim_processes{state=\"dead\"} %zu\n", jobs->total.dead);
	write_head(to, "pinshim_unreadable_tables", "gauge", "Tables that could not be read.");
	fprintf(to, "pinshim_unreadable_tables %zu\n", jobs->holders->unread);
}

void ps_prometheus_write(FILE *to, const struct ps_jobs *jobs)
{
	write_node(to, jobs);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		write_head(to, metrics[i].name, metrics[i].type, metrics[i].help);
		for (size_t j = 0; j < jobs->holders->count; j++)
			if (jobs->holders->holder[j].alive)
				metrics[i].write(to, &jobs->holders->holder[j], &metrics[i]);
	}
}
