#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Look-ups that are no business of ours answer what they answer without us: RTLD_NEXT, seen from the
# program and from libraries before and after us, RTLD_DEFAULT, handles, errors and their text.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"
need "${CC:-cc}"

here=$TOP/tests/cuda
check "a library with definitions of its own is built" \
	compile "$TMP/libown.so" "$here/lookup_own.c" -shared -fPIC
check "another one" compile "$TMP/libother.so" "$here/lookup_own.c" -shared -fPIC -DOTHER
for name in libcurl.so.4 libcublas.so.13 libmycudart.so libcudnn.so.9; do
	check "$name with CUDA's names is built" compile "$TMP/$name" "$here/lookup_cuda.c" \
		-shared -fPIC -DDRIVER -DRUNTIME
done
check "the program is built" compile "$TMP/plain" "$here/lookup_print.c"
check "the program with the library is built" compile "$TMP/linked" "$here/lookup_print.c" \
	-Wl,--no-as-needed -L"$TMP" -lown -Wl,-rpath,"$TMP"

# same LABEL LIBRARIES LIBRARIES COMMAND...: prints the same under both preloads.
same() {
	local label=$1 without=$2 with=$3

	shift 3
	env ${without:+LD_PRELOAD="$without"} "$@" >"$TMP/without" 2>&1
	echo "status $?" >>"$TMP/without"
	LD_PRELOAD=$with "$@" >"$TMP/with" 2>&1
	echo "status $?" >>"$TMP/with"
	check "$label: $(wc -l <"$TMP/with") lines" diff "$TMP/without" "$TMP/with"
	check "$label: nothing failed otherwise" grep -qx 'status 0' "$TMP/without"
}

own=$TMP/libown.so other=$TMP/libother.so
same "alone" "" "$LIB" "$TMP/plain"
same "a library of the program's" "" "$LIB" "$TMP/linked"
same "before an interposer" "$own" "$LIB $own" "$TMP/plain"
same "after an interposer" "$own" "$own $LIB" "$TMP/plain"
same "between two" "$own $other" "$own $LIB $other" "$TMP/plain"
same "before two" "$own $other" "$LIB $own $other" "$TMP/plain"
same "after two" "$own $other" "$own $other $LIB" "$TMP/plain"
for name in libcurl.so.4 libcublas.so.13 libmycudart.so libcudnn.so.9; do
	same "$name" "" "$LIB" "$TMP/plain" "$TMP/$name"
done
export PINSHIM_BACKEND=off
same "backend off" "" "$LIB" "$TMP/linked" "$TMP/libcurl.so.4"
finish
