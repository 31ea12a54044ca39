/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The traits of a program: what symbols, section names and strings of its files tell.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

/* Files that claim to need each other without end are looked at so far. */
#define LIBRARIES_MAX 1024
#define DEPTH_MAX 64

enum side { DEFINED = 1, NEEDED = 2, EITHER = 3 };

static const struct {
	const char *symbol;
	enum side side;
	enum ps_trait trait;
} by_symbol[] = {
	{ "__asan_init", EITHER, PS_TRAIT_ASAN },
	{ "__cudaRegisterFatBinary", DEFINED, PS_TRAIT_RUNTIME_STATIC },
	{ "__cudaRegisterFatBinary", NEEDED, PS_TRAIT_RUNTIME_SHARED },
	{ "__lsan_init", EITHER, PS_TRAIT_LSAN },
	{ "__msan_init", EITHER, PS_TRAIT_MSAN },
	{ "__tsan_init", EITHER, PS_TRAIT_TSAN },
	{ "cuGetProcAddress", NEEDED, PS_TRAIT_DRIVER },
	{ "cuGetProcAddress_v2", NEEDED, PS_TRAIT_DRIVER },
	{ "cuInit", NEEDED, PS_TRAIT_DRIVER },
	{ "cuMemAllocHost_v2", NEEDED, PS_TRAIT_DRIVER },
	{ "cuMemHostAlloc", NEEDED, PS_TRAIT_DRIVER },
	{ "cuMemHostRegister_v2", NEEDED, PS_TRAIT_DRIVER },
	{ "cudaFreeHost", DEFINED, PS_TRAIT_RUNTIME_STATIC },
	{ "cudaFreeHost", NEEDED, PS_TRAIT_RUNTIME_SHARED },
	{ "cudaHostAlloc", DEFINED, PS_TRAIT_RUNTIME_STATIC },
	{ "cudaHostAlloc", NEEDED, PS_TRAIT_RUNTIME_SHARED },
	{ "cudaHostRegister", DEFINED, PS_TRAIT_RUNTIME_STATIC },
	{ "cudaHostRegister", NEEDED, PS_TRAIT_RUNTIME_SHARED },
	{ "cudaMalloc", DEFINED, PS_TRAIT_RUNTIME_STATIC },
	{ "cudaMalloc", NEEDED, PS_TRAIT_RUNTIME_SHARED },
	{ "cudaMallocHost", DEFINED, PS_TRAIT_RUNTIME_STATIC },
	{ "cudaMallocHost", NEEDED, PS_TRAIT_RUNTIME_SHARED },
	{ "dlopen", NEEDED, PS_TRAIT_DLOPEN },
	{ "io_setup", DEFINED, PS_TRAIT_LIBAIO_STATIC },
	{ "io_setup", NEEDED, PS_TRAIT_LIBAIO_SHARED },
	{ "io_submit", DEFINED, PS_TRAIT_LIBAIO_STATIC },
	{ "io_submit", NEEDED, PS_TRAIT_LIBAIO_SHARED },
	{ "io_uring_queue_init", EITHER, PS_TRAIT_URING },
	{ "io_uring_queue_init_params", EITHER, PS_TRAIT_URING },
	{ "je_malloc", DEFINED, PS_TRAIT_PRIVATE_MALLOC },
	{ "malloc", DEFINED, PS_TRAIT_MALLOC },
	{ "mi_malloc", DEFINED, PS_TRAIT_PRIVATE_MALLOC },
	{ "tc_malloc", DEFINED, PS_TRAIT_PRIVATE_MALLOC },
};

/* The names by which libraries are opened, and what the CUDA runtime looks up in the driver. */
static const struct {
	const char *name;
	enum ps_trait trait;
} by_string[] = {
	{ "libaio.so", PS_TRAIT_LIBAIO_OPENED },
	{ "libaio.so.1", PS_TRAIT_LIBAIO_OPENED },
	{ "libcuda.so", PS_TRAIT_DRIVER_OPENED },
	{ "libcuda.so.1", PS_TRAIT_DRIVER_OPENED },
	{ "libcudart.so", PS_TRAIT_RUNTIME_OPENED },
	{ "libcudart.so.11.0", PS_TRAIT_RUNTIME_OPENED },
	{ "libcudart.so.12", PS_TRAIT_RUNTIME_OPENED },
	{ "libcudart.so.13", PS_TRAIT_RUNTIME_OPENED },
};

#define STRINGS (sizeof(by_string) / sizeof(by_string[0]))

/* Strings that the CUDA runtime has in it, stripped or not. */
static const char *const of_runtime[] = { "cuGetProcAddress_v2", "cudaHostAlloc" };
#define OF_RUNTIME (sizeof(of_runtime) / sizeof(of_runtime[0]))

/* Libraries that are what the traits are about, or that every program has. */
static const char *const unremarkable[] = { "ld-linux",  "libaio.", "libc.so.",  "libcuda.",
					    "libcudart", "libdl.",  "libpinshim" };

/* Run-time libraries of sanitizers. */
static const char *const sanitizers[] = { "libasan.", "libclang_rt.", "libtsan.", "libubsan.",
					  "libhwasan." };

static bool begins_with_any(const char *name, const char *const *word, size_t words)
{
	for (size_t i = 0; i < words; i++)
		if (!strncmp(name, word[i], strlen(word[i])))
			return true;
	return false;
}

static void visit(const char *name, bool defined, void *traits)
{
	uint32_t *bits = traits;

	for (size_t i = 0; i < sizeof(by_symbol) / sizeof(by_symbol[0]); i++)
		if ((by_symbol[i].side & (defined ? DEFINED : NEEDED)) &&
		    !strcmp(by_symbol[i].symbol, name))
			*bits |= UINT32_C(1) << by_symbol[i].trait;
}

