/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_TEXT_H
#define PS_TEXT_H
/*
 * Text into a caller's buffer, without stdio, locale or malloc: for messages and reports that are
 * written from inside an allocator, from a signal handler's thread, or after exit() began.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_text {
	char *buffer;  /* always NUL-terminated when size > 0 */
	size_t size;   /* bytes in buffer */
	size_t length; /* bytes used, without the NUL */
	bool cut;      /* something did not fit */
};

#define PS_TEXT_INIT(array)                                                                        \
	{                                                                                          \
		(array), sizeof(array), 0, false                                                   \
	}

/*
 * Appends like printf. Knows %s %c %d %u %x %p %% with l, ll, z, a precision for %s (%.*s), and a
 * width with or without 0 for numbers and strings ("%-12s", "%8u", "%04x"). %s of NULL is "(null)".
 */
void ps_text_add(struct ps_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void ps_text_vadd(struct ps_text *text, const char *format, va_list arguments)
	__attribute__((format(printf, 2, 0)));

/* Appends bytes for a person: "512 B", "8.0 MiB", "1.25 GiB". */
void ps_text_add_bytes(struct ps_text *text, uint64_t bytes);

/* Appends a JSON string with its quotes, escaped; bytes that are not UTF-8 become U+FFFD. */
void ps_text_add_json(struct ps_text *text, const char *string);

/*
 * Parses "64K", "8G", "123": K, M, G, T are powers of 1024, either case. 0, -EINVAL for anything
 * else (empty, sign, spaces, trailing characters), -ERANGE over 64 bits. *end, if not NULL, gets the
 * first character not used, and then trailing characters are no error.
 */
int ps_text_parse_size(const char *string, const char **end, uint64_t *bytes);

/*
 * The value of a field in the text of a file like /proc/meminfo: what follows "name:" at the beginning
 * of a line, spaces skipped. NULL if there is none.
 */
const char *ps_text_find_field(const char *text, const char *name);

/*
 * Appends a name pattern: %p process id, %h host name, %e program name, %r rank (RANK, SLURM_PROCID,
 * OMPI_COMM_WORLD_RANK, else 0), %% a percent sign. -EINVAL for any other %.
 */
int ps_text_add_pattern(struct ps_text *text, const char *pattern);

/* The last component of a path: what follows the last slash. */
const char *ps_base_name(const char *path);

/* The program's name: base name of /proc/self/exe, or "?". Cached; valid for ever. */
const char *ps_text_program(void);

#endif
