/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Misaligned writes beside each other, from threads and from processes, with aligned direct writes
 * among them: a file is divided into pieces at any byte, each is written over and over by one thread of one
 * process, which reads it back, and in the end each piece is what was written there last.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../aio/memory.h" /* not interpose/memory.h */
#include "config.h"
#include "fault.h"
#include "pinned.h"
#include "repair.h"
#include "scratch.h"
#include "table.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TURNS 15
#else
#define TURNS 25
#endif

#define PIECES 96
#define WRITERS 8
#define LONGEST 20000

static char directory[] = "/var/tmp/test_repair.XXXXXX"; /* O_DIRECT works there */
static char path[64];

/* Shared by the processes. */
struct plan {
	struct {
		size_t offset;
		size_t length;
		bool aligned;     /* written as it is, and not waited for */
		unsigned written; /* how often; says which bytes are there */
	} piece[PIECES];
	size_t size;
	atomic_uint errors;
};

static struct plan *plan;
static size_t block; /* what direct I/O demands of offsets */

static unsigned char byte_of(unsigned piece, unsigned turn, size_t at)
{
	return (unsigned char)(piece * 31 + turn * 7 + at * 13 + (at >> 8));
}

/* Divides size bytes, beginning at first, at random places; some pieces are whole blocks. */
static void make_plan(size_t first, size_t most, unsigned share_aligned)
{
	uint64_t random = 1234567;
	size_t at = first;

	memset(plan, 0, sizeof(*plan));
	for (unsigned i = 0; i < PIECES; i++) {
		size_t length = 1 + scratch_random(&random) % most;

		plan->piece[i].aligned = at % block == 0 &&
					 scratch_random(&random) % 100 < share_aligned;
		if (plan->piece[i].aligned)
			length = (length + block - 1) & ~(block - 1);
		else if (scratch_random(&random) % 3 == 0)
			length = ((at + length + block - 1) & ~(block - 1)) - at;
		plan->piece[i].offset = at;
		plan->piece[i].length = length;
		at += length;
	}
	plan->size = at;
}

static void wrong(const char *what, unsigned piece, int64_t result)
{
	atomic_fetch_add(&plan->errors, 1);
	fprintf(stderr, "# piece %u (%zu at %zu): %s: %lld\n", piece, plan->piece[piece].length,
		plan->piece[piece].offset, what, (long long)result);
}

/* Through the kernel's AIO, as a program's own aligned requests go. */
static int64_t write_aligned(aio_context_t context, int fd, unsigned piece, void *from)
{
	struct iocb iocb = { .aio_lio_opcode = IOCB_CMD_PWRITE,
			     .aio_fildes = (unsigned)fd,
			     .aio_buf = (uintptr_t)from,
			     .aio_nbytes = plan->piece[piece].length,
			     .aio_offset = (int64_t)plan->piece[piece].offset };
	struct iocb *list[] = { &iocb };
	struct io_event event;

	if (syscall(SYS_io_submit, context, 1, list) != 1)
		return -errno;
	return syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 ? event.res : -EIO;
}

static int64_t repair(const struct ps_file *file, unsigned piece, void *bytes, bool write)
{
	struct iovec part = { bytes, plan->piece[piece].length };
	const struct ps_transfer transfer = { .part = &part,
					      .parts = 1,
					      .write = write,
					      .fd = file->fd,
					      .offset = plan->piece[piece].offset,
					      .length = part.iov_len };

	return ps_repair_now(file, &transfer);
}

struct writer {
	pthread_t thread;
	unsigned number, writers; /* writes the pieces that are its number modulo writers */
	unsigned turns;
	int flags;
	int fd; /* -1: opens its own */
};

static void one_turn(const struct writer *writer, const struct ps_file *file, aio_context_t context,
		     unsigned turn, unsigned char *memory)
{
	for (unsigned i = writer->number; i < PIECES; i += writer->writers) {
		unsigned char *bytes = memory + (plan->piece[i].aligned ? 0 : 1 + i);
		const size_t length = plan->piece[i].length;
		int64_t done;

		for (size_t at = 0; at < length; at++)
			bytes[at] = byte_of(i, turn, at);
		done = plan->piece[i].aligned ? write_aligned(context, file->fd, i, bytes)
					      : repair(file, i, bytes, true);
		plan->piece[i].written = turn;
		if (done != (int64_t)length)
			wrong("written", i, done);
		if ((writer->flags & O_ACCMODE) != O_RDWR || turn % 4 != 0)
			continue;
		memset(bytes, 0, length);
		done = repair(file, i, bytes, false);
		if (done != (int64_t)length)
			wrong("read", i, done);
		for (size_t at = 0; at < length; at++) {
			if (bytes[at] == byte_of(i, turn, at))
				continue;
			wrong("first wrong byte", i, (int64_t)at);
			break;
		}
	}
}

