#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The report: from every way a process can end or become another, once, and none where none belongs.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq python3

program=$PROGRAMS/exit_paths

# leave WAY [SETTING...]: runs a way; $status, $pid, and $TMP/out and $TMP/err are what it leaves.
leave() {
	local way=$1

	shift
	# No function around it: the shell's own line about a signal must go elsewhere.
	{ env LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K- "$@" "$program" "$way" >"$TMP/out" 2>"$TMP/err"; } \
		2>/dev/null
	status=$?
	pid=$(head -n 1 "$TMP/out")
}

# reported_once: stderr is one report by $pid and nothing else.
reported_once() {
	[[ -s $TMP/err ]] && ! grep -v "^pinshim\[$pid\]: " "$TMP/err" &&
		[[ -z $(sed 's/[0-9][0-9.]*/N/g' "$TMP/err" | sort | uniq -d) ]] && return
	cat "$TMP/err"
	return 1
}

# no_table PID: it has left none.
no_table() {
	! compgen -G "/dev/shm/pinshim.$1.*" || { rm -f "/dev/shm/pinshim.$1".* && false; }
}

# way NAME SERVED: the way's report on stderr and as a file, which counts SERVED blocks.
way() {
	local name=$1 served=$2

	leave "$name"
	check "$name: reports once on stderr" reported_once
	check "$name: keeps the exit status" test "$status" = 0
	check "$name: leaves no table" no_table "$pid"
	leave "$name" PINSHIM_STATS="$TMP/%p.json"
	check "$name: says nothing on stderr when a file is asked for" test ! -s "$TMP/err"
	check "$name: writes JSON" python3 -m json.tool "$TMP/$pid.json" /dev/null
	check "$name: the file is by this process, schema 1, and counts $served served" test \
		"$(jq -c '[.schema, .pid]' "$TMP/$pid.json") $(sum served "$TMP/$pid.json")" = \
		"[1,$pid] $served"
	rm -f "$TMP/$pid.json"
}

for name in return exit _exit _Exit quick_exit exit_beside_thread; do
	way $name 2
done
way pthread_exit 3
way atexit 3
way at_quick_exit 2
way destructor 102
leave destructor
check "destructor: what frees and allocates that late works" \
	test "$(tail -n 1 "$TMP/out")" = destructor

# The program that comes after has its own counters (and none: echo serves nothing of 64 KiB).
for name in execl execlp execle execv execvp execvpe execve fexecve execveat; do
	preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/%p.%e.json" -- "$program" $name \
		>"$TMP/out" 2>"$TMP/err"
	pid=$(head -n 1 "$TMP/out")
	check "$name: becomes the other program" test "$(sed 1d "$TMP/out")" = after-exec
	check "$name: writes its report before" test \
		"$(sum served "$TMP/$pid.exit_paths.json")" = 2
	check "$name: leaves no table" no_table "$pid"
	preload PINSHIM_MALLOC=64K- -- "$program" $name >"$TMP/out" 2>&1
	check "$name: reports on stderr before" test \
		"$(tail -n 1 "$TMP/out"),$(grep -c "^pinshim\[" "$TMP/out")" != after-exec,0
	sed -i '/^pinshim/!d' "$TMP/out"
	mv "$TMP/out" "$TMP/err"
	pid=$(sed -n '1s/^pinshim\[\([0-9]*\)\].*/\1/p' "$TMP/err")
	check "$name: reports once" reported_once
done

# An exec that fails is no end: nothing is said before it, or what is said later counts the rest too.
way failed_exec 3
leave late_failed_exec PINSHIM_STATS="$TMP/%p.json"
check "late_failed_exec: keeps the exit status and errno" test $status = 0
check "late_failed_exec: the last report counts what came after" test \
	"$(sum served "$TMP/$pid.json")" = 3
check "late_failed_exec: leaves no table" no_table "$pid"

# Two threads at once: whoever comes first reports, the other waits or leaves.
for name in two_exits two__exits exit_and__exit; do
	bad=
	for ((round = 0; round < 30; round++)); do
		leave $name
		no_table "$pid" >/dev/null && reported_once >/dev/null && ((status == 0)) && continue
		bad="round $round, exit status $status, stderr: $(<"$TMP/err")"
	done
	check "$name: one report and no table, thirty times" test -z "$bad"
	[[ -z $bad ]] || printf '%s\n' "$bad" | sed 's/^/# /'
done

leave status
check "a status of the program's own is kept" test "$status" = 42

# None where none belongs.
leave nothing
check "a process that pinned nothing says nothing" test "$status,$(<"$TMP/err")" = 0,
leave exit PINSHIM_STATS=off
check "PINSHIM_STATS=off says nothing" test "$status,$(<"$TMP/err")" = 0,
leave exit PINSHIM_BACKEND=off
check "PINSHIM_BACKEND=off says nothing" test "$status,$(<"$TMP/err")" = 0,
leave nothing PINSHIM_STATS="$TMP/%p.json"
check "a process that pinned nothing reports to a file that was asked for" test \
	"$(sum served "$TMP/$pid.json")" = 0
leave killed
check "a killed process reports nothing" test "$status,$(<"$TMP/err")" = 137,
check "but its table stays" compgen -G "/dev/shm/pinshim.$pid.*"
rm -f /dev/shm/pinshim."$pid".*

# Names.
mkdir "$TMP/names"
leave exit RANK=3 PINSHIM_STATS="$TMP/names/a%%b-%p-%h-%e-%r"
check "%p %h %e %r and %% in the name" test "$(cd "$TMP/names" && echo *)" = \
	"a%b-$pid-$(uname -n)-exit_paths-3"
leave exit PINSHIM_STATS=/nonexistent/directory/report.json
check "a report that cannot be written is said once and changes nothing else" test \
	"$status,$(message_count "$TMP/err" /nonexistent/directory/report.json),$(wc -l <"$TMP/err")" = 0,1,1

# stderr as a daemon leaves it.
export DATA_FILE=$TMP/data
leave stderr_reused
check "a data file that became descriptor 2 is not written to" test \
	"$status,$(<"$DATA_FILE")" = 0,data
rm -f "$DATA_FILE"
leave stderr_log
check "a log that became descriptor 2 gets the report" grep -q "^pinshim\[$pid\]: " "$DATA_FILE"
leave stderr_closed
check "a closed descriptor 2 does no harm" test "$status" = 0
check "nor to the table" no_table "$pid"
leave all_closed PINSHIM_STATS="$TMP/%p.json"
check "the file is written by a process that closed all descriptors" test \
	"$status,$(sum served "$TMP/$pid.json")" = 0,2
finish
