#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The ranks of a job under the launchers that the README has recipes for: a report for each, and one job
# in pinshim stat.
# shellcheck disable=SC2317 # check() calls the functions
. "$(dirname "$0")/../lib/case.sh"
need jq python3
locks || skip_all "memory cannot be locked here without limit"

tool=$BUILD/pinshim
python=${CLIENTS:-$BUILD/clients}/bin/python
rank=$TOP/tests/clients/rank.py
RANKS=3

# ready: whether all ranks have what they asked for.
ready() {
	[[ $(find "$files" -name 'ready.*' | wc -l) == "$RANKS" ]]
}

# launch NAME COMMAND...: runs a job whose ranks write their reports to $files, and looks at it meanwhile:
# $TMP/NAME.json is what stat said.
launch() {
	local name=$1 launcher status i

	shift
	files=$TMP/$name
	mkdir "$files"
	"$@" >"$TMP/$name.out" 2>"$TMP/$name.err" &
	launcher=$!
	for ((i = 0; i < 600; i++)); do
		! ready || break
		kill -0 "$launcher" 2>/dev/null || break
		sleep 0.1
	done
	"$tool" stat --json >"$TMP/$name.json" 2>/dev/null
	touch "$files/go"
	wait "$launcher"
	status=$?
	if ((status == 0)); then
		ok "$name: the job ends with 0"
	else
		notok "$name: the job ends with 0" "status $status"$'\n'"$(<"$TMP/$name.err")"
	fi
}

# told: of the array of reports on standard input, those of the ranks: which, where on this machine, of which job, and
# whether it had what it asked for.
told() {
	jq -c --argjson pids "$(cat "$files"/ready.* | jq -sc .)" '[.[] | select(.pid | IN($pids[]))
		| [.rank, .local_rank, .job, .pinned_peak_bytes >= (1 + (.rank | tonumber)) * 4194304]] | sort'
}

# looks_right NAME [JOB]: what stat said of the ranks, and their reports.
looks_right() {
	local name=$1 job=${2-} seen

	seen=$(jq -c '[.processes[].report]' "$TMP/$name.json" | told)
	[[ -n $job ]] || job=$(jq -r '.[0][2] // empty' <<<"$seen")
	check "$name: the ranks have a job" test -n "$job"
	check "$name: stat shows each rank, of this job, with what it has" test "$seen" = \
		"$(jq -nc --arg job "$job" "[range($RANKS) | tostring | [., ., \$job, true]]")"
	check "$name: their reports say the same" test \
		"$(find "$files" -name 'report.*.json' -exec cat {} + | jq -s . | told)" = "$seen"
	for ready in "$files"/ready.*; do
		check "$name: a report is named after rank ${ready##*.}" test -s "$files/report.${ready##*.}.$(<"$ready").json"
	done
}

variables=(PINSHIM_MALLOC=4M-)
stats() {
	echo "PINSHIM_STATS=$TMP/$1/report.%r.%p.json"
}

if "$python" -c 'import torch' 2>/dev/null; then
	launch torchrun env LD_PRELOAD="$LIB" "${variables[@]}" "$(stats torchrun)" \
		"$python" -m torch.distributed.run --nproc-per-node=$RANKS --rdzv-id=lessons --rdzv-backend=c10d \
		--rdzv-endpoint=127.0.0.1:0 "$rank" 4 "$TMP/torchrun"
	looks_right torchrun lessons
else
	skip "torchrun" "PyTorch is not there (scripts/setup --clients)"
fi

if type -P mpirun >/dev/null; then
	launch mpirun env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		mpirun --oversubscribe -n $RANKS -x LD_PRELOAD="$LIB" -x "${variables[0]}" -x "$(stats mpirun)" \
		python3 "$rank" 4 "$TMP/mpirun"
	looks_right mpirun
else
	skip "mpirun" "Open MPI is not there (scripts/setup --clients)"
fi
finish
