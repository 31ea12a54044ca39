# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Running the programs of behaviour.h; sourced after tests/lib/case.sh.

# shellcheck disable=SC2034 # used by the scripts that source this
PROGRAMS=$BUILD/tests/aio
# How many configurations run at a time. The programs mostly wait.
AT_A_TIME=4

# A process that aborts on purpose must not leave a core file.
ulimit -c 0

# How to run a program: with the shim alone, or on the heap of libpinshim.so, too.
declare -A libraries=([aio]=$AIO_LIB [both]="$AIO_LIB $LIB")

# Which engines are tried.
ENGINES="auto uring libaio off"

# configurations: a line each: the libraries, and what to set.
configurations() {
	local engine with

	for with in aio both; do
		for engine in $ENGINES; do
			echo "$with PINSHIM_AIO=$engine"
		done
		for engine in auto uring; do
			echo "$with PINSHIM_AIO=$engine BEHAVIOUR_THREADED=1"
		done
	done
}

# Where programs have their files.
WHERE=$TMP

# judge NAME STATUS: writes to $TMP/NAME.wrong what is wrong with a run, from what it wrote and how it ended.
judge() {
	{
		(($2 == 0)) || echo "exit status $2"
		head -n 20 "$TMP/$1.err"
		grep '^not ok' "$TMP/$1.out"
		grep -q '^\(not \)\?ok - ' "$TMP/$1.out" || echo "no case was run"
	} >"$TMP/$1.wrong"
}

# run_in NAME COMMAND...: runs a program of behaviour.h in a directory of its own, which is its first
# argument. What it prints is in $TMP/NAME.out, what is wrong with it in $TMP/NAME.wrong.
run_in() {
	local name=$1 directory=$WHERE/$1.files status

	shift
	mkdir "$directory"
	{ env "${@//DIRECTORY/$directory}" >"$TMP/$name.out" 2>"$TMP/$name.err"; } 2>/dev/null
	status=$?
	judge "$name" "$status"
	rm -rf "$directory"
}

# run_with CONFIGURATION NAME COMMAND...: the same under a line of configurations.
run_with() {
	local line name=$2

	read -r -a line <<<"$1"
	shift 2
	[[ ${line[0]} != both ]] || line+=(PINSHIM_MALLOC=64K-)
	run_in "$name" LD_PRELOAD="${libraries[${line[0]}]}" PINSHIM_STATS="${STATS-off}" "${line[@]:1}" "$@"
}

# reap_tables: removes the tables of processes that were killed.
reap_tables() {
	local table pid

	for table in /dev/shm/pinshim.*; do
		pid=${table#/dev/shm/pinshim.}
		[[ ! -e $table || -d /proc/${pid%%.*} ]] || rm -f "$table"
	done
}

# result NAME WHAT: the case WHAT, which is that nothing is wrong with run NAME.
result() {
	if [[ ! -e $TMP/$1.wrong ]]; then
		notok "$2" "it was not run"
	elif [[ -s $TMP/$1.wrong ]]; then
		notok "$2" "$(<"$TMP/$1.wrong")"
	else
		ok "$2"
	fi
}

# in_each FUNCTION COMMAND...: run_with COMMAND in every configuration, several at a time; then
# FUNCTION CONFIGURATION NAME for each.
in_each() {
	local function=$1 lines line i=0

	shift
	# Not from a process substitution, which wait -n would take for one of ours.
	line=$(configurations)
	mapfile -t lines <<<"$line"
	for line in "${lines[@]}"; do
		if ((AT_A_TIME == 1)); then
			run_with "$line" "$i" "$@"
		else
			((i < AT_A_TIME)) || wait -n
			run_with "$line" "$i" "$@" &
		fi
		i=$((i + 1))
	done
	wait
	reap_tables
	for i in "${!lines[@]}"; do
		"$function" "${lines[i]}" "$i"
	done
}

compare() {
	[[ -s $TMP/$2.wrong ]] || diff "$TMP/plain.out" "$TMP/$2.out" >"$TMP/$2.wrong"
	result "$2" "$label, $1: as without the shim"
}

# same LABEL [VARIABLE=VALUE...] PROGRAM [CASES]: the program's cases hold without the shim, with one
# thread and two; and with it they hold, and all its lines are the same, in every configuration.
same() {
	local label=$1 command=() word

	shift
	for word; do
		command+=("$word")
		[[ $word != "$PROGRAMS"/* ]] || command+=(DIRECTORY)
	done
	run_in plain "${command[@]}"
	result plain "$label, without the shim"
	run_in threaded BEHAVIOUR_THREADED=1 "${command[@]}"
	result threaded "$label, without the shim, with a second thread"
	check "$label: which makes no difference" diff "$TMP/plain.out" "$TMP/threaded.out"
	in_each compare "${command[@]}"
}

holds() {
	result "$2" "$label, $1"
}

# repaired LABEL [VARIABLE=VALUE...] PROGRAM [CASES]: cases that hold only with the shim, under each of its
# engines.
repaired() {
	local label=$1 command=() word

	shift
	for word; do
		command+=("$word")
		[[ $word != "$PROGRAMS"/* ]] || command+=(DIRECTORY)
	done
	in_each holds "${command[@]}"
}

# counted CONFIGURATION FILTER PROGRAM [CASES]: under that line of configurations the counters of
# asynchronous I/O in the report are as jq's FILTER wants them: that the way was taken which is tested.
counted() {
	local configuration=$1 filter=$2

	shift 2
	rm -f "$TMP/report.json"
	STATS=$TMP/report.json run_with "$configuration" counted "$1" DIRECTORY "${@:2}"
	check "$configuration: $filter" jq -e ".aio | $filter" "$TMP/report.json"
}
