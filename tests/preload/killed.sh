#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# kill -9, at any moment: the table that is left can be read, tells what the process held, and is
# removed by those who look.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq

tool_stat() {
	"$BUILD/pinshim" stat "$@"
}

# shown: how many processes of $TMP/stat.json are $pid.
shown() {
	jq "[.processes[].report | select(.pid == $pid)] | length" "$TMP/stat.json"
}

# killed: starts the program, waits for its first line, kills it. Sets $pid and $table.
killed() {
	local started

	coproc CHURN { exec env LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K- PINSHIM_RETAIN=0 \
		PINSHIM_STATS=stderr "$PROGRAMS/killed" 2>"$TMP/err"; }
	started=$CHURN_PID
	read -r pid <&"${CHURN[0]}"
	kill -KILL "$started"
	wait "$started" 2>/dev/null
	table=$(compgen -G "/dev/shm/pinshim.$pid.*")
}

bad=
for ((round = 0; round < 15; round++)); do
	killed 2>/dev/null
	[[ -n $table ]] || bad+=" $round: no table"
	tool_stat --json >"$TMP/stat.json" 2>"$TMP/stat.err" || bad+=" $round: stat failed"
	[[ $(shown) == 1 ]] || bad+=" $round: not shown"
	[[ ! -s $TMP/err ]] || bad+=" $round: it reported"
	rm -f "$table"
done
check "fifteen processes killed while they pinned leave tables that can be read" test -z "$bad"
[[ -z $bad ]] || echo "#$bad"

killed 2>/dev/null
tool_stat >"$TMP/out" 2>&1
check "stat shows the process, and that it is gone" grep -E "(^| )$pid .*(dead|gone|killed|exited)" "$TMP/out"
check "stat alone removes nothing" test -e "$table"
check "stat --reap succeeds" tool_stat --reap
check "stat --reap removes it" test ! -e "$table"
tool_stat --json >"$TMP/stat.json"
check "and then it is not shown" test "$(shown)" = 0

# No library sees these end: by a system call of their own, or without the right to remove their file.
gone() {
	local status

	env LD_PRELOAD="$LIB" PINSHIM_MALLOC=1M- PINSHIM_STATS="${2-off}" python3 -c "
import ctypes, os, platform
block = bytearray(4 << 20)
print(os.getpid(), flush=True)
$1" >"$TMP/pid" 2>"$TMP/err"
	status=$?
	read -r pid <"$TMP/pid"
	table=$(compgen -G "/dev/shm/pinshim.$pid.*")
	return "$status"
}

gone 'ctypes.CDLL(None).syscall({"x86_64": 231}.get(platform.machine(), 94), 0)' stderr
check "a program that ends by exit_group(2) of its own: no report, and its table stays" test \
	"$?,$(wc -c <"$TMP/err"),${table:+stays}" = 0,0,stays
tool_stat --reap >/dev/null 2>&1
check "stat --reap removes that" test ! -e "$table"
if ((EUID == 0)); then
	for call in 'os.setuid(65534)' 'os.chroot("/var")'; do
		gone "$call"
		check "a program that ends after $call: its file stays" test "$?,${table:+stays}" = 0,stays
		tool_stat --reap >/dev/null 2>"$TMP/err"
		check "and is no table any more, after $call" grep -F "$table: not a table" "$TMP/err"
		check "stat --reap removes that, after $call" test ! -e "$table"
	done
else
	skip "programs that give up rights" "needs root, to give up some"
fi

# A living process's table is left alone.
coproc CHURN { exec env LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K- PINSHIM_RETAIN=0 \
	PINSHIM_STATS=off "$PROGRAMS/killed"; }
read -r pid <&"${CHURN[0]}"
tool_stat --reap >/dev/null
check "stat --reap leaves a living process's table" compgen -G "/dev/shm/pinshim.$pid.*"
tool_stat >"$TMP/out" 2>&1
check "stat shows a living process" grep -E "(^| )$pid " "$TMP/out"
started=$CHURN_PID
kill -TERM "$started"
wait "$started" 2>/dev/null
tool_stat --reap >/dev/null
check "and reaps it when it is gone" test -z "$(compgen -G "/dev/shm/pinshim.$pid.*")"
finish
