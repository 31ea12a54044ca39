/* SPDX-License-Identifier: BSD-2-Clause */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "pinned.h"

/* Open as long as the device is there, which goes with the last descriptor, whatever ends the test. */
static int held = -1;

/* Makes a device on this file. Returns 0 or -errno, and stores the device's path. */
static int attach(int file, unsigned block, char *device, size_t size)
{
	struct loop_config config = {
		.fd = (unsigned)file,
		.block_size = block,
		.info.lo_flags = LO_FLAGS_DIRECT_IO | LO_FLAGS_AUTOCLEAR,
	};
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), fd = -1, number;

	if (control < 0)
		return -errno;
	/* Somebody else may take the one that was free. */
	for (int tries = 0; tries < 10 && fd < 0; tries++) {
		number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0)
			break;
		snprintf(device, size, "/dev/loop%d", number);
		fd = open(device, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &config) < 0) {
			const int error = errno;

			close(fd);
			errno = error;
			fd = -1;
			if (error != EBUSY)
				break;
		}
	}
	number = fd < 0 ? -errno : 0;
	held = fd;
	close(control);
	return number;
}

bool loop_begin(const char *test, const char *directory, size_t bytes, unsigned block, char *device,
		size_t size)
{
	const int file = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int error = file < 0 || ftruncate(file, (off_t)bytes) < 0 ? -errno : 0;

	if (error == 0)
		error = attach(file, block, device, size);
	if (file >= 0)
		close(file);
	if (error < 0)
		pinned_skip(test, strerror(-error));
	return error == 0;
}

void loop_end(void)
{
	close(held);
	held = -1;
}
