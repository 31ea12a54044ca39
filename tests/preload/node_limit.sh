#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# PINSHIM_NODE_LIMIT: processes that race do not exceed it, at any time; who is refused says why; who is
# killed counts no more; and what is only kept for reuse is given back first.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/holders.bash"
need jq python3 unshare mount

# Other processes of this machine are none of this test's, so it has tables of its own.
if [[ -z ${PINSHIM_TEST_ALONE-} ]]; then
	unshare -m true 2>/dev/null || skip_all "no mount namespaces here"
	case_finished=1
	rm -rf "$TMP"
	# shellcheck disable=SC2016 # the inner shell has them
	PINSHIM_TEST_ALONE=1 exec unshare -m bash -c \
		'mount --make-rprivate / && mount -t tmpfs tmpfs /dev/shm && exec bash "$0"' "$0"
fi
unset PINSHIM_TEST_ALONE
grep -q ' /dev/shm ' /proc/mounts || skip_all "/dev/shm cannot be mounted here"
available=$(sed -nE 's/^MemAvailable: +([0-9]+) kB/\1/p' /proc/meminfo)
((available > 3 << 20)) || skip_all "less than 3 GiB of memory are available"

# ask N WAY BLOCK TOTAL: a holder under the limit.
ask() {
	local n=$1

	shift
	hold "$n" preload PINSHIM_NODE_LIMIT=1G PINSHIM_MALLOC=16M- PINSHIM_STATS=off "${settings[@]}" -- \
		"$PROGRAMS/holder" "$@"
}

settings=()
eight=(1 2 3 4 5 6 7 8)
for round in 1 2 3; do
	for n in "${eight[@]}"; do
		ask "$n" malloc 300 300
	done
	coproc SAMPLES { exec python3 "$TOP/tests/preload/samples.py"; }
	exec {stop}>&"${SAMPLES[1]}" {sampled}<&"${SAMPLES[0]}"
	read -r _ <&"$sampled"
	go "${eight[@]}"
	echo >&"$stop"
	read -r looks claimed pinned <&"$sampled"
	exec {stop}>&- {sampled}<&-
	wait "$SAMPLES_PID"
	check "eight processes, 300 MiB each, 1 GiB in all: three get it ($round)" \
		test "$(locked "${eight[@]}")" = "8 3 900"
	check "never more than 1 GiB claimed or pinned, at any of $looks looks ($round)" \
		test "$looks" -gt 20 -a "$claimed" -le $((1 << 30)) -a "$pinned" -le $((1 << 30)) -a "$pinned" -gt 0
	refused=$(cat "$TMP"/?.err | grep -c '^pinshim\[[0-9]*\]: pinning 300\.0 MiB was refused: PINSHIM_NODE_LIMIT is 1\.0 GiB and 900\.0 MiB of it is in use: the program got ordinary memory; raise PINSHIM_NODE_LIMIT .*pinshim stat')
	check "the five others say which limit, its figures and what to do ($round)" \
		test "$refused,$(cat "$TMP"/?.err | wc -l)" = 5,5
	((round < 3)) && end "${eight[@]}"
done
"$BUILD/pinshim" stat --json >"$TMP/stat.json"
check "stat shows it, live" test "$(jq -c '[.processes[].report] |
	[length, (map(.pinned_bytes) | add) / 1048576, (map(.refused.node) | add)]' "$TMP/stat.json")" = '[8,900,5]'

# A holder that is killed.
ask 9 malloc 300 300
go 9
check "a ninth is refused" test "$(locked 9)" = "1 0 0"
ask 10 malloc 300 300
for n in "${eight[@]}"; do
	[[ $(locked "$n") == "1 1 300" ]] && break
done
read -r pid _ <"$TMP/$n.out"
kill -KILL "$pid"
{ wait "${holder[n]}"; } 2>/dev/null
go 10
check "a holder is killed: the next one gets its share at once" test "$(locked 10)" = "1 1 300"
check "though its table is still there" test -n "$(compgen -G "/dev/shm/pinshim.$pid.*")"
end 9 10 "${eight[@]}"
rm -f /dev/shm/pinshim.*

# 600 MiB are kept in two pieces, neither of which is large enough for 500; 200 are somebody else's.
settings=(PINSHIM_RETAIN=1G)
ask 1 malloc 200 200
go 1
ask 2 trim 500 500
go 2
check "what is kept is unpinned before anything is refused" test "$(locked 2)" = "1 1 600"
check "and nothing is said" test ! -s "$TMP/2.err"
ask 3 malloc 300 300
go 3
check "what others hold is not" test "$(locked 3)" = "1 0 0"
end 1 2 3
ask 1 malloc 300 300
go 1
ask 2 trim 900 900
go 2
check "nothing is unpinned where that would not be enough" test "$(locked 2)" = "1 1 700"
end 1 2
finish
