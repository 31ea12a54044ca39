/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_ARGUMENTS_H
#define PS_ARGUMENTS_H
/*
 * The arguments of the execl family as an array. On the caller's stack: between vfork and exec nothing
 * may be allocated.
 */
#include <alloca.h>
#include <stdarg.h>
#include <stddef.h>

/* The arguments of an execl call, the first and the NULL among them, counted. */
static inline size_t ps_count_arguments(va_list arguments)
{
	size_t count = 1;

	while (va_arg(arguments, char *) != NULL)
		count++;
	return count + 1;
}

static inline void ps_copy_arguments(char **argv, const char *first, size_t count,
				     va_list arguments)
{
	argv[0] = (char *)first;
	for (size_t i = 1; i < count; i++)
		argv[i] = va_arg(arguments, char *);
}

/* argv of a call whose last named parameter is `first`, on the caller's stack as execl needs it. */
#define PS_COLLECT(argv, first)                                                                    \
	do {                                                                                       \
		va_list arguments;                                                                 \
		size_t count;                                                                      \
		va_start(arguments, first);                                                        \
		count = ps_count_arguments(arguments);                                             \
		va_end(arguments);                                                                 \
		(argv) = alloca((count + 1) * sizeof(char *));                                     \
		va_start(arguments, first);                                                        \
		ps_copy_arguments((argv), first, count, arguments);                                \
		va_end(arguments);                                                                 \
	} while (0)

#endif
