/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Misaligned direct I/O where something is in the way: every call fails, rights and locks, limits, full
 * and unusual file systems.
 */
#include "subject.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "loop.h"
#include "os.h"
#include "scratch.h"

/*
 * Every call fails, one after the other: what is said to be written is, what is not asked for is
 * untouched, and the file ends where it did or where the write does.
 */
static void fail_write(enum ps_os_call call, unsigned turn, int error, size_t offset, size_t length)
{
	static unsigned char got[SUBJECT_SPACE + 2 * PAGE] __attribute__((aligned(PAGE)));
	struct iovec part = { subject_memory + 3, length };
	struct ps_transfer transfer = subject_transfer(&part, 1, true, offset, length);
	int64_t done;
	size_t size, prefix;

	for (size_t i = 0; i < length; i++)
		subject_memory[3 + i] = (unsigned char)subject_below(256);
	ps_fault_set(call, turn, turn, error);
	done = ps_repair_now(&subject_file, &transfer);
	ps_fault_clear();
	ck_assert(done == -error || done == -EINVAL || done > 0);
	prefix = done > 0 ? (size_t)done : 0;
	size = subject_read_all(O_DIRECT, got);
	ck_assert_uint_eq(size, subject_file_size());
	ck_assert_uint_le(size, subject_model_size > offset + length ? subject_model_size
								     : offset + length);
	ck_assert_uint_ge(size, subject_model_size);
	subject_model_write(offset, subject_memory + 3, prefix);
	ck_assert_uint_ge(size, subject_model_size);
	for (size_t i = 0; i < size; i++)
		if ((i < offset + prefix || i >= offset + length) && got[i] != subject_model[i])
			ck_abort_msg("byte %zu is %d, not %d (write of %zu at %zu said %lld)", i,
				     got[i], subject_model[i], length, offset, (long long)done);
	memcpy(subject_model, got, size);
	subject_model_size = size;
}

START_TEST(every_call_fails)
{
	static const struct {
		enum ps_os_call call;
		int error;
	} faults[] = { { PS_OS_OPEN, EACCES },    { PS_OS_OPEN, EMFILE },
		       { PS_OS_PREADV, EIO },     { PS_OS_PREADV, EINVAL },
		       { PS_OS_PWRITEV, EIO },    { PS_OS_PWRITEV, ENOSPC },
		       { PS_OS_PWRITEV, EINVAL }, { PS_OS_FSYNC, EIO },
		       { PS_OS_FSYNC, ENOSYS },   { PS_OS_FSTAT, EIO },
		       { PS_OS_STATX, ENOSYS },   { PS_OS_MMAP, ENOMEM },
		       { PS_OS_POPULATE, EINVAL } };
	static const size_t transfers[][2] = { { 100, 50 },    { 100, 412 },  { 512, 100 },
					       { 300, 5000 },  { 9990, 5 },   { 9900, 300 },
					       { 9900, 3000 }, { 12000, 10 }, { 0, 20003 } };

	if (!subject_is_demanding(__func__))
		return;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		for (size_t j = 0; j < sizeof(transfers) / sizeof(transfers[0]); j++)
			for (unsigned turn = 1; turn <= 8; turn++) {
				subject_begin(turn & 1 ? O_WRONLY : O_RDWR, 10000);
				fail_write(faults[i].call, turn, faults[i].error, transfers[j][0],
					   transfers[j][1]);
				ck_assert_int_ne(fcntl(subject_fd, F_GETFL) & O_DIRECT, 0);
			}
}
END_TEST

