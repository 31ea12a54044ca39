#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The malloc family without the preload, and under each kind of setting that it must not notice.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq prlimit setpriv

program=$PROGRAMS/malloc_family
every=18446744073709551615

run_cases "plain" "$program"
run_cases "no ranges" preload -- "$program"
run_cases "BACKEND=off" preload PINSHIM_BACKEND=off PINSHIM_MALLOC=64K- PINSHIM_STATS=off -- \
	"$program"
run_cases "64K-" preload PINSHIM_MALLOC=64K- PINSHIM_STATS=off -- "$program" 65536 $every
run_cases "0-4K" preload PINSHIM_MALLOC=0-4K PINSHIM_STATS=off -- "$program" 0 4096
run_cases "1-" preload PINSHIM_MALLOC=1- PINSHIM_STATS=off -- "$program" 1 $every
run_cases "4K-" preload PINSHIM_MALLOC=4K- PINSHIM_STATS=off -- "$program" 4096 $every
run_cases "100-1M" preload PINSHIM_MALLOC=100-1M PINSHIM_STATS=off -- "$program" 100 1048576
run_cases "16M-" preload PINSHIM_MALLOC=16M- PINSHIM_STATS=off -- "$program" 16777216 $every
run_cases "RETAIN=0" preload PINSHIM_MALLOC=64K- PINSHIM_RETAIN=0 PINSHIM_STATS=off -- \
	"$program" 65536 $every
run_cases "HUGEPAGES=off" preload PINSHIM_MALLOC=64K- PINSHIM_HUGEPAGES=off PINSHIM_THREADS=1 \
	PINSHIM_STATS=off -- "$program" 65536 $every
run_cases "LIMIT=8M" preload PINSHIM_MALLOC=64K- PINSHIM_LIMIT=8M PINSHIM_LOG=error \
	PINSHIM_STATS=off -- "$program" any
if can_be_ordinary; then
	make_ordinary "$LIB" "$program"
	run_cases "ordinary user, 8 MiB" ordinary_preload PINSHIM_MALLOC=64K- PINSHIM_LOG=error \
		PINSHIM_STATS=off -- "$ORDINARY/malloc_family" any
else
	skip "ordinary user, 8 MiB" "needs root"
fi

# The sums of the report are those of the program.
preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/report.json" -- "$program" 65536 $every >/dev/null
check "the report is JSON" jq -e '.schema == 1' "$TMP/report.json"
check "what the report counts as served and failed was asked for" \
	test "$(sum calls "$TMP/report.json")" = "$(jq -n "$(sum served "$TMP/report.json") +
		$(sum fallback "$TMP/report.json") + $(sum failed "$TMP/report.json")")"
check "every served block was freed" \
	test "$(sum served "$TMP/report.json")" = "$(sum freed "$TMP/report.json")"
check "and was served by the thousand" test "$(sum served "$TMP/report.json")" -gt 1000
finish
