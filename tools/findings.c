/* SPDX-License-Identifier: BSD-2-Clause */
#include "findings.h"

#include <stdlib.h>
#include <string.h>

static const char *const states[] = { "ok", "note", "warning", "FAILED" };
static const char *const json_states[] = { "ok", "note", "warning", "failed" };

void ps_findings_begin(struct ps_findings *findings, enum ps_state state, const char *check,
		       struct ps_text *found, struct ps_text *remedy)
{
	struct ps_finding *finding = &findings->finding[findings->count];

	if (findings->count == PS_FINDINGS_MAX)
		abort(); /* there are fewer checks than that */
	findings->count++;
	finding->state = state;
	finding->check = check;
	finding->found[0] = '\0';
	finding->remedy[0] = '\0';
	*found = (struct ps_text)PS_TEXT_INIT(finding->found);
	*remedy = (struct ps_text)PS_TEXT_INIT(finding->remedy);
}

void ps_findings_add(struct ps_findings *findings, enum ps_state state, const char *check,
		     const char *remedy, const char *format, ...)
{
	struct ps_text found, then;
	va_list arguments;

	ps_findings_begin(findings, state, check, &found, &then);
	va_start(arguments, format);
	ps_text_vadd(&found, format, arguments);
	va_end(arguments);
	if (remedy)
		ps_text_add(&then, "%s", remedy);
}

static size_t count_of(const struct ps_findings *findings, enum ps_state state)
{
	size_t count = 0;

	for (size_t i = 0; i < findings->count; i++)
		count += findings->finding[i].state == state;
	return count;
}

enum ps_state ps_findings_worst(const struct ps_findings *findings)
{
	enum ps_state worst = PS_STATE_OK;

	for (size_t i = 0; i < findings->count; i++)
		if (findings->finding[i].state > worst)
			worst = findings->finding[i].state;
	return worst;
}

/* Names of files and messages of libraries must not steer a terminal. */
static void write_printable(const char *string, FILE *to)
{
	for (; *string; string++)
		putc(*string == 0x7f || (unsigned char)*string < ' ' ? '?' : *string, to);
}

void ps_findings_write(const struct ps_findings *findings, FILE *to)
{
	size_t warnings = count_of(findings, PS_STATE_WARNING);
	size_t failures = count_of(findings, PS_STATE_FAILED);

	for (size_t i = 0; i < findings->count; i++) {
		const struct ps_finding *finding = &findings->finding[i];

		fprintf(to, "%-8s %s: ", states[finding->state], finding->check);
		write_printable(finding->found, to);
		if (finding->remedy[0])
			fputs(": ", to);
		write_printable(finding->remedy, to);
		putc('\n', to);
	}
	if (failures)
		fprintf(to, "\npinning cannot work: see %zu line%s with FAILED\n", failures,
			failures == 1 ? "" : "s");
	else if (warnings)
		fprintf(to, "\npinning works, with limits: see %zu warning%s\n", warnings,
			warnings == 1 ? "" : "s");
	else
		fputs("\npinning works\n", to);
}

static void write_member(const char *name, const char *string, FILE *to)
{
	char buffer[8 * sizeof(((struct ps_finding *)NULL)->found)]; /* escaped */
	struct ps_text text = PS_TEXT_INIT(buffer);

	ps_text_add_json(&text, string);
	fprintf(to, "\"%s\": %s", name, buffer);
}

void ps_findings_write_json(const struct ps_findings *findings, FILE *to)
{
	static const char *const results[] = { "works", "works", "limited", "fails" };

	fprintf(to, "{\"schema\": 1, \"result\": \"%s\", \"findings\": [",
		results[ps_findings_worst(findings)]);
	for (size_t i = 0; i < findings->count; i++) {
		const struct ps_finding *finding = &findings->finding[i];

		fprintf(to, "%s\n{\"check\": \"%s\", \"state\": \"%s\", ", i ? "," : "",
			finding->check, json_states[finding->state]);
		write_member("found", finding->found, to);
		fputs(", ", to);
		write_member("remedy", finding->remedy, to);
		putc('}', to);
	}
	fputs("]}\n", to);
}
