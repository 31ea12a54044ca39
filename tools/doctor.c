/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinshim doctor: what will and what will not work here, and for a program.
 */
#include "doctor.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os.h"
#include "tool.h"

enum { NEED = 256, ON_FILE };

static void usage(FILE *to)
{
	fputs("usage: pinshim doctor [OPTION]... [--] [PROGRAM [ARGUMENT]...]\n\n"
	      "Says what will and what will not work here, and for the program if one is named,\n"
	      "which is not run. Takes the options of pinshim run, and:\n\n"
	      "      --need=SIZE    how much is to be pinned: less is no use\n"
	      "      --file=PATH    the file or directory that asynchronous I/O is done in\n"
	      "  -j, --json         one JSON object instead of lines\n"
	      "  -h, --help         this text\n\n",
	      to);
	ps_settings_usage(to);
	fputs("\nEach line begins with ok, note, warning or FAILED.\n\n"
	      "Exit status: 0 if pinning works, 1 if it works with limits (warnings), 2 for wrong\n"
	      "usage, 3 if it cannot work.\n",
	      to);
}

static int wrong(const char *what, const char *why)
{
	fprintf(stderr, "pinshim doctor: %s%s\n", what, why);
	return PS_EXIT_USAGE;
}

/* One option of its own. PS_EXIT_OK to go on, or PS_EXIT_USAGE. */
static int read_option(struct ps_doctor *doctor, int option, bool *json)
{
	switch (option) {
	case NEED:
		doctor->need_said = true;
		if (ps_text_parse_size(optarg, NULL, &doctor->need) == 0)
			return PS_EXIT_OK;
		fprintf(stderr,
			"pinshim doctor: --need=%s: not a size: use bytes with K, M, G or T (8G)\n",
			optarg);
		return PS_EXIT_USAGE;
	case ON_FILE:
		doctor->file = optarg;
		return PS_EXIT_OK;
	case 'j':
		*json = true;
		return PS_EXIT_OK;
	default:
		usage(stderr);
		return PS_EXIT_USAGE;
	}
}

/* Reads the options. true to go on; else *status is the exit status. */
static bool read_options(int argc, char **argv, struct ps_doctor *doctor, bool *json, int *status)
{
	struct option option[PS_SETTINGS_MAX + 6] = {
		{ "file", required_argument, NULL, ON_FILE },
		{ "help", no_argument, NULL, 'h' },
		{ "json", no_argument, NULL, 'j' },
		{ "need", required_argument, NULL, NEED },
	};

	*status = PS_EXIT_OK;
	ps_settings_options(option);
	for (int c; (c = getopt_long(argc, argv, "+hj", option, NULL)) != -1;) {
		if (ps_settings_take(&doctor->settings, c, optarg))
			continue;
		if (c == 'h') {
			usage(stdout);
			return false;
		}
		*status = read_option(doctor, c, json);
		if (*status != PS_EXIT_OK)
			return false;
	}
	doctor->name = argv[optind];
	return true;
}

bool ps_doctor_number(const char *path, uint64_t *value)
{
	char content[64];
	const char *end;

	return ps_os_read_file(path, content, sizeof(content)) >= 0 &&
	       ps_text_parse_size(content, &end, value) == 0;
}

/* Digits of base 10 or 16. */
static bool parse_digits(const char *at, unsigned base, uint64_t *value)
{
	static const char digits[] = "0123456789abcdef";
	const char *begin = at, *digit;

	*value = 0;
	while (*at && (digit = memchr(digits, *at, base))) {
		*value = *value * base + (uint64_t)(digit - digits);
		at++;
	}
	return at > begin;
}

bool ps_doctor_proc(const char *path, const char *name, unsigned base, uint64_t *value)
{
	char content[8192];
	const char *field;

	if (ps_os_read_file(path, content, sizeof(content)) < 0)
		return false;
	field = ps_text_find_field(content, name);
	return field && parse_digits(field, base, value);
}

enum ps_state ps_doctor_enough(const struct ps_doctor *doctor, uint64_t bytes)
{
	if (bytes < PS_CHUNK_BYTES || (doctor->need_said && bytes < doctor->need))
		return PS_STATE_FAILED;
	return bytes < doctor->need ? PS_STATE_WARNING : PS_STATE_OK;
}