/* What is at the end of the file is on the device, or it is told. */
START_TEST(writing_back_fails)
{
	struct iovec part = { subject_memory, 100 };
	struct ps_transfer transfer;

	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_WRONLY, 1000);
	transfer = subject_transfer(&part, 1, true, 1030, 100);
	ps_fault_set(PS_OS_FSYNC, 1, UINT_MAX, EIO);
	ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), -EIO);
	ps_fault_set(PS_OS_FSYNC, 1, UINT_MAX, ENOSPC);
	ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), -ENOSPC);
	transfer.flags = RWF_APPEND;
	ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), -ENOSPC);
	/* Once: somebody else's, of the same page. */
	ps_fault_clear();
	ps_fault_set(PS_OS_FSYNC, 1, 1, EIO);
	transfer.flags = 0;
	ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), 100);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_FSYNC), 2);
	/* Where it cannot be done for a range it is for the file. */
	ps_fault_set(PS_OS_FSYNC, 1, 1, ENOSYS);
	ck_assert_int_eq(ps_repair_now(&subject_file, &transfer), 100);
	ck_assert_uint_eq(ps_fault_reached(PS_OS_FSYNC), 4);
}
END_TEST

/* Without /proc, or the right to open the file again, the program's own descriptor must do. */
START_TEST(cannot_be_opened_again)
{
	if (!subject_is_demanding(__func__))
		return;
	for (size_t i = 0; i < SUBJECT_WAYS; i++) {
		subject_begin_way(&subject_ways[i]);
		ps_fault_set(PS_OS_OPEN, 1, UINT_MAX, i & 1 ? ENOENT : EACCES);
		for (int turn = 0; turn < 30; turn++) {
			const size_t length = subject_length();

			subject_check_write(subject_offset(length), length, subject_skew(), 2,
					    false);
			ck_assert_int_ne(fcntl(subject_fd, F_GETFL) & O_DIRECT, 0);
		}
		ps_fault_clear();
		subject_agree();
	}
}
END_TEST

/* As somebody who may write to the file, but not read it, or who has only the descriptor. */
START_TEST(without_the_right_to_read)
{
	static const mode_t modes[] = { 0200, 0000, 0600 };

	if (!subject_is_demanding(__func__))
		return;
	if (geteuid() != 0) {
		pinned_skip(__func__, "giving up rights needs to be root");
		return;
	}
	for (size_t i = 0; i < 3; i++) {
		int child;

		subject_begin(O_WRONLY, 10003);
		ck_assert_int_eq(fchmod(subject_fd, modes[i]), 0);
		ck_assert_int_eq(fchown(subject_fd, i < 2 ? 65534 : 0, (gid_t)-1), 0);
		child = fork();
		if (child == 0) {
			struct iovec part = { subject_memory + 1, 20000 };
			struct ps_transfer transfer = subject_transfer(&part, 1, true, 5, 20000);

			memset(subject_memory, 'c', 30000);
			ps_buffer_fork_child();
			if (setresuid(65534, 65534, 65534) < 0)
				_exit(2);
			transfer.length = part.iov_len = 9000;
			if (ps_repair_now(&subject_file, &transfer) != 9000)
				_exit(3);
			transfer.length = part.iov_len = 20000;
			_exit(ps_repair_now(&subject_file, &transfer) != 20000);
		}
		ck_assert_int_eq(scratch_wait(child), 0);
		memset(subject_memory, 'c', 30000);
		subject_model_write(5, subject_memory, 20000);
		subject_agree();
	}
}
END_TEST

/* Closing a descriptor of a file drops the locks of fcntl(2) that the process has on it. */
START_TEST(locks_of_the_program_stay)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 4 };

	if (!subject_is_demanding(__func__))
		return;
	for (int turn = 0; turn < 2; turn++) {
		int child;

		subject_begin(turn ? O_WRONLY : O_RDWR, 1000);
		ck_assert_int_eq(fcntl(subject_fd, F_SETLK, &lock), 0);
		subject_check_write(5, 100, 1, 1, false);    /* within the file */
		subject_check_write(990, 1000, 1, 1, false); /* and at its end */
		subject_check_write(10, 700, 1, 1, false);
		child = fork();
		if (child == 0) {
			lock.l_len = 1;
			_exit(fcntl(subject_fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK);
		}
		ck_assert_int_eq(scratch_wait(child), 0);
		ck_assert_int_ne(fcntl(subject_fd, F_GETFL) & O_DIRECT, 0);
		subject_agree();
	}
}
END_TEST

