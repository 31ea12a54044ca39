#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The filter of dlsym (interpose/dlsym.S) by itself; for aarch64 assembled, and run where there is
# qemu and a cross compiler with its libc.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"
need "${CC:-cc}"

source=$TOP/interpose/dlsym.S
program=$TOP/tests/cuda/lookup_filter.c

# filter LABEL COMPILER [FLAG...] [-- RUNNER...]
filter() {
	local label=$1 command=()

	shift
	while [[ $# -gt 0 && $1 != -- ]]; do
		command+=("$1")
		shift
	done
	shift
	check "$label: assembles" "${command[@]}" -Ddlsym=lookup_filter -c -o "$TMP/filter.o" "$source"
	check "$label: links" "${command[@]}" -D_GNU_SOURCE -O1 -o "$TMP/filter" "$program" "$TMP/filter.o"
	run_cases "$label" "$@" "$TMP/filter"
}

filter "here" "${CC:-cc}" -- env
if [[ $(uname -m) != x86_64 ]]; then
	skip "aarch64" "this is $(uname -m)"
elif type -P aarch64-linux-gnu-gcc >/dev/null; then
	check "aarch64: assembles by gcc" aarch64-linux-gnu-gcc -c -o "$TMP/aarch64.o" "$source"
	if echo 'int main(void) { return 0; }' |
		aarch64-linux-gnu-gcc -static -x c -o "$TMP/probe" - 2>/dev/null &&
		type -P qemu-aarch64 >/dev/null; then
		filter "aarch64" aarch64-linux-gnu-gcc -static -- qemu-aarch64
	else
		skip "aarch64: runs" "no qemu-aarch64, or no libc to cross-compile with"
	fi
else
	skip "aarch64: assembles by gcc" "no aarch64-linux-gnu-gcc"
fi
if type -P clang >/dev/null; then
	check "aarch64: assembles by clang" \
		clang --target=aarch64-linux-gnu -c -o "$TMP/aarch64.o" "$source"
	check "x86-64: assembles by clang" \
		clang --target=x86_64-linux-gnu -c -o "$TMP/x86-64.o" "$source"
else
	skip "assembles by clang" "no clang"
fi
finish
