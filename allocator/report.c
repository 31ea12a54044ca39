/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report of any table, as text and as JSON. Scripts read the JSON: keys are added, and never
 * change their meaning while "schema" stays. pinshim-stats.5 has them all.
 */
#include "report.h"

#include <stddef.h>

#include "counters.h"
#include "names.h"

#define NANOSECONDS_PER_MS 1000000u

/* What the entry points have in common. */
struct totals {
	struct pinshim_entry sum;
	bool cuda; /* a CUDA entry point was called */
};

static uint64_t load(const uint64_t *word)
{
	return ps_count_get(word);
}

/* Counters of different words are not of one moment: a difference can come out below zero. */
static uint64_t difference(uint64_t more, uint64_t less)
{
	return more > less ? more - less : 0;
}

static uint64_t live_bytes(const struct pinshim_entry *entry)
{
	return difference(entry->served_bytes, entry->freed_bytes);
}

static uint64_t live_blocks(const struct pinshim_entry *entry)
{
	return difference(entry->served, entry->freed);
}

/* The peak is sampled, so what is live now may be more. */
static uint64_t peak_bytes(const struct pinshim_table *table, unsigned entry,
			   const struct pinshim_entry *sum)
{
	uint64_t peak = load(&table->live_peak_bytes[entry]);

	return peak > live_bytes(sum) ? peak : live_bytes(sum);
}

static void add_totals(const struct pinshim_table *table, struct totals *totals)
{
	*totals = (struct totals){ .cuda = false };
	for (unsigned i = 0; i < PINSHIM_ENTRIES; i++) {
		struct pinshim_entry sum;

		ps_count_sum(table, i, &sum);
		totals->sum.served += sum.served;
		totals->sum.fallback += sum.fallback;
		totals->sum.failed += sum.failed;
		totals->sum.requested_bytes += sum.requested_bytes;
		totals->sum.served_bytes += sum.served_bytes;
		totals->sum.freed += sum.freed;
		totals->sum.freed_bytes += sum.freed_bytes;
		if (i >= PINSHIM_ENTRY_CUDA_HOST_ALLOC && ps_count_calls(&sum))
			totals->cuda = true;
	}
}

static void begin_line(const struct pinshim_table *table, struct ps_text *text)
{
	ps_text_add(text, "pinshim[%u]: ", table->pid);
}

/* Bytes for a person, right-aligned. */
static void add_padded_bytes(struct ps_text *text, uint64_t bytes)
{
	char buffer[32];
	struct ps_text number = PS_TEXT_INIT(buffer);

	ps_text_add_bytes(&number, bytes);
	ps_text_add(text, " %11s", buffer);
}

static void add_duration(struct ps_text *text, uint64_t nanoseconds)
{
	uint64_t ms = nanoseconds / NANOSECONDS_PER_MS;

	if (ms >= 10000)
		ps_text_add(text, "%lu.%lu s", ms / 1000, ms % 1000 / 100);
	else if (ms >= 10)
		ps_text_add(text, "%lu ms", ms);
	else
		ps_text_add(text, "%lu.%02lu ms", ms,
			    nanoseconds % NANOSECONDS_PER_MS / (NANOSECONDS_PER_MS / 100));
}

static void text_now(const struct pinshim_table *table, struct ps_text *text)
{
	const struct {
		const char *name;
		uint64_t bytes;
	} part[] = {
		{ "locked", load(&table->locked_bytes) },
		{ "huge pages", load(&table->huge_bytes) },
		{ "registered", load(&table->registered_bytes) },
		{ "foreign", load(&table->foreign_bytes) },
		{ "kept for reuse", ps_count_retained(table) },
	};
	const char *separator = "now: ";

	if (!load(&table->pinned_bytes))
		return;
	begin_line(table, text);
	for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		if (!part[i].bytes)
			continue;
		ps_text_add(text, "%s%s ", separator, part[i].name);
		ps_text_add_bytes(text, part[i].bytes);
		separator = ", ";
	}
	ps_text_add(text, "\n");
}