enum ps_state ps_doctor_enough_outside_pool(const struct ps_doctor *doctor, uint64_t bytes)
{
	enum ps_state state = ps_doctor_enough(doctor, bytes);

	if (state > PS_STATE_NOTE && doctor->config.hugepages == PS_HUGEPAGES_HUGETLB)
		return PS_STATE_NOTE;
	return state;
}

void ps_doctor_add_shortfall(const struct ps_doctor *doctor, uint64_t bytes, struct ps_text *text)
{
	if (doctor->need && bytes < doctor->need) {
		ps_text_add(text, ", less than %s of ",
			    doctor->need_said ? "--need" : "PINSHIM_LIMIT");
		ps_text_add_bytes(text, doctor->need);
	} else if (bytes < PS_CHUNK_BYTES) {
		ps_text_add(text, ", less than the 2 MiB in which memory is pinned");
	}
}

#define UNKNOWN_MAX 16 /* after so many findings the rest is more of the same */

static struct ps_findings *unknown_settings; /* where say_unknown() puts them */

static void say_unknown(const char *name, const char *nearest)
{
	if (unknown_settings->count >= UNKNOWN_MAX)
		return;
	ps_findings_add(unknown_settings, PS_STATE_WARNING, "settings",
			nearest ? "see pinshim(7) for their names" : "see pinshim(7)",
			"%s is no setting and has no effect%s%s%s", name,
			nearest ? "; did you mean " : "", nearest ? nearest : "",
			nearest ? "?" : "");
}

/* false where an option is wrong. */
static bool check_settings(struct ps_doctor *doctor)
{
	char why[1024];
	struct ps_text text = PS_TEXT_INIT(why);
	int rc = ps_settings_read(&doctor->settings, &doctor->config, &text);

	if (rc == -EINVAL) {
		wrong(why, "");
		return false;
	}
	if (rc < 0) {
		ps_findings_add(&doctor->findings, PS_STATE_FAILED, "settings",
				"correct it: every program would end with status 78", "%s", why);
		doctor->config = ps_config;
	} else {
		ps_findings_add(&doctor->findings, PS_STATE_OK, "settings", NULL, "are understood");
	}
	unknown_settings = &doctor->findings;
	ps_config_unknown(environ, say_unknown);
	if (!doctor->need_said && doctor->config.limit != UINT64_MAX)
		doctor->need = doctor->config.limit;
	return true;
}

static void check_library(struct ps_doctor *doctor)
{
	char why[2 * PATH_MAX];
	struct ps_text text = PS_TEXT_INIT(why);

	doctor->has_library = ps_preload_find(&doctor->preload, doctor->settings.directory,
					      doctor->settings.aio, &text) == 0;
	if (!doctor->has_library)
		ps_findings_add(&doctor->findings, PS_STATE_FAILED, "library", NULL, "%s", why);
	else
		ps_findings_add(&doctor->findings, PS_STATE_OK, "library", NULL, "%s%s%s",
				doctor->preload.library, doctor->settings.aio ? ", " : "",
				doctor->preload.aio_library);
}

static int exit_status(const struct ps_doctor *doctor)
{
	switch (ps_findings_worst(&doctor->findings)) {
	case PS_STATE_FAILED:
		return PS_EXIT_CANNOT;
	case PS_STATE_WARNING:
		return PS_EXIT_INCOMPLETE;
	default:
		return PS_EXIT_OK;
	}
}

int ps_tool_doctor(int argc, char **argv)
{
	static struct ps_doctor doctor;
	bool json = false;
	int status;

	if (!read_options(argc, argv, &doctor, &json, &status))
		return status;
	if (!check_settings(&doctor))
		return PS_EXIT_USAGE;
	check_library(&doctor);
	ps_doctor_limits(&doctor);
	ps_doctor_pages(&doctor);
	ps_doctor_shm(&doctor);
	ps_doctor_trial(&doctor);
	ps_doctor_io(&doctor);
	ps_doctor_preloaded(&doctor);
	if (doctor.name)
		ps_doctor_program(&doctor);
	ps_doctor_cuda(&doctor);
	if (doctor.has_program)
		ps_program_close(&doctor.program);
	if (json)
		ps_findings_write_json(&doctor.findings, stdout);
	else
		ps_findings_write(&doctor.findings, stdout);
	return exit_status(&doctor);
}
