#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Look-ups of CUDA's functions by dlsym() and cuGetProcAddress(): ours from CUDA's libraries, and from
# no other library, whatever its functions are called.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"
need jq "${CC:-cc}"

here=$TOP/tests/cuda

# library NAME [FLAG...]. Bound to itself, as NVIDIA's are: else what it calls of its own is ours.
library() {
	check "$1 is built" compile "$TMP/$1" "$here/lookup_cuda.c" -shared -fPIC -Wl,-soname,"$1" \
		-Wl,-Bsymbolic "${@:2}"
}

library libcuda.so.1 -DDRIVER
library libcuda.so -DDRIVER
library libcudart.so.13 -DRUNTIME
library libcudart-9335f6a2.so.12 -DRUNTIME
for name in libcurl.so.4 libcublas.so.13 libmycudart.so libcudnn.so.9; do
	library "$name" -DDRIVER -DRUNTIME
done
check "a library that needs libcudart is built" compile "$TMP/libuser.so" "$here/lookup_own.c" \
	-shared -fPIC -DOTHER -Wl,--no-as-needed -L"$TMP" -l:libcudart.so.13 -Wl,-rpath,"$TMP"
check "a library that looks up early is built" compile "$TMP/libearly.so" "$here/lookup_early.c" \
	-shared -fPIC
check "the program is built" compile "$TMP/hooks" "$here/lookup_hooks.c"
check "the program with the library is built" compile "$TMP/early" "$here/lookup_hooks.c" \
	-Wl,--no-as-needed -L"$TMP" -learly -Wl,-rpath,"$TMP"
export EARLY_DRIVER=$TMP/libcuda.so.1

run_cases "without" "$TMP/hooks" real "$TMP"
run_cases "native" preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/native.json" -- \
	"$TMP/hooks" hooked "$TMP"
run_cases "cuda" preload PINSHIM_BACKEND=cuda PINSHIM_STATS=off -- "$TMP/hooks" hooked "$TMP"
run_cases "off" preload PINSHIM_BACKEND=off -- "$TMP/hooks" real "$TMP"
run_cases "early without" "$TMP/early" real "$TMP"
run_cases "early" preload PINSHIM_STATS=off -- "$TMP/early" hooked "$TMP"
run_cases "early, off" preload PINSHIM_BACKEND=off -- "$TMP/early" real "$TMP"
# The ways in that were used are reported.
check "the report names dlsym and cuGetProcAddress" test \
	"$(jq -r '.hooks_reached | "\(.dlsym),\(.cuGetProcAddress)"' "$TMP/native.json")" = true,true
preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/plain.json" -- \
	python3 -c 'x = bytearray(1 << 20)' 2>/dev/null ||
	skip "the report of a program without CUDA" "no python3"
[[ ! -e $TMP/plain.json ]] || check "and not where they were not" test \
	"$(jq -r '.hooks_reached | "\(.dlsym),\(.cuGetProcAddress)"' "$TMP/plain.json")" = false,false

# No addresses for the heap: inert. Said once by the library.
if (ulimit -v 60000 -s 256 && "$TMP/hooks" real "$TMP") >/dev/null 2>&1; then
	(ulimit -v 60000 -s 256 && preload PINSHIM_STATS=off -- "$TMP/hooks" real "$TMP") >"$TMP/out" 2>"$TMP/err"
	check "without addresses for the heap everything is real" test \
		"$?,$(grep -c '^not ok' "$TMP/out")" = 0,0
	check "without addresses for the heap: is said" test "$(message_count "$TMP/err" 'ulimit -v')" = 1
else
	skip "without addresses for the heap" "the program does not run under ulimit -v"
fi
finish
