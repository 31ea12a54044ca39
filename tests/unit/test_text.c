/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * text.h: formatting against the C library's, byte counts for people, JSON strings, sizes, patterns.
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "text.h"

/* Both formatters must agree. */
#define SAME_AS_PRINTF(...)                                                                        \
	do {                                                                                       \
		char ours[256], theirs[256];                                                       \
		struct ps_text same = PS_TEXT_INIT(ours);                                          \
		int length = snprintf(theirs, sizeof(theirs), __VA_ARGS__);                        \
		ps_text_add(&same, __VA_ARGS__);                                                   \
		ck_assert_str_eq(ours, theirs);                                                    \
		ck_assert_uint_eq(same.length, (size_t)length);                                    \
		ck_assert(!same.cut);                                                              \
	} while (0)

START_TEST(conversions)
{
	SAME_AS_PRINTF("plain, no conversion");
	SAME_AS_PRINTF("%s and %s", "one", "");
	SAME_AS_PRINTF("%c%c", 'a', '%');
	SAME_AS_PRINTF("%d %d %d", 0, INT_MAX, INT_MIN);
	SAME_AS_PRINTF("%u %u", 0u, UINT_MAX);
	SAME_AS_PRINTF("%x %x", 0u, 0xdeadbeefu);
	SAME_AS_PRINTF("%ld %ld", LONG_MIN, LONG_MAX);
	SAME_AS_PRINTF("%lld %llu %llx", LLONG_MIN, ULLONG_MAX, ULLONG_MAX);
	SAME_AS_PRINTF("%lu %lx", ULONG_MAX, ULONG_MAX);
	SAME_AS_PRINTF("%zu %zd %zx", SIZE_MAX, (ssize_t)-1, SIZE_MAX);
	SAME_AS_PRINTF("%p", (void *)0x7f00deadb000);
	SAME_AS_PRINTF("100%%");
	SAME_AS_PRINTF("%d%s%u%c%lx", -1, "x", 2u, 'y', 3ul);
}
END_TEST

START_TEST(widths)
{
	SAME_AS_PRINTF("[%8d][%-8d][%08d]", 42, 42, 42);
	SAME_AS_PRINTF("[%8d][%-8d][%08d]", -42, -42, -42);
	SAME_AS_PRINTF("[%4x][%04x][%-4x]", 0xabu, 0xabu, 0xabu);
	SAME_AS_PRINTF("[%12s][%-12s]", "right", "left");
	SAME_AS_PRINTF("[%2s][%2d]", "longer", 12345);
	SAME_AS_PRINTF("[%20p]", (void *)0x1000);
	SAME_AS_PRINTF("[%10lu][%010lu][%-10zu]", 7ul, 7ul, (size_t)7);
}
END_TEST

START_TEST(precisions)
{
	const char unended[3] = { 'a', 'b', 'c' };

	SAME_AS_PRINTF("[%.*s]", 2, "abc");
	SAME_AS_PRINTF("[%.*s]", 9, "abc");
	SAME_AS_PRINTF("[%.*s]", 0, "abc");
	SAME_AS_PRINTF("[%.*s]", -1, "abc");
	SAME_AS_PRINTF("[%.2s][%6.2s][%-6.2s]", "abc", "abc", "abc");
	/* A precision is also how far the string may be read. */
	SAME_AS_PRINTF("[%.*s]", 3, unended);
}
END_TEST

START_TEST(no_string)
{
	char buffer[32];
	struct ps_text text = PS_TEXT_INIT(buffer);
	const char *volatile none = NULL;

	ps_text_add(&text, "[%s][%8s][%.3s]", none, none, none);
	ck_assert_str_eq(buffer, "[(null)][  (null)][(nu]");
}
END_TEST

START_TEST(unknown_conversion_stops)
{
	char buffer[64];
	struct ps_text text = PS_TEXT_INIT(buffer);
	const char *volatile format = "a %q %s";

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
	ps_text_add(&text, format, (char *)1);
	ck_assert_str_eq(buffer, "a %?");
	/* A % at the end is no conversion either, and nothing behind it is read. */
	format = "b %";
	ps_text_add(&text, format);
	ck_assert_str_eq(buffer, "a %?b %?");
#pragma GCC diagnostic pop
}
END_TEST

START_TEST(cut_at_the_end)
{
	char buffer[8];
	struct ps_text text = PS_TEXT_INIT(buffer);

	ps_text_add(&text, "%s", "1234567");
	ck_assert_str_eq(buffer, "1234567");
	ck_assert(!text.cut);
	ps_text_add(&text, "8");
	ck_assert_str_eq(buffer, "1234567");
	ck_assert_uint_eq(text.length, 7);
	ck_assert(text.cut);
	/* It stays cut, and a text that needs no room adds none. */
	ps_text_add(&text, "%s", "");
	ck_assert(text.cut);
}
END_TEST

