#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Memory that CUDA itself allocated never comes to free(), and does not make it slower. What is registered may.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"

source=$TOP/tests/cuda/watch.c
check "a library that counts is built" compile "$TMP/counts.so" "$source" -DCOUNTS -shared -fPIC
check "and a program that frees" compile "$TMP/watch" "$source"
env LD_PRELOAD="$LIB $TMP/counts.so" LD_LIBRARY_PATH="$BUILD/tests/fakes" FAKE_CUDA_LEAKS=off PINSHIM_STATS=off \
	"$TMP/watch" >"$TMP/out" 2>&1
check "the program works" test $? = 0
check "memory that CUDA allocated: free() does not look" grep -qx 'allocated 0' "$TMP/out"
check "memory that is registered: it does" grep -qx 'registered 10' "$TMP/out"
finish
