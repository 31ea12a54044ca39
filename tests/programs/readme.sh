#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the README tells its reader to type works, and gives what it says. Each block of it that is
# marked sh is run, in an empty directory that looks like the checkout.

# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
need fio python3 setpriv prlimit
# Debian's python3 and no wrapper of somebody's: with a file asked for, each process writes one.
PATH=/usr/bin:$PATH

chmod 755 "$TMP"
mkdir "$TMP/build" "$TMP/interpose" "$TMP/blocks"
cp "$BUILD/libpinshim.so" "$AIO_LIB" "$BUILD/pinshim" "$TMP/build"
cp "$TOP/interpose/pinshim.h" "$TMP/interpose"
awk -v to="$TMP/blocks/" '/^```sh$/ { n++; inside = 1; next } /^```$/ { inside = 0 }
	inside { print > (to n ".sh") }' "$TOP/README.md"

# block WORD: runs the block that has this word in it; what it writes is in $output.
block() {
	local file

	file=$(grep -l -e "$1" "$TMP"/blocks/*.sh | head -n 1)
	output=$(cd "$TMP" && bash -eu "$file" 2>&1)
	status=$?
	rm -f "$file"
	check "the block with $1 succeeds" test $status = 0
}

says() {
	check "and says: $1" grep -q -e "$1" <<<"$output"
}

block 'fio --name=read'
says 'pinshim\[[0-9]*\]: fio, backend native: pinned'
says 'read: IOPS='

block libpinshim-aio.so
says 'read: IOPS='
says 'async I/O: [0-9]* requests: '

block 'pinshim io'
says '^Task Write Speed = .* GB/sec$'
says '^E2E Read Latency = .* sec$'

block 'pinshim run'
says 'python3[.0-9]*, backend native: pinned'
says '^[a-zA-Z]* *memlock: '

block 'PINSHIM_STATS='
check "and says nothing" test -z "$output"
check "but writes JSON" python3 -c 'import json, sys
assert sum(json.load(open(f))["total"]["served"] for f in sys.argv[1:]) > 0' "$TMP"/pinned.*.json

block 'python3 -c .x = bytearray(100_000_000)'
says 'pinned [0-9.]* MiB now, [0-9.]* MiB at peak'

block 'pinshim stat'
says '^ *PID\|PROGRAM\|no process'

block 'import numpy'
says '^16777216.0$'

block 'prlimit --memlock'
says 'RLIMIT_MEMLOCK is 8.0 MiB'
says 'the program got ordinary memory'
check "once" test "$(grep -c 'was refused' <<<"$output")" = 1

block 'example.c'
says '^present 0, pinned 0$'
says '^present 1, pinned 1$'

check "and there is no other block" test -z "$(ls "$TMP/blocks")"

# Every setting is in the manual page and the README's table names none that is not.
env LD_PRELOAD="$LIB" PINSHIM_LOG=debug /bin/true 2>&1 |
	sed -n 's/^pinshim\[[0-9]*\]: \(PINSHIM_[A-Z_]*\)=.*/\1/p' | sort >"$TMP/settings"
sed -n 's/^\.It Ev \(PINSHIM.*\)/\1/p' "$TOP/interpose/pinshim.7" | tr -d ' ' | tr ',' '\n' |
	sort >"$TMP/documented"
grep -o '^| `PINSHIM_[A-Z_]*' "$TOP/README.md" | grep -o 'PINSHIM_.*' | sort >"$TMP/table"
check "the settings are printed" test "$(wc -l <"$TMP/settings")" -gt 10
check "every setting is in pinshim(7)" test -z "$(comm -23 "$TMP/settings" "$TMP/documented")"
check "the README's table names settings only" test -s "$TMP/table" -a -z "$(comm -23 "$TMP/table" "$TMP/settings")"
finish
