#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Before the library's constructor and after its destructor.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq

parts=$TOP/tests/preload/parts
check "a library is built" compile "$TMP/libbootstrap.so" "$parts/bootstrap_library.c" -shared -fPIC
check "and a program against it" compile "$TMP/bootstrap" "$parts/bootstrap.c" \
	-Wl,-rpath,"$TMP" -Wl,--no-as-needed "$TMP/libbootstrap.so"
check "a library that wants to be first is built" compile "$TMP/libfirst.so" \
	"$parts/bootstrap_library.c" -shared -fPIC -Wl,-z,initfirst
mkdir "$TMP/first"
mv "$TMP/libfirst.so" "$TMP/first/libbootstrap.so"

# runs LABEL COMMAND...: the program's cases, and that it went through its last destructor.
runs() {
	local label=$1

	shift
	run_cases "$label" "$@" | tee "$TMP/cases"
	check "$label: destructors free blocks of every origin" grep -qx destructor "$TMP/cases"
}

runs "plain" "$TMP/bootstrap"
for ranges in 64K- 1- 64K-200K; do
	runs "$ranges" preload PINSHIM_MALLOC=$ranges PINSHIM_STATS=off -- "$TMP/bootstrap"
	runs "$ranges, library first" preload LD_LIBRARY_PATH="$TMP/first" PINSHIM_MALLOC=$ranges \
		PINSHIM_STATS=off -- "$TMP/bootstrap"
	runs "$ranges, bound at start" preload LD_BIND_NOW=1 PINSHIM_MALLOC=$ranges \
		PINSHIM_STATS=off -- "$TMP/bootstrap"
done
preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/report.json" -- "$TMP/bootstrap" >/dev/null
check "the blocks in between were served" test "$(sum served "$TMP/report.json")" -ge 3
finish
