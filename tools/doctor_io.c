/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "doctor.h"
#include "file.h"
#include "os.h"
#include "ring.h"

#define EVENTS_FEW 4096 /* that may still be had; a busy I/O handle takes a thousand */

/* The engine without io_uring: that is a limit only where it was asked for. */
static enum ps_state without_ring(const struct ps_doctor *doctor)
{
	return doctor->config.aio == PS_AIO_URING ? PS_STATE_WARNING : PS_STATE_NOTE;
}

/* Why the kernel does not let this process make a ring, and what to do. */
static void explain_refusal(int error, struct ps_text *found, struct ps_text *remedy)
{
	uint64_t disabled = 0, seccomp = 0;

	ps_doctor_number("/proc/sys/kernel/io_uring_disabled", &disabled);
	ps_doctor_proc("/proc/self/status", "Seccomp", 10, &seccomp);
	ps_text_add(found, "is not to be had (%s): ", strerrordesc_np(-error));
	if (error == -EPERM && disabled) {
		ps_text_add(found, "the sysctl kernel.io_uring_disabled is %lu", disabled);
		ps_text_add(remedy, disabled == 1 ? "'sysctl kernel.io_uring_disabled=0', or join "
						    "the group of kernel.io_uring_group"
						  : "'sysctl kernel.io_uring_disabled=0'");
	} else if ((error == -EPERM || error == -ENOSYS) && seccomp) {
		ps_text_add(found, "a seccomp filter is on, as in most containers");
		ps_text_add(remedy, "a profile that allows io_uring_setup, io_uring_enter and "
				    "io_uring_register (docker --security-opt seccomp=FILE)");
	} else if (error == -ENOSYS) {
		ps_text_add(found, "the kernel is built without it");
		ps_text_add(remedy, "a kernel with CONFIG_IO_URING");
	} else if (error == -ENOMEM) {
		ps_text_add(found, "it may not lock its memory");
		ps_text_add(remedy, "raise RLIMIT_MEMLOCK (ulimit -l)");
	} else {
		ps_text_add(found, "the kernel refuses");
	}
	ps_text_add(found, ": asynchronous I/O goes by the kernel's AIO");
}

static void check_ring(struct ps_doctor *doctor)
{
	struct ps_ring ring;
	struct ps_text found, remedy;
	int error = ps_ring_open(&ring, 1, 1, PS_RING_SHARED);

	if (error < 0) {
		ps_findings_begin(&doctor->findings, without_ring(doctor), "io_uring", &found,
				  &remedy);
		explain_refusal(error, &found, &remedy);
		return;
	}
	ps_ring_close(&ring);
	error = ps_ring_open(&ring, 1, 1, PS_RING_DEFERRED);
	if (error < 0) {
		ps_findings_add(&doctor->findings, without_ring(doctor), "io_uring",
				"Linux 6.1 or later",
				"the kernel has no rings whose completions wait for their owner "
				"(IORING_SETUP_DEFER_TASKRUN: %s): asynchronous I/O goes by the "
				"kernel's AIO unless PINSHIM_AIO=uring",
				strerrordesc_np(-error));
		return;
	}
	ps_ring_close(&ring);
	ps_findings_add(&doctor->findings, PS_STATE_OK, "io_uring", NULL,
			"is to be had, with IORING_SETUP_DEFER_TASKRUN");
}

static void check_events(struct ps_doctor *doctor)
{
	uint64_t most, used, left;
	struct ps_text found, remedy;

	if (!ps_doctor_number("/proc/sys/fs/aio-max-nr", &most) ||
	    !ps_doctor_number("/proc/sys/fs/aio-nr", &used)) {
		ps_findings_add(&doctor->findings, PS_STATE_WARNING, "aio",
				"a kernel with CONFIG_AIO",
				"the kernel has no AIO: io_setup() fails, with or without pinshim");
		return;
	}
	left = most > used ? most - used : 0;
	ps_findings_begin(&doctor->findings, left < EVENTS_FEW ? PS_STATE_WARNING : PS_STATE_OK,
			  "aio", &found, &remedy);
	ps_text_add(&found, "fs.aio-max-nr is %lu, and %lu are taken", most, used);
	if (left < EVENTS_FEW) {
		ps_text_add(&found, ": io_setup() fails with EAGAIN when none is left");
		ps_text_add(&remedy, "'sysctl fs.aio-max-nr=1048576'");
	}
}

/* The file itself, or one without a name in the directory. The descriptor or -errno. */
static int open_direct(const char *path)
{
	struct stat status;
	int rc = ps_os_stat(path, &status);

	if (rc < 0)
		return rc;
	if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
		return -ENOTBLK;
	if (S_ISDIR(status.st_mode))
		return ps_os_open(path, O_TMPFILE | O_RDWR | O_DIRECT, 0600);
	return ps_os_open(path, O_RDONLY | O_DIRECT | O_NONBLOCK, 0);
}

static void explain_file(const char *path, const struct ps_file *file, struct ps_text *found)
{
	if (file->is & PS_FILE_ASYNC)
		ps_text_add(found,
			    "in %s buffers are to be at multiples of %u bytes, offsets and lengths "
			    "of %u (STATX_DIOALIGN)",
			    path, file->memory_align, file->offset_align);
	else if (file->memory_align > 1)
		ps_text_add(found,
			    "in %s the file system, or a kernel before Linux 6.1, does not say "
			    "what it demands (STATX_DIOALIGN): %u bytes are assumed, and io_uring "
			    "is not used",
			    path, file->memory_align);
	else
		ps_text_add(found,
			    "in %s any buffer will do, as nothing is transferred directly: "
			    "io_uring is not used",
			    path);
}

static void check_direct(struct ps_doctor *doctor)
{
	const char *path = doctor->file ? doctor->file : ".";
	struct ps_file file = { .is = 0 };
	struct ps_text found, remedy;
	int fd = open_direct(path);
	int rc = fd < 0 ? fd : ps_file_look(fd, &file);
	bool good = rc == 0 && (file.is & PS_FILE_ASYNC);

	if (fd >= 0)
		ps_os_close(fd);
	ps_findings_begin(&doctor->findings, good ? PS_STATE_OK : PS_STATE_NOTE, "direct_io",
			  &found, &remedy);
	if (rc == 0) {
		explain_file(path, &file, &found);
		return;
	}
	ps_text_add(&found, "in %s cannot be tried: %s", path,
		    rc == -EINVAL    ? "the file system has no O_DIRECT"
		    : rc == -ENOTBLK ? "it is neither a file nor a disk"
				     : strerrordesc_np(-rc));
	if (rc != -EINVAL)
		ps_text_add(&remedy, "name a file or a directory that may be written with --file");
}

void ps_doctor_io(struct ps_doctor *doctor)
{
	check_ring(doctor);
	check_events(doctor);
	check_direct(doctor);
}
