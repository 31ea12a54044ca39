#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# PINSHIM_TRACE: the file that Perfetto opens; and the static probes, that they are there as the manual
# has them, cost a no-operation, and can be watched.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need python3 jq readelf objdump

program=$PROGRAMS/trace
page=$TOP/interpose/pinshim.7

# traced WAY [VARIABLE=VALUE...]: runs it with a trace at $TMP/trace.
traced() {
	local way=$1

	shift
	rm -f "$TMP"/trace*
	preload PINSHIM_MALLOC=16M- PINSHIM_RETAIN=0 PINSHIM_STATS=off PINSHIM_LIMIT=40M PINSHIM_RESERVE=0 \
		PINSHIM_LOG=error PINSHIM_TRACE="$TMP/trace" "$@" -- "$program" "$way" 2>"$TMP/err"
}

# has FILE: what the checker says is in it, or what is wrong.
has() {
	python3 "$TOP/tests/preload/trace.py" "$@" 2>&1 | tail -n 1
}

check "the program's work is done" traced plain
check "nothing is said" test ! -s "$TMP/err"
check "every event is there" test "$(has "$TMP/trace")" = "pin=4 pinned=8 refuse=1 unpin=4"
jq -r '.[] | select(.name == "pin" or .name == "unpin") |
	"\(.name) \(.args.memory) \(.args.bytes / 1048576)"' "$TMP/trace" >"$TMP/pins"
check "with their bytes" diff - "$TMP/pins" <<'END'
pin malloc_heap 20
pin malloc_heap 4
unpin malloc_heap 8
unpin malloc_heap 16
pin foreign 0.0625
unpin foreign 0.0625
pin malloc_heap 16
unpin malloc_heap 16
END
check "the graph ends where it began" test "$(jq -c '[.[] | select(.ph == "C") | .args] | .[-1]' "$TMP/trace")" = \
	'{"locked_bytes":0,"foreign_bytes":0}'
check "the refusal has limit and figures" test "$(jq -c '.[] | select(.name == "refuse") | .args' "$TMP/trace")" = \
	'{"limit":"process","asked_bytes":62914560,"allowed_bytes":41943040,"used_bytes":0,"where":"","error":12,"refusals":1}'
check "pinning takes time" test "$(jq '[.[] | select(.name == "pin").dur] | min > 1' "$TMP/trace")" = true
traced plain RANK=7 PINSHIM_TRACE="$TMP/trace.%r.%e.json"
check "the rank names file and process" test "$(jq -r '.[0].args.name' "$TMP/trace.7.trace.json")" = "trace (rank 7)"

check "nothing pinned: works" traced nothing
check "nothing pinned: no file" test ! -e "$TMP/trace"
check "a fork: works" traced fork
check "a fork: parent and child have a file each" test "$(compgen -G "$TMP/trace*" | wc -l)" = 2
check "a fork: the parent's" test "$(has "$TMP/trace")" = "pin=2 pinned=4 unpin=2"
check "a fork: the child's" test "$(has "$TMP"/trace.*)" = "pin=2 pinned=4 unpin=2"
check "threads: works" traced threads
check "threads: all is there" test "$(has "$TMP/trace" | grep -oE 'lost|refuse')" = refuse \
	-o "$(has "$TMP/trace")" = "pin=40 pinned=80 unpin=40"
check "2000 refusals: works" traced refused
check "2000 refusals: not an event each" test "$(has "$TMP/trace" | sed -n 's/^refuse=//p')" -le 1000
check "2000 refusals: none is forgotten but the last ones" test \
	"$(jq '[.[].args.refusals // 0] | add | . > 0 and . <= 2000' "$TMP/trace")" = true
check "it cannot be written: the program works" traced plain PINSHIM_LOG=warn PINSHIM_TRACE="$TMP/none/trace"
check "it cannot be written: that is said once" test \
	"$(message_count "$TMP/err" "trace $TMP/none/trace \(PINSHIM_TRACE\) failed: No such file"),$(grep -c PINSHIM_TRACE "$TMP/err")" = 1,1
check "another directory: works" bash -c "cd '$TMP' && PINSHIM_TRACE=trace.relative LD_PRELOAD='$LIB' PINSHIM_STATS=off \
	PINSHIM_MALLOC=16M- python3 -c 'import os; a = bytearray(17 << 20); os.chdir(\"/\"); b = bytearray(18 << 20)'"
