#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The documented rules of CUDA's host memory hold in the fakes themselves. No pinshim here: what the
# other tests take for CUDA has to be right first.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"

fakes=$BUILD/tests/fakes
programs=$BUILD/tests/cuda

# fake [VARIABLE=VALUE...] PROGRAM...: with the fakes where the loader finds them.
fake() {
	env LD_LIBRARY_PATH="$fakes" "$@"
}

for cases in init host_alloc host_register many attributes threads forked forked_first; do
	[[ $cases != forked ]] || export FAKE_CUDA_LEAKS=off
	run_cases "driver, $cases" fake "$programs/fakes_drv" "$cases"
	unset FAKE_CUDA_LEAKS
done
for cases in copies order contexts capture; do
	run_cases "driver, $cases" fake "$programs/fakes_work_drv" "$cases"
done
run_cases "driver, no_device" fake FAKE_CUDA_DEVICES=0 "$programs/fakes_drv" no_device
run_cases "driver, no driver" fake FAKE_CUDA_NO_DRIVER=1 "$programs/fakes_drv" no_device
run_cases "driver, two_devices" fake FAKE_CUDA_DEVICES=2 "$programs/fakes_work_drv" two_devices
run_cases "driver, failures" fake FAKE_CUDA_LEAKS=off \
	FAKE_CUDA_FAIL=cuMemHostRegister_v2:2-3:801,cuMemHostAlloc:2:2,cuMemFreeHost:1-:3 \
	"$programs/fakes_drv" failures

# says PROGRAM CASES COUNT PATTERN: the program's cases hold and COUNT lines on stderr match, all "fake cuda: ".
says() {
	local program=$1 cases=$2 count=$3 pattern=$4

	fake "$programs/$program" "$cases" >"$TMP/out" 2>"$TMP/err"
	check "$cases: its cases hold" test "$?,$(grep -c '^not ok' "$TMP/out")" = 0,0
	if [[ $(grep -cE "^fake cuda: .*$pattern" "$TMP/err") == "$count" ]] &&
		! grep -qv '^fake cuda: ' "$TMP/err"; then
		ok "$cases: $count lines about it"
	else
		notok "$cases: $count lines about it" "$(<"$TMP/err")"
	fi
}

says fakes_drv leak 1 '1 registration\(s\) of 100 bytes left at exit'
says fakes_work_drv stale_contexts 3 'destroyed|not retained'
says fakes_work_drv unmapped 3 'was unmapped while it was registered'
says fakes_work_drv unmapped 1 'a queued copy .* the memory is gone'
says fakes_drv unmapped_at_exit 1 'was unmapped while it was registered'
fake FAKE_CUDA_LEAKS=off "$programs/fakes_drv" leak >"$TMP/out" 2>"$TMP/err"
check "leaks can be left out" test ! -s "$TMP/err"
{ fake FAKE_CUDA_ABORT=1 "$programs/fakes_work_drv" stale_contexts; } >"$TMP/out" 2>"$TMP/err"
check "a fault aborts if it is to" test $? = 134
fake FAKE_CUDA_FAIL=cuMemHostAlloc:x:2 "$programs/fakes_drv" leak >"$TMP/out" 2>"$TMP/err"
check "a mistyped rule is not taken for none" test $? = 78
fake FAKE_CUDA_LOG="$TMP/log" "$programs/fakes_drv" leak >"$TMP/out" 2>"$TMP/err"
check "the log has the registration" grep -qE \
	'^[0-9]+ [0-9]+ cuMemHostRegister_v2\(0x[0-9a-f]+, 100, 0\) = 0$' "$TMP/log"

for cases in host_memory registering attributes copies last_error reset forked; do
	run_cases "runtime, $cases" fake "$programs/fakes_rt" "$cases"
done
run_cases "runtime, devices" fake FAKE_CUDA_DEVICES=2 "$programs/fakes_rt" devices
run_cases "runtime, failures" fake FAKE_CUDA_FAIL=cudaHostAlloc:2:2,cuMemHostAlloc:3-:801 \
	"$programs/fakes_rt" failures
run_cases "runtime, no device" fake FAKE_CUDA_DEVICES=0 "$programs/fakes_rt" no_device
if [[ $(ldconfig -p) == *libcuda.so.1* ]]; then
	skip "runtime, no driver" "this machine has one"
else
	mkdir "$TMP/runtime"
	cp "$fakes/libcudart.so.13" "$TMP/runtime"
	run_cases "runtime, no driver" env LD_LIBRARY_PATH="$TMP/runtime" "$programs/fakes_rt" no_driver
fi
run_cases "by dlopen" env LD_LIBRARY_PATH="$fakes" "$programs/fakes" "$fakes"

nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
if [[ ! -x $nvcc ]]; then
	skip "nvcc -cudart shared" "no $nvcc"
else
	check "nvcc builds a program" "$nvcc" -cudart shared -o "$TMP/nvcc" "$TOP/tests/cuda/fakes_nvcc.cu"
	check "it needs the runtime's version node" grep -qa 'libcudart\.so\.13' "$TMP/nvcc"
	fake "$TMP/nvcc" >"$TMP/out" 2>"$TMP/err"
	check "it runs on the fakes" test "$?,$(<"$TMP/out")" = 0,works
	check "and nothing is said on stderr" test ! -s "$TMP/err"
fi
finish
