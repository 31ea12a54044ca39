#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Where the addresses lie that are reserved for the heap: not between the program and what it loads later,
# for processors predict calls over more than 4 GiB badly; and that nobody writes them to a core file.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need setarch

parts=$TOP/tests/preload/parts
# As large as those of PyTorch, so that it does not fit between others.
check "a library is built" compile "$TMP/later.so" "$parts/bootstrap_library.c" -shared -fPIC \
	-Wl,-z,max-page-size=0x4000000
check "and a program that loads it while it runs" compile "$TMP/later" "$parts/later.c"

# near LABEL COMMAND...: runs the program by that, which may set limits and preload what it likes.
near() {
	local label=$1 memory library

	shift
	read -r memory library < <("$@" "$TMP/later" "$TMP/later.so" bootstrap_block 2>&1)
	check "$label: memory that is mapped later is near" test "$memory" -lt 4
	check "$label: a library that is loaded later is near" test "$library" -lt 4
}

# unlimited_stack COMMAND...: the kernel then gives addresses from below.
unlimited_stack() {
	(ulimit -s unlimited && exec "$@")
}

pinned=(env "LD_PRELOAD=$LIB" PINSHIM_STATS=off)
near "plain" env
near "nothing asked for" "${pinned[@]}"
near "classes" "${pinned[@]}" PINSHIM_MALLOC=4K-
near "no random addresses" "${pinned[@]}" setarch -R
near "asynchronous I/O alone" env "LD_PRELOAD=$AIO_LIB"
near "both libraries" env "LD_PRELOAD=$LIB $AIO_LIB" PINSHIM_STATS=off PINSHIM_MALLOC=4K-
if unlimited_stack true 2>/dev/null; then
	near "plain, stack without limit" unlimited_stack env
	near "stack without limit" unlimited_stack "${pinned[@]}" PINSHIM_MALLOC=4K-
else
	skip "stack without limit" "the limit is hard"
fi

# What a debugger leaves out of a core file (gcore, which writes all 1 TiB of what is reserved otherwise).
# shellcheck disable=SC2016 # awk's
flags='/^[0-9a-f]+-/ { rights = $2 } /^Size:/ { kib = $2 } /^VmFlags:/ {
	print (kib > 2 ^ 29 ? "reserved" : / lo( |$)/ ? "locked" : "other"), / dd( |$)/ ? "left out" : "written", rights }'
"${pinned[@]}" PINSHIM_MALLOC=1- awk "$flags" /proc/self/smaps | sort -u >"$TMP/flags"
check "what is reserved is in no core file" grep -qx 'reserved left out ---p' "$TMP/flags"
check "none of it" test "$(grep -c '^reserved' "$TMP/flags")" = 1
if locks; then
	check "blocks are in core files" grep -qx 'locked written rw-p' "$TMP/flags"
	check "all of them" test "$(grep -c '^locked left out' "$TMP/flags")" = 0
else
	skip "blocks are in core files" "no memory may be locked"
fi
finish