START_TEST(cut_in_the_middle)
{
	char buffer[8] = "########";
	struct ps_text text = { buffer, 5, 0, false };

	ps_text_add(&text, "%d-%s", 12, "abc");
	ck_assert_str_eq(buffer, "12-a");
	ck_assert(text.cut);
	ck_assert_int_eq(buffer[5], '#');
	text = (struct ps_text){ NULL, 0, 0, false };
	ps_text_add(&text, "no buffer at all");
	ck_assert(text.cut);
	ck_assert_uint_eq(text.length, 0);
}
END_TEST

static const struct {
	uint64_t bytes;
	const char *text;
} counts[] = {
	{ 0, "0 B" },
	{ 1, "1 B" },
	{ 512, "512 B" },
	{ 1023, "1023 B" },
	{ 1024, "1.0 KiB" },
	{ 1536, "1.5 KiB" },
	{ 8 << 20, "8.0 MiB" },
	{ UINT64_C(5) << 28, "1.25 GiB" },
	{ (UINT64_C(1) << 20) - 1, "1.0 MiB" }, /* rounds up into the next unit */
	{ (UINT64_C(1) << 20) - 6144, "1018.0 KiB" },
	{ (UINT64_C(100) << 30) + (51 << 20), "100.05 GiB" },
	{ (UINT64_C(1) << 20) + 10486, "1.01 MiB" },
	{ UINT64_C(1) << 40, "1.0 TiB" },
	{ UINT64_C(3) << 50, "3.0 PiB" },
	{ UINT64_MAX, "16.0 EiB" },
	{ UINT64_C(17) << 59, "8.5 EiB" },
};

START_TEST(byte_counts)
{
	char buffer[32];
	struct ps_text text = PS_TEXT_INIT(buffer);

	ps_text_add_bytes(&text, counts[_i].bytes);
	ck_assert_str_eq(buffer, counts[_i].text);
}
END_TEST

#define BAD "\\ufffd"

static const struct {
	const char *string;
	const char *json;
} strings[] = {
	{ "", "\"\"" },
	{ "plain", "\"plain\"" },
	{ "a\"b\\c", "\"a\\\"b\\\\c\"" },
	{ "\n\t\x01\x1f", "\"\\u000a\\u0009\\u0001\\u001f\"" },
	{ "\x7f", "\"\x7f\"" },
	{ "gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\"" },
	{ "\xe2\x82\xac \xf0\x9f\x98\x80", "\"\xe2\x82\xac \xf0\x9f\x98\x80\"" },
	{ "\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\"" }, /* U+10FFFF, the last */
	{ "\xff", "\"" BAD "\"" },
	{ "\x80"
	  "a",
	  "\"" BAD "a\"" },        /* continuation alone */
	{ "\xc3", "\"" BAD "\"" }, /* cut short by the end */
	{ "\xe2\x82", "\"" BAD BAD "\"" },
	{ "\xc3(", "\"" BAD "(\"" },       /* cut short by a character */
	{ "\xc0\xaf", "\"" BAD BAD "\"" }, /* overlong */
	{ "\xe0\x80\xaf", "\"" BAD BAD BAD "\"" },
	{ "\xf0\x80\x80\xaf", "\"" BAD BAD BAD BAD "\"" },
	{ "\xed\xa0\x80", "\"" BAD BAD BAD "\"" },         /* surrogate */
	{ "\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\"" }, /* above U+10FFFF */
	{ NULL, "null" },
};

START_TEST(json_strings)
{
	char buffer[128];
	struct ps_text text = PS_TEXT_INIT(buffer);

	ps_text_add_json(&text, strings[_i].string);
	ck_assert_str_eq(buffer, strings[_i].json);
}
END_TEST

static const struct {
	const char *string;
	int error;
	uint64_t bytes;
} sizes[] = {
	{ "0", 0, 0 },
	{ "123", 0, 123 },
	{ "007", 0, 7 },
	{ "64K", 0, 65536 },
	{ "64k", 0, 65536 },
	{ "8M", 0, 8 << 20 },
	{ "8G", 0, UINT64_C(8) << 30 },
	{ "2t", 0, UINT64_C(2) << 40 },
	{ "18446744073709551615", 0, UINT64_MAX },
	{ "16777215T", 0, UINT64_C(16777215) << 40 },
	{ "18446744073709551616", -ERANGE, 0 },
	{ "99999999999999999999999", -ERANGE, 0 },
	{ "16777216T", -ERANGE, 0 },
	{ "18446744073709551615K", -ERANGE, 0 },
	{ "", -EINVAL, 0 },
	{ "K", -EINVAL, 0 },
	{ "-1", -EINVAL, 0 },
	{ "+1", -EINVAL, 0 },
	{ " 1", -EINVAL, 0 },
	{ "1 ", -EINVAL, 0 },
	{ "1KB", -EINVAL, 0 },
	{ "1KiB", -EINVAL, 0 },
	{ "1.5G", -EINVAL, 0 },
	{ "0x10", -EINVAL, 0 },
	{ "1P", -EINVAL, 0 },
	{ "1B", -EINVAL, 0 },
};

