#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A driver that is a front, and looks up by dlsym what it stands for, is given that and not ours again.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"
need "${CC:-cc}"

source=$TOP/tests/cuda/lookup_front.c
check "the driver behind is built" compile "$TMP/libcuda.so.1.1" "$source" -DBEHIND -shared -fPIC
check "its front is built" compile "$TMP/libcuda.so.1" "$source" -DFRONT -shared -fPIC
check "a program that looks it up is built" compile "$TMP/front" "$source"

export LD_LIBRARY_PATH=$TMP
"$TMP/front" >"$TMP/plain" 2>&1
check "plain: it gives memory" grep -qx '0 memory' "$TMP/plain"
for settings in PINSHIM_BACKEND=native PINSHIM_BACKEND=cuda PINSHIM_BACKEND=off; do
	{ preload "$settings" PINSHIM_STATS=off -- "$TMP/front" >"$TMP/out" 2>&1; } 2>/dev/null
	check "$settings: the same" diff "$TMP/plain" "$TMP/out"
done
finish
