#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pinshim stat --watch: on a terminal, and where there is none.
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
# shellcheck source=tests/programs/tables.bash
. "$(dirname "$0")/tables.bash"
need python3 jq
ulimit -c 0

living 15
for i in "${!living[@]}"; do
	table "${living[i]}" rank="$i" pinned_bytes=$(((i * 7 % 15 + 1) << 20))
done

# on_terminal CASE [OPTION]...
# shellcheck disable=SC2317 # check() calls it
on_terminal() {
	local name=$1

	shift
	TERM=${terminal-xterm} python3 "$TOP/tests/programs/stat_watch.py" "$name" \
		"$tool" stat --directory="$TABLES" --watch=0.1 "$@"
}

check "on a terminal: a picture of its size, and q ends it" on_terminal picture
check "keys change the column and its direction" on_terminal keys
check "another size of the window" on_terminal window
for number in 2 15 1 3; do
	check "$(kill -l $number): restores the terminal and ends by it" on_terminal $number
done
check "^Z: restores the terminal, and comes back" on_terminal stop
terminal=dumb
check "a terminal that cannot do it: one after the other" on_terminal dumb --times=2
unset terminal

check "without a terminal: exits 0" run 0 --watch=0.05 --times=3
check "without a terminal: one after the other" test "$(grep -c '^PROGRAM' "$TMP/out")" = 3
check "without a terminal: with a line between" test "$(grep -c '^$' "$TMP/out")" = 2
check "without a terminal: no escapes" bash -c "! grep -q $'\033' '$TMP/out'"
check "JSON: exits 0" run 0 --watch=0.05 -n 2 --json
check "JSON: an object each time" test "$(jq -s length "$TMP/out")" = 2
check "of one process" run 0 --watch=0.05 -n 2 "${living[0]}"
check "of one process: nothing else" test "$(grep -c '^made' "$TMP/out")" = 2

# Who goes on reading decides when it ends.
check "ends when nobody reads any more" bash -c "'$tool' stat --watch=0.05 --directory='$TABLES' | head -n 1"
if [[ -w /dev/full ]]; then
	check "ends when nothing can be written" bash -c \
		"'$tool' stat --watch=0.05 --directory='$TABLES' >/dev/full 2>/dev/null; test \$? = 1"
fi

# What changes is seen.
mkfifo "$TMP/pipe"
"$tool" stat --watch=0.05 --directory="$TABLES" "${living[0]}" "${living[1]}" >"$TMP/pipe" &
watcher=$!
exec 3<"$TMP/pipe"
# next PATTERN: reads on to a line that matches.
# shellcheck disable=SC2317 # check() calls it
next() {
	while read -r line <&3; do
		[[ $line =~ $1 ]] && return 0
	done
	return 1
}
check "a process that lives" next "^made +${living[0]} alive .* 1\.0 MiB"
table "${living[0]}" pinned_bytes=$((5 << 20))
check "pins more" next "^made +${living[0]} alive .* 5\.0 MiB"
{ kill "${living[0]}" && wait "${living[0]}"; } 2>/dev/null
check "and dies" next "^made +${living[0]} dead .* 5\.0 MiB"
kill "$watcher"
wait "$watcher" 2>/dev/null
exec 3<&-

for wrong in 0 0.01 -1 x 1.2345 1..2 99999999999999999999 ''; do
	check "--watch=$wrong: exits 2" run 2 "--watch=$wrong"
done
for wrong in 0 -1 x 2K ''; do
	check "--times=$wrong: exits 2" run 2 --watch "--times=$wrong"
done
check "--times without --watch: exits 2" run 2 --times=2
end_living 2>/dev/null
finish
