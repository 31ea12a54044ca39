#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# PyTorch's two ways to pin and DeepSpeed's, with malloc served and without: what is registered with the
# driver is what the program registered, and no neighbour of it.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"
need jq

fakes=$BUILD/tests/fakes
program=$BUILD/tests/cuda/torch_ways_rt
report=$TMP/report.json
export LD_LIBRARY_PATH=$fakes

for cases in caching deepspeed part torch; do
	run_cases "$cases, without us" "$program" $cases
	for settings in PINSHIM_MALLOC= PINSHIM_MALLOC=64K- PINSHIM_BACKEND=cuda PINSHIM_BACKEND=off; do
		run_cases "$cases, $settings" preload PINSHIM_STATS="$report" FAKE_CUDA_LEAKS=off \
			$settings -- "$program" $cases
	done
	run_cases "$cases, cuda and malloc" preload PINSHIM_BACKEND=cuda PINSHIM_MALLOC=64K- \
		PINSHIM_STATS=off -- "$program" $cases
done

preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$report" -- "$program" torch >/dev/null 2>&1
check "registering is counted, and its end" jq -e '.entry_points.cudaHostRegister |
	.served == 6 and .freed == 6 and .live_bytes == 0 and .failed == 12 and
	.live_peak_bytes == 20971520' "$report"
check "the blocks are malloc's" jq -e '.entry_points.malloc.served >= 12' "$report"
check "nothing stays registered" jq -e '.registered_bytes == 0' "$report"

for settings in PINSHIM_MALLOC= PINSHIM_MALLOC=64K-; do
	preload PINSHIM_STATS=off $settings -- "$program" freed_first >"$TMP/out" 2>"$TMP/err"
	check "freed first, $settings: its cases hold" test "$?,$(grep -c '^not ok' "$TMP/out")" = 0,0
	grep '^not ok' "$TMP/out"
	check "freed first, $settings: said once" \
		test "$(message_count "$TMP/err" 'cudaHostUnregister'),$(wc -l <"$TMP/err")" = 1,1
done
finish
