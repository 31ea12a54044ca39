#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# kill -9 while fio reads and writes: every block of the file is a whole one that belongs there, and
# what is left in /dev/shm tells what was going on and can be removed.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need fio jq

SIZE=$((16 << 20))
BLOCKS=(--filename=blocks --bs=4k --verify=crc32c --iodepth=32)

BUSY=1000 # requests after which jobs are killed

# whole NAME FIO_ARGUMENT...: a case of plain fio, on the whole file.
whole() {
	local name=$1

	shift
	check "$name" "${FIO[@]}" --output="$TMP/fio.out" "${BLOCKS[@]}" --size=$SIZE --name=plain "$@"
}

# progress PID...: how many requests these processes made, if all have made some; else 0.
progress() {
	local pids=$*

	"$BUILD/pinshim" stat --json | jq --argjson pids "[${pids// /,}]" \
		'[.processes[].report | select(.pid | IN($pids[])) | .aio.submitted | select(. > 0)] |
		if length == ($pids | length) then add else 0 end'
}

# tables PID...: the tables of these processes.
tables() {
	local pid

	for pid; do
		compgen -G "/dev/shm/pinshim.$pid.*"
	done
}

# kill_busy ENGINE WAY ARGUMENT...: starts fio, waits until its jobs are at work, and kills it. Sets
# $made, the requests seen, and $killed, the processes.
kill_busy() {
	local way=$2 thread=() fio jobs tries

	shims "$1"
	shift 2
	[[ $way == processes ]] || thread=(--thread)
	made=0
	"${SHIMS[@]}" "${FIO[@]}" "${thread[@]}" --output="$TMP/fio.out" "${BLOCKS[@]}" --rw=randrw \
		--do_verify=0 --time_based --runtime=30 --numjobs=2 --size=$((SIZE / 2)) \
		--offset_increment=$((SIZE / 2)) --name=killed "$@" >/dev/null &
	fio=$!
	for ((tries = 0; tries < 200 && made < BUSY; tries++)); do
		sleep 0.05
		read -ra jobs <"/proc/$fio/task/$fio/children"
		[[ $way == processes ]] || jobs=("$fio")
		((${#jobs[@]} == 0)) || made=$(progress "${jobs[@]}")
	done
	killed=("$fio" "${jobs[@]}")
	kill -KILL "${killed[@]}"
	wait "$fio"
	# Its children are somebody else's by now.
	for ((tries = 0; tries < 200; tries++)); do
		kill -0 "${killed[@]}" || break
		sleep 0.05
	done
}

# cleared LABEL: what was killed can be seen and removed, and the file is as long as it was.
cleared() {
	check "$1: killed after $made requests" test "$made" -ge $BUSY
	check "$1: tables tell of it" test -n "$(tables "${killed[@]}")"
	"$BUILD/pinshim" stat --reap >/dev/null 2>&1
	check "$1: and are removed" test -z "$(tables "${killed[@]}")"
	check "$1: the file has the size it had" test "$(stat -c %s "$FILES/blocks")" = "$SIZE"
}

mkdir -p "$FILES" "$TMP/reports"
whole "a file is filled with blocks that can be checked" --rw=write --do_verify=0
for engine in "${ENGINES[@]}"; do
	for way in "${WAYS[@]}"; do
		kill_busy "$engine" "$way" 2>/dev/null
		cleared "$engine, $way"
		whole "$engine, $way: every block is whole and in its place" --rw=read
	done
done

# With repairs in flight: a block may then be neither the old nor the new one.
for engine in "${ENGINES[@]}"; do
	kill_busy "$engine" processes --bs=4099 --bs_unaligned --iomem_align=77 2>/dev/null
	cleared "$engine, misaligned"
	whole "$engine, misaligned: the file can be written and read" --rw=write
done
finish
