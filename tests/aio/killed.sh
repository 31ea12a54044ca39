#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# kill -9 in the middle of I/O: what was said to be written is, and nothing is left behind.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/behaviour.bash"

# left: tables of processes that are gone.
left() {
	local table pid

	for table in /dev/shm/pinshim.*; do
		pid=${table#/dev/shm/pinshim.}
		[[ ! -e $table || -d /proc/${pid%%.*} ]] || echo "$table"
	done
}

# Instead of removing them by hand. Others' tables are none of our business.
reap_tables() {
	"$BUILD/pinshim" stat --reap >/dev/null 2>&1
	check "$label: no table is left that cannot be reaped" test -z "$(left)"
}

run_in plain "$PROGRAMS/killed" DIRECTORY
result plain "without the shim"
ENGINES="auto uring libaio"
repaired "killed" "$PROGRAMS/killed" misaligned
finish