static void text_head(const struct pinshim_table *table, struct ps_text *text)
{
	begin_line(table, text);
	ps_text_add(text, "%.*s", (int)sizeof(table->program), table->program);
	if (table->rank[0])
		ps_text_add(text, ", rank %.*s", (int)sizeof(table->rank), table->rank);
	ps_text_add(text, ", backend %.*s: pinned ", (int)sizeof(table->backend), table->backend);
	ps_text_add_bytes(text, load(&table->pinned_bytes));
	ps_text_add(text, " now, ");
	ps_text_add_bytes(text, load(&table->pinned_peak_bytes));
	ps_text_add(text, " at peak\n");
	text_now(table, text);
}

static void text_served(const struct pinshim_table *table, const struct totals *totals,
			struct ps_text *text)
{
	uint64_t requested = totals->sum.requested_bytes;
	uint64_t more = difference(totals->sum.served_bytes, requested);

	if (!totals->sum.served_bytes)
		return;
	begin_line(table, text);
	ps_text_add(text, "requested ");
	ps_text_add_bytes(text, requested);
	ps_text_add(text, ", served ");
	ps_text_add_bytes(text, totals->sum.served_bytes);
	/* Tenths of a percent, without a product that could overflow. */
	if (requested >= 1000)
		ps_text_add(text, " (%lu.%lu %% more)", more / (requested / 1000) / 10,
			    more / (requested / 1000) % 10);
	ps_text_add(text, "\n");
}

static void text_entries(const struct pinshim_table *table, const struct totals *totals,
			 struct ps_text *text)
{
	struct pinshim_entry sum;

	if (!ps_count_calls(&totals->sum))
		return;
	begin_line(table, text);
	ps_text_add(text, "%-18s %9s %9s %9s %7s %7s %11s %11s\n", "", "calls", "served",
		    "fallback", "failed", "live", "live bytes", "peak bytes");
	for (unsigned i = 0; i < PINSHIM_ENTRIES; i++) {
		ps_count_sum(table, i, &sum);
		if (!ps_count_calls(&sum) && !sum.served_bytes)
			continue;
		begin_line(table, text);
		ps_text_add(text, "%-18s %9lu %9lu %9lu %7lu %7lu", ps_entry_name(i),
			    ps_count_calls(&sum), sum.served, sum.fallback, sum.failed,
			    live_blocks(&sum));
		add_padded_bytes(text, live_bytes(&sum));
		add_padded_bytes(text, peak_bytes(table, i, &sum));
		ps_text_add(text, "\n");
	}
}

static void text_pins(const struct pinshim_table *table, struct ps_text *text)
{
	uint64_t pins = load(&table->pins), bytes = load(&table->pin_bytes);
	uint64_t time = load(&table->pin_nanoseconds);

	if (!pins)
		return;
	begin_line(table, text);
	ps_text_add(text, "pinned %lu time%s, ", pins, pins == 1 ? "" : "s");
	ps_text_add_bytes(text, bytes);
	ps_text_add(text, " in ");
	add_duration(text, time);
	/* Bytes a nanosecond are GB a second. */
	if (time >= 10)
		ps_text_add(text, " (%lu.%lu GB/s)", bytes / time, bytes % time / (time / 10) % 10);
	if (load(&table->unpins))
		ps_text_add(text, ", gave back %lu", load(&table->unpins));
	ps_text_add(text, "\n");
}

static void text_refused(const struct pinshim_table *table, struct ps_text *text)
{
	const char *separator = "refused by limit: ";
	bool any = false;

	for (unsigned i = 0; i < PINSHIM_LIMITS_MAX; i++) {
		const char *name = pinshim_limit_name(i);
		uint64_t refused = load(&table->refused[i]);

		if (!refused)
			continue;
		if (!any)
			begin_line(table, text);
		ps_text_add(text, "%s%s %lu", separator, name ? name : "other", refused);
		separator = ", ";
		any = true;
	}
	if (!any)
		return;
	ps_text_add(text, "; asked for ");
	ps_text_add_bytes(text, load(&table->refused_bytes));
	ps_text_add(text, "\n");
}

bool ps_report_has_aio(const struct pinshim_aio *aio)
{
	return aio->submitted > 0 || aio->contexts > 0;
}

/* ", 3 rings" if there are any. */
static void add_count(struct ps_text *text, const char *separator, uint64_t count, const char *noun)
{
	if (count)
		ps_text_add(text, "%s%lu %s%s", separator, count, noun, count == 1 ? "" : "s");
}

