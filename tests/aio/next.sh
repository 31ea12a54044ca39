#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What comes between pinshim's library and libaio is asked, as it would be without pinshim, but not libaio.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"

program=$BUILD/tests/aio/opcodes
[[ -x $program ]] || skip_all "$program is not built"
mkdir "$TMP/files" "$TMP/named"

check "a library that counts is built" compile "$TMP/counting.so" "$TOP/tests/aio/next_library.c" \
	-shared -fPIC
cp "$TMP/counting.so" "$TMP/named/libaio.so.9"

# counted LABEL LIBRARY PATTERN: runs the program with the library after pinshim's.
counted() {
	rm -f "$TMP/report"
	check "$1: every case of opcodes" env LD_PRELOAD="$AIO_LIB $2" PINSHIM_AIO=libaio \
		NEXT_LIBRARY_REPORT="$TMP/report" "$program" "$TMP/files"
	check "$1: $3" grep -qE "$3" "$TMP/report"
}

counted "a library that counts" "$TMP/counting.so" 'submitted [1-9][0-9]* fetched [1-9]'
counted "one that has libaio's name" "$TMP/named/libaio.so.9" 'submitted 0 fetched 0'
finish