START_TEST(size_parsing)
{
	uint64_t bytes = 4711;
	int error = ps_text_parse_size(sizes[_i].string, NULL, &bytes);

	ck_assert_int_eq(error, sizes[_i].error);
	ck_assert_uint_eq(bytes, error < 0 ? 4711 : sizes[_i].bytes);
}
END_TEST

START_TEST(size_with_end)
{
	const char *end = NULL;
	uint64_t bytes;

	ck_assert_int_eq(ps_text_parse_size("64K-1M", &end, &bytes), 0);
	ck_assert_uint_eq(bytes, 65536);
	ck_assert_str_eq(end, "-1M");
	ck_assert_int_eq(ps_text_parse_size("50%", &end, &bytes), 0);
	ck_assert_uint_eq(bytes, 50);
	ck_assert_str_eq(end, "%");
	ck_assert_int_eq(ps_text_parse_size("7", &end, &bytes), 0);
	ck_assert_str_eq(end, "");
	ck_assert_int_eq(ps_text_parse_size("x", &end, &bytes), -EINVAL);
}
END_TEST

START_TEST(fields)
{
	static const char text[] = "Name:\tUid: 1\nUids:\t2\nUid:\t3 4\nEmpty:\n";

	ck_assert_str_eq(ps_text_find_field(text, "Uid"), "3 4\nEmpty:\n");
	ck_assert_str_eq(ps_text_find_field(text, "Empty"), "\n");
	ck_assert_ptr_eq(ps_text_find_field(text, "Nam"), NULL);
	ck_assert_ptr_eq(ps_text_find_field("", "Name"), NULL);
}
END_TEST

START_TEST(pattern_names)
{
	char buffer[512], expected[512];
	struct ps_text text = PS_TEXT_INIT(buffer);
	struct utsname system;

	uname(&system);
	setenv("RANK", "3", 1);
	ck_assert_int_eq(ps_text_add_pattern(&text, "/tmp/%h/%e.%p.r%r%%.json"), 0);
	snprintf(expected, sizeof(expected), "/tmp/%s/%s.%d.r3%%.json", system.nodename,
		 program_invocation_short_name, getpid());
	ck_assert_str_eq(buffer, expected);
}
END_TEST

static const char *rank_now(void)
{
	static char buffer[64];
	struct ps_text text = PS_TEXT_INIT(buffer);

	ck_assert_int_eq(ps_text_add_pattern(&text, "%r"), 0);
	return buffer;
}

START_TEST(pattern_rank)
{
	unsetenv("RANK");
	unsetenv("SLURM_PROCID");
	unsetenv("OMPI_COMM_WORLD_RANK");
	ck_assert_str_eq(rank_now(), "0");
	setenv("OMPI_COMM_WORLD_RANK", "5", 1);
	ck_assert_str_eq(rank_now(), "5");
	setenv("SLURM_PROCID", "6", 1);
	ck_assert_str_eq(rank_now(), "6");
	setenv("RANK", "", 1);
	ck_assert_str_eq(rank_now(), "6");
	setenv("RANK", "../../7", 1);
	ck_assert_str_eq(rank_now(), ".._.._7");
}
END_TEST

START_TEST(pattern_errors)
{
	char buffer[64];
	struct ps_text text = PS_TEXT_INIT(buffer);

	ck_assert_int_eq(ps_text_add_pattern(&text, "%x"), -EINVAL);
	ck_assert_int_eq(ps_text_add_pattern(&text, "file%"), -EINVAL);
	ck_assert_int_eq(ps_text_add_pattern(&text, "% p"), -EINVAL);
	ck_assert_int_eq(ps_text_add_pattern(&text, ""), 0);
}
END_TEST

START_TEST(program_name)
{
	const char *name = ps_text_program();

	ck_assert_str_eq(name, program_invocation_short_name);
	ck_assert_ptr_eq(ps_text_program(), name);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("text");
	TCase *tcase = tcase_create("text");
	SRunner *runner;
	int failed;

	tcase_add_test(tcase, conversions);
	tcase_add_test(tcase, widths);
	tcase_add_test(tcase, precisions);
	tcase_add_test(tcase, no_string);
	tcase_add_test(tcase, unknown_conversion_stops);
	tcase_add_test(tcase, cut_at_the_end);
	tcase_add_test(tcase, cut_in_the_middle);
	tcase_add_loop_test(tcase, byte_counts, 0, sizeof(counts) / sizeof(counts[0]));
	tcase_add_loop_test(tcase, json_strings, 0, sizeof(strings) / sizeof(strings[0]));
	tcase_add_loop_test(tcase, size_parsing, 0, sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_test(tcase, size_with_end);
	tcase_add_test(tcase, fields);
	tcase_add_test(tcase, pattern_names);
	tcase_add_test(tcase, pattern_rank);
	tcase_add_test(tcase, pattern_errors);
	tcase_add_test(tcase, program_name);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
