/* SPDX-License-Identifier: BSD-2-Clause */
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "os.h"
#include "syscall.h"

static void add(struct ps_text *text, const char *bytes, size_t length)
{
	size_t room = text->size > 0 ? text->size - 1 - text->length : 0;

	if (length > room) {
		length = room;
		text->cut = true;
	}
	if (text->size == 0)
		return;
	memcpy(text->buffer + text->length, bytes, length);
	text->length += length;
	text->buffer[text->length] = '\0';
}

static void add_repeated(struct ps_text *text, char byte, size_t count)
{
	while (count-- > 0)
		add(text, &byte, 1);
}

/* One conversion of a format, between its % and its letter, and the arguments it takes from. */
struct conversion {
	va_list arguments;
	size_t width;
	size_t precision; /* SIZE_MAX: none */
	bool left;        /* - */
	bool zero;        /* 0 */
	bool wide;        /* l, ll or z, all of 64 bits */
};

_Static_assert(sizeof(long) == 8 && sizeof(size_t) == 8, "l, ll and z are of one size");

static void add_padded(struct ps_text *text, const struct conversion *conversion, const char *sign,
		       const char *body, size_t length)
{
	size_t sign_length = strlen(sign);
	size_t used = sign_length + length;
	size_t padding = conversion->width > used ? conversion->width - used : 0;

	if (!conversion->left && !conversion->zero)
		add_repeated(text, ' ', padding);
	add(text, sign, sign_length);
	if (!conversion->left && conversion->zero)
		add_repeated(text, '0', padding);
	add(text, body, length);
	if (conversion->left)
		add_repeated(text, ' ', padding);
}

static void add_number(struct ps_text *text, const struct conversion *conversion, const char *sign,
		       uint64_t value, unsigned base)
{
	char digits[20];
	size_t first = sizeof(digits);

	do {
		digits[--first] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value != 0);
	add_padded(text, conversion, sign, digits + first, sizeof(digits) - first);
}

static size_t parse_width(const char **format)
{
	size_t width = 0;

	while (**format >= '0' && **format <= '9')
		width = width * 10 + (size_t)(*(*format)++ - '0');
	return width;
}

/* Reads what stands between % and the letter. Returns the letter's place. */
static const char *parse_conversion(const char *format, struct conversion *conversion)
{
	conversion->left = conversion->zero = conversion->wide = false;
	conversion->precision = SIZE_MAX;
	for (; *format == '-' || *format == '0'; format++) {
		conversion->left |= *format == '-';
		conversion->zero |= *format == '0';
	}
	conversion->width = parse_width(&format);
	if (format[0] == '.' && format[1] == '*') {
		int precision = va_arg(conversion->arguments, int);

		if (precision >= 0)
			conversion->precision = (size_t)precision;
		format += 2;
	} else if (format[0] == '.') {
		format++;
		conversion->precision = parse_width(&format);
	}
	for (; *format == 'l' || *format == 'z'; format++)
		conversion->wide = true;
	return format;
}

static void add_string(struct ps_text *text, struct conversion *conversion)
{
	const char *string = va_arg(conversion->arguments, const char *);

	if (string == NULL)
		string = "(null)";
	add_padded(text, conversion, "", string, strnlen(string, conversion->precision));
}

static void add_signed(struct ps_text *text, struct conversion *conversion)
{
	int64_t value = conversion->wide ? va_arg(conversion->arguments, long)
					 : va_arg(conversion->arguments, int);

	if (value < 0)
		add_number(text, conversion, "-", -(uint64_t)value, 10);
	else
		add_number(text, conversion, "", (uint64_t)value, 10);
}

static void add_unsigned(struct ps_text *text, struct conversion *conversion, unsigned base)
{
	uint64_t value = conversion->wide ? va_arg(conversion->arguments, unsigned long)
					  : va_arg(conversion->arguments, unsigned);

	add_number(text, conversion, "", value, base);
}

/* Appends one conversion by its letter. false for a letter that is not known. */
static bool add_conversion(struct ps_text *text, struct conversion *conversion, char letter)
{
	char byte = '%';

	switch (letter) {
	case 's':
		add_string(text, conversion);
		return true;
	case 'd':
		add_signed(text, conversion);
		return true;
	case 'u':
		add_unsigned(text, conversion, 10);
		return true;
	case 'x':
		add_unsigned(text, conversion, 16);
		return true;
	case 'p':
		add_number(text, conversion, "0x", (uintptr_t)va_arg(conversion->arguments, void *),
			   16);
		return true;
	case 'c':
		byte = (char)va_arg(conversion->arguments, int);
		/* fall through */
	case '%':
		add(text, &byte, 1);
		return true;
	default:
		return false;
	}
}

void ps_text_vadd(struct ps_text *text, const char *format, va_list arguments)
{
	struct conversion conversion;

	va_copy(conversion.arguments, arguments);
	for (;;) {
		size_t plain = strcspn(format, "%");

		add(text, format, plain);
		format += plain;
		if (*format == '\0')
			break;
		format = parse_conversion(format + 1, &conversion);
		/* After an unknown one, no argument can be told any more. */
		if (!add_conversion(text, &conversion, *format)) {
			add(text, "%?", 2);
			break;
		}
		format++;
	}
	va_end(conversion.arguments);
}

void ps_text_add(struct ps_text *text, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	ps_text_vadd(text, format, arguments);
	va_end(arguments);
}

