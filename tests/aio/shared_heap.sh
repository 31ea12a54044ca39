#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Memory for I/O where libpinshim.so is in the process, too: of its heap, and not of a second one.
. "$(dirname "$0")/../lib/case.sh"

program=$BUILD/tests/unit/test_memory
[[ -x $program ]] || skip_all "$program is not built"

# Were the library not there, the program would run its other cases.
# shellcheck disable=SC2317 # check calls it
run() {
	preload PINSHIM_STATS=off "$@" -- "$program" | grep -x '100%: Checks: 1, Failures: 0, Errors: 0'
}

check "blocks come from the heap of libpinshim.so" run
check "switched off, it has none, and ordinary memory does" run PINSHIM_BACKEND=off

finish