check "another directory: one file" test "$(has "$TMP/trace.relative" | grep -oE '^pin=[0-9]+')" = pin=2

# Killed at any moment: whole as it is; and were it cut anywhere, what is before can be read.
bad=
for ((round = 0; round < 10; round++)); do
	rm -f "$TMP/trace"
	coproc KILLED { exec env LD_PRELOAD="$LIB" PINSHIM_MALLOC=16M- PINSHIM_RETAIN=0 PINSHIM_STATS=off \
		PINSHIM_TRACE="$TMP/trace" "$program" killed; }
	started=$KILLED_PID
	read -r _ <&"${KILLED[0]}"
	kill -KILL "$started"
	{ wait "$started"; } 2>/dev/null
	[[ $(has "$TMP/trace") == *pin=* ]] || bad+=" $round: $(has "$TMP/trace")"
done
rm -f /dev/shm/pinshim."$started".*
check "ten processes killed while they pinned leave traces that are whole" test -z "$bad"
[[ -z $bad ]] || echo "#$bad"
"$BUILD/pinshim" stat --reap >/dev/null 2>&1
traced plain
whole=$(stat -c %s "$TMP/trace")
bad=
for cut in 1 2 3 50 120 300; do
	head -c $((whole - cut)) "$TMP/trace" >"$TMP/cut"
	[[ $(has --perfetto "$TMP/cut") == pin=*unpin=* ]] || bad+=" $cut"
done
check "a trace that is cut can be read up to there, as Perfetto reads it" test -z "$bad"

# By the CUDA driver.
rm -f "$TMP/trace"
LD_LIBRARY_PATH=$BUILD/tests/fakes preload PINSHIM_STATS=off PINSHIM_LOG=error PINSHIM_TRACE="$TMP/trace" -- \
	"$BUILD/tests/cuda/cost_rt" >/dev/null 2>&1
check "CUDA: what is registered is in it" test -n "$(has "$TMP/trace" | grep -oE '\bregister=[1-9]')"

# probes FILE: name, number of arguments, address and semaphore of each static probe. Where <sys/sdt.h> was
# not there when the libraries were built there are none.
probes() {
	readelf -nW "$1" | awk '/Provider: / { pinshim = / pinshim$/ } $1 == "Name:" { name = $2 }
		$1 == "Location:" { address = $2; semaphore = $6 }
		$1 == "Arguments:" && pinshim { print name, NF - 1, address, semaphore }' | tr -d ,
}

if [[ -z $(probes "$LIB") ]]; then
	skip "static probes" "the library was built without <sys/sdt.h> (systemtap-sdt-dev)"
	finish
fi
probes "$LIB" >"$TMP/found"
{
	cat "$TMP/found"
	probes "$AIO_LIB" | grep '^io_'
} | cut -d ' ' -f 1-2 | sort -u >"$TMP/probes"
check "each probe has the same number of arguments everywhere" test -z "$(cut -d ' ' -f 1 "$TMP/probes" | uniq -d)"
sed -nE 's/^\.It Fn ([a-z_]+) (.*)/\1 \2/p' "$page" | awk '{ print $1, NF - 1 }' | sort -u >"$TMP/documented"
check "the manual has the probes and their arguments" diff "$TMP/probes" "$TMP/documented"
check "there are ten" test "$(wc -l <"$TMP/probes")" = 10
bad=
while read -r name _ address semaphore; do
	((semaphore == 0)) || bad+=" $name has a semaphore"
	objdump -d --start-address="$address" --stop-address=$((address + 1)) "$LIB" | grep -qE '\bnop\b' ||
		bad+=" $name is something else"
done <"$TMP/found"
check "each is a single no-operation without a semaphore" test -z "$bad"

# watch: starts bpftrace with the program on its standard input; $watcher is its id, $TMP/watched what it says.
watch() {
	cat >"$TMP/watch.bt"
	: >"$TMP/watched"
	bpftrace "$TMP/watch.bt" >"$TMP/watched" 2>"$TMP/watch.err" &
	watcher=$!
	for ((i = 0; i < 300; i++)); do
		grep -q '^Attaching' "$TMP/watched" && break
		kill -0 "$watcher" 2>/dev/null || return 1
		sleep 0.1
	done
	grep -q '^Attaching' "$TMP/watched"
}

