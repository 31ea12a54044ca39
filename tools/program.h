/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_PROGRAM_H
#define PS_PROGRAM_H
/*
 * What a program is, from its files alone: nothing of it is run. What it loads with dlopen(3) later
 * cannot be seen.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader.h"
#include "text.h"

/* What the program, or a library that it needs, has or does. */
enum ps_trait {
	PS_TRAIT_ASAN, /* built with a sanitizer */
	PS_TRAIT_TSAN,
	PS_TRAIT_MSAN,
	PS_TRAIT_LSAN,
	PS_TRAIT_SANITIZER_SHARED, /* whose run-time library is a shared one */
	PS_TRAIT_OWN_MALLOC,       /* the executable defines malloc for everybody */
	PS_TRAIT_MALLOC,           /* a library that is not the C library does */
	PS_TRAIT_PRIVATE_MALLOC,   /* an allocator under a name of its own */
	PS_TRAIT_RUNTIME_SHARED,   /* calls the CUDA runtime in its shared library */
	PS_TRAIT_RUNTIME_STATIC,   /* has the CUDA runtime built in */
	PS_TRAIT_RUNTIME_OPENED,   /* has the name of its library, to open it */
	PS_TRAIT_DRIVER,           /* calls the CUDA driver's library */
	PS_TRAIT_DRIVER_OPENED,    /* has its name, to open it */
	PS_TRAIT_LIBAIO_SHARED,
	PS_TRAIT_LIBAIO_STATIC,
	PS_TRAIT_LIBAIO_OPENED,
	PS_TRAIT_URING,  /* uses io_uring itself, through liburing */
	PS_TRAIT_DLOPEN, /* can load more */
	PS_TRAITS
};

struct ps_program {
	char script[PATH_MAX];      /* what was named, if that is a script; else empty */
	struct ps_object object;    /* the executable, or what runs the script */
	char interpreter[PATH_MAX]; /* its dynamic loader; empty: it is static */
	const char *secure;     /* why the dynamic loader ignores LD_PRELOAD; NULL: it does not */
	char *shown[PS_TRAITS]; /* base name of the first file with the trait, or NULL */
	char *runtime;          /* the CUDA runtime's library that it needs, or NULL */
	char *missing;          /* a library that is needed and was not found, or NULL */
	char **library;         /* that it needs, directly or not */
	size_t libraries;
};

/*
 * Finds the program as execvp(3) does and opens it; in place of a script, what runs it. 0; -ENOENT;
 * -EACCES; -ENOEXEC where it is neither an ELF file nor a script; -ELOOP; -ENOMEM. After an error
 * object.path is the file that it is about, and there is nothing to close.
 */
int ps_program_open(struct ps_program *program, const char *name);

/* Looks at it and at the libraries that it needs, and fills in the rest. 0 or -ENOMEM. */
int ps_program_look(struct ps_program *program);

void ps_program_close(struct ps_program *program);

/*
 * Is there something about its file because of which nothing can be preloaded into it? Says what,
 * and what to do about it.
 */
bool ps_program_obstacle(const struct ps_program *program, struct ps_text *what,
			 struct ps_text *remedy);

#endif
