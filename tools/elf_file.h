/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PS_ELF_FILE_H
#define PS_ELF_FILE_H
/*
 * Reading an ELF file that nobody vouches for.
 *
 * Nothing in it is believed: every offset and length is held against the file's size, every string
 * ends, and what is read is bounded, however large the file says its parts are. It is read with
 * pread(2), so one that is cut short meanwhile gives an error and no SIGBUS. What is damaged counts
 * as absent.
 */
#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of the file that was read, ended with NUL. */
struct ps_elf_part {
	char *bytes; /* NULL: it is not there */
	size_t length;
};

struct ps_elf {
	int fd;
	uint64_t size;
	uint16_t machine; /* EM_* */
	bool native; /* of this machine's class, byte order and architecture; else all below is empty */
	uint16_t type; /* ET_* */
	Elf64_Phdr *segment;
	size_t segments;
	Elf64_Shdr *section;
	size_t sections;
	struct ps_elf_part names;   /* of the sections */
	struct ps_elf_part dynamic; /* an array of Elf64_Dyn */
	struct ps_elf_part strings; /* what the dynamic entries point into */
};

/*
 * Takes over the descriptor. 0; -ENOEXEC where it is no ELF file; -ENOMEM; -errno of pread(2). On
 * an error the descriptor is closed.
 */
int ps_elf_open(struct ps_elf *elf, int fd);
void ps_elf_close(struct ps_elf *elf);

/* PT_INTERP: the dynamic loader, cut to the size; false where there is none, as in a static program. */
bool ps_elf_interpreter(const struct ps_elf *elf, char *path, size_t size);

/* The string of the index-th dynamic entry with this tag (DT_NEEDED, DT_RUNPATH, ...), or NULL. */
const char *ps_elf_dynamic_string(const struct ps_elf *elf, int64_t tag, size_t index);

bool ps_elf_has_section(const struct ps_elf *elf, const char *name);

/*
 * Calls visit(name, defined, context) for each symbol of the table of this type, SHT_DYNSYM or
 * SHT_SYMTAB, that others can or could bind to: functions and objects, global or weak. 0 or -ENOMEM.
 */
int ps_elf_symbols(const struct ps_elf *elf, uint32_t type,
		   void (*visit)(const char *name, bool defined, void *context), void *context);

/*
 * Looks for the strings, each ended by NUL as a C compiler leaves them or at the end of a path, in the
 * read-only data. Sets bit i of *found for the i-th of count, at most 32. 0 or -ENOMEM.
 */
int ps_elf_find_strings(const struct ps_elf *elf, const char *const *string, size_t count,
			uint32_t *found);

#endif