void ps_report_text_aio(const struct pinshim_aio *aio, struct ps_text *text)
{
	ps_text_add(text, "async I/O: %lu request%s: %lu fixed, %lu direct, %lu bounced",
		    aio->submitted, aio->submitted == 1 ? "" : "s", aio->fixed, aio->direct,
		    aio->bounced);
	ps_text_add(text, " (%lu repaired), %lu passed on; %lu failed, %lu partial; ",
		    aio->repaired, aio->passed, aio->failed, aio->partial);
	ps_text_add_bytes(text, aio->bytes);
	add_count(text, "; ", aio->contexts, "context");
	add_count(text, aio->contexts ? ", " : "; ", aio->rings, "ring");
	if (aio->settled)
		ps_text_add(text, " (%lu settled)", aio->settled);
	add_count(text, "; dropped ", aio->dropped, "registration");
}

static void text_aio(const struct pinshim_table *table, struct ps_text *text)
{
	struct pinshim_aio aio;

	ps_count_aio_sum(table, &aio);
	if (!ps_report_has_aio(&aio))
		return;
	begin_line(table, text);
	ps_report_text_aio(&aio, text);
	ps_text_add(text, "\n");
}

static void text_hooks(const struct pinshim_table *table, struct ps_text *text)
{
	uint64_t reached = load(&table->hooks_reached);
	const char *separator = "hooks reached: ";

	if (!reached)
		return;
	begin_line(table, text);
	for (unsigned i = 0; ps_hook_name(i); i++) {
		if (!(reached >> i & 1))
			continue;
		ps_text_add(text, "%s%s", separator, ps_hook_name(i));
		separator = ", ";
	}
	ps_text_add(text, "\n");
}

static void text_end(const struct pinshim_table *table, const struct totals *totals,
		     struct ps_text *text)
{
	uint64_t blocks = live_blocks(&totals->sum);
	uint64_t children = load(&table->fork_children);

	if (blocks) {
		begin_line(table, text);
		ps_text_add(text, "%lu block%s never freed, ", blocks, blocks == 1 ? "" : "s");
		ps_text_add_bytes(text, live_bytes(&totals->sum));
		ps_text_add(text, "\n");
	}
	if (children) {
		begin_line(table, text);
		ps_text_add(text, "%lu forked child%s inherited blocks, not their pinning\n",
			    children, children == 1 ? "" : "ren");
	}
	if (totals->cuda && load(&table->pins) && !load(&table->registered_bytes)) {
		begin_line(table, text);
		ps_text_add(text, "locked, not registered with a CUDA driver: GPU copies are as "
				  "from pageable memory\n");
	}
}

void ps_report_text(const struct pinshim_table *table, struct ps_text *text)
{
	struct totals totals;

	add_totals(table, &totals);
	text_head(table, text);
	text_served(table, &totals, text);
	text_entries(table, &totals, text);
	text_pins(table, text);
	text_refused(table, text);
	text_aio(table, text);
	text_hooks(table, text);
	text_end(table, &totals, text);
}

/* A string of the table, which need not end. */
static void json_string(struct ps_text *text, const char *key, const char *value, size_t size)
{
	char buffer[sizeof(((struct pinshim_table *)0)->program) + 1];
	struct ps_text copy = PS_TEXT_INIT(buffer);

	ps_text_add(&copy, "%.*s", (int)size, value);
	ps_text_add(text, "\"%s\": ", key);
	ps_text_add_json(text, buffer);
	ps_text_add(text, ", ");
}

static void json_who(const struct pinshim_table *table, struct ps_text *text)
{
	ps_text_add(text, "\"schema\": 1, \"pid\": %u, \"uid\": %u, \"start_time_ticks\": %lu, ",
		    table->pid, table->uid, table->start_time);
	ps_text_add(text, "\"created_ns\": %lu, ", table->created);
	json_string(text, "program", table->program, sizeof(table->program));
	json_string(text, "backend", table->backend, sizeof(table->backend));
	json_string(text, "rank", table->rank, sizeof(table->rank));
	json_string(text, "local_rank", table->local_rank, sizeof(table->local_rank));
	json_string(text, "job", table->job, sizeof(table->job));
}