static bool has(uint32_t traits, enum ps_trait trait)
{
	return traits >> trait & 1;
}

static uint32_t bit(enum ps_trait trait)
{
	return UINT32_C(1) << trait;
}

/* What the strings of a file tell. 0 or -ENOMEM. */
static int look_at_strings(const struct ps_elf *elf, uint32_t *traits)
{
	const char *string[STRINGS + OF_RUNTIME];
	const uint32_t runtime = (UINT32_C(1) << OF_RUNTIME) - 1;
	uint32_t found;
	int rc;

	for (size_t i = 0; i < STRINGS; i++)
		string[i] = by_string[i].name;
	memcpy(string + STRINGS, of_runtime, sizeof(of_runtime));
	rc = ps_elf_find_strings(elf, string, STRINGS + OF_RUNTIME, &found);
	for (size_t i = 0; i < STRINGS; i++)
		if (found >> i & 1)
			*traits |= bit(by_string[i].trait);
	/* nvcc puts the code for the device there, and links the runtime statically by default. */
	if ((found >> STRINGS == runtime || ps_elf_has_section(elf, ".nv_fatbin")) &&
	    !has(*traits, PS_TRAIT_RUNTIME_SHARED) && !has(*traits, PS_TRAIT_RUNTIME_OPENED))
		*traits |= bit(PS_TRAIT_RUNTIME_STATIC);
	/* It is the runtime that opens the driver. */
	if (has(*traits, PS_TRAIT_RUNTIME_STATIC))
		*traits &= ~bit(PS_TRAIT_DRIVER_OPENED);
	return rc;
}

/* The traits of one file. 0 or -ENOMEM; what cannot be read has none. */
static int look_at(const struct ps_elf *elf, uint32_t *traits)
{
	uint32_t exported = 0, inside = 0;

	*traits = 0;
	if (ps_elf_symbols(elf, SHT_DYNSYM, visit, &exported) == -ENOMEM ||
	    ps_elf_symbols(elf, SHT_SYMTAB, visit, &inside) == -ENOMEM)
		return -ENOMEM;
	/* A malloc that others do not see is no other allocator. */
	*traits = exported | (inside & ~bit(PS_TRAIT_MALLOC));
	if (has(*traits, PS_TRAIT_MALLOC))
		*traits &= ~bit(PS_TRAIT_PRIVATE_MALLOC);
	return look_at_strings(elf, traits) == -ENOMEM ? -ENOMEM : 0;
}

static int keep(char **to, const char *string)
{
	if (!*to)
		*to = strdup(string);
	return *to ? 0 : -ENOMEM;
}

static int note_traits(struct ps_program *program, const struct ps_object *object)
{
	const char *name = ps_base_name(object->path);
	bool is_program = object == &program->object;
	uint32_t traits;
	int rc;

	if (!is_program &&
	    begins_with_any(name, unremarkable, sizeof(unremarkable) / sizeof(unremarkable[0])))
		return 0;
	if (begins_with_any(name, sanitizers, sizeof(sanitizers) / sizeof(sanitizers[0])))
		return keep(&program->shown[PS_TRAIT_SANITIZER_SHARED], name);
	rc = look_at(&object->elf, &traits);
	if (is_program && has(traits, PS_TRAIT_MALLOC))
		traits ^= bit(PS_TRAIT_MALLOC) | bit(PS_TRAIT_OWN_MALLOC);
	for (size_t i = 0; i < PS_TRAITS && rc == 0; i++)
		if (has(traits, (enum ps_trait)i))
			rc = keep(&program->shown[i], name);
	return rc;
}

static bool is_known(const struct ps_program *program, const char *name)
{
	for (size_t i = 0; i < program->libraries; i++)
		if (!strcmp(program->library[i], name))
			return true;
	return false;
}

static int add_library(struct ps_program *program, const char *name)
{
	char **library = reallocarray(program->library, program->libraries + 1, sizeof(*library));

	if (!library)
		return -ENOMEM;
	program->library = library;
	library[program->libraries] = strdup(name);
	return library[program->libraries] ? (program->libraries++, 0) : -ENOMEM;
}

static int look_at_needed(struct ps_program *program, const struct ps_object *object,
			  unsigned depth);

static int look_at_library(struct ps_program *program, const char *name,
			   const struct ps_object *needer, unsigned depth)
{
	const struct ps_needer by = { needer, &program->object };
	struct ps_object *library;
	int rc = add_library(program, name);

	if (rc < 0)
		return rc;
	library = malloc(sizeof(*library));
	if (!library)
		return -ENOMEM;
	rc = ps_loader_find(name, &by, library);
	if (rc == 0) {
		rc = note_traits(program, library);
		if (rc == 0 && !strncmp(name, "libcudart", strlen("libcudart")))
			rc = keep(&program->runtime, library->path);
		if (rc == 0)
			rc = look_at_needed(program, library, depth + 1);
		ps_object_close(library);
	} else if (rc == -ENOENT) {
		rc = keep(&program->missing, name);
	}
	free(library);
	return rc;
}

static int look_at_needed(struct ps_program *program, const struct ps_object *object,
			  unsigned depth)
{
	const char *name;
	int rc = 0;

	for (size_t i = 0; rc == 0 && depth < DEPTH_MAX &&
			   (name = ps_elf_dynamic_string(&object->elf, DT_NEEDED, i));
	     i++)
		if (program->libraries < LIBRARIES_MAX && !is_known(program, name))
			rc = look_at_library(program, name, object, depth);
	return rc;
}

int ps_program_look(struct ps_program *program)
{
	int rc = note_traits(program, &program->object);

	return rc < 0 ? rc : look_at_needed(program, &program->object, 0);
}
