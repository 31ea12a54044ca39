/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SUBJECT_H
#define SUBJECT_H
/*
 * For tests of repair.h: a file on a real file system, a model of its bytes, and transfers that are checked
 * against it. All in one process.
 */
#include <check.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "pinned.h"
#include "repair.h"

#define PAGE ((size_t)4096)
#define SUBJECT_SPACE (640 * KIB) /* where the file can have bytes */

extern char subject_directory[32];  /* where O_DIRECT works */
extern char subject_path[64];       /* of the file */
extern int subject_fd;              /* as the program has it open; -1: it has not */
extern struct ps_file subject_file; /* what fd is */

/* What the file should be. */
extern unsigned char subject_model[SUBJECT_SPACE];
extern size_t subject_model_size;

/* Room for a transfer and two pages before and after it. */
extern unsigned char *subject_memory;

/* A number below limit; the same ones in each run. */
size_t subject_below(size_t limit);

/* Opens the file with O_DIRECT and these flags, after it was made anew with that many random bytes. */
void subject_begin(int flags, size_t size);

/* Looks at the descriptor; or closes it, if it is open. */
void subject_look(void);
void subject_shut(void);

/*
 * Does direct I/O here demand something, so that there is something to test? Else says that the test by this
 * name is left out.
 */
bool subject_is_demanding(const char *test);

/* And that offsets be multiples of 512, as is usual, on which some tests rely? */
bool subject_has_usual_blocks(const char *test);

/* Reads the file with a descriptor of the test's own, opened with these flags; returns its length. */
size_t subject_read_all(int flags, unsigned char got[SUBJECT_SPACE + PAGE]);
size_t subject_file_size(void);

/* The file is what the model says, read directly and through the page cache. */
void subject_agree(void);

struct ps_transfer subject_transfer(struct iovec *part, unsigned parts, bool write, size_t offset,
				    size_t length);

/* The model of a write. */
void subject_model_write(size_t offset, const unsigned char *from, size_t length);

/* Carries out a bounce: what its owner does between the two halves. */
int64_t subject_bounce(const struct ps_transfer *transfer);

/*
 * A transfer of random bytes in at most so many parts, cut at random, from skew bytes into a page on;
 * by_bounce: as a bounce, if it is one. Its result, and all memory around it, must be right.
 */
void subject_check_write(size_t offset, size_t length, size_t skew, unsigned most, bool by_bounce);
void subject_check_read(size_t offset, size_t length, size_t skew, unsigned most, bool by_bounce);

/* Random ones, with many at the end of the file and at borders of blocks. */
size_t subject_length(void);
size_t subject_offset(size_t length);
size_t subject_skew(void);

/* That many checked random transfers, after which the file must agree. */
void subject_any_transfers(int turns, bool readable, bool writable);

/* How a program can have a file open. */
struct subject_way {
	const char *name;
	int flags;
	size_t size;  /* random bytes in it */
	size_t grown; /* then it is made this large: a hole */
	bool unlinked;
};

#define SUBJECT_WAYS 11
extern const struct subject_way subject_ways[SUBJECT_WAYS];

void subject_begin_way(const struct subject_way *way);

/* main() of such a test: one case by this name, which add() adds the functions to. */
int subject_main(const char *name, void (*add)(TCase *tcase));

#endif
