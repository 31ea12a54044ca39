# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For tests of what reads tables; sourced after tests/lib/case.sh. Tables are made in $TABLES, where no
# process of another test has one.

tool=$BUILD/pinshim
TABLES=$TMP/tables
mkdir "$TABLES"

# table PID [NAME=VALUE]...: makes one; see make_table.c.
table() {
	"$BUILD/tests/programs/make_table" "$TABLES" "$@"
}

# living [COUNT]: starts processes that do nothing for a minute; $living are their ids.
living() {
	local i

	living=()
	for ((i = 0; i < ${1-1}; i++)); do
		sleep 60 &
		living+=($!)
	done
}

# end_living: ends them.
end_living() {
	kill "${living[@]}"
	wait "${living[@]}" 2>/dev/null
	return 0
}

# run STATUS ARGUMENT...: pinshim stat with these and the tables in $TABLES; whether it exits so.
# $TMP/out and $TMP/err are its output.
run() {
	local expect=$1 status

	shift
	"$tool" stat --directory="$TABLES" "$@" >"$TMP/out" 2>"$TMP/err"
	status=$?
	((status == expect)) && return
	echo "exit status $status"
	cat "$TMP/out" "$TMP/err"
	return 1
}

# answer FILTER: what jq makes of the output, on one line.
answer() {
	jq -r "$1" "$TMP/out" | xargs
}

# column N: that column of the output's lines, headings not, on one line.
column() {
	awk -v n="$1" 'NR > 1 { print $n }' "$TMP/out" | xargs
}
