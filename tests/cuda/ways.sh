#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Each way a program gets at CUDA's host memory: served by the heap, counted for the function that was
# called, and reported as reached through the hook that saw it. The same programs pass without us.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"
need jq

here=$(dirname "$0")
fakes=$BUILD/tests/fakes
programs=$BUILD/tests/cuda
report=$TMP/report.json
export FAKE_CUDA_LEAKS=off

# way LABEL HOOK ENTRIES PROGRAM...: ENTRIES is NAME=SERVED,... and all that may be counted.
way() {
	local label=$1 hook=$2 entries=$3 got

	shift 3
	run_cases "$label, without us" env LD_LIBRARY_PATH="$fakes" "$@"
	rm -f "$report"
	run_cases "$label" preload PINSHIM_STATS="$report" LD_LIBRARY_PATH="$fakes" "${settings[@]}" -- "$@"
	got=$(jq -r '[.entry_points | to_entries[]
		| select(.value.calls > 0 and (.key | test("^cu"))) | "\(.key)=\(.value.served)"]
		| join(",")' "$report")
	check "$label: served as $entries" test "$got" = "$entries"
	check "$label: all of it was freed, none failed" jq -e '[.entry_points | to_entries[]
		| select(.key | test("^cu")) | .value | .served == .freed and .fallback == 0
		and .failed == 0] | all' "$report"
	check "$label: the report names the hook $hook" jq -e ".hooks_reached.$hook" "$report"
}

settings=()
way "runtime, linked" cuda_runtime cudaHostAlloc=1,cudaMallocHost=1 "$programs/ways_rt"
way "runtime, dlopen and dlsym" dlsym cudaHostAlloc=1,cudaMallocHost=1 "$programs/ways_lookup" local
check "runtime, dlopen and dlsym: not by symbol" jq -e '.hooks_reached.cuda_runtime | not' "$report"
way "driver, linked" cuda_driver cuMemHostAlloc=2,cuMemAllocHost=2 "$programs/ways_drv"
way "driver, by name" dlsym cuMemHostAlloc=1,cuMemAllocHost=1 "$programs/ways_lookup" names
check "driver, by name: not by symbol" jq -e '.hooks_reached.cuda_driver | not' "$report"
way "driver, by version" cuGetProcAddress cuMemHostAlloc=1,cuMemAllocHost=2 \
	"$programs/ways_lookup" addresses

# library OUTPUT SOURCE LIBRARY
library() {
	check "a library with $3 is built" compile "$1" "$2" -shared -fPIC -iquote "$TOP/allocator" \
		-iquote "$TOP/interpose" -Wl,--no-as-needed -L"$fakes" "-l$3"
}

# In Python all libraries are opened so: what they are linked with is in no scope of ours.
library "$TMP/libways.so" "$here/ways_rt.c" cudart
library "$TMP/libways_drv.so" "$here/ways_drv.c" cuda
way "a library, RTLD_LOCAL" cuda_runtime cudaHostAlloc=1,cudaMallocHost=1 \
	"$programs/ways_lookup" library "$TMP/libways.so"
way "a library of the driver's, RTLD_LOCAL" cuda_driver cuMemHostAlloc=2,cuMemAllocHost=2 \
	"$programs/ways_lookup" library "$TMP/libways_drv.so"
# Such a library is reached where the flag is taken off: where malloc is served, or when told to.
settings=(PINSHIM_DEEPBIND=strip)
way "a library, RTLD_DEEPBIND told off" cuda_runtime cudaHostAlloc=1,cudaMallocHost=1 \
	"$programs/ways_lookup" deepbind "$TMP/libways.so"
settings=(PINSHIM_MALLOC=64M-)
way "a library, RTLD_DEEPBIND taken off" cuda_runtime cudaHostAlloc=1,cudaMallocHost=1 \
	"$programs/ways_lookup" deepbind "$TMP/libways.so"
settings=()

python=/usr/bin/python3
if [[ -x $python ]] && "$python" -c 'import ctypes' 2>/dev/null; then
	way "ctypes" dlsym cudaHostAlloc=1,cuMemHostAlloc=1 "$python" "$here/ways.py"
else
	skip "ctypes" "no $python with ctypes"
fi

# Two copies of the runtime. The refusals are explained, so stderr is not empty.
first=$fakes/libcudart.so.13 second=$fakes/copy/libcudart-1a2b3c4d.so.13
run_cases "two copies, without us" env LD_LIBRARY_PATH="$fakes" "$programs/ways_lookup" copies \
	"$first" "$second"
run_cases "two copies" preload PINSHIM_STATS="$report" PINSHIM_LIMIT=8M PINSHIM_LOG=error \
	LD_LIBRARY_PATH="$fakes" -- "$programs/ways_lookup" copies "$first" "$second"
check "two copies: served" jq -e '.entry_points | .cudaHostAlloc.served == 3 and
	.cudaHostAlloc.failed == 2 and .cudaMallocHost.served == 2' "$report"

# nvcc's default. The real runtime takes no driver of ours (it wants private tables), so it fails the
# same way with a driver that it finds and asks; it has asked us, then.
nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
if [[ ! -x $nvcc ]]; then
	skip "nvcc's static runtime" "no $nvcc"
	finish
fi
check "nvcc builds a program" "$nvcc" -DALLOCATES -o "$TMP/static" "$here/ways_nvcc.cu"
same() {
	local label=$1 path=$2 status

	env LD_LIBRARY_PATH="$path" "$TMP/static" >"$TMP/plain.out" 2>"$TMP/plain.err"
	status=$?
	rm -f "$report"
	preload LD_LIBRARY_PATH="$path" PINSHIM_MALLOC=1M- PINSHIM_STATS="$report" -- "$TMP/static" \
		>"$TMP/out" 2>"$TMP/err"
	check "$label: the exit status is the same" test "$?,$status" = 3,3
	check "$label: the output is the same" diff "$TMP/plain.out" "$TMP/out"
	check "$label: nothing is said" cmp "$TMP/plain.err" "$TMP/err"
}
if [[ $(ldconfig -p) == *libcuda.so.1* ]]; then
	skip "nvcc's static runtime without a driver" "this machine has one"
else
	same "nvcc's static runtime without a driver" "$TMP"
fi
mkdir "$TMP/driver"
cp "$fakes/libcuda.so.1" "$TMP/driver"
same "nvcc's static runtime on the fake driver" "$TMP/driver"
check "nvcc's static runtime: it came by dlsym" jq -e '.hooks_reached.dlsym' "$report"
finish
