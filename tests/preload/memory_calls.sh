#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The program's own memory calls give the same results with and without the shim, whoever runs it.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"

quiet=(PINSHIM_STATS=off PINSHIM_LOG=error)

# plain COMMAND...: the cases without the shim, which the following runs are compared with.
plain() {
	check "$*" "$@"
	"$@" >"$TMP/plain"
}

# same LABEL COMMAND...: as run_cases, and the cases are those of the plain run, line by line.
same() {
	run_cases "$@" | tee "$TMP/cases"
	sed -nE "s/^((not )?ok - )$1: /\\1/p" "$TMP/cases" | grep -v 'ends with 0 and says nothing$' \
		>"$TMP/these"
	check "$1: the same results as without the shim" diff "$TMP/plain" "$TMP/these"
}

plain "$PROGRAMS/memory_calls" all
for setting in "" PINSHIM_RETAIN=0 PINSHIM_HUGEPAGES=off PINSHIM_BACKEND=off; do
	same "root${setting:+, $setting}" preload PINSHIM_MALLOC=64K- "${quiet[@]}" $setting -- \
		"$PROGRAMS/memory_calls" all
done

if ! can_be_ordinary; then
	skip "as an ordinary user" "needs root and setpriv"
	finish
fi
make_ordinary "$LIB" "$PROGRAMS/memory_calls"

# With 8 MiB little of the heap is pinned, and everything can be locked only in a small program.
plain ordinary "$ORDINARY/memory_calls"
same "8 MiB" ordinary_preload PINSHIM_MALLOC=64K- "${quiet[@]}" -- "$ORDINARY/memory_calls"
same "8 MiB, no malloc" ordinary_preload "${quiet[@]}" -- "$ORDINARY/memory_calls"
same "8 MiB, off" ordinary_preload PINSHIM_BACKEND=off "${quiet[@]}" -- "$ORDINARY/memory_calls"
plain ordinary "$ORDINARY/memory_calls" mlockall
same "8 MiB, mlockall" ordinary_preload "${quiet[@]}" -- "$ORDINARY/memory_calls" mlockall
finish
