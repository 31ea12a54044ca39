#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every call to the system made to fail under a whole program, once and for ever: the program does
# not notice, each cause is said once, and nothing is left behind.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"

need jq

LIB=$BUILD/fault/libpinshim.so
[[ -e $LIB ]] || skip_all "$LIB is not built"
program=$PROGRAMS/faults

# fails CALL WHEN ERRNO [SETTING...]
fails() {
	local call=$1 when=$2 errno=$3 name="${4+${*:4}, }$1 fails with $3" status pid bad=()

	case $when in
	1) name="$name the first time" ;;
	*-) name="$name from call ${when%-} on" ;;
	*) name="$name at call $when" ;;
	esac
	preload PINSHIM_MALLOC=64K- PINSHIM_STATS=off PINSHIM_FAULT="$call:$when:$errno" "${@:4}" -- \
		"$program" >"$TMP/out" 2>"$TMP/err"
	status=$?
	((status == 0)) || bad+=("exit status $status")
	[[ $(grep -c '^ok - ' "$TMP/out") == 4 ]] || bad+=("$(<"$TMP/out")")
	! grep -qv '^pinshim\[' "$TMP/err" || bad+=("something else on stderr")
	[[ -z $(sed 's/[0-9][0-9.]*/N/g' "$TMP/err" | sort | uniq -d) ]] || bad+=("said twice")
	(($(wc -l <"$TMP/err") <= 4)) || bad+=("said too much")
	grep -qx "locked 0" "$TMP/out" || bad+=("$(grep locked "$TMP/out")")
	while read -r pid; do
		if compgen -G "/dev/shm/pinshim.$pid.*" >/dev/null; then
			[[ $call == unlink ]] || bad+=("a table is left")
			rm -f "/dev/shm/pinshim.$pid".*
		fi
	done < <(grep -xE '[0-9]+' "$TMP/out")
	if ((${#bad[@]} == 0)); then
		ok "$name: the program does not notice"
	else
		notok "$name: the program does not notice" \
			"$(printf '%s\n' "${bad[@]}")"$'\n'"$(<"$TMP/err")"
	fi
}

fails mlock 1000000 ENOMEM # which it never reaches: what the rest is measured by
check "no fault, no message" test ! -s "$TMP/err"
check "no fault, nothing locked in the end" grep -qx "locked 0" "$TMP/out"

# Each call, its error, and what is said when it fails for ever, if anything.
while read -r call errno said; do
	for when in 1 2 1- 3-; do
		fails "$call" $when "$errno"
		if [[ $when == 1- && -n $said ]]; then
			check "$call fails with $errno for ever: is said once, with the cause" test \
				"$(message_count "$TMP/err"),$(message_count "$TMP/err" "$said")" = 1,1
		fi
	done
	fails "$call" 2- "$errno" PINSHIM_RETAIN=0
done <<-END
	clone EAGAIN
	fallocate ENOSPC No space left
	fstat EIO
	getdents EIO
	getrlimit EPERM
	madvise EINVAL
	mlock ENOMEM RLIMIT_MEMLOCK
	mmap ENOMEM reserving addresses
	mprotect ENOMEM mprotect|Cannot allocate memory
	munlock ENOMEM
	munmap EINVAL
	open EACCES /proc
	pagemap_scan ENOTTY
	populate EFAULT populating: Bad address
	read EIO /proc
	unlink EACCES
	write EIO
END
for errno in EPERM EAGAIN; do
	fails mlock 1- $errno
done
fails populate 1- EINVAL
fails populate 1- ENOMEM
fails open 1- EMFILE
fails open 1- ENOENT

# Two at once, which one refusal's cleaning up may have to cope with.
fails mlock 1- ENOMEM,munlock:1-:ENOMEM PINSHIM_RETAIN=0
fails mlock 3- ENOMEM,munmap:1-:EINVAL,mmap:4-:ENOMEM

# The refusal is explained: what, how much, why, and what to do.
preload PINSHIM_MALLOC=64K- PINSHIM_STATS=off PINSHIM_FAULT=mlock:1-:ENOMEM -- "$program" \
	>"$TMP/out" 2>"$TMP/err"
check "a refused mlock is explained in one line" test "$(message_count "$TMP/err" 'memlock|MEMLOCK')" = 1

# huge_bytes [VARIABLE=VALUE...]: what a report says of a program that has blocks when it ends.
huge_bytes() {
	preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/huge.json" "$@" -- \
		python3 -c 'import os; blocks = [bytearray(5 << 20) for _ in range(9)]; os._exit(0)'
	jq .huge_bytes "$TMP/huge.json"
}
told=$(huge_bytes)
counted="huge pages are counted where the kernel does not say of a range what is in them"
if ((told > 0)); then
	equal "$counted" "$told" "$(huge_bytes PINSHIM_FAULT=pagemap_scan:1-:ENOTTY)"
else
	skip "$counted" "there are none to be had"
fi
check "a wrong PINSHIM_FAULT ends the program" test \
	"$(preload PINSHIM_FAULT=nonsense -- echo main 2>/dev/null)" != main
finish
