#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# DeepSpeed's DeepNVMe without and with the two libraries: its aio_handle, whose misaligned requests are put
# right; its benchmark ds_io; training that swaps to files; its native pinned memory.
# The counters are compared with what DeepSpeed says that it did.
. "$(dirname "$0")/../lib/case.sh"

clients=${CLIENTS:-$BUILD/clients}
python=$clients/bin/python
[[ -e $clients/extensions/complete ]] ||
	skip_all "DeepSpeed is not there: $(cat "$clients/missing" 2>/dev/null || echo "run scripts/setup --clients")"
need jq
locks || skip_all "memory cannot be locked here without limit"
export PATH=$clients/bin:$PATH DS_ACCELERATOR=cpu TORCH_EXTENSIONS_DIR=$clients/extensions
ENGINES=(auto uring libaio)

# run NAME ENGINE COMMAND...: what it says is in $TMP/NAME.log. ENGINE plain is without the libraries.
run() {
	local name=$1 engine=$2 shims=()

	shift 2
	[[ $engine == plain ]] || shims=(LD_PRELOAD="$LIB $AIO_LIB" PINSHIM_MALLOC=64K- PINSHIM_AIO="$engine"
		PINSHIM_STATS="$TMP/$name.%p.json")
	env TORCHELASTIC_RUN_ID="$name.$$" "${shims[@]}" "$@" >"$TMP/$name.log" 2>&1
	check "$name: ends with 0" test $? = 0
}

# The counters of a run, which the name of a case begins with.
# shellcheck disable=SC2317 # equal calls it
evidence() {
	jq -c '[.program, .aio]' "$TMP/${1%%:*}.all"
}

# total NAME EXPRESSION: summed up over the reports of all processes of a run, and over the tables of those
# that were killed, as Python's pools end their workers. The tables go.
total() {
	local name=$1 pid

	if [[ ! -e $TMP/$name.all ]]; then
		cat "$TMP/$name".*.json >"$TMP/$name.all"
		"$BUILD/pinshim" stat --json | jq -c --arg job "$name.$$" \
			'.processes[].report | select(.job == $job)' >"$TMP/$name.killed"
		for pid in $(jq .pid "$TMP/$name.killed"); do
			rm -f /dev/shm/pinshim."$pid".*
		done
		cat "$TMP/$name.killed" >>"$TMP/$name.all"
	fi
	jq -s "map($2) | add // 0" "$TMP/$name.all"
}

# aio_handle.

nvme() {
	local name=nvme.$1

	mkdir "$TMP/$name"
	run "$name" "$1" "$python" "$TOP/tests/clients/nvme.py" "$TMP/$name"
	rm -r "${TMP:?}/$name"
	sed -n 's/^case //p' "$TMP/$name.log" >"$TMP/$name.cases"
	read -r requests bytes misaligned < <(sed -n 's/^asked //p' "$TMP/$name.log")
}

nvme plain
check "nvme.plain: a file is empty, what is read is wrong, and all is said to have succeeded" \
	diff - <(head -n 3 "$TMP/nvme.plain.cases") <<'END'
1000003 bytes written, misaligned: nothing
1000003 bytes read, misaligned: 1000003 bytes, wrong
narrowed read, misaligned: 524288 bytes, wrong
END
check "nvme.plain: what is aligned is right" \
	diff /dev/null <(grep -v -e ', misaligned: ' -e ': right$' "$TMP/nvme.plain.cases")
check "nvme.plain: what is misaligned is wrong" \
	diff /dev/null <(grep ', misaligned: right$' "$TMP/nvme.plain.cases")
cases=$(wc -l <"$TMP/nvme.plain.cases")
for engine in "${ENGINES[@]}"; do
	name=nvme.$engine
	nvme "$engine"
	check "$name: every byte is right" diff /dev/null <(grep -v ': right$' "$TMP/$name.cases")
	check "$name: in as many cases" test "$(wc -l <"$TMP/$name.cases")" = "$cases"
	equal "$name: as many requests and bytes as DeepSpeed asked for" \
		"$(total "$name" .aio.submitted)" "$requests" "$(total "$name" .aio.bytes)" "$bytes"
	equal "$name: the misaligned ones were repaired, none failed" \
		"$(total "$name" .aio.repaired)" "$misaligned" "$(total "$name" .aio.failed)" 0
