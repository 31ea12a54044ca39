# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Real programs give the same with the preload as without, byte for byte. Sourced after
# tests/lib/case.sh. A test gives a job, a bash script on standard input, and names the programs in
# it that must have been served:
#
#	job <<'END'
#	sort numbers
#	END
#	same "sort" sort
#
# The job runs in an empty directory, once plain and once for each element of RANGES.

# shellcheck source=tests/preload/lib.bash
. "$TOP/tests/preload/lib.bash"

RANGES=(64K- 4K-)

job() {
	cat >"$TMP/job.sh"
}

# What jobs share is made here, once; they find it as $INPUT.
INPUT=$TMP/input
mkdir "$INPUT"
export INPUT

# run_job NAME COMMAND...: runs the job through COMMAND (env with variables). What it writes is in
# $TMP/NAME.stdout and .stderr, its status in .status.
run_job() {
	local name=$1

	shift
	rm -rf "$TMP/work"
	mkdir -m 1777 "$TMP/work"
	(cd "$TMP/work" && HOME=$TMP/work "$@" bash "$TMP/job.sh") \
		>"$TMP/$name.stdout" 2>"$TMP/$name.stderr" </dev/null
	echo $? >"$TMP/$name.status"
}

# identical LABEL NAME NAME: compares two runs.
identical() {
	local part

	for part in status stdout stderr; do
		if cmp -s "$TMP/$2.$part" "$TMP/$3.$part"; then
			ok "$1: same $part"
		else
			notok "$1: same $part" "$(diff "$TMP/$2.$part" "$TMP/$3.$part" | head -n 20)"
		fi
	done
}

# served LABEL PROGRAM...: each program's reports in $TMP/stats count served blocks.
served() {
	local label=$1 program reports count

	shift
	for program; do
		mapfile -t reports < <(compgen -G "$TMP/stats/$program.*.json")
		count=0
		((${#reports[@]} == 0)) || count=$(sum served "${reports[@]}")
		check "$label: $program was served $count blocks" test "$count" -gt 0
	done
}

# same LABEL PROGRAM...: the job, plain and under the preload.
same() {
	local label=$1 range

	shift
	run_job plain env
	check "$label: the job itself works" test "$(<"$TMP/plain.status")" = 0
	check "$label: and says something" test -s "$TMP/plain.stdout"
	for range in "${RANGES[@]}"; do
		rm -rf "$TMP/stats"
		mkdir "$TMP/stats"
		run_job pinned env LD_PRELOAD="$LIB" PINSHIM_MALLOC="$range" \
			PINSHIM_STATS="$TMP/stats/%e.%p.json"
		identical "$label, $range" plain pinned
		served "$label, $range" "$@"
	done
}
