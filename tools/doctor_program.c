/* SPDX-License-Identifier: BSD-2-Clause */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

/* Does the file say that it defines malloc for everybody? */
static void note_malloc(const char *name, bool defined, void *has_malloc)
{
	if (defined && !strcmp(name, "malloc"))
		*(bool *)has_malloc = true;
}

static bool has_malloc(const char *path)
{
	static const struct ps_needer nobody;
	static struct ps_object object;
	bool found = false;

	if (ps_loader_find(path, &nobody, &object) < 0)
		return false;
	ps_elf_symbols(&object.elf, SHT_DYNSYM, note_malloc, &found);
	ps_object_close(&object);
	return found;
}

/* What is in LD_PRELOAD. */
struct preloaded {
	char ahead[PATH_MAX]; /* an allocator before libpinshim.so */
	char other[PATH_MAX]; /* an allocator behind it, or without it */
	bool ours;
};

static bool note_preloaded(const char *path, void *context)
{
	struct preloaded *preloaded = context;
	char *to = preloaded->ours ? preloaded->other : preloaded->ahead;
	struct ps_text text = { to, PATH_MAX, 0, false };

	if (!strcmp(ps_base_name(path), PS_LIBRARY))
		preloaded->ours = true;
	else if (!to[0] && has_malloc(path))
		ps_text_add(&text, "%s", path);
	return true;
}

void ps_doctor_preloaded(struct ps_doctor *doctor)
{
	static struct preloaded preloaded;
	const char *value = getenv("LD_PRELOAD");

	ps_preload_each(value, note_preloaded, &preloaded);
	if (!value || !*value)
		ps_findings_add(&doctor->findings, PS_STATE_OK, "ld_preload", NULL, "nothing else");
	else if (preloaded.ahead[0] && preloaded.ours)
		ps_findings_add(&doctor->findings, PS_STATE_WARNING, "ld_preload",
				"use pinshim run, or put " PS_LIBRARY " first",
				"%s has an allocator and comes before " PS_LIBRARY
				": PINSHIM_MALLOC serves nothing",
				preloaded.ahead);
	else if (preloaded.ahead[0] || preloaded.other[0])
		ps_findings_add(&doctor->findings, PS_STATE_OK, "ld_preload", NULL,
				"the allocator of %s serves what " PS_LIBRARY " does not",
				preloaded.ahead[0] ? preloaded.ahead : preloaded.other);
	else
		ps_findings_add(&doctor->findings, PS_STATE_OK, "ld_preload", NULL, "%s", value);
}

static const char *shown(const struct ps_doctor *doctor, enum ps_trait trait)
{
	return doctor->program.shown[trait];
}

static void say_unopened(struct ps_doctor *doctor, int error)
{
	const char *path = doctor->program.object.path;

	if (error == -ENOENT)
		ps_findings_add(&doctor->findings, PS_STATE_FAILED, "program", NULL,
				"%s: no such program%s", path, strchr(path, '/') ? "" : " in PATH");
	else if (error == -ENOEXEC)
		ps_findings_add(&doctor->findings, PS_STATE_FAILED, "program", NULL,
				"%s is neither an ELF file nor a script", path);
	else
		ps_findings_add(&doctor->findings, PS_STATE_FAILED, "program", NULL,
				"%s cannot be run: %s", path, strerrordesc_np(-error));
}

/* What starts others, and of which the others would have to be looked at. */
static bool is_shell(const char *path)
{
	static const char *const shells[] = { "bash", "busybox", "csh",  "dash", "fish",
					      "ksh",  "sh",      "tcsh", "zsh" };

	for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++)
		if (!strcmp(ps_base_name(path), shells[i]))
			return true;
	return false;
}

