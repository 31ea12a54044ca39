#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# PyTorch on the CPU gives the same with the preload as without, bit for bit, and what it says it made
# is what was pinned.
# shellcheck disable=SC2317 # check() calls the functions
. "$(dirname "$0")/../lib/case.sh"

python=${CLIENTS:-$BUILD/clients}/bin/python
"$python" -c 'import torch' 2>/dev/null || skip_all "PyTorch is not there (scripts/setup --clients)"
need jq
locks || skip_all "memory cannot be locked here without limit"

# Sums are made in the same order on every run only by the same number of threads.
export MKL_DYNAMIC=FALSE OMP_DYNAMIC=FALSE
# Threads that wait must not keep those that work from a processor.
export OMP_WAIT_POLICY=PASSIVE

# run NAME JOB ARGUMENT... -- [VARIABLE=VALUE...]: runs a job of pytorch.py. What it prints is in
# $TMP/NAME.out and .err, the reports of its processes in $TMP/NAME.stats.
run() {
	local name=$1 arguments=()

	shift
	while [[ $1 != -- ]]; do
		arguments+=("$1")
		shift
	done
	shift
	mkdir "$TMP/$name.stats"
	env PINSHIM_STATS="$TMP/$name.stats/%p.json" "$@" \
		"$python" "$TOP/tests/clients/pytorch.py" "${arguments[@]}" >"$TMP/$name.out" 2>"$TMP/$name.err"
	check "$name: ends with 0" test $? = 0
}

# same LABEL: what the plain job and this one said.
same() {
	check "$1: prints the same" diff "$TMP/plain.$job.out" "$TMP/$1.out"
	check "$1: writes the same on stderr" diff "$TMP/plain.$job.err" "$TMP/$1.err"
}

# report NAME: the path of the report of a run that was one process.
report() {
	compgen -G "$TMP/$1.stats/*.json"
}

# No table of a process that is gone: their names begin with the ids of the processes that reported.
no_tables() {
	local report left

	for report in "$TMP/$1.stats"/*.json; do
		left=$(compgen -G "/dev/shm/pinshim.$(basename "$report" .json).*")
		[[ -z $left ]] || echo "$left"
	done | diff /dev/null -
}

# agrees NAME REPORT BLOCKS BYTES: a report counts so many blocks and bytes of the kind that tensors
# are, none of them refused, on top of those of the run NAME.
agrees() {
	jq -es --argjson blocks "$3" --argjson bytes "$4" 'map(.entry_points.aligned_alloc) |
		[.[1].served - .[0].served, .[1].requested_bytes - .[0].requested_bytes, .[1].calls - .[1].served] |
		., . == [$blocks, $bytes, 0]' "$(report "$1")" "$2"
}

# workers_agree NAME: so do the reports of a run with the processes that say what they made. A worker
# that was not forked has imported PyTorch itself.
workers_agree() {
	local said blocks bytes base=imported

	[[ $1 != *.fork ]] || base=nothing
	for said in "$TMP/$1.said"/*; do
		read -r blocks bytes <"$said"
		agrees "$base" "$TMP/$1.stats/${said##*/}.json" "$blocks" "$bytes" || return
	done
}

declare -A preloads=([pinned]=$LIB [pinned+aio]="$LIB $AIO_LIB")

# What there is when nothing is done, PyTorch is imported, and its profiler watches.
mkdir "$TMP/nothing.stats"
env LD_PRELOAD="$LIB" PINSHIM_STATS="$TMP/nothing.stats/%p.json" PINSHIM_MALLOC=64K- true
run imported live -- LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K-
run profiled account 0 "$TMP" -- LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K-

for method in fork spawn forkserver; do
	job=$method epochs=1
	# Only forked workers inherit what is pinned already, and the second time, what was freed.
	[[ $method != fork ]] || epochs=2
	mkdir "$TMP/plain.$job.said"
	run "plain.$job" loader "$method" "$epochs" "$TMP/plain.$job.said" --
	check "$method: plain workers end with 0" \
		test "$(grep -c 'workers ended with \[0, 0\]' "$TMP/plain.$job.out")" = "$epochs"
	for way in pinned pinned+aio; do
		name=$way.$job
		mkdir "$TMP/$name.said"
		run "$name" loader "$method" "$epochs" "$TMP/$name.said" -- \
			LD_PRELOAD="${preloads[$way]}" PINSHIM_MALLOC=64K-
		same "$name"
		check "$name: two workers an epoch say what they made" \
			test "$(find "$TMP/$name.said" -type f | wc -l)" = $((2 * epochs))
		check "$name: and it is what they were served" workers_agree "$name"
		check "$name: no table is left" no_tables "$name"
	done
done

job=save
mkdir "$TMP/plain"
run plain.save save "$TMP/plain" --
for way in pinned pinned+aio; do
	mkdir "$TMP/$way"
	run "$way.save" save "$TMP/$way" -- LD_PRELOAD="${preloads[$way]}" PINSHIM_MALLOC=64K-
	same "$way.save"
	check "$way.save: the file is the same" cmp "$TMP/plain/state.pt" "$TMP/$way/state.pt"
	rm -r "${TMP:?}/$way"
done

job=train
run plain.train train --
for way in pinned pinned+aio; do
	run "$way.train" train -- LD_PRELOAD="${preloads[$way]}" PINSHIM_MALLOC=64K-
	same "$way.train"
	check "$way.train: all tensors of the classes were served" test "$(jq '.entry_points.aligned_alloc |
		.served > 500 and .served == .calls' "$(report "$way.train")")" = true
done

run account account 5 "$TMP" -- LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K-
read -r blocks bytes peak <"$TMP/account.out"
check "account: PyTorch's profiler and the report agree on blocks and bytes" \
	agrees profiled "$(report account)" "$blocks" "$bytes"
# live_peak_bytes is sampled, to 2 %.
check "account: and on the most that there was at one time" test "$(jq --argjson peak "$peak" \
	'.pinned_peak_bytes >= $peak and .entry_points.aligned_alloc.live_peak_bytes >= $peak * 0.97' \
	"$(report account)")" = true

run large live $((64 << 20)) $((33 << 20)) $((3 << 20)) 1000000 65536 65535 100 -- \
	LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K-
read -r blocks bytes <"$TMP/large.out"
check "large: five of the tensors were asked for" agrees imported "$(report large)" "$blocks" "$bytes"
# What Python itself has comes on top, and what is left of a chunk.
check "large: they were pinned, and little more" test "$(jq --argjson bytes "$bytes" '.entry_points as $entry |
	.pinned_peak_bytes - $bytes - ([$entry.malloc, $entry.calloc, $entry.realloc] | map(.live_peak_bytes) | add) |
	. <= 8 * 1048576' "$(report large)")" = true
check "large: all of them at one time" test "$(jq .pinned_peak_bytes "$(report large)")" -ge "$bytes"

run small live 65535 100 1 0 30000 -- LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K-
check "small: none of these was asked for" agrees imported "$(report small)" 0 0
run none live 65536 1000000 15000000 -- LD_PRELOAD="$LIB" PINSHIM_MALLOC=16M-
check "none: where nothing is as large as the classes, nothing is pinned" \
	test "$(jq '[.pinned_peak_bytes, .total.served] | add' "$(report none)")" = 0
finish