/* A program that has locked everything, also where our own locks are, is not waited for. */
START_TEST(locks_of_others_do_not_block)
{
	int pair[2], child;
	char byte = 0;

	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_RDWR, 1000);
	ck_assert_int_eq(pipe(pair), 0);
	child = fork();
	if (child == 0) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

		close(pair[1]);
		if (fcntl(subject_fd, F_SETLK, &lock) < 0)
			_exit(1);
		/* Told the parent by closing; ends when the parent does the same. */
		_exit(raise(SIGSTOP) != 0);
	}
	ck_assert_int_eq(waitpid(child, NULL, WUNTRACED), child);
	subject_check_write(5, 100, 1, 1, false);
	subject_check_write(990, 1000, 1, 1, false);
	kill(child, SIGKILL);
	ck_assert_int_eq(scratch_wait(child), -SIGKILL);
	close(pair[0]);
	close(pair[1]);
	(void)byte;
	subject_agree();
}
END_TEST

static unsigned descriptors(void)
{
	unsigned count = 0;

	for (int i = 0; i < 4096; i++)
		count += fcntl(i, F_GETFD) >= 0;
	return count;
}

START_TEST(nothing_stays_open)
{
	unsigned before;

	if (!subject_is_demanding(__func__))
		return;
	subject_begin(O_WRONLY, 1000);
	before = descriptors();
	for (int turn = 0; turn < 20; turn++) {
		subject_check_write(5, 100, 1, 1, false);
		subject_check_write(subject_model_size - 10, 100, 1, 1, false);
	}
	ck_assert_uint_eq(descriptors(), before);
	subject_agree();
}
END_TEST

static volatile sig_atomic_t file_size_signals;

static void count_signal(int signal)
{
	(void)signal;
	file_size_signals++;
}

/* With RLIMIT_FSIZE. Nothing of Check is called under it, which writes to a file of its own. */
static int64_t limited(size_t limit, int plain, const struct ps_transfer *transfer)
{
	struct rlimit was, now;
	int64_t done;

	getrlimit(RLIMIT_FSIZE, &was);
	now = was;
	now.rlim_cur = limit;
	file_size_signals = 0;
	setrlimit(RLIMIT_FSIZE, &now);
	if (plain >= 0) {
		done = pwrite(plain, transfer->part->iov_base, transfer->length,
			      (off_t)transfer->offset);
		done = done < 0 ? -errno : done;
	} else {
		done = ps_repair_now(&subject_file, transfer);
	}
	setrlimit(RLIMIT_FSIZE, &was);
	return done;
}