static void check_file(struct ps_doctor *doctor)
{
	const struct ps_program *program = &doctor->program;
	struct ps_text found, remedy;
	bool shell = program->script[0] && is_shell(program->object.path);
	bool obstacle;

	ps_findings_begin(&doctor->findings, shell ? PS_STATE_NOTE : PS_STATE_OK, "program", &found,
			  &remedy);
	if (program->script[0])
		ps_text_add(&found, "%s is a script, which %s runs", program->script,
			    program->object.path);
	else
		ps_text_add(&found, "%s", program->object.path);
	if (shell)
		ps_text_add(&remedy, "name the program that it starts");
	ps_findings_begin(&doctor->findings, PS_STATE_FAILED, "loading", &found, &remedy);
	obstacle = ps_program_obstacle(program, &found, &remedy);
	if (!obstacle) {
		doctor->findings.finding[doctor->findings.count - 1].state = PS_STATE_OK;
		ps_text_add(&found, "%s loads what LD_PRELOAD names", program->interpreter);
	}
}

/* What it means that PINSHIM_MALLOC would serve nothing. */
static enum ps_state without_malloc(const struct ps_doctor *doctor)
{
	return doctor->config.malloc_ranges ? PS_STATE_WARNING : PS_STATE_NOTE;
}

/* Its library, shared, ends a program in which it is not the first, unless this says not to. */
static bool must_be_first(const struct ps_doctor *doctor, enum ps_trait sanitizer)
{
	const char *options = getenv("ASAN_OPTIONS");

	return sanitizer == PS_TRAIT_ASAN && shown(doctor, PS_TRAIT_SANITIZER_SHARED) &&
	       !(options && strstr(options, "verify_asan_link_order=0"));
}

/* Whether there is one. */
static bool check_sanitizer(struct ps_doctor *doctor)
{
	static const struct {
		enum ps_trait trait;
		const char *name;
	} sanitizers[] = { { PS_TRAIT_ASAN, "AddressSanitizer" },
			   { PS_TRAIT_LSAN, "LeakSanitizer" },
			   { PS_TRAIT_MSAN, "MemorySanitizer" },
			   { PS_TRAIT_TSAN, "ThreadSanitizer" } };
	bool any = false;

	for (size_t i = 0; i < sizeof(sanitizers) / sizeof(sanitizers[0]); i++) {
		const char *file = shown(doctor, sanitizers[i].trait);

		if (!file)
			continue;
		any = true;
		if (must_be_first(doctor, sanitizers[i].trait))
			ps_findings_add(&doctor->findings, PS_STATE_FAILED, "sanitizer",
					"run a build without it, or with "
					"ASAN_OPTIONS=verify_asan_link_order=0 serve CUDA alone",
					"%s is built with %s, whose library ends the program where "
					"another is preloaded before it",
					file, sanitizers[i].name);
		else
			ps_findings_add(&doctor->findings, without_malloc(doctor), "sanitizer",
					"run a build without it",
					"%s is built with %s, which brings a malloc of its own: "
					"PINSHIM_MALLOC serves nothing",
					file, sanitizers[i].name);
	}
	return any;
}

static void check_allocator(struct ps_doctor *doctor)
{
	if (shown(doctor, PS_TRAIT_OWN_MALLOC))
		ps_findings_add(&doctor->findings, without_malloc(doctor), "allocator",
				"use a build of it whose allocator is a shared library",
				"%s has a malloc of its own: PINSHIM_MALLOC serves nothing",
				shown(doctor, PS_TRAIT_OWN_MALLOC));
	else if (shown(doctor, PS_TRAIT_MALLOC))
		ps_findings_add(&doctor->findings, PS_STATE_OK, "allocator", NULL,
				"the allocator of %s serves what " PS_LIBRARY " does not",
				shown(doctor, PS_TRAIT_MALLOC));
	if (shown(doctor, PS_TRAIT_PRIVATE_MALLOC))
		ps_findings_add(&doctor->findings, PS_STATE_NOTE, "allocator", NULL,
				"%s has an allocator under another name: what it serves is not "
				"reached",
				shown(doctor, PS_TRAIT_PRIVATE_MALLOC));
}

/* One way to a library. */
struct way {
	enum ps_trait trait;
	enum ps_state state;
	const char *what; /* after the file's name */
};

/* Says which of the ways the program has. Whether it has any. */
static bool check_ways(struct ps_doctor *doctor, const char *check, const struct way *way,
		       size_t ways)
{
	bool any = false;

	for (size_t i = 0; i < ways; i++) {
		if (!shown(doctor, way[i].trait))
			continue;
		any = true;
		ps_findings_add(&doctor->findings, way[i].state, check, NULL, "%s %s",
				shown(doctor, way[i].trait), way[i].what);
	}
	return any;
}

