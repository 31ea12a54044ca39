/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_GPU_H
#define TEST_GPU_H
/*
 * For the programs that ask CUDA one question a line, plain and under the shim, for scripts/gpu-check
 * to compare. They know nothing of pinshim, and are linked as programs of the user are. Each is a set
 * of groups: without an argument it prints their names, with one it runs that group. A line is
 *
 *	QUESTION <tab> ANSWER <tab> EXPECTED <tab> MARK <tab> WHY
 *
 * EXPECTED is what is documented or was seen on real drivers, or what the fakes do; empty where nobody
 * knows. MARK is "guess" where the fakes guess it, "known=ANSWER" where the shim may give that other
 * answer, WHY. What is marked "shim" is not asked without it.
 * What may end the process comes last in its group.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "../fakes/fake_cuda.h"

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
#define OPEN (-1)                     /* no code is expected */
#define UNTOUCHED ((void *)0xabcdef0) /* what pointers hold before a call */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct group {
	const char *name;
	void (*go)(void);
};

/* Marks of the next question. */
static struct {
	bool guess;
	const char *known, *why;
} next_row;

static inline void guess(void)
{
	next_row.guess = true;
}

static inline void known(const char *shim, const char *why)
{
	next_row.known = shim;
	next_row.why = why;
}

/* Written at once: the next question may be the last. */
static inline void answer(const char *question, const char *expected, const char *got)
{
	printf("%s\t%s\t%s\t", question, got, expected ? expected : "");
	if (next_row.known)
		printf("known=%s\t%s\n", next_row.known, next_row.why);
	else
		printf("%s\t\n", next_row.guess ? "guess" : "");
	fflush(stdout);
	next_row.guess = false;
	next_row.known = NULL;
}

__attribute__((format(printf, 3, 4))) static inline void text(const char *question,
							      const char *expected,
							      const char *format, ...)
{
	char got[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(got, sizeof(got), format, arguments);
	va_end(arguments);
	answer(question, expected, got);
}

static inline void code(const char *question, int expected, int got)
{
	char wanted[16] = "";

	if (expected != OPEN)
		snprintf(wanted, sizeof(wanted), "%d", expected);
	text(question, wanted, "%d", got);
}

/* A question put together; good until 64 others are. */
__attribute__((format(printf, 1, 2))) static inline const char *named(const char *format, ...)
{
	static char names[64][128];
	static unsigned turn;
	char *name = names[turn++ % COUNT(names)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(name, sizeof(names[0]), format, arguments);
	va_end(arguments);
	return name;
}

/* What a call made of a pointer, in a word that does not depend on the address. */
static inline const char *seen(const void *pointer, const void *same)
{
	return pointer == UNTOUCHED ? "untouched"
	       : !pointer           ? "NULL"
	       : pointer == same    ? "same"
				    : "other";
}

static inline char *pages(size_t count)
{
	void *memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* A function of the driver, found as a program finds it that is not linked with it. */
#define DRIVER(function) ((__typeof__(function) *)fake_cuda_find("libcuda.so.1", #function))

static inline int run_group(const struct group *groups, size_t count, int arguments,
			    char **argument)
{
	for (size_t i = 0; i < count; i++) {
		if (arguments == 1)
			puts(groups[i].name);
		else if (!strcmp(argument[1], groups[i].name))
			return groups[i].go(), 0;
	}
	return arguments == 1 ? 0 : 2;
}

#endif