unwatch() {
	kill -INT "$watcher"
	for ((i = 0; i < 50; i++)); do
		kill -0 "$watcher" 2>/dev/null || break
		sleep 0.1
	done
	{ kill -KILL "$watcher" && wait "$watcher"; } 2>/dev/null
	return 0
}

# settled: waits until nothing more is said.
settled() {
	local before=-1

	while [[ $(wc -l <"$TMP/watched") != "$before" ]]; do
		before=$(wc -l <"$TMP/watched")
		sleep 0.3
	done
}

# seen COMMAND...: what is said of one run of it goes to $TMP/last. Attaching takes a moment longer than saying so.
seen() {
	local skip

	for ((i = 0; i < 100; i++)); do
		"$@"
		sleep 0.1
		[[ $(wc -l <"$TMP/watched") -lt 3 ]] || break
	done
	settled
	skip=$(wc -l <"$TMP/watched")
	"$@"
	settled
	tail -n +$((skip + 1)) "$TMP/watched" >"$TMP/last"
}

if ! type -P bpftrace >/dev/null; then
	skip "probes watched" "bpftrace is not installed (scripts/setup --test)"
	finish
fi
if ! watch <<-END; then
	usdt:$LIB:pinshim:pin { printf("pin %d %d\n", arg1, arg3 & 0x29); }
	usdt:$LIB:pinshim:unpin { printf("unpin %d %d\n", arg1, arg2 & 0x29); }
	usdt:$LIB:pinshim:alloc { printf("alloc %d %d %d\n", arg1, arg2, arg3); }
	usdt:$LIB:pinshim:free { printf("free %d %d\n", arg1, arg2); }
	usdt:$LIB:pinshim:resize { printf("resize %d %d %d\n", arg1, arg2, arg3); }
	usdt:$LIB:pinshim:refuse { printf("refuse %d %d %d %d %d\n", arg0, arg1, arg2, arg3, arg4); }
END
	skip "probes watched" "bpftrace cannot: $(grep -v RLIMIT_MEMLOCK "$TMP/watch.err" | grep . | head -n 1)"
	unwatch
	finish
fi
seen traced plain
unwatch
check "probes watched: they say what was done" diff "$TMP/last" - <<'END'
pin 20971520 33
alloc 20971520 20971520 0
pin 4194304 33
resize 20971520 25165824 0
unpin 8388608 33
resize 25165824 16777216 0
free 16777216 0
unpin 16777216 33
pin 65536 9
unpin 65536 9
pin 16777216 33
alloc 16777216 16777216 0
free 16777216 0
unpin 16777216 33
refuse 0 62914560 41943040 0 12
END

# Direct I/O on memory that is not pinned, and buffered.
if ! type -P fio >/dev/null; then
	skip "probes of I/O watched" "fio is not installed (scripts/setup --test)"
	finish
fi
# shellcheck disable=SC2317 # seen() calls it
read_file() {
	local direct

	for direct in 1 0; do
		LD_PRELOAD=$AIO_LIB PINSHIM_STATS=off fio --name=read --filename="$TMP/file" --size=1M --bs=128k --direct="$direct" \
			--ioengine=libaio --iodepth=4 --rw=read --output=/dev/null
	done
}
watch <<-END
	usdt:$AIO_LIB:pinshim:io_submit { printf("submit %d %d %d\n", arg1, arg2, arg3); }
	usdt:$AIO_LIB:pinshim:io_complete { printf("complete %d %d %d\n", arg1, arg2, arg3); }
END
seen read_file
unwatch
sort "$TMP/last" | uniq -c | sed 's/^ *//' >"$TMP/counts"
if grep -q ' submit 1 ' "$TMP/counts"; then
	engine=1 kind=0
else
	engine=0 kind=5
fi
check "probes of I/O watched: each request, submitted and completed" diff - "$TMP/counts" <<-END
	8 complete 0 5 131072
	8 complete $engine $kind 131072
	8 submit 0 2 131072
	8 submit $engine 0 131072
END
finish
