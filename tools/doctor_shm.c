/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/statfs.h>

#include "doctor.h"
#include "os.h"
#include "pinshim_table.h"

#define TABLE_BYTES (64 << 10) /* of a process with few ranges */
#define WITHOUT "pinning goes on, but pinshim stat and libpinshim-aio.so do not see it"

/* What the library does with it. 0, or -errno of what failed. */
static int try_file(void)
{
	int fd = ps_os_open(PINSHIM_TABLE_DIRECTORY, O_TMPFILE | O_RDWR, 0600);
	int rc = fd < 0 ? fd : ps_os_fallocate(fd, 0, TABLE_BYTES);

	if (fd >= 0)
		ps_os_close(fd);
	return rc;
}

void ps_doctor_shm(struct ps_doctor *doctor)
{
	struct ps_text found, remedy;
	struct statfs status;
	int rc = try_file();

	ps_findings_begin(&doctor->findings, rc < 0 ? PS_STATE_WARNING : PS_STATE_OK, "shm", &found,
			  &remedy);
	if (rc < 0) {
		ps_text_add(&found, PINSHIM_TABLE_DIRECTORY " takes no table: %s: " WITHOUT,
			    strerrordesc_np(-rc));
		ps_text_add(&remedy, "mount a tmpfs there that this user may write, with 64 KiB "
				     "for each process (docker --shm-size)");
		return;
	}
	ps_text_add(&found, PINSHIM_TABLE_DIRECTORY " takes tables");
	if (statfs(PINSHIM_TABLE_DIRECTORY, &status) < 0)
		return;
	ps_text_add(&found, ", ");
	ps_text_add_bytes(&found, (uint64_t)status.f_bavail * (uint64_t)status.f_bsize);
	ps_text_add(&found, " of ");
	ps_text_add_bytes(&found, (uint64_t)status.f_blocks * (uint64_t)status.f_bsize);
	ps_text_add(&found, " are free%s",
		    status.f_type == TMPFS_MAGIC ? "" : ", but it is no tmpfs");
}
