#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What every call of CUDA's host memory gives is what it gives without us, line by line, except where a
# line says why it may differ; and what only we do: limits, failures, memory that goes, children.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"
need jq

here=$(dirname "$0")
fakes=$BUILD/tests/fakes
programs=$BUILD/tests/cuda

# with [VARIABLE=VALUE...] -- PROGRAM...: preloaded, on the fakes, which forgive us our chunks.
with() {
	preload LD_LIBRARY_PATH="${path:-$fakes}" FAKE_CUDA_LEAKS=off PINSHIM_STATS=off "$@"
}

# fixed FILE: without the values of lines that may differ.
fixed() {
	sed -E 's/^(may differ .*) = .*$/\1/' "$1"
}

# same LABEL PROGRAM ARGUMENT...: the same lines under every setting as without us.
same() {
	local label=$1 settings status

	shift
	env LD_LIBRARY_PATH="${path:-$fakes}" "$@" >"$TMP/plain.out" 2>"$TMP/plain.err"
	status=$?
	check "$label: the program ends with 0" test "$status" = 0
	check "$label: the fakes find no fault with it" test ! -s "$TMP/plain.err"
	while read -r settings; do
		# shellcheck disable=SC2086 # several variables
		with $settings -- "$@" >"$TMP/out" 2>"$TMP/err"
		check "$label, ${settings:-as it comes}: the same end" test $? = "$status"
		check "$label, ${settings:-as it comes}: the same lines" \
			diff <(fixed "$TMP/plain.out") <(fixed "$TMP/out")
		check "$label, ${settings:-as it comes}: nothing is said" cmp /dev/null "$TMP/err"
		case $settings in
		*BACKEND=cuda* | *BACKEND=off*) check "$label, $settings: not one value differs" diff "$TMP/plain.out" "$TMP/out" ;;
		*) cp "$TMP/out" "$TMP/native.out" ;;
		esac
	done <<-SETTINGS

		PINSHIM_MALLOC=64K-
		PINSHIM_BACKEND=cuda
		PINSHIM_BACKEND=cuda PINSHIM_MALLOC=64K-
		PINSHIM_BACKEND=off PINSHIM_MALLOC=64K-
		PINSHIM_BACKEND=native PINSHIM_RETAIN=0 PINSHIM_HUGEPAGES=off
	SETTINGS
}

for cases in allocating bad_arguments capture copies forked last_error registering reset reuse; do
	same "runtime, $cases" "$programs/semantics_rt" "$cases"
	if [[ $cases == capture ]]; then
		check "runtime, capture: the heap disturbs none" \
			test "$(grep -c 'EndCapture.* = 0$' "$TMP/native.out")" = 9
	fi
done
FAKE_CUDA_DEVICES=2 same "runtime, devices" "$programs/semantics_rt" devices
for cases in early rows contexts; do
	same "driver, $cases" "$programs/semantics_drv" "$cases"
done

# fails CASES LINES PATTERN [VARIABLE=VALUE...]: its cases hold, with so many lines on stderr, of
# pinshim's, that match.
fails() {
	local cases=$1 lines=$2 pattern=$3

	shift 3
	with "$@" -- "$programs/semantics_fails_rt" "$cases" >"$TMP/out" 2>"$TMP/err"
	check "$cases: its cases hold" test "$?,$(grep -c '^not ok' "$TMP/out")" = 0,0
	grep '^not ok' "$TMP/out"
	if [[ $(wc -l <"$TMP/err") == "$lines" && $(message_count "$TMP/err" "$pattern") == "$lines" ]]; then
		ok "$cases: says so in $lines lines"
	else
		notok "$cases: says so in $lines lines" "$(<"$TMP/err")"
	fi
}

fails refused 1 'PINSHIM_LIMIT.*out of memory' PINSHIM_LIMIT=8M
fails fallback 1 'PINSHIM_LIMIT.*CUDA itself' PINSHIM_LIMIT=8M PINSHIM_ON_FAIL=fallback
fails register_fails 1 'error 801.*nothing needs to be done' FAKE_CUDA_FAIL=cuMemHostRegister_v2:1-:801
fails unregister_fails 1 'error 1.*stay pinned' PINSHIM_RETAIN=0
fails foreign 1 'cudaHostUnregister' PINSHIM_MALLOC=
fails capturing 0 .
fails child 0 . PINSHIM_MALLOC=1M-
fails shared 0 .
fails copied 1 'fork.* 256 MiB of pinshim_alloc.*cudaHostAlloc'
fails threads 0 .
fails threads 0 . PINSHIM_RETAIN=0

