#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# As behaviour.sh, on a device of our own that lets nothing through while a case wants to have requests
# in flight.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/behaviour.bash"

group=/sys/fs/cgroup/blkio/pinshim-test.$$
device=

# shellcheck disable=SC2317 # called by trap
held_exit() {
	local status=$?

	trap - EXIT
	if [[ -n $device ]]; then
		umount "$TMP/mount" 2>/dev/null
		losetup -d "$device"
	fi
	[[ ! -d $group ]] || rmdir "$group"
	(exit "$status")
	case_exit
}
trap held_exit EXIT

((EUID == 0)) || skip_all "only root can make a device and hold its requests"
[[ -e /sys/fs/cgroup/blkio/blkio.throttle.read_bps_device ]] ||
	skip_all "no control groups (version 1) that hold block I/O"
need losetup mkfs.ext4
truncate -s 64M "$TMP/image"
device=$(losetup -f --show "$TMP/image") || skip_all "no loop device"
mkfs.ext4 -q "$device"
mkdir "$TMP/mount"
mount "$device" "$TMP/mount" || skip_all "nothing can be mounted here"
mkdir "$group"

# run_in NAME COMMAND...: as behaviour.bash's, in the group and on the device.
run_in() {
	local name=$1 status

	shift
	mkdir -p "$TMP/mount/files"
	{
		(
			echo "$BASHPID" >"$group/cgroup.procs"
			exec env HELD_GROUP="$group" HELD_DEVICE="$(<"/sys/block/${device#/dev/}/dev")" \
				"${@//DIRECTORY/$TMP/mount/files}"
		) >"$TMP/$name.out" 2>"$TMP/$name.err"
	} 2>/dev/null
	status=$?
	# Whatever the program left held must not stay so.
	for direction in read write; do
		echo "$(<"/sys/block/${device#/dev/}/dev") 0" >"$group/blkio.throttle.${direction}_bps_device"
	done
	judge "$name" "$status"
	rm -rf "$TMP/mount/files"
}

AT_A_TIME=1
same held "$PROGRAMS/held"
finish
