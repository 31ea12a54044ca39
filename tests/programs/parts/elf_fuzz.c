/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * elf_fuzz ROUNDS FILE...: damages copies of ELF files and reads each with everything that
 * tools/elf_file.h has. What it reads is used, so that a sanitizer looks at it, and strings must end.
 * Prints how many of the copies could still be opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../../tools/elf_file.h"

static uint64_t state = 88172645463325252u;
static volatile size_t used; /* the compiler must not drop what is read */

static uint64_t random_number(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static char *read_file(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY);
	struct stat status;
	char *bytes;

	if (fd < 0 || fstat(fd, &status) < 0)
		fail(path);
	*size = (size_t)status.st_size;
	bytes = malloc(*size);
	if (!bytes || read(fd, bytes, *size) != (ssize_t)*size)
		fail(path);
	close(fd);
	return bytes;
}

/* Somewhere that matters: the header, the tables that it names, what the segments name, or anywhere. */
static size_t choose_place(const char *bytes, size_t size)
{
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	uint64_t place = random_number(size);

	memcpy(&header, bytes, sizeof(header));
	switch (random_number(6)) {
	case 0:
		place = EI_NIDENT + random_number(sizeof(header) - EI_NIDENT);
		break;
	case 1:
		place = header.e_phoff + random_number((uint64_t)header.e_phnum * sizeof(segment));
		break;
	case 2:
	case 3:
		if (header.e_shnum)
			place = header.e_shoff +
				random_number((uint64_t)header.e_shnum * sizeof(Elf64_Shdr));
		break;
	case 4:
		memcpy(&segment,
		       bytes + header.e_phoff + random_number(header.e_phnum) * sizeof(segment),
		       sizeof(segment));
		place = segment.p_offset + random_number(segment.p_filesz + 1);
		break;
	default:
		break;
	}
	return place + sizeof(uint64_t) < size ? (size_t)place : 0;
}

static void damage(const char *original, char *bytes, size_t size)
{
	static const uint64_t extreme[] = {
		0,        1,          7,          0xff,      0x7fffffff,
		1u << 20, UINT32_MAX, UINT64_MAX, INT64_MAX, UINT64_C(1) << 40
	};
	uint64_t count = 1 + random_number(8);

	memcpy(bytes, original, size);
	while (count-- > 0) {
		size_t place = choose_place(original, size), length = (size_t)1 << random_number(4);
		uint64_t value = random_number(2) ? random_number(UINT64_MAX)
						  : extreme[random_number(10)];

		if (random_number(4) == 0)
			value = random_number(size + 4096); /* plausible */
		memcpy(bytes + place, &value, length);
	}
}

static void visit(const char *name, bool defined, void *context)
{
	size_t *symbols = context;

	*symbols += 1;
	used += strlen(name) + defined;
}

static void use(const char *string)
{
	if (string)
		used += strlen(string);
}

/* true if it could be opened. */
static bool read_all(int fd)
{
	static const char *const strings[] = { "libcuda.so.1", "malloc", "no such string" };
	static const int64_t tags[] = { DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, 77 };
	struct ps_elf elf;
	char path[64];
	uint32_t found;
	size_t symbols = 0;
	int rc = ps_elf_open(&elf, fd);

	if (rc < 0)
		return false;
	memset(path, 'x', sizeof(path));
	ps_elf_interpreter(&elf, path, sizeof(path));
	use(path);
	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++)
		for (size_t j = 0; j < 3; j++)
			use(ps_elf_dynamic_string(&elf, tags[i], j));
	used += ps_elf_has_section(&elf, ".nv_fatbin");
	ps_elf_symbols(&elf, SHT_DYNSYM, visit, &symbols);
	ps_elf_symbols(&elf, SHT_SYMTAB, visit, &symbols);
	ps_elf_find_strings(&elf, strings, 3, &found);
	used += found;
	ps_elf_close(&elf);
	return true;
}

/* A file of these bytes, sometimes cut, sometimes with a hole of a TiB behind them. */
static int make_file(const char *bytes, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	off_t length = (off_t)size;

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		fail("memfd");
	switch (random_number(64)) {
	case 0:
		length = (off_t)1 << 40;
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		length = (off_t)random_number(size);
		break;
	case 5:
		length = (off_t)random_number(128);
		break;
	default:
		break;
	}
	if (ftruncate(fd, length) < 0)
		fail("ftruncate");
	return fd;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
	unsigned long opened = 0;

	for (int i = 2; i < argc; i++) {
		size_t size;
		char *original = read_file(argv[i], &size), *bytes = malloc(size);

		if (!bytes || !read_all(open(argv[i], O_RDONLY)))
			fail(argv[i]);
		for (unsigned long round = 0; round < rounds; round++) {
			damage(original, bytes, size);
			opened += read_all(make_file(bytes, size));
		}
		free(bytes);
		free(original);
	}
	printf("%lu\n", opened);
	return 0;
}
