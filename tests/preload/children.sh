#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every kind of child. children.c has the cases that a process can see itself; reports are here.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq

program=$PROGRAMS/children

run_cases "plain" "$program"
run_cases "64K-" preload PINSHIM_MALLOC=64K- PINSHIM_STATS=off -- "$program" locked
run_cases "64K-, RETAIN=0" preload PINSHIM_MALLOC=64K- PINSHIM_RETAIN=0 PINSHIM_STATS=off -- \
	"$program" locked

# Who reports. The parent and the children that pinned do; those that share its memory never do.
preload PINSHIM_MALLOC=64K- PINSHIM_STATS=stderr CHILDREN_PIDS="$TMP/pids" -- "$program" locked \
	>/dev/null 2>"$TMP/stderr"
while read -r line; do
	kind=${line% *} pid=${line##* }
	count=$(grep -c "^pinshim\[$pid\]: " "$TMP/stderr")
	case $kind in
	exit | _exit | exec | clone) check "the child of kind $kind reports" test "$count" -gt 0 ;;
	*) check "the child of kind $kind reports nothing" test "$count" = 0 ;;
	esac
done <"$TMP/pids"
check "all kinds were seen" test "$(wc -l <"$TMP/pids")" = 13
check "no line of a report is said twice" \
	test -z "$(messages "$TMP/stderr" | sort | uniq -d)"

# With a file every process asked to report does, but for those that share another's memory.
rm -f "$TMP/pids"
mkdir "$TMP/json"
preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/json/%p.json" CHILDREN_PIDS="$TMP/pids" -- \
	"$program" locked >/dev/null
for kind in exit _exit exec idle clone; do
	pid=$(sed -n "s/^$kind //p" "$TMP/pids")
	check "the report of the child of kind $kind is a file with its process id" \
		jq -e ".schema == 1 and .pid == $pid" "$TMP/json/$pid.json"
	check "the child of kind $kind counts no block as freed that its parent was served" \
		jq -e "[.entry_points[] | .freed_bytes <= .served_bytes] | all" "$TMP/json/$pid.json"
done
while read -r line; do
	kind=${line% *} pid=${line##* }
	check "the child of kind $kind writes no file" test ! -e "$TMP/json/$pid.json"
done < <(grep -E '^(_exits|execs|fails|clone-vm|spawn)' "$TMP/pids")
check "every file is whole JSON" jq -es 'all(.schema == 1)' "$TMP"/json/*.json
check "nothing but reports is left beside them" \
	test -z "$(find "$TMP/json" -type f ! -name '*.json')"
finish