report=$TMP/report.json
for cases in fallback register_fails; do
	settings=(PINSHIM_LIMIT=8M PINSHIM_ON_FAIL=fallback)
	[[ $cases == fallback ]] || settings=(FAKE_CUDA_FAIL=cuMemHostRegister_v2:1-:801)
	with "${settings[@]}" PINSHIM_STATS="$report" -- \
		"$programs/semantics_fails_rt" $cases >/dev/null 2>&1
	check "$cases: counted as that" jq -e '.entry_points.cudaHostAlloc | .served == 0 and
		.fallback == .calls and .calls > 1 and .failed == 0 and .freed_bytes == 0' "$report"
done

# A driver without a device: the same as without a driver.
report=$TMP/report.json
export FAKE_CUDA_DEVICES=0
same "no device, probe" "$programs/semantics_probe" probe libcudart.so.13
run_cases "no device" preload PINSHIM_STATS="$report" LD_LIBRARY_PATH="$fakes" -- \
	"$programs/semantics_probe" serve libcudart.so.13
check "no device: served, locked, not registered" jq -e '.pins > 0 and .registered_bytes == 0 and
	.total.served == 3 and .total.live_bytes == 0' "$report"
unset FAKE_CUDA_DEVICES

# No driver at all.
if [[ $(ldconfig -p) == *libcuda.so.1* ]]; then
	skip "no driver" "this machine has one"
	finish
fi
mkdir "$TMP/runtime"
cp "$fakes/libcudart.so.13" "$TMP/runtime"
real=$(compgen -G "${CUDA_HOME:-/usr/local/cuda}/lib*/libcudart.so.13" | head -n 1)
path=$TMP/runtime
for library in "$path/libcudart.so.13" $real; do
	label="no driver, NVIDIA's runtime"
	[[ $library == "$real" ]] || label="no driver, the fake runtime"
	same "$label, probe" "$programs/semantics_probe" probe "$library"
	for backend in native cuda; do
		run_cases "$label, $backend" preload PINSHIM_BACKEND=$backend PINSHIM_STATS="$report" \
			LD_LIBRARY_PATH="$path" -- "$programs/semantics_probe" serve "$library"
		if [[ $backend == native ]]; then
			check "$label: served, locked, not registered" jq -e '.pins > 0 and
				.registered_bytes == 0 and .entry_points.cudaHostAlloc.served == 1 and
				.entry_points.cudaMallocHost.served == 1 and
				.entry_points.cudaHostRegister.served == 1 and .total.live_bytes == 0' "$report"
		else
			check "$label: nothing is served by CUDA" jq -e \
				'.total.served == 0 and .total.failed == 3' "$report"
		fi
	done
	preload LD_LIBRARY_PATH="$path" -- "$programs/semantics_probe" serve "$library" \
		>/dev/null 2>"$TMP/err"
	check "$label: the report says what that means" test \
		"$(message_count "$TMP/err" 'locked, not registered with a CUDA driver')" = 1
done
[[ -n $real ]] || skip "no driver, NVIDIA's runtime" "no libcudart.so.13 in ${CUDA_HOME:-/usr/local/cuda}"

# Linked with NVIDIA's runtime.
nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
if [[ -x $nvcc && -n $real ]]; then
	check "nvcc builds a program" "$nvcc" -cudart shared -o "$TMP/shared" "$here/ways_nvcc.cu"
	env LD_LIBRARY_PATH="${real%/*}" "$TMP/shared" >"$TMP/plain.out" 2>&1
	status=$?
	preload LD_LIBRARY_PATH="${real%/*}" PINSHIM_STATS=off -- "$TMP/shared" >"$TMP/out" 2>&1
	check "no driver, nvcc -cudart shared: the same end" test "$?,$status" = 3,3
	check "no driver, nvcc -cudart shared: the same output" diff "$TMP/plain.out" "$TMP/out"
else
	skip "no driver, nvcc -cudart shared" "no $nvcc"
fi
finish
