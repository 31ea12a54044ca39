#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pinshim io: the lines of ds_io, what is read and written, and what it says when it cannot.

# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
need jq python3

tool=$BUILD/pinshim
export PINSHIM_STATS=off

# run STATUS ARGUMENT...: pinshim io with these; whether it exits so. $TMP/out and $TMP/err are its output.
# shellcheck disable=SC2317 # check() calls it
run() {
	local expect=$1 status

	shift
	"$tool" io "$@" >"$TMP/out" 2>"$TMP/err"
	status=$?
	((status == expect)) && return
	echo "exit status $status"
	cat "$TMP/out" "$TMP/err"
	return 1
}

# are_lines DIRECTION...: whether the output is four lines for each, as ds_io's are parsed: what they
# begin with, and a number second to last.
# shellcheck disable=SC2317
are_lines() {
	python3 - "$TMP/out" "$@" <<'END'
import sys
lines = open(sys.argv[1]).read().splitlines()
wanted = [f"{scope} {direction} {what} = " for direction in sys.argv[2:]
          for scope in ("Task", "E2E") for what in ("Latency", "Speed")]
assert len(lines) == len(wanted), lines
for line, begin in zip(lines, wanted):
    assert line.startswith(begin), line
    assert float(line.split()[-2]) > 0, line
    assert line.split()[-1] == ("sec" if "Latency" in begin else "GB/sec"), line
def of(begin):
    return float(next(line for line in lines if line.startswith(begin)).split()[-2])
for direction in sys.argv[2:]:
    assert of(f"Task {direction} Latency") <= of(f"E2E {direction} Latency")
    # 2 loops of 8 MiB
    size = of(f"Task {direction} Latency") * of(f"Task {direction} Speed") * 2**30
    assert abs(size - 2 * 2**23) < 2**16, size
END
}

# is_clean NAME: nothing was said, and nothing is left in the directory.
is_clean() {
	check "$1: says nothing else" test ! -s "$TMP/err"
	check "$1: leaves nothing behind" test -z "$(ls "$TMP/empty")"
}

mkdir "$TMP/empty"
small=(--size=8M --loops=2 --block-size=64K)

check "read: succeeds" run 0 --read --directory "$TMP/empty" "${small[@]}"
check "read: ds_io's lines" are_lines Read
is_clean "read"
check "write: succeeds" run 0 -w -d "$TMP/empty" "${small[@]}"
check "write: ds_io's lines" are_lines Write
is_clean "write"
check "both: succeeds" run 0 -rw -d "$TMP/empty" "${small[@]}"
check "both: ds_io's lines" are_lines Write Read
for setting in --threads=3 --queue-depth=1 --single-submit --overlap-events=0 --misaligned=77 \
	--buffered-memory --validate --offset=12345; do
	check "both, $setting: succeeds" run 0 -rw -d "$TMP/empty" "${small[@]}" "$setting"
	check "both, $setting: ds_io's lines" are_lines Write Read
	is_clean "both, $setting"
done

# The file is what the buffer was: validated here from outside.
check "a file: written" run 0 --write --file "$TMP/file" --size=100003 --loops=1
check "a file: has its length" test "$(stat -c %s "$TMP/file")" = 100003
check "a file: is not all the same" test "$(gzip -c "$TMP/file" | wc -c)" -gt 90000
cp "$TMP/file" "$TMP/before"
check "a file: read without a size" run 0 --json --read --file "$TMP/file" --offset=3 --loops=1
check "a file: that is the rest of it" test "$(jq '.size_bytes, .read.bytes' "$TMP/out" | xargs)" = \
	"100000 100000"
check "a file: reading leaves it alone" cmp "$TMP/before" "$TMP/file"
check "a file: overwritten in part" run 0 --write --file "$TMP/file" --size=10 --offset=5 --loops=1
check "a file: of the same length" test "$(stat -c %s "$TMP/file")" = 100003
check "a file: the rest is as it was" cmp -i 15 "$TMP/before" "$TMP/file"

check "json: succeeds" run 0 -rwj -d "$TMP/empty" "${small[@]}" -q 5 -t 2 --overlap-events=0 \
	--misaligned=512
check "json: the settings" test "$(jq -c '[.schema, .size_bytes, .loops, .block_size_bytes,
	.queue_depth, .threads, .single_submit, .overlap_events, .misaligned_bytes, .locked_memory]' \
	"$TMP/out")" = '[1,8388608,2,65536,5,2,false,false,512,true]'
check "json: both directions" test "$(jq -c '[.write, .read | .bytes == 16777216,
	.task_latency_seconds > 0, .task_speed_gb_per_second > 0, .e2e_latency_seconds > 0,
	.e2e_speed_gb_per_second > 0] | all' "$TMP/out")" = true

check "no such file" run 1 --read --file "$TMP/none"
check "no such file: says so" grep -q "^pinshim io: $TMP/none: No such file or directory$" "$TMP/err"
check "no such directory" run 1 --read --directory "$TMP/none"
check "not enough to read" run 1 --read --file "$TMP/file" --size=1G
check "not enough to read: says so" grep -q "has 100003 bytes only" "$TMP/err"
check "a device that is full" run 1 --write --file /dev/full --size=4K
check "a device that is full: what, where and why" grep -q \
	"^pinshim io: /dev/full at offset 0, 4096 bytes: write: No space left on device$" "$TMP/err"
check "a device that is full: nothing is measured" test ! -s "$TMP/out"
check "memory that cannot be had" run 1 --read --directory "$TMP/empty" --size=100T
check "no direct I/O: succeeds" run 0 --read --file /proc/self/exe --size=4K --loops=1
check "no direct I/O: a file of /proc" run 1 --read --file /proc/cpuinfo --size=64

for wrong in "" "--read" "--directory=$TMP/empty" "--read --file=x --directory=y" \
	"--read -d $TMP/empty --size=0" "--read -d $TMP/empty --size=1X" \
	"--read -d $TMP/empty --queue-depth=0" "--read -d $TMP/empty --threads=1025" \
	"--read -d $TMP/empty --block-size=1000" "--read -d $TMP/empty --overlap-events=2" \
	"--read -d $TMP/empty more" "--nonsense"; do
	# shellcheck disable=SC2086 # several arguments
	check "wrong usage: $wrong" run 2 $wrong
done
check "help" run 0 --help
check "help: names the defaults" grep -q 'of a request (1024K)' "$TMP/out"

# The progress line is for a terminal, and for what takes longer than a moment.
cat >"$TMP/terminal.py" <<'END'
import glob, os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said = b""
while b"sec left" not in said:
    said += os.read(terminal, 1000)
os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
for table in glob.glob(f"/dev/shm/pinshim.{pid}.*"):
    os.unlink(table)
assert b"\rread " in said and b" GB/sec, " in said, said
END
check "a long run: shows its progress" timeout 60 python3 "$TMP/terminal.py" "$tool" io --read \
	-d "$TMP/empty" --size=1M --loops=1000000000

finish