void ps_text_add_bytes(struct ps_text *text, uint64_t bytes)
{
	static const char units[] = "BKMGTPE";
	unsigned unit = 0;
	uint64_t hundredths, fraction;

	while (unit < 6 && bytes >> (10 * unit) >= 1024)
		unit++;
	if (unit == 0) {
		ps_text_add(text, "%lu B", bytes);
		return;
	}
	/* Down to units of 1/1024 first, so that the product fits. */
	fraction = (bytes >> (10 * unit - 10)) % 1024;
	hundredths = (bytes >> (10 * unit)) * 100 + (fraction * 100 + 512) / 1024;
	if (hundredths == 102400 && unit < 6) {
		hundredths = 100;
		unit++;
	}
	ps_text_add(text, "%lu.%lu", hundredths / 100, hundredths / 10 % 10);
	if (hundredths % 10 != 0)
		ps_text_add(text, "%lu", hundredths % 10);
	ps_text_add(text, " %ciB", units[unit]);
}

/* Length of the UTF-8 character at bytes, 0 if it is none (RFC 3629: no overlong, no surrogate). */
static size_t utf8_length(const unsigned char *bytes)
{
	unsigned char low = 0x80, high = 0xbf; /* of the second byte */
	size_t length;

	if (bytes[0] < 0x80)
		return 1;
	if (bytes[0] < 0xc2 || bytes[0] > 0xf4)
		return 0;
	length = bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
	if (bytes[0] == 0xe0)
		low = 0xa0;
	else if (bytes[0] == 0xed)
		high = 0x9f;
	else if (bytes[0] == 0xf0)
		low = 0x90;
	else if (bytes[0] == 0xf4)
		high = 0x8f;
	if (bytes[1] < low || bytes[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	}
	return length;
}

void ps_text_add_json(struct ps_text *text, const char *string)
{
	const unsigned char *next = (const unsigned char *)string;

	if (string == NULL) {
		ps_text_add(text, "null");
		return;
	}
	ps_text_add(text, "\"");
	while (*next != '\0') {
		size_t length = utf8_length(next);

		if (*next == '"' || *next == '\\')
			ps_text_add(text, "\\%c", *next);
		else if (*next < 0x20)
			ps_text_add(text, "\\u%04x", *next);
		else if (length == 0)
			ps_text_add(text, "\\ufffd");
		else
			add(text, (const char *)next, length);
		next += length > 0 ? length : 1;
	}
	ps_text_add(text, "\"");
}

static unsigned size_shift(char suffix)
{
	switch (suffix | 0x20) {
	case 'k':
		return 10;
	case 'm':
		return 20;
	case 'g':
		return 30;
	case 't':
		return 40;
	default:
		return 0;
	}
}

int ps_text_parse_size(const char *string, const char **end, uint64_t *bytes)
{
	const char *next = string;
	uint64_t value = 0;
	unsigned shift;
	bool range = false;

	for (; *next >= '0' && *next <= '9'; next++) {
		range |= __builtin_mul_overflow(value, 10u, &value);
		range |= __builtin_add_overflow(value, (uint64_t)(*next - '0'), &value);
	}
	if (next == string)
		return -EINVAL;
	shift = size_shift(*next);
	if (shift > 0)
		next++;
	if (end == NULL && *next != '\0')
		return -EINVAL;
	if (range || value > UINT64_MAX >> shift)
		return -ERANGE;
	if (end != NULL)
		*end = next;
	*bytes = value << shift;
	return 0;
}

const char *ps_text_find_field(const char *text, const char *name)
{
	const size_t length = strlen(name);

	for (; text != NULL; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (strncmp(text, name, length) == 0 && text[length] == ':')
			return text + length + 1 + strspn(text + length + 1, " \t");
	}
	return NULL;
}

/* Appends what becomes part of a file's name: a slash in it would name another directory. */
static void add_name(struct ps_text *text, const char *name)
{
	for (; *name != '\0'; name++)
		add(text, *name == '/' ? "_" : name, 1);
}

static void add_host(struct ps_text *text)
{
	struct utsname system;

	if (ps_syscall1(SYS_uname, &system) == 0)
		add_name(text, system.nodename);
	else
		add(text, "?", 1);
}

static const char *rank(void)
{
	static const char *const names[] = { "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = secure_getenv(names[i]);

		if (value != NULL && *value != '\0')
			return value;
	}
	return "0";
}

int ps_text_add_pattern(struct ps_text *text, const char *pattern)
{
	for (; *pattern != '\0'; pattern++) {
		if (*pattern != '%') {
			add(text, pattern, 1);
			continue;
		}
		switch (*++pattern) {
		case 'p':
			ps_text_add(text, "%d", ps_os_getpid());
			break;
		case 'h':
			add_host(text);
			break;
		case 'e':
			add_name(text, ps_text_program());
			break;
		case 'r':
			add_name(text, rank());
			break;
		case '%':
			add(text, "%", 1);
			break;
		default:
			return -EINVAL;
		}
	}
	return 0;
}

static void strip_suffix(char *string, const char *suffix)
{
	size_t length = strlen(string), cut = strlen(suffix);

	if (length > cut && strcmp(string + length - cut, suffix) == 0)
		string[length - cut] = '\0';
}

const char *ps_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

const char *ps_text_program(void)
{
	static char program[256];
	static bool known;
	char path[4096];
	const char *base;
	size_t i;

	if (__atomic_load_n(&known, __ATOMIC_ACQUIRE))
		return program;
	if (ps_os_readlink("/proc/self/exe", path, sizeof(path)) < 0)
		return "?";
	strip_suffix(path, " (deleted)");
	base = ps_base_name(path);
	/* Threads that come here together store the same bytes, so no lock is needed. */
	for (i = 0; i < sizeof(program) - 1 && base[i] != '\0'; i++)
		__atomic_store_n(&program[i], base[i], __ATOMIC_RELAXED);
	__atomic_store_n(&known, true, __ATOMIC_RELEASE);
	return program;
}