/* Against pwrite(2) on a file that is not open for direct I/O. */
static void within_limit(size_t size, size_t offset, size_t length, size_t limit)
{
	struct iovec part = { subject_memory + 1, length };
	struct ps_transfer transfer = subject_transfer(&part, 1, true, offset, length);
	int64_t plain, ours;
	int plain_signals;
	int own;

	subject_begin(O_WRONLY, size);
	own = open(subject_path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(own, 0);
	memset(subject_memory, 'l', length + 1);
	plain = limited(limit, own, &transfer);
	plain_signals = file_size_signals;
	close(own);

	subject_begin(O_WRONLY, size);
	transfer.fd = subject_fd;
	ours = limited(limit, -1, &transfer);
	ck_assert_int_eq(ours, plain);
	ck_assert_int_eq(file_size_signals, plain_signals);
	subject_model_write(offset, subject_memory + 1, ours > 0 ? (size_t)ours : 0);
	subject_agree();
}

START_TEST(limit_on_file_size)
{
	struct sigaction action = { .sa_handler = count_signal }, before;

	if (!subject_is_demanding(__func__))
		return;
	sigaction(SIGXFSZ, &action, &before);
	for (int turn = 0; turn < 300; turn++) {
		const size_t limit = subject_below(2) ? subject_below(20000)
						      : subject_below(40) * 512;
		const size_t offset = subject_below(3) ? subject_below(20000)
						       : subject_below(40) * 512;

		within_limit(subject_below(20000), offset, 1 + subject_below(20000), limit);
	}
	sigaction(SIGXFSZ, &before, NULL);
}
END_TEST

static int make_file_system(const char *device, const char *block)
{
	const int child = fork();

	if (child == 0) {
		execlp("mkfs.ext4", "mkfs.ext4", "-q", "-b", block, device, (char *)NULL);
		_exit(127);
	}
	return scratch_wait(child);
}

/* On file systems of their own, in `directory`/mount: other blocks, and no space. */
static bool mount_begin(const char *test, char *device, size_t size, size_t bytes,
			const char *block, const char *data)
{
	char where[48];

	if (!loop_begin(test, subject_directory, bytes, 512, device, size))
		return false;
	snprintf(where, sizeof(where), "%s/mount", subject_directory);
	mkdir(where, 0700);
	if (make_file_system(device, block) != 0 || mount(device, where, "ext4", 0, data) < 0) {
		pinned_skip(test, "cannot make and mount a file system");
		rmdir(where);
		loop_end();
		return false;
	}
	snprintf(subject_path, sizeof(subject_path), "%s/file", where);
	return true;
}

static void mount_end(void)
{
	char where[48];

	subject_shut();
	snprintf(where, sizeof(where), "%s/mount", subject_directory);
	ck_assert_int_eq(umount(where), 0);
	rmdir(where);
	loop_end();
}

START_TEST(other_file_systems)
{
	static const struct {
		const char *block;
		const char *data;
	} systems[] = { { "1024", "" }, { "4096", "data=journal" }, { "4096", "nodelalloc" } };
	char device[64];

	if (!mount_begin(__func__, device, sizeof(device), (size_t)16 << 20, systems[_i].block,
			 systems[_i].data))
		return;
	for (size_t i = 0; i < SUBJECT_WAYS; i++) {
		subject_begin_way(&subject_ways[i]);
		subject_any_transfers(40, subject_ways[i].flags & O_RDWR, true);
	}
	mount_end();
}
END_TEST

START_TEST(no_space)
{
	const size_t most = 300 * KIB;
	char device[64];
	int64_t done = 1;
	size_t written = 0;

	if (!mount_begin(__func__, device, sizeof(device), (size_t)8 << 20, "4096", ""))
		return;
	subject_begin(O_WRONLY, 0);
	memset(subject_memory, 's', most + 1);
	for (int turn = 0; turn < 100 && done > 0; turn++) {
		struct iovec part = { subject_memory + 1, most - 77 };
		struct ps_transfer transfer = subject_transfer(&part, 1, true, written, most - 77);

		done = ps_repair_now(&subject_file, &transfer);
		written += done > 0 ? (size_t)done : 0;
		ck_assert_uint_eq(subject_file_size(), written);
	}
	ck_assert_int_eq(done, -ENOSPC);
	for (size_t at = 0; at < written; at += PAGE) {
		unsigned char got[PAGE];
		const int own = open(subject_path, O_RDONLY | O_CLOEXEC);

		ck_assert_int_gt(pread(own, got, sizeof(got), (off_t)at), 0);
		ck_assert_uint_eq(got[0], 's');
		close(own);
	}
	mount_end();
}
END_TEST

static void add(TCase *tcase)
{
	tcase_add_test(tcase, every_call_fails);
	tcase_add_test(tcase, writing_back_fails);
	tcase_add_test(tcase, cannot_be_opened_again);
	tcase_add_test(tcase, without_the_right_to_read);
	tcase_add_test(tcase, locks_of_the_program_stay);
	tcase_add_test(tcase, locks_of_others_do_not_block);
	tcase_add_test(tcase, nothing_stays_open);
	tcase_add_test(tcase, limit_on_file_size);
	tcase_add_loop_test(tcase, other_file_systems, 0, 3);
	tcase_add_test(tcase, no_space);
}

int main(void)
{
	/* What is mounted goes with this process. */
	if (unshare(CLONE_NEWNS) == 0)
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
	return subject_main("repair_faults", add);
}