done

# ds_io.

DS_IO_BYTES=$((64 << 20)) DS_IO_LOOPS=3

# ds_io NAME ENGINE OPTION...: says "Pass" of each loop once it has compared the file with the memory.
ds_io() {
	local name=$1 engine=$2

	shift 2
	run "$name" "$engine" ds_io --folder "$TMP/ds_io" --io_size "$DS_IO_BYTES" --block_size 1M --validate \
		--warmup_loops 1 --loops $((DS_IO_LOOPS - 1)) "$@"
	check "$name: memory and file are the same after each loop" \
		test "$(grep -c '^Pass' "$TMP/$name.log")/$(grep -c '^Fail' "$TMP/$name.log")" = "$DS_IO_LOOPS/0"
	check "$name: it says how fast that was" test "$(grep -cE '^(Task|E2E) .* (Latency|Speed) = [0-9]' \
		"$TMP/$name.log")" = 4
}

ds_io_counted() {
	local name=$1

	ds_io "$@"
	equal "$name: as many requests and bytes as it says, none failed" \
		"$(total "$name" .aio.submitted)" "$DS_IO_LOOPS * $DS_IO_BYTES >> 20" \
		"$(total "$name" .aio.bytes)" "$DS_IO_LOOPS * $DS_IO_BYTES" "$(total "$name" .aio.failed)" 0
}

mkdir "$TMP/ds_io"
ds_io ds_io.read.plain plain --read
ds_io ds_io.write.plain plain
for engine in "${ENGINES[@]}"; do
	ds_io_counted "ds_io.read.$engine" "$engine" --read
done
ds_io_counted ds_io.write.auto auto
# The others' are the kernel's AIO's: DeepSpeed has several threads, and a write that extends its file.
equal "ds_io.read.uring: all had registered buffers" \
	"$(total ds_io.read.uring .aio.fixed)" "$(total ds_io.read.uring .aio.submitted)"

# Training that swaps.
for engine in plain auto libaio; do
	name=swap.$engine
	mkdir "$TMP/$name"
	run "$name" "$engine" "$python" "$TOP/tests/clients/swap.py" "$TMP/$name"
	rm -r "${TMP:?}/$name"
	grep '^loss ' "$TMP/$name.log" >"$TMP/$name.losses"
	check "$name: there is a loss in each step" test "$(grep -c '^loss -*0x' "$TMP/$name.losses")" = 4
	[[ $engine != plain ]] || continue
	check "$name: they are the same, bit for bit" diff "$TMP/swap.plain.losses" "$TMP/$name.losses"
	read -r requests bytes < <(sed -n 's/^asked //p' "$TMP/$name.log")
	equal "$name: as many requests and bytes as were swapped, none bounced or failed" \
		"$(total "$name" .aio.submitted)" "$requests" "$(total "$name" .aio.bytes)" "$bytes" \
		"$(total "$name" .aio.bounced)" 0 "$(total "$name" .aio.failed)" 0
done

# Native pinned memory.

run pinned.plain plain "$python" "$TOP/tests/clients/pinned.py"
check "pinned.plain: DeepSpeed says what it pinned" \
	grep -x 'tracked 6 105988676' "$TMP/pinned.plain.log"
run pinned.ours auto "$python" "$TOP/tests/clients/pinned.py" "$BUILD/pinshim"
check "pinned.ours: as many blocks and bytes were served, and freed" \
	diff - <(grep -E '^(tracked|served|fallback|freed) ' "$TMP/pinned.ours.log") <<'END'
tracked 6 105988676
served 6 105988676
fallback 0 0
freed 6 -6
END
finish
