/* SPDX-License-Identifier: BSD-2-Clause */
#include "elf_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is read of one part at most. Real files stay below, or lose the part's end. */
#define SEGMENTS_MAX 512
#define SECTIONS_MAX 65536
#define DYNAMIC_MAX ((size_t)64 << 10)
#define NAMES_MAX ((size_t)1 << 20)
#define STRINGS_MAX ((size_t)64 << 20)
#define SYMBOLS_MAX ((uint64_t)8 << 20)
#define DATA_MAX ((uint64_t)64 << 20)

#define BLOCK ((size_t)1 << 20) /* read at a time */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NATIVE_DATA ELFDATA2LSB
#else
#define NATIVE_DATA ELFDATA2MSB
#endif

#if defined(__x86_64__)
#define NATIVE_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define NATIVE_MACHINE EM_AARCH64
#else
#error "this architecture is not supported"
#endif

/* Reads up to length bytes, fewer only at the file's end. Returns how many, or -errno. */
static ssize_t read_at(const struct ps_elf *elf, uint64_t offset, void *buffer, size_t length)
{
	size_t done = 0;

	if (offset > elf->size)
		return 0;
	while (done < length) {
		ssize_t got = pread(elf->fd, (char *)buffer + done, length - done,
				    (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

/* Reads what there is of a part, at most so many bytes of it. 0 or -errno. */
static int read_part(const struct ps_elf *elf, uint64_t offset, uint64_t length, size_t most,
		     struct ps_elf_part *part)
{
	ssize_t got;

	*part = (struct ps_elf_part){ NULL, 0 };
	if (offset >= elf->size)
		return 0;
	if (length > elf->size - offset)
		length = elf->size - offset;
	if (length > most)
		length = most;
	part->bytes = malloc((size_t)length + 1);
	if (!part->bytes)
		return -ENOMEM;
	got = read_at(elf, offset, part->bytes, (size_t)length);
	if (got < 0) {
		free(part->bytes);
		part->bytes = NULL;
		return (int)got;
	}
	part->length = (size_t)got;
	part->bytes[got] = '\0';
	return 0;
}

static void free_part(struct ps_elf_part *part)
{
	free(part->bytes);
	*part = (struct ps_elf_part){ NULL, 0 };
}

/* A string in a part, or NULL where that is outside. */
static const char *string_in(const struct ps_elf_part *part, uint64_t offset)
{
	return offset < part->length ? part->bytes + offset : NULL;
}

/* Where a virtual address is in the file; false where no segment has it there. */
static bool find_address(const struct ps_elf *elf, uint64_t address, uint64_t *offset)
{
	for (size_t i = 0; i < elf->segments; i++) {
		const Elf64_Phdr *segment = &elf->segment[i];

		if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
		    address - segment->p_vaddr >= segment->p_filesz)
			continue;
		return !__builtin_add_overflow(segment->p_offset, address - segment->p_vaddr,
					       offset);
	}
	return false;
}

static bool dynamic_entry(const struct ps_elf *elf, size_t index, Elf64_Dyn *entry)
{
	if (index >= elf->dynamic.length / sizeof(*entry))
		return false;
	memcpy(entry, elf->dynamic.bytes + index * sizeof(*entry), sizeof(*entry));
	return entry->d_tag != DT_NULL;
}

static const Elf64_Phdr *find_segment(const struct ps_elf *elf, uint32_t type)
{
	for (size_t i = 0; i < elf->segments; i++)
		if (elf->segment[i].p_type == type)
			return &elf->segment[i];
	return NULL;
}

static int read_dynamic(struct ps_elf *elf)
{
	const Elf64_Phdr *segment = find_segment(elf, PT_DYNAMIC);
	uint64_t address = 0, length = 0, offset;
	Elf64_Dyn entry;
	int rc;

	if (!segment)
		return 0;
	rc = read_part(elf, segment->p_offset, segment->p_filesz, DYNAMIC_MAX, &elf->dynamic);
	if (rc < 0)
		return rc;
	for (size_t i = 0; dynamic_entry(elf, i, &entry); i++) {
		if (entry.d_tag == DT_STRTAB)
			address = entry.d_un.d_ptr;
		else if (entry.d_tag == DT_STRSZ)
			length = entry.d_un.d_val;
	}
	if (!find_address(elf, address, &offset))
		return 0;
	return read_part(elf, offset, length, STRINGS_MAX, &elf->strings);
}

/* An array of records, of which the file says the size. Others than ours are none that we know. */
static int read_records(const struct ps_elf *elf, uint64_t offset, size_t count, size_t said,
			size_t size, struct ps_elf_part *part)
{
	*part = (struct ps_elf_part){ NULL, 0 };
	if (said != size || offset == 0)
		return 0;
	return read_part(elf, offset, (uint64_t)count * size, count * size, part);
}

static int read_headers(struct ps_elf *elf)
{
	struct ps_elf_part part;
	Elf64_Ehdr header;
	ssize_t got = read_at(elf, 0, &header, sizeof(header));
	int rc;

	if (got < (ssize_t)sizeof(header))
		return got < 0 ? (int)got : 0;
	rc = read_records(elf, header.e_phoff,
			  header.e_phnum < SEGMENTS_MAX ? header.e_phnum : SEGMENTS_MAX,
			  header.e_phentsize, sizeof(Elf64_Phdr), &part);
	if (rc < 0)
		return rc;
	elf->segment = (Elf64_Phdr *)part.bytes;
	elf->segments = part.length / sizeof(Elf64_Phdr);
	rc = read_records(elf, header.e_shoff, header.e_shnum, header.e_shentsize,
			  sizeof(Elf64_Shdr), &part);
	if (rc < 0)
		return rc;
	elf->section = (Elf64_Shdr *)part.bytes;
	elf->sections = part.length / sizeof(Elf64_Shdr);
	if (header.e_shstrndx < elf->sections) {
		const Elf64_Shdr *names = &elf->section[header.e_shstrndx];

		rc = read_part(elf, names->sh_offset, names->sh_size, NAMES_MAX, &elf->names);
	}
	return rc < 0 ? rc : read_dynamic(elf);
}

int ps_elf_open(struct ps_elf *elf, int fd)
{
	unsigned char ident[EI_NIDENT + 4] = { 0 };
	struct stat status;
	ssize_t got;
	int rc;

	*elf = (struct ps_elf){ .fd = fd };
	rc = fstat(fd, &status) < 0 ? -errno : 0;
	if (rc < 0)
		goto err;
	elf->size = S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
	got = read_at(elf, 0, ident, sizeof(ident));
	rc = got < 0 ? (int)got : -ENOEXEC;
	if (got < (ssize_t)sizeof(ident) || memcmp(ident, ELFMAG, SELFMAG) != 0)
		goto err;
	/* Type and machine are at the same place in every class, in the file's byte order. */
	elf->native = ident[EI_CLASS] == ELFCLASS64 && ident[EI_DATA] == NATIVE_DATA;
	memcpy(&elf->type, ident + EI_NIDENT, sizeof(elf->type));
	memcpy(&elf->machine, ident + EI_NIDENT + 2, sizeof(elf->machine));
	if (ident[EI_DATA] != NATIVE_DATA) {
		elf->type = __builtin_bswap16(elf->type);
		elf->machine = __builtin_bswap16(elf->machine);
	}
	elf->native = elf->native && elf->machine == NATIVE_MACHINE;
	rc = elf->native ? read_headers(elf) : 0;
	if (rc == 0)
		return 0;
err:
	ps_elf_close(elf);
	return rc;
}

void ps_elf_close(struct ps_elf *elf)
{
	free(elf->segment);
	free(elf->section);
	free_part(&elf->names);
	free_part(&elf->dynamic);
	free_part(&elf->strings);
	close(elf->fd);
	*elf = (struct ps_elf){ .fd = -1 };
}

bool ps_elf_interpreter(const struct ps_elf *elf, char *path, size_t size)
{
	const Elf64_Phdr *segment = find_segment(elf, PT_INTERP);
	ssize_t got;

	path[0] = '\0';
	if (!segment)
		return false;
	got = read_at(elf, segment->p_offset, path,
		      segment->p_filesz < size - 1 ? (size_t)segment->p_filesz : size - 1);
	path[got < 0 ? 0 : got] = '\0';
	return true;
}

const char *ps_elf_dynamic_string(const struct ps_elf *elf, int64_t tag, size_t index)
{
	Elf64_Dyn entry;

	for (size_t i = 0; dynamic_entry(elf, i, &entry); i++)
		if (entry.d_tag == tag && index-- == 0)
			return string_in(&elf->strings, entry.d_un.d_val);
	return NULL;
}

bool ps_elf_has_section(const struct ps_elf *elf, const char *name)
{
	for (size_t i = 0; i < elf->sections; i++) {
		const char *known = string_in(&elf->names, elf->section[i].sh_name);

		if (known && !strcmp(known, name))
			return true;
	}
	return false;
}

static void visit_symbols(const Elf64_Sym *symbol, size_t count, const struct ps_elf_part *names,
			  void (*visit)(const char *name, bool defined, void *context),
			  void *context)
{
	for (size_t i = 0; i < count; i++) {
		const char *name = string_in(names, symbol[i].st_name);
		unsigned binding = ELF64_ST_BIND(symbol[i].st_info);

		if (name && *name && (binding == STB_GLOBAL || binding == STB_WEAK))
			visit(name, symbol[i].st_shndx != SHN_UNDEF, context);
	}
}

int ps_elf_symbols(const struct ps_elf *elf, uint32_t type,
		   void (*visit)(const char *name, bool defined, void *context), void *context)
{
	const Elf64_Shdr *table = elf->section;
	struct ps_elf_part names, block;
	uint64_t left, offset;
	int rc;

	while (table < elf->section + elf->sections && table->sh_type != type)
		table++;
	if (table == elf->section + elf->sections || table->sh_entsize != sizeof(Elf64_Sym) ||
	    table->sh_link >= elf->sections)
		return 0;
	rc = read_part(elf, elf->section[table->sh_link].sh_offset,
		       elf->section[table->sh_link].sh_size, STRINGS_MAX, &names);
	if (rc < 0 || !names.bytes)
		return rc;
	left = table->sh_size / sizeof(Elf64_Sym);
	if (left > SYMBOLS_MAX)
		left = SYMBOLS_MAX;
	for (offset = table->sh_offset; left > 0; offset += block.length) {
		size_t count = left < BLOCK / sizeof(Elf64_Sym) ? (size_t)left
								: BLOCK / sizeof(Elf64_Sym);

		rc = read_part(elf, offset, count * sizeof(Elf64_Sym), BLOCK, &block);
		if (rc < 0 || block.length < count * sizeof(Elf64_Sym))
			left = count; /* the file ends here */
		visit_symbols((const Elf64_Sym *)block.bytes, block.length / sizeof(Elf64_Sym),
			      &names, visit, context);
		left -= count;
		free(block.bytes);
	}
	free(names.bytes);
	return rc;
}

/* Is there such a string, from its beginning or after a slash to its end? */
static bool has_string(const char *bytes, size_t length, const char *string)
{
	const size_t size = strlen(string) + 1;
	const char *at = bytes;

	while ((at = memmem(at, length - (size_t)(at - bytes), string, size))) {
		if (at == bytes || at[-1] == '\0' || at[-1] == '/')
			return true;
		at++;
	}
	return false;
}

/* Windows overlap, so that what lies across the end of one is whole in the next. */
#define OVERLAP ((size_t)256)

static int search(const struct ps_elf *elf, uint64_t offset, uint64_t length,
		  const char *const *string, size_t count, uint32_t *found)
{
	while (length > 0) {
		size_t step = BLOCK - OVERLAP;
		struct ps_elf_part part;
		int rc = read_part(elf, offset, length, BLOCK, &part);

		if (rc < 0 || !part.bytes)
			return rc;
		for (size_t i = 0; i < count; i++)
			if (has_string(part.bytes, part.length, string[i]))
				*found |= UINT32_C(1) << i;
		free(part.bytes);
		if (length <= BLOCK || part.length < BLOCK)
			return 0;
		offset += step;
		length -= step;
	}
	return 0;
}

/* Data that is loaded and neither written to nor run. */
static bool is_constant(const Elf64_Shdr *section)
{
	return section->sh_type == SHT_PROGBITS && (section->sh_flags & SHF_ALLOC) &&
	       !(section->sh_flags & (SHF_WRITE | SHF_EXECINSTR));
}

int ps_elf_find_strings(const struct ps_elf *elf, const char *const *string, size_t count,
			uint32_t *found)
{
	uint64_t left = DATA_MAX;

	*found = 0;
	for (size_t i = 0; i < elf->sections && left > 0; i++) {
		const Elf64_Shdr *section = &elf->section[i];
		uint64_t length = section->sh_size < left ? section->sh_size : left;
		int rc;

		if (!is_constant(section))
			continue;
		rc = search(elf, section->sh_offset, length, string, count, found);
		if (rc < 0)
			return rc;
		left -= length;
	}
	return 0;
}