static void json_gauges(const struct pinshim_table *table, struct ps_text *text)
{
#define FIELD(key, name)                                                                           \
	{                                                                                          \
		key, offsetof(struct pinshim_table, name)                                          \
	}
	static const struct {
		const char *key;
		size_t offset;
	} field[] = {
		FIELD("pinned_bytes", pinned_bytes),
		FIELD("pinned_peak_bytes", pinned_peak_bytes),
		FIELD("locked_bytes", locked_bytes),
		FIELD("registered_bytes", registered_bytes),
		FIELD("huge_bytes", huge_bytes),
		FIELD("foreign_bytes", foreign_bytes),
		FIELD("claimed_bytes", claimed_bytes),
		FIELD("chunks", chunks),
		FIELD("pins", pins),
		FIELD("unpins", unpins),
		FIELD("pin_ns", pin_nanoseconds),
		FIELD("pin_bytes", pin_bytes),
		FIELD("fork_children", fork_children),
		FIELD("refused_bytes", refused_bytes),
		FIELD("generation", generation),
	};
#undef FIELD

	ps_text_add(text, "\"retained_bytes\": %lu, ", ps_count_retained(table));
	for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); i++)
		ps_text_add(text, "\"%s\": %lu, ", field[i].key,
			    load((const uint64_t *)((const char *)table + field[i].offset)));
}

static void json_counts(const struct pinshim_entry *sum, struct ps_text *text)
{
	ps_text_add(text, "\"calls\": %lu, \"served\": %lu, \"fallback\": %lu, \"failed\": %lu, ",
		    ps_count_calls(sum), sum->served, sum->fallback, sum->failed);
	ps_text_add(text, "\"requested_bytes\": %lu, \"served_bytes\": %lu, \"freed\": %lu, ",
		    sum->requested_bytes, sum->served_bytes, sum->freed);
	ps_text_add(text, "\"freed_bytes\": %lu, \"live_blocks\": %lu, \"live_bytes\": %lu",
		    sum->freed_bytes, live_blocks(sum), live_bytes(sum));
}

static void json_entries(const struct pinshim_table *table, struct ps_text *text)
{
	struct pinshim_entry sum;

	ps_text_add(text, "\"entry_points\": {");
	for (unsigned i = 0; i < PINSHIM_ENTRIES; i++) {
		ps_count_sum(table, i, &sum);
		ps_text_add(text, "%s\"%s\": {", i ? ", " : "", ps_entry_name(i));
		json_counts(&sum, text);
		ps_text_add(text, ", \"live_peak_bytes\": %lu}", peak_bytes(table, i, &sum));
	}
	ps_text_add(text, "}, ");
}

void ps_report_json_aio(const struct pinshim_aio *aio, struct ps_text *text)
{
	for (unsigned i = 0; ps_aio_name(i); i++)
		ps_text_add(text, "%s\"%s\": %lu", i ? ", " : "{", ps_aio_name(i),
			    ((const uint64_t *)aio)[i]);
	ps_text_add(text, "}");
}

void ps_report_json(const struct pinshim_table *table, struct ps_text *text)
{
	struct totals totals;
	struct pinshim_aio aio;

	add_totals(table, &totals);
	ps_count_aio_sum(table, &aio);
	ps_text_add(text, "{");
	json_who(table, text);
	json_gauges(table, text);
	ps_text_add(text, "\"total\": {");
	json_counts(&totals.sum, text);
	ps_text_add(text, "}, ");
	json_entries(table, text);
	ps_text_add(text, "\"aio\": ");
	ps_report_json_aio(&aio, text);
	ps_text_add(text, ", \"refused\": {");
	for (unsigned i = 0; pinshim_limit_name(i); i++)
		ps_text_add(text, "%s\"%s\": %lu", i ? ", " : "", pinshim_limit_name(i),
			    load(&table->refused[i]));
	ps_text_add(text, "}, \"hooks_reached\": {");
	for (unsigned i = 0; ps_hook_name(i); i++)
		ps_text_add(text, "%s\"%s\": %s", i ? ", " : "", ps_hook_name(i),
			    load(&table->hooks_reached) >> i & 1 ? "true" : "false");
	ps_text_add(text, "}}\n");
}
