#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pinshim stat: living and dead processes, formats, exit statuses.
. "$(dirname "$0")/../lib/case.sh"
need python3 jq
ulimit -c 0

tool=$BUILD/pinshim
tables=$TMP/tables

# hold NAME: a process that pins 8 MiB and lives for a minute; $holder is its id.
hold() {
	env LD_PRELOAD="$LIB" PINSHIM_MALLOC=1M- PINSHIM_STATS=off RANK=4 python3 -c '
import time
block = bytearray(8 << 20)
print("ready", flush=True)
time.sleep(60)' >"$TMP/$1.out" 2>"$TMP/$1.err" &
	holder=$!
	for ((i = 0; i < 200; i++)); do
		[[ ! -s $TMP/$1.out ]] || return 0
		sleep 0.05
	done
	notok "$1 started" "$(<"$TMP/$1.err")"
	finish
}

# run STATUS ARGUMENT...: pinshim with these; whether it exits so. $TMP/out and $TMP/err are its output.
# shellcheck disable=SC2317 # check() calls it
run() {
	local expect=$1 status

	shift
	"$tool" "$@" >"$TMP/out" 2>"$TMP/err"
	status=$?
	((status == expect)) && return
	echo "exit status $status"
	cat "$TMP/out" "$TMP/err"
	return 1
}

# answer FILTER: what jq makes of the output.
answer() {
	jq -r "$1" "$TMP/out"
}

hold living
living=$holder
hold dead
dead=$holder
# Where no other test's tables are.
mkdir "$tables"
check "a living process: exits 0" run 0 stat "$living"
check "a living process: says so" grep -qE "^python3[^ ]* +$living +alive +native" "$TMP/out"
check "a living process: pinned" grep -qE ' (8|1[0-2])\.0 MiB ' "$TMP/out"
check "a living process: one line and the heading" test "$(wc -l <"$TMP/out")" = 2
check "ranges: exits 0" run 0 stat --ranges "$living"
check "ranges: listed" grep -qE '^ +0x[0-9a-f]+-0x[0-9a-f]+ +[0-9.]+ MiB +locked' "$TMP/out"

check "two: exits 0" run 0 stat "$living" "$dead"
check "two: totals" grep -qE '^total +2 alive' "$TMP/out"

check "JSON: exits 0" run 0 stat --json --ranges "$living"
check "JSON: schema and one process" test "$(answer '.schema, (.processes | length)' | xargs)" = "1 1"
check "JSON: alive and whole" test "$(answer '.processes[0] | .alive and .whole')" = true
check "JSON: its report" test "$(answer '.processes[0].report | .pid, .rank' | xargs)" = "$living 4"
check "JSON: pinned what it holds" \
	test "$(answer '.processes[0].report.pinned_bytes >= 8388608')" = true
check "JSON: the ranges make up what is pinned" test "$(answer '.processes[0] |
	([.ranges[].length_bytes] | add) == .report.pinned_bytes')" = true

{ kill -KILL "$dead" && wait "$dead"; } 2>/dev/null
check "a killed process: still readable" run 0 stat "$living" "$dead"
check "a killed process: is dead" grep -qE "^python3[^ ]* +$dead +dead" "$TMP/out"
check "a killed process: not in the totals" test "$(grep -c ^total "$TMP/out")" = 0

cp -a "/dev/shm/pinshim.$dead."* "/dev/shm/pinshim.$living."* "$tables"
check "reap: exits 0" run 0 stat --directory="$tables" --reap
check "reap: shows it a last time" grep -qE " $dead +dead" "$TMP/out"
check "reap: says so" grep -q 'removed 1 table of dead' "$TMP/err"
check "reap: the dead one is gone" test -z "$(compgen -G "$tables/pinshim.$dead.*")"
check "reap: the living one is not" test -n "$(compgen -G "$tables/pinshim.$living.*")"
rm -f "/dev/shm/pinshim.$dead."*

check "no table: exits 1" run 1 stat "$dead"
check "no table: says whose" grep -q "process $dead: no table" "$TMP/err"
check "no table: the others are shown" run 1 stat "$dead" "$living"
check "no table: the others are there" grep -q " $living " "$TMP/out"
echo garbage >"$tables/pinshim.1.1"
ln -s /etc/passwd "$tables/pinshim.2.2"
mkfifo "$tables/pinshim.3.3"
truncate -s 1G "$tables/pinshim.4.4"
check "damaged tables: exits 1" run 1 stat --directory="$tables"
check "damaged tables: each is named" test "$(grep -c 'not a table of pinshim' "$TMP/err")" = 4
check "damaged tables: the good one is shown" grep -q " $living " "$TMP/out"
printf 'phstable\x63\0\0\0' >"$tables/pinshim.1.1"
check "another version: exits 1" run 1 stat --directory="$tables" 1
check "another version: says so" grep -q 'another version' "$TMP/err"
mkdir "$TMP/empty"
check "nothing: exits 0" run 0 stat --directory="$TMP/empty"
check "nothing: says so" grep -q '^no process' "$TMP/out"
check "nothing: JSON" run 0 stat --directory="$TMP/empty" --json
check "nothing: an empty list" test "$(answer '.processes | length')" = 0
check "no directory: exits 1" run 1 stat --directory="$TMP/nowhere"

# A program's name that would clear the screen.
table=$(echo "$tables/pinshim.$living."*)
printf '\033[2Jx' | dd of="$table" bs=1 seek=40 conv=notrunc status=none
check "hostile name: exits 1" run 1 stat --directory="$tables"
check "hostile name: harmless" grep -q '^?\[2Jx' "$TMP/out"
check "hostile name: JSON is JSON" run 1 stat --directory="$tables" --json
check "hostile name: escaped" test "$(answer '.processes[0].report.program' | cut -c 2-5)" = "[2Jx"

for wrong in --nonsense --directory 12x 1K 0 ""; do
	check "usage: '$wrong' exits 2" run 2 stat "$wrong"
	check "usage: '$wrong' is on stderr" test ! -s "$TMP/out" -a -s "$TMP/err"
done
check "no command: exits 2" run 2
check "another command: exits 2" run 2 nonsense
check "help: exits 0" run 0 help
check "--help: exits 0" run 0 --help
check "stat --help: exits 0" run 0 stat --help
check "--version: exits 0" run 0 --version
check "--version: says it" grep -qE '^pinshim [0-9]' "$TMP/out"
if [[ -w /dev/full ]]; then
	check "a full disk: exits 1" bash -c "'$tool' --help >/dev/full 2>/dev/null; test \$? = 1"
fi

{ kill "$living" && wait "$living"; } 2>/dev/null
rm -f "/dev/shm/pinshim.$living."*
finish
