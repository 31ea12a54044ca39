/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an iocb asks for, compared with what the kernel's AIO makes of the same iocb; walking through
 * vectors; and memory that is not there, whichever calls the kernel allows.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "access.h"
#include "fault.h"
#include "os.h"
#include "transfer.h"

#define PAGE 4096

/* Pages: two to read and write, one not there, one to read only, one not there. */
static char *area;
static char *readable;

static aio_context_t context;
static int fd;

static void setup(void)
{
	char path[] = "/var/tmp/test_transfer.XXXXXX";

	ps_fault_clear();
	area = mmap(NULL, 5 * (size_t)PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	ck_assert_ptr_ne(area, MAP_FAILED);
	memset(area, 'a', 5 * (size_t)PAGE);
	readable = area + 3 * PAGE;
	ck_assert_int_eq(mprotect(area + 2 * PAGE, PAGE, PROT_NONE), 0);
	ck_assert_int_eq(mprotect(readable, PAGE, PROT_READ), 0);
	ck_assert_int_eq(mprotect(area + 4 * PAGE, PAGE, PROT_NONE), 0);
	fd = mkostemp(path, O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	unlink(path);
	context = 0;
	ck_assert_int_eq(syscall(SYS_io_setup, 4, &context), 0);
}

static void teardown(void)
{
	ps_fault_clear();
	syscall(SYS_io_destroy, context);
	close(fd);
	munmap(area, 5 * (size_t)PAGE);
}

static struct iocb request(unsigned opcode, const void *address, uint64_t count, int64_t offset)
{
	return (struct iocb){
		.aio_lio_opcode = (uint16_t)opcode,
		.aio_fildes = (unsigned)fd,
		.aio_buf = (uintptr_t)address,
		.aio_nbytes = count,
		.aio_offset = offset,
	};
}

/* What the kernel's AIO says to it, at once or later. */
static long by_kernel(struct iocb *iocb)
{
	struct iocb *list[] = { iocb };
	struct io_event event;

	if (syscall(SYS_io_submit, context, 1, list) != 1)
		return -errno;
	ck_assert_int_eq(syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
	return (long)event.res;
}

static struct iovec single;
static struct ps_transfer transfer;

static int parse(const struct iocb *iocb)
{
	memset(&single, 0xff, sizeof(single));
	memset(&transfer, 0xff, sizeof(transfer));
	return ps_transfer_of(iocb, &single, &transfer);
}

START_TEST(plain_requests)
{
	struct iocb iocb = request(IOCB_CMD_PREAD, area + 3, 1000, 77);

	ck_assert_int_eq(parse(&iocb), 0);
	ck_assert(!transfer.write);
	ck_assert_int_eq(transfer.fd, fd);
	ck_assert_int_eq(transfer.flags, 0);
	ck_assert_uint_eq(transfer.parts, 1);
	ck_assert_ptr_eq(transfer.part[0].iov_base, area + 3);
	ck_assert_uint_eq(transfer.part[0].iov_len, 1000);
	ck_assert_uint_eq(transfer.offset, 77);
	ck_assert_uint_eq(transfer.length, 1000);

	iocb = request(IOCB_CMD_PWRITE, area, 5, 0);
	iocb.aio_rw_flags = RWF_DSYNC;
	ck_assert_int_eq(parse(&iocb), 0);
	ck_assert(transfer.write);
	ck_assert_int_eq(transfer.flags, RWF_DSYNC);
}
END_TEST

START_TEST(vectors)
{
	struct iovec vector[] = { { area, 10 }, { NULL, 0 }, { area + 20, 30 } };
	struct iocb iocb = request(IOCB_CMD_PREADV, vector, 3, 9);

	ck_assert_int_eq(parse(&iocb), 0);
	ck_assert(!transfer.write);
	ck_assert_ptr_eq(transfer.part, vector);
	ck_assert_uint_eq(transfer.parts, 3);
	ck_assert_uint_eq(transfer.length, 40);
	ck_assert_uint_eq(transfer.offset, 9);

	/* One part is copied, as that of PWRITE is. */
	iocb = request(IOCB_CMD_PWRITEV, vector, 1, 0);
	ck_assert_int_eq(parse(&iocb), 0);
	ck_assert(transfer.write);
	ck_assert_ptr_eq(transfer.part, &single);
	ck_assert_ptr_eq(single.iov_base, area);
	ck_assert_uint_eq(single.iov_len, 10);

	iocb = request(IOCB_CMD_PREADV, NULL, 0, 0);
	ck_assert_int_eq(parse(&iocb), 0);
	ck_assert_uint_eq(transfer.parts, 0);
	ck_assert_uint_eq(transfer.length, 0);
}
END_TEST

/* Refused here, and by the kernel. */
static void malformed(struct iocb iocb)
{
	ck_assert_int_eq(parse(&iocb), -EINVAL);
	ck_assert_int_lt(by_kernel(&iocb), 0);
}

START_TEST(malformed_requests)
{
	struct iovec huge[] = { { area, SSIZE_MAX }, { area, 1 } };
	struct iovec negative = { area, (size_t)SSIZE_MAX + 1 };
	struct iocb iocb = request(IOCB_CMD_PREAD, area, 512, 0);

	iocb.aio_reserved2 = 1;
	malformed(iocb);
	malformed(request(IOCB_CMD_PREAD, area, (uint64_t)SSIZE_MAX + 1, 0));
	malformed(request(IOCB_CMD_PREAD, area, 512, -1));
	malformed(request(IOCB_CMD_PWRITE, area, 512, INT64_MIN));
	malformed(request(IOCB_CMD_PREADV, &negative, 1, 0));
	malformed(request(IOCB_CMD_PREADV, huge, UIO_MAXIOV + 1, 0));
	malformed(request(99, area, 512, 0));
	/* No transfers; the kernel answers these as it likes. */
	iocb = request(IOCB_CMD_FSYNC, NULL, 0, 0);
	ck_assert_int_eq(parse(&iocb), -EINVAL);
	iocb = request(IOCB_CMD_POLL, NULL, 0, 0);
	ck_assert_int_eq(parse(&iocb), -EINVAL);
	/* The kernel takes no more than 2 GiB of them; we none. */
	iocb = request(IOCB_CMD_PREADV, huge, 2, 0);
	ck_assert_int_eq(parse(&iocb), -EINVAL);
	iocb = request(IOCB_CMD_PREAD, area, 4096, INT64_MAX - 100);
	ck_assert_int_eq(parse(&iocb), -EINVAL);
}
END_TEST

START_TEST(vectors_that_are_not_there)
{
	static const size_t counts[] = { 1, 2, 255, 1024 };
	char *const ends[] = { area + 2 * PAGE, area + 4 * PAGE };
	struct iocb iocb;

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		iocb = request(IOCB_CMD_PREADV, area + 2 * PAGE, counts[i], 0);
		ck_assert_int_eq(parse(&iocb), -EFAULT);
		ck_assert_int_eq(by_kernel(&iocb), -EFAULT);
		iocb.aio_buf = 8;
		ck_assert_int_eq(parse(&iocb), -EFAULT);
		iocb.aio_buf = UINT64_MAX - 20;
		ck_assert_int_eq(parse(&iocb), -EFAULT);
	}
	for (size_t i = 0; i < 2; i++) {
		/* The last byte of a vector is the last before the hole, or the first in it. */
		iocb = request(IOCB_CMD_PREADV, ends[i] - 2 * sizeof(struct iovec), 2, 0);
		memset(area, 0, 2 * PAGE);
		memcpy(area, "abc", 3);
		ck_assert_int_eq(mprotect(readable, PAGE, PROT_READ | PROT_WRITE), 0);
		memset(readable, 0, PAGE);
		ck_assert_int_eq(mprotect(readable, PAGE, PROT_READ), 0);
		ck_assert_int_eq(parse(&iocb), 0);
		iocb.aio_buf++;
		ck_assert_int_eq(parse(&iocb), -EFAULT);
		ck_assert_int_eq(by_kernel(&iocb), -EFAULT);
	}
}
END_TEST

START_TEST(signal_mask_is_left_alone)
{
	sigset_t before, after;

	sigemptyset(&before);
	sigaddset(&before, SIGUSR1);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	ck_assert(ps_access_is_readable(area, 2 * PAGE));
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
	ck_assert_int_eq(sigismember(&after, SIGUSR1), 1);
	ck_assert_int_eq(sigismember(&after, SIGUSR2), 0);
	sigemptyset(&before);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
END_TEST

START_TEST(readable_or_not)
{
	for (size_t length = 0; length < 40; length++) {
		ck_assert(ps_access_is_readable(area + 2 * PAGE - length, length));
		ck_assert(!ps_access_is_readable(area + 2 * PAGE - length, length + 1));
		ck_assert(ps_access_is_readable(readable + PAGE - length, length));
		ck_assert(!ps_access_is_readable(readable + PAGE - length, length + 1));
		ck_assert(!ps_access_is_readable(readable - 1, length + 1));
	}
	ck_assert(ps_access_is_readable(area, 2 * PAGE));
	ck_assert(!ps_access_is_readable(area, 4 * PAGE));
	ck_assert(!ps_access_is_readable(area, SIZE_MAX));
}
END_TEST

/* Copies in and out around every border of the area; the kernel's calls fail as the test has set. */
static void copies(bool protected)
{
	static char ours[2 * PAGE];

	memset(area, 'a', 2 * PAGE);
	ck_assert_int_eq(ps_access_read(ours, area, 2 * PAGE), 0);
	ck_assert_int_eq(memcmp(ours, area, 2 * PAGE), 0);
	memset(ours, 'b', sizeof(ours));
	ck_assert_int_eq(ps_access_write(area + 1, ours, 2 * PAGE - 1), 0);
	ck_assert_int_eq(area[0], 'a');
	ck_assert_int_eq(memcmp(area + 1, ours, 2 * PAGE - 1), 0);
	ck_assert_int_eq(ps_access_read(ours, readable, PAGE), 0);
	ck_assert_int_eq(ps_access_read(ours, NULL, 0), 0);
	if (!protected)
		return;
	ck_assert_int_eq(ps_access_write(readable, ours, 1), -EFAULT);
	ck_assert_int_eq(ps_access_write(readable + 100, ours, PAGE - 100), -EFAULT);
	ck_assert_int_eq(ps_access_read(ours, area + PAGE, PAGE + 1), -EFAULT);
	ck_assert_int_eq(ps_access_write(area + PAGE + 5, ours, PAGE), -EFAULT);
	ck_assert_int_eq(ps_access_read(ours, area + 2 * PAGE, 1), -EFAULT);
	ck_assert_int_eq(ps_access_read(ours, area + 4 * PAGE, 1), -EFAULT);
	ck_assert_int_eq(ps_access_read(ours, NULL, 1), -EFAULT);
	ck_assert_int_eq(ps_access_read(ours, (void *)(UINTPTR_MAX - 3), 8), -EFAULT);
}

START_TEST(copies_with_every_call)
{
	copies(true);
}
END_TEST

START_TEST(copies_without_populating)
{
	ps_fault_set(PS_OS_POPULATE, 1, UINT_MAX, EINVAL);
	copies(true);
}
END_TEST

START_TEST(copies_without_process_vm)
{
	ps_fault_set(PS_OS_READ, 1, UINT_MAX, EPERM);
	ps_fault_set(PS_OS_WRITE, 1, UINT_MAX, ENOSYS);
	copies(true);
}
END_TEST

/* Then nobody can tell, and what is there is copied all the same. */
START_TEST(copies_without_either)
{
	ps_fault_set(PS_OS_POPULATE, 1, UINT_MAX, EINVAL);
	ps_fault_set(PS_OS_READ, 1, UINT_MAX, ENOSYS);
	ps_fault_set(PS_OS_WRITE, 1, UINT_MAX, EPERM);
	copies(false);
}
END_TEST

START_TEST(copies_of_many_pages)
{
	const size_t length = ((size_t)5 << 20) + 123;
	char *theirs = mmap(NULL, length + PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *ours = malloc(length);

	ck_assert_ptr_ne(theirs, MAP_FAILED);
	ck_assert_ptr_nonnull(ours);
	for (size_t i = 0; i < length; i++)
		ours[i] = (char)(i * 7 + (i >> 12));
	ck_assert_int_eq(ps_access_write(theirs + 9, ours, length), 0);
	ck_assert_int_eq(memcmp(theirs + 9, ours, length), 0);
	memset(ours, 0, length);
	ck_assert_int_eq(ps_access_read(ours, theirs + 9, length), 0);
	ck_assert_int_eq(memcmp(theirs + 9, ours, length), 0);
	ck_assert_int_eq(mprotect(theirs + (3 << 20), PAGE, PROT_NONE), 0);
	ck_assert_int_eq(ps_access_read(ours, theirs + 9, length), -EFAULT);
	ck_assert_int_eq(ps_access_write(theirs + 9, ours, length), -EFAULT);
	munmap(theirs, length + PAGE);
	free(ours);
}
END_TEST

START_TEST(through_a_vector)
{
	struct iovec vector[] = { { area, 3 },       { NULL, 0 },       { area + 100, 5 },
				  { area + 200, 0 }, { area + 300, 7 }, { area + 400, 1 } };
	struct ps_transfer asked = { .part = vector, .parts = 6, .length = 16 };
	struct ps_cursor cursor = ps_cursor_of(&asked);
	char got[17] = "";

	ck_assert_int_eq(ps_cursor_write(&cursor, "ab", 2), 0);
	ck_assert_int_eq(ps_cursor_write(&cursor, "cdefgh", 6), 0);
	ck_assert_int_eq(ps_cursor_write(&cursor, "", 0), 0);
	ck_assert_int_eq(ps_cursor_write(&cursor, "ijklmnop", 8), 0);
	ck_assert_int_eq(ps_cursor_write(&cursor, "q", 1), -EFAULT);
	ck_assert_int_eq(memcmp(area, "abc", 3), 0);
	ck_assert_int_eq(memcmp(area + 100, "defgh", 5), 0);
	ck_assert_int_eq(memcmp(area + 300, "ijklmno", 7), 0);
	ck_assert_int_eq(area[400], 'p');
	for (size_t first = 0; first <= 16; first++) {
		cursor = ps_cursor_of(&asked);
		ps_cursor_advance(&cursor, first);
		memset(got, 0, sizeof(got));
		ck_assert_int_eq(ps_cursor_read(&cursor, got, 16 - first), 0);
		ck_assert_str_eq(got, &"abcdefghijklmnop"[first]);
		ck_assert_int_eq(ps_cursor_read(&cursor, got, 1), -EFAULT);
	}
	cursor = ps_cursor_of(&asked);
	ps_cursor_advance(&cursor, 1000);
	ck_assert_int_eq(ps_cursor_read(&cursor, got, 1), -EFAULT);
}
END_TEST

/* The slice from `skip` bytes on, with memory and lengths in multiples of 16 and 8. */
static size_t slice(struct iovec *vector, unsigned parts, size_t skip, size_t length, unsigned most,
		    struct iovec *found, unsigned *count)
{
	struct ps_transfer asked = { .part = vector, .parts = parts };
	struct ps_cursor cursor = ps_cursor_of(&asked);

	ps_cursor_advance(&cursor, skip);
	return ps_cursor_slice(&cursor, length, 16, 8, found, most, count);
}

START_TEST(slices)
{
	struct iovec vector[] = { { area, 32 }, { NULL, 0 }, { area + 64, 24 }, { area + 101, 8 } };
	struct iovec uneven[] = { { area, 30 }, { area + 32, 32 } };
	struct iovec found[4];
	unsigned count;

	ck_assert_uint_eq(slice(vector, 4, 0, 64, 4, found, &count), 56);
	ck_assert_uint_eq(count, 2);
	ck_assert_ptr_eq(found[1].iov_base, area + 64);
	ck_assert_uint_eq(found[1].iov_len, 24);
	ck_assert_uint_eq(slice(vector, 4, 0, 64, 1, found, &count), 32);
	ck_assert_uint_eq(slice(vector, 4, 0, 40, 4, found, &count), 40);
	ck_assert_uint_eq(found[1].iov_len, 8);
	ck_assert_uint_eq(slice(vector, 4, 16, 64, 4, found, &count), 40);
	ck_assert_uint_eq(slice(vector, 4, 8, 64, 4, found, &count), 0);
	ck_assert_uint_eq(count, 0);
	ck_assert_uint_eq(slice(vector, 4, 56, 64, 4, found, &count), 0);
	ck_assert_uint_eq(slice(vector, 4, 64, 64, 4, found, &count), 0);
	/* What does not end at a border ends the run. */
	ck_assert_uint_eq(slice(uneven, 2, 0, 62, 4, found, &count), 24);
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(slice(uneven, 2, 30, 32, 4, found, &count), 32);
	ck_assert_uint_eq(slice(uneven, 2, 0, 7, 4, found, &count), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *suite = suite_create("transfer");
	TCase *tcase = tcase_create("transfer");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, plain_requests);
	tcase_add_test(tcase, vectors);
	tcase_add_test(tcase, malformed_requests);
	tcase_add_test(tcase, vectors_that_are_not_there);
	tcase_add_test(tcase, signal_mask_is_left_alone);
	tcase_add_test(tcase, readable_or_not);
	tcase_add_test(tcase, copies_with_every_call);
	tcase_add_test(tcase, copies_without_populating);
	tcase_add_test(tcase, copies_without_process_vm);
	tcase_add_test(tcase, copies_without_either);
	tcase_add_test(tcase, copies_of_many_pages);
	tcase_add_test(tcase, through_a_vector);
	tcase_add_test(tcase, slices);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	int failed;

	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