static void *write_pieces(void *argument)
{
	const struct writer *writer = argument;
	unsigned char *memory = mmap(NULL, LONGEST + 4096, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	aio_context_t context = 0;
	struct ps_file file;
	const int fd = writer->fd >= 0 ? writer->fd
				       : open(path, writer->flags | O_DIRECT | O_CLOEXEC);

	if (fd < 0 || ps_file_look(fd, &file) < 0 || syscall(SYS_io_setup, 1, &context) < 0)
		wrong("begun", writer->number, -errno);
	for (unsigned turn = 1; turn <= writer->turns; turn++)
		one_turn(writer, &file, context, turn, memory);
	syscall(SYS_io_destroy, context);
	if (writer->fd < 0)
		close(fd);
	munmap(memory, LONGEST + 4096);
	return NULL;
}

/* Writers first, first + step, ... as threads of this process. */
static void run_threads(unsigned first, unsigned step, int flags, int fd)
{
	struct writer writer[WRITERS];
	unsigned count = 0;

	for (unsigned i = first; i < WRITERS; i += step) {
		writer[count] = (struct writer){ .number = i,
						 .writers = WRITERS,
						 .turns = TURNS,
						 .flags = fd < 0 && i % 2 ? O_RDWR : flags,
						 .fd = fd };
		ck_assert_int_eq(
			pthread_create(&writer[count].thread, NULL, write_pieces, &writer[count]),
			0);
		count++;
	}
	while (count > 0)
		pthread_join(writer[--count].thread, NULL);
}

static void verify(int flags)
{
	const size_t room = (plan->size + 8191) & ~(size_t)4095;
	unsigned char *got = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);
	const int fd = open(path, O_RDONLY | O_CLOEXEC | flags);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, got, room, 0), (ssize_t)plan->size);
	for (unsigned i = 0; i < PIECES; i++)
		for (size_t at = 0; at < plan->piece[i].length; at++) {
			if (got[plan->piece[i].offset + at] ==
			    byte_of(i, plan->piece[i].written, at))
				continue;
			wrong("first wrong byte in the end", i, (int64_t)at);
			break;
		}
	close(fd);
	munmap(got, room);
}

/* share: the threads of this process all use one descriptor. */
static void stress(size_t size, unsigned processes, int flags, bool share)
{
	int child[WRITERS], shared = -1;
	const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	close(fd);
	if (share)
		shared = open(path, flags | O_DIRECT | O_CLOEXEC);
	for (unsigned i = 1; i < processes; i++) {
		ps_repair_fork_prepare();
		ps_memory_fork_prepare();
		child[i] = fork();
		if (child[i] == 0) {
			ps_memory_fork_child();
			ps_repair_fork_child();
			run_threads(i, processes, flags, -1);
			ps_table_close();
			_exit(0);
		}
		ps_memory_fork_parent();
		ps_repair_fork_parent();
		ck_assert_int_gt(child[i], 0);
	}
	run_threads(0, processes, flags, shared);
	for (unsigned i = 1; i < processes; i++)
		ck_assert_int_eq(scratch_wait(child[i]), 0);
	if (share)
		close(shared);
	verify(O_DIRECT);
	verify(0);
	verify(O_DIRECT);
	ck_assert_uint_eq(atomic_load(&plan->errors), 0);
	unlink(path);
}

static bool demanding(const char *test)
{
	struct ps_file file;
	const int fd = open(directory, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
	const bool is = fd >= 0 && ps_file_look(fd, &file) == 0 && (file.is & PS_FILE_ASYNC);

	if (!is)
		pinned_skip(test, "the file system does not say what direct I/O demands");
	block = file.offset_align;
	close(fd);
	return is;
}

/* Pieces shorter than a block, so that several are in each; the file has its size. */
START_TEST(small_pieces)
{
	if (!demanding(__func__))
		return;
	make_plan(0, 300, 0);
	stress(plan->size, (unsigned)_i, O_WRONLY, _i % 2);
}
END_TEST

START_TEST(pieces_and_blocks)
{
	if (!demanding(__func__))
		return;
	make_plan(0, 4000, 50);
	plan->size = (plan->size + block - 1) & ~(block - 1);
	stress(plan->size, (unsigned)_i, O_WRONLY, _i % 2);
}
END_TEST

/* The file grows from nothing, by whoever is first. */
START_TEST(growing)
{
	if (!demanding(__func__))
		return;
	make_plan(0, LONGEST - 4096, 30);
	stress(0, (unsigned)_i, O_WRONLY, _i % 2);
	make_plan(0, 400, 0);
	stress(0, (unsigned)_i, O_RDWR, _i % 2);
}
END_TEST

/* Then the lock within the process alone keeps them from each other. */
START_TEST(not_opened_again)
{
	static const int flags[] = { O_RDWR, O_WRONLY };

	if (!demanding(__func__))
		return;
	make_plan(0, 300, 0);
	ps_fault_set(PS_OS_OPEN, 1, UINT_MAX, EACCES);
	stress(plan->size, 1, flags[_i], true);
	make_plan(0, 3000, 0);
	stress(0, 1, flags[_i], true);
	ps_fault_clear();
}
END_TEST

static Suite *suite(void)
{
	Suite *suite = suite_create("repair_stress");
	TCase *tcase = tcase_create("repair_stress");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, small_pieces, 1, 4);
	tcase_add_loop_test(tcase, pieces_and_blocks, 1, 4);
	tcase_add_loop_test(tcase, growing, 1, 4);
	tcase_add_loop_test(tcase, not_opened_again, 0, 2);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	static char tables[] = "/tmp/test_repair.XXXXXX";
	SRunner *runner;
	int failed;

	plan = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (plan == MAP_FAILED || !mkdtemp(directory) || !mkdtemp(tables))
		return 1;
	snprintf(path, sizeof(path), "%s/file", directory);
	ps_table_directory = tables;
	ps_log_level = PS_LOG_ERROR;
#if defined(__SANITIZE_THREAD__)
	/* It cannot follow the heap's locks into children of a process with threads: do without the heap. */
	ps_config.backend = PS_BACKEND_OFF;
#endif
	runner = srunner_create(suite());
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	ps_table_close();
	rmdir(tables);
	rmdir(directory);
	return failed != 0;
}