static void check_cuda(struct ps_doctor *doctor)
{
	static const struct way way[] = {
		{ PS_TRAIT_RUNTIME_SHARED, PS_STATE_OK,
		  "calls the shared CUDA runtime, which is reached by its symbols" },
		{ PS_TRAIT_RUNTIME_STATIC, PS_STATE_OK,
		  "has the CUDA runtime built in, which is reached through the driver" },
		{ PS_TRAIT_RUNTIME_OPENED, PS_STATE_OK,
		  "opens the CUDA runtime itself, which is reached by dlsym()" },
		{ PS_TRAIT_DRIVER, PS_STATE_OK,
		  "calls the CUDA driver, which is reached by its symbols" },
		{ PS_TRAIT_DRIVER_OPENED, PS_STATE_OK,
		  "opens the CUDA driver itself, which is reached by dlsym()" },
	};

	doctor->uses_cuda = check_ways(doctor, "cuda", way, sizeof(way) / sizeof(way[0]));
	if (!doctor->uses_cuda)
		ps_findings_add(&doctor->findings, PS_STATE_OK, "cuda", NULL,
				"not used, as far as the program's files tell");
}

static void check_libaio(struct ps_doctor *doctor)
{
	bool wanted = doctor->settings.aio;
	const struct way way[] = {
		{ PS_TRAIT_LIBAIO_SHARED, PS_STATE_OK,
		  "calls libaio, which " PS_AIO_LIBRARY " stands in for" },
		{ PS_TRAIT_LIBAIO_OPENED, wanted ? PS_STATE_WARNING : PS_STATE_NOTE,
		  "opens libaio itself, which " PS_AIO_LIBRARY " does not stand in for" },
		{ PS_TRAIT_LIBAIO_STATIC, wanted ? PS_STATE_WARNING : PS_STATE_NOTE,
		  "has libaio built in, which " PS_AIO_LIBRARY " cannot stand in for" },
		{ PS_TRAIT_URING, PS_STATE_NOTE,
		  "uses io_uring itself, which " PS_AIO_LIBRARY " leaves alone" },
	};

	if (!check_ways(doctor, "libaio", way, sizeof(way) / sizeof(way[0])) && wanted)
		ps_findings_add(&doctor->findings, PS_STATE_NOTE, "libaio", NULL,
				"not used, as far as the program's files tell: " PS_AIO_LIBRARY
				" may have nothing to do");
}

static void check_libraries(struct ps_doctor *doctor)
{
	const struct ps_program *program = &doctor->program;

	if (program->missing)
		ps_findings_add(&doctor->findings, PS_STATE_NOTE, "libraries",
				"set LD_LIBRARY_PATH as when the program is run",
				"%s is not found: nothing can be said of it", program->missing);
	if (shown(doctor, PS_TRAIT_DLOPEN))
		ps_findings_add(&doctor->findings, PS_STATE_NOTE, "libraries",
				"look at hooks_reached in the report of a run: pinshim run "
				"--stats=FILE",
				"%zu were looked at; what the program loads while it runs "
				"(dlopen) cannot be seen from here",
				program->libraries);
	else
		ps_findings_add(&doctor->findings, PS_STATE_OK, "libraries", NULL,
				"%zu were looked at", program->libraries);
}

void ps_doctor_program(struct ps_doctor *doctor)
{
	int rc = ps_program_open(&doctor->program, doctor->name);

	if (rc < 0) {
		say_unopened(doctor, rc);
		return;
	}
	doctor->has_program = true;
	if (ps_program_look(&doctor->program) < 0)
		ps_findings_add(&doctor->findings, PS_STATE_WARNING, "program", NULL,
				"out of memory: not all of it was looked at");
	check_file(doctor);
	if (!check_sanitizer(doctor))
		check_allocator(doctor);
	check_cuda(doctor);
	check_libaio(doctor);
	check_libraries(doctor);
}
