#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# How many instructions our dlsym adds to a look-up that is no business of ours, counted by callgrind:
# at most 40.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"
need valgrind "${CC:-cc}"

here=$TOP/tests/cuda
limit=40
compile "$TMP/count" "$here/lookup_count.c" -rdynamic 2>"$TMP/err" ||
	skip_all "valgrind/callgrind.h cannot be used: $(head -n 1 "$TMP/err")"
for name in libcuda.so.1 libcurl.so.4; do
	check "$name is built" compile "$TMP/$name" "$here/lookup_cuda.c" -shared -fPIC -Wl,-Bsymbolic \
		-DDRIVER -DRUNTIME -DUNRELATED
done

# count DIRECTORY LIBRARY [COMMAND...]: writes "instructions how name" per 1000 look-ups to $TMP/DIRECTORY.
count() {
	local directory=$TMP/$1.d library=$2

	mkdir "$directory"
	"${@:3}" valgrind -q --tool=callgrind --callgrind-out-file="$directory/out" "$TMP/count" \
		"$TMP/$library" >"$TMP/$1.out" 2>"$TMP/$1.err"
	check "$1: counted" test "$?,$(<"$TMP/$1.out")" = "0,"
	awk '/^desc: Trigger: Client Request: / { label = $5 " " $6 }
		/^summary: / && label { print label, $2; label = "" }' "$directory"/out.* |
		sort >"$TMP/$1"
}

export PINSHIM_STATS=off
count without libcuda.so.1
count with libcuda.so.1 preload --
count off libcuda.so.1 preload PINSHIM_BACKEND=off --
count unrelated-without libcurl.so.4
count unrelated libcurl.so.4 preload --

# added LABEL WITHOUT WITH
added() {
	local label=$1 lines worst

	join <(sed 's/ /:/' "$TMP/$2") <(sed 's/ /:/' "$TMP/$3") |
		awk '{ printf "%d %s\n", ($3 - $2 + 999) / 1000, $1 }' | sort -rn >"$TMP/added"
	lines=$(grep -vc candidate: "$TMP/added")
	worst=$(grep -v candidate: "$TMP/added" | head -n 1)
	check "$label: $lines names were counted" test "$lines" = 54
	check "$label: at most ${worst% *} instructions were added (${worst#*:})" test "${worst% *}" -le $limit
	sed 's/^/# /' "$TMP/added" | sed -n '1,8p;$p'
}

added "preloaded" without with
added "switched off" without off
added "an unrelated library" unrelated-without unrelated
finish
