#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Processes that have little: of stack, addresses, descriptors, file size. What cannot be had is done
# without, and said once.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need prlimit python3

faults=$PROGRAMS/faults

# under LABEL MESSAGE COMMAND...: runs the program through COMMAND; all its cases hold, and either one
# line is said that matches MESSAGE or, where that is empty, nothing. Its output is a pipe, to which
# no limit of file size applies.
under() {
	local label=$1 message=$2 output status

	shift 2
	output=$("$@" env LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K- PINSHIM_STATS=off "$faults" 2>&1)
	status=$?
	check "$label: the program works" test \
		"$status,$(grep -c '^ok' <<<"$output"),$(grep -c '^not ok' <<<"$output")" = 0,4,0
	grep -vE '^(ok - |[0-9]+$|locked 0$)' <<<"$output" >"$TMP/err"
	if [[ -z $message ]]; then
		check "$label: nothing is said" test -z "$(<"$TMP/err")"
	elif [[ $(wc -l <"$TMP/err") == 1 && $(message_count "$TMP/err" "$message") == 1 ]]; then
		ok "$label: one line says what that means"
	else
		notok "$label: one line says what that means" "$(<"$TMP/err")"
	fi
}

# There is another process, which has to be asked what it claims.
mkfifo "$TMP/in"
preload PINSHIM_MALLOC=64K- PINSHIM_STATS=off -- "$PROGRAMS/holder" malloc 2 2 <"$TMP/in" >"$TMP/held" &
exec {holder}>"$TMP/in"
echo >&"$holder"
until [[ -s $TMP/held ]]; do
	sleep 0.05
done

under "no limit" "" env
under "no file may be written" "/dev/shm.*(File too large|EFBIG|limit)" prlimit --fsize=0
under "four descriptors" "" prlimit --nofile=4
under "1 GiB of addresses" "" prlimit --as=$((1 << 30))

# Addresses that the window takes are not there for the program.
hungry=(prlimit --as=$((1 << 30)) python3 -c 'print(len([bytearray(30_000) for _ in range(20_000)]))')
if [[ $("${hungry[@]}") == 20000 ]]; then
	check "1 GiB of addresses: 600 MB of ordinary blocks still fit" test \
		"$(preload PINSHIM_MALLOC=64K- PINSHIM_STATS=off -- "${hungry[@]}" 2>&1)" = 20000
else
	skip "1 GiB of addresses: 600 MB of ordinary blocks still fit" "they do not without the library either"
fi

# Descriptors 0 to 2 closed from the start: what is opened gets their numbers.
preload PINSHIM_MALLOC=64K- -- "$faults" <&- >&- 2>&-
check "descriptors 0, 1 and 2 closed at the start: does not crash" test $? -lt 128
DATA_FILE=$TMP/data preload PINSHIM_MALLOC=64K- -- "$PROGRAMS/exit_paths" stderr_reused 2>&- >/dev/null
check "a data file that gets number 2 from the start is not written to" test "$?,$(<"$TMP/data")" = 0,data

run_cases "plain" "$PROGRAMS/small_stack"
run_cases "smallest stack" preload PINSHIM_MALLOC=64K- PINSHIM_STATS=off -- "$PROGRAMS/small_stack"
run_cases "smallest stack, NODE_LIMIT" preload PINSHIM_MALLOC=64K- PINSHIM_NODE_LIMIT=8G PINSHIM_STATS=off -- \
	"$PROGRAMS/small_stack"
run_cases "smallest stack, TRACE" preload PINSHIM_MALLOC=64K- PINSHIM_TRACE="$TMP/trace" PINSHIM_STATS=off -- \
	"$PROGRAMS/small_stack"
check "smallest stack, TRACE: there is one" test -s "$TMP/trace"
run_cases "small stack, LIMIT=16M" preload PINSHIM_MALLOC=64K- PINSHIM_LIMIT=16M PINSHIM_LOG=error \
	PINSHIM_STATS=off -- "$PROGRAMS/small_stack" 20
echo >&"$holder"
wait
# A limit on addresses that is lowered below what is reserved: that is given back, and the limit holds.
cat >"$TMP/address.py" <<-'END'
	import ctypes, resource, sys
	before = bytearray(5500000)
	resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
	after = [bytearray(5500000) for i in range(40)]
	small = [bytearray(100000) for i in range(100)]
	try:
	    bytearray(1 << 30)
	except MemoryError:
	    print("refused")
	print(sum(len(block) for block in [before] + after + small))
END
for ranges in 5M-6M 64K- 1G-; do
	preload PINSHIM_MALLOC=$ranges PINSHIM_STATS=off -- python3 "$TMP/address.py" >"$TMP/out" 2>"$TMP/err"
	check "addresses limited while it runs, $ranges: what fits is had, what does not is refused" test \
		"$?,$(tr '\n' ' ' <"$TMP/out")" = "0,refused 235500000 "
done
LD_PRELOAD=$AIO_LIB PINSHIM_STATS=off python3 "$TMP/address.py" >"$TMP/out"
check "addresses limited while it runs, libpinshim-aio.so alone" grep -q 235500000 "$TMP/out"
cat >"$TMP/address.sh" <<-'END'
	ulimit -v 8000000
	text=$(head -c 3000000 /dev/zero | tr "\0" x)
	echo ${#text}
END
{ preload PINSHIM_MALLOC=1M- PINSHIM_STATS=off -- bash "$TMP/address.sh" >"$TMP/out" 2>"$TMP/err"; } 2>/dev/null
check "a shell that lowers ulimit -v goes on" test "$(<"$TMP/out")" = 3000000

# Lowered in a way that nobody sees, before the heap is used first: then nothing more can be mapped by anybody.
preload PINSHIM_MALLOC=5M-6M PINSHIM_STATS=off -- python3 -c '
import ctypes, platform
limit = (ctypes.c_uint64 * 2)(1 << 30, 1 << 30)
number = 160 if platform.machine() == "x86_64" else 164
assert ctypes.CDLL(None).syscall(number, 9, limit) == 0
try:
    bytearray(5500000)
except MemoryError:
    print("refused")
' >"$TMP/out" 2>"$TMP/err"
check "addresses limited by system call: it goes on" test "$?,$(<"$TMP/out")" = 0,refused
check "addresses limited by system call: one line says what was refused" test \
	"$(message_count "$TMP/err"),$(message_count "$TMP/err" 'refused: mmap: Cannot allocate memory')" = 1,1
finish
