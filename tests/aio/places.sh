#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# File systems and devices of other kinds: tmpfs, blocks of 4096 bytes, and one that gets full.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/behaviour.bash"

devices=()
memory=

# shellcheck disable=SC2317 # called by trap
places_exit() {
	local status=$? device

	trap - EXIT
	for device in "${devices[@]}"; do
		umount "$device" 2>/dev/null
		losetup -d "$device"
	done
	[[ -z $memory ]] || rm -rf "$memory"
	(exit "$status")
	case_exit
}
trap places_exit EXIT

# device NAME SIZE BLOCK: a loop device with blocks of that many bytes; its path is in $device.
device() {
	truncate -s "$2" "$TMP/$1.image"
	device=$(losetup -f --show -b "$3" "$TMP/$1.image") && devices+=("$device")
}

# mounted NAME SIZE BLOCK: a file system on one, which becomes $WHERE.
mounted() {
	device "$@" && mkfs.ext4 -q "$device" && mkdir "$TMP/$1" && mount "$device" "$TMP/$1" || return
	WHERE=$TMP/$1
}

memory=$(mktemp -d /dev/shm/pinshim-test.XXXXXX)
WHERE=$memory
same "tmpfs" "$PROGRAMS/memory"
run_in plain "$PROGRAMS/repair" DIRECTORY grid ways
result plain "tmpfs, misaligned, without the shim"
repaired "tmpfs, misaligned" "$PROGRAMS/repair" grid ways

if ((EUID != 0)); then
	skip "loop devices" "only root can make them"
	finish
fi
need losetup mkfs.ext4
if ! device blocks 16M 4096; then
	skip "loop devices" "none can be made here"
	finish
fi

same_on_device() {
	local AT_A_TIME=1

	same "$@"
}
same_on_device "a device with blocks of 4096 bytes" PINSHIM_AIO_REPAIR=0 "$PROGRAMS/device" device "$device"
ENGINES="auto uring libaio" AT_A_TIME=1
repaired "a device with blocks of 4096 bytes" "$PROGRAMS/device" device "$device"
AT_A_TIME=4
if mounted large_blocks 256M 4096; then
	same "files with blocks of 4096 bytes" PINSHIM_AIO_REPAIR=0 "$PROGRAMS/device" file
	repaired "files with blocks of 4096 bytes" "$PROGRAMS/device" file
	repaired "files with blocks of 4096 bytes" "$PROGRAMS/repair" grid ends faults
else
	skip "files with blocks of 4096 bytes" "nothing can be mounted here"
fi
if mounted small 16M 512; then
	AT_A_TIME=1
	same "a full disk" "$PROGRAMS/space"
	repaired "a full disk" "$PROGRAMS/space" misaligned
else
	skip "a full disk" "nothing can be mounted here"
fi
finish
