#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The handle API from outside: its header in C and C++, the example of its man page, and a program
# linked with it, alone and with either library preloaded, on several file systems.

# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
need cc c++ python3

header=$TOP/aio/pinshim_aio.h
# shellcheck disable=SC2206 # CC may have arguments
compile=(${CC:-cc} -I"$TOP/aio" -Wall -Wextra -Werror)
link=(-L"$BUILD" -lpinshim-aio)
export LD_LIBRARY_PATH=$BUILD

check "the header is C99" "${compile[@]}" -std=c99 -pedantic -fsyntax-only "$header"
check "the header is C++11" c++ -I"$TOP/aio" -Wall -Wextra -Werror -std=c++11 -pedantic \
	-fsyntax-only -x c++ "$header"

# The manual's example, as C and as C++.
awk '/^#include <stdio.h>/ { inside = 1 } /^\.Ed/ { inside = 0 } inside' \
	"$TOP/aio/pinshim_aio.3" | sed 's/\\e/\\/g' >"$TMP/example.c"
check "the manual's example: compiles" "${compile[@]}" -o "$TMP/example" "$TMP/example.c" "${link[@]}"
head -c 12345 /dev/urandom >"$TMP/some"
check "the manual's example: reads" \
	test "$(PINSHIM_STATS=off "$TMP/example" "$TMP/some")" = "12345 bytes"
check "the manual's example: says what fails" \
	test "$(PINSHIM_STATS=off "$TMP/example" "$TMP/none")" = "$TMP/none cannot be opened"
check "the manual's example: is C++, too" c++ -I"$TOP/aio" -x c++ -o "$TMP/example_cxx" \
	"$TMP/example.c" "${link[@]}"

check "a program: compiles" "${compile[@]}" -D_GNU_SOURCE -o "$TMP/linked" \
	"$TOP/tests/aio/linked.c" "${link[@]}"

# linked LABEL DIRECTORY [VARIABLE=VALUE...]: its cases, and that nothing is said on stderr.
linked() {
	local label=$1 directory=$2

	shift 2
	env PINSHIM_STATS=off "$@" "$TMP/linked" "$directory" 2>"$TMP/err" |
		sed -E "s/^((not )?ok - )/\\1$label: /" >"$TMP/out"
	cat "$TMP/out"
	! grep -q '^not ok' "$TMP/out" || case_failed=1
	check "$label: ran to its end, in silence" test \
		"$(grep -c "^ok - $label: and is none any more" "$TMP/out")$(<"$TMP/err")" = 1
}

linked "linked" "$TMP"
linked "kernel AIO" "$TMP" PINSHIM_AIO=libaio
linked "preloaded" "$TMP" LD_PRELOAD="$AIO_LIB"
linked "both preloaded" "$TMP" LD_PRELOAD="$LIB $AIO_LIB"
linked "both, malloc pinned, too" "$TMP" LD_PRELOAD="$AIO_LIB $LIB" PINSHIM_MALLOC=16M-

# Where direct I/O is not what it is elsewhere.
memory=$(mktemp -d /dev/shm/handle.XXXXXX)
linked "tmpfs" "$memory"
rm -rf "$memory"

# A program that knows of the library only when it runs.
cat >"$TMP/late.py" <<'END'
import ctypes, sys
aio = ctypes.CDLL(None)
aio.pinshim_aio_new_buffer.restype = ctypes.c_void_p
aio.pinshim_aio_new_buffer.argtypes = [ctypes.c_size_t]
aio.pinshim_aio_sync_pread.restype = ctypes.c_int64
aio.pinshim_aio_sync_pread.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64,
    ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p]
handle = ctypes.c_void_p()
assert aio.pinshim_aio_open(None, ctypes.c_size_t(0), ctypes.byref(handle)) == 0
buffer = aio.pinshim_aio_new_buffer(20000)
count = aio.pinshim_aio_sync_pread(handle, buffer, 20000, sys.argv[1].encode(), 3, 0, None)
assert count == 12342, count
assert ctypes.string_at(buffer, count) == open(sys.argv[1], "rb").read()[3:]
assert aio.pinshim_aio_close(handle) == 0
END
check "by ctypes, preloaded" env LD_PRELOAD="$AIO_LIB" PINSHIM_STATS=off /usr/bin/python3 \
	"$TMP/late.py" "$TMP/some"

# small_disk OPTION...: an ext4 of 16 MiB at $TMP/disk.
small_disk() {
	truncate -s 16M "$TMP/image" && mkdir -p "$TMP/disk" &&
		mkfs.ext4 -q -F "$@" "$TMP/image" 2>"$TMP/err" &&
		mount -o loop "$TMP/image" "$TMP/disk" 2>"$TMP/err"
}

trap 'umount -q "$TMP/disk"; case_exit' EXIT
if [[ $(id -u) = 0 ]] && type -P mkfs.ext4 >/dev/null && small_disk -m 0; then
	linked "a small disk" "$TMP/disk"
	output=$(PINSHIM_STATS=off "$TMP/linked" --fill "$TMP/disk/full" $((64 << 20)))
	check "disk full: says so" test "${output#* * }" = "write: No space left on device"
	read -r bytes failed _ <<<"$output"
	check "disk full: what arrived ends where it failed" test "$bytes" = "$failed"
	check "disk full: some of it did" test "$bytes" -gt $((4 << 20))
	check "disk full: and is there" test \
		"$(head -c "$bytes" "$TMP/disk/full" | tr -d x | wc -c)" = 0
	rm "$TMP/disk/full"
else
	skip "disk full" "needs root, mkfs.ext4 and a loop device"
fi

finish
