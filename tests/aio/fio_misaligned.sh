#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# fio makes requests all of which direct I/O refuses, by buffer, length, offset or all three, each by
# another amount, and finds what it wrote. Its buffers begin iomem_align bytes into a page, and
# follow each other at the distance of the largest block; offsets are multiples of the smallest.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need fio jq

MIX=(--rw=randrw --verify=crc32c --bs_unaligned)
JOBS=(
	--name=single --bs=513 --iodepth=1 --size=256k --iomem_align=1
	--name=deep --bs=4099 --iodepth=128 --size=2m --iodepth_batch_submit=32
	--iodepth_batch_complete_min=16 --iomem_align=508
	--name=mixed --bssplit=521/40:1042/20:8336/20:65125/20 --iodepth=32 --size=2m
	--verify_backlog=64 --iomem_align=77
	--name=large --bssplit=65537/50:589833/30:4063294/20 --iodepth=16 --size=24m
	--iomem_align=4
	--name=largest --bs=4194303 --iodepth=4 --size=24m --iomem_align=333
	--name=buffers --bsrange=512-128k --iodepth=32 --size=8m --iomem_align=511
	--name=lengths --bs=511 --iodepth=16 --size=128k --iomem_align=512
)
# Of two jobs, each writes what the other leaves out: they share every block.
NEIGHBOURS=(
	--verify=crc32c --bs_unaligned --filename=neighbours --filesize=521000 --rw=write:521 --bs=521
	--iodepth=16 --io_size=130250 --size=260500 --iomem_align=3
	--name=even --offset=0 --name=odd --offset=521
)

# refused NAME ARGUMENT...: without the libraries each of these jobs fails.
refused() {
	local name=$1 jobs

	shift
	rm -rf "$FILES"
	mkdir "$FILES"
	"${FIO[@]}" --output="$TMP/fio.out" "$@" >"$TMP/fio.err" 2>&1
	jobs=$(sed '/^{/,$!d' "$TMP/fio.out" | jq -c '[.jobs[] | [.jobname, .error]]')
	check "$name is what direct I/O refuses" jq -e 'all(.[1] == 22)' <<<"$jobs"
}

# repaired LABEL: of what verified() ran.
repaired() {
	equal "$1: every request is repaired, every byte of it transferred" \
		"$(counter bounced)" "$(counter submitted)" "$(counter repaired)" "$(counter submitted)" \
		"$(counter partial)" 0 "$(counter bytes)" "$(issued io_bytes)"
}

refused "every job" "${MIX[@]}" --continue_on_error=none "${JOBS[@]}"
refused "writing in turn" "${NEIGHBOURS[@]}"

for engine in "${ENGINES[@]}"; do
	for way in "${WAYS[@]}"; do
		verified "$engine, $way" "$engine" "$way" "${MIX[@]}" "${JOBS[@]}"
		repaired "$engine, $way"
		verified "$engine, $way that share blocks" "$engine" "$way" "${NEIGHBOURS[@]}"
		repaired "$engine, $way that share blocks"
	done
done

# A device of 4096-byte blocks refuses what one of 512 takes. Detached in use, it goes with the last user.
truncate -s 16M "$TMP/image"
if device=$(losetup --show -f -b 4096 --direct-io=on "$TMP/image" 2>"$TMP/losetup.err"); then
	exec {user}<"$device"
	losetup -d "$device"
	for engine in "${ENGINES[@]}"; do
		for way in "${WAYS[@]}"; do
			verified "$engine, $way, 4096-byte blocks" "$engine" "$way" --rw=randrw \
				--verify=crc32c --bs=512 --iodepth=32 --directory=/dev \
				--filename="${device#/dev/}" --numjobs=2 --size=128k \
				--offset_increment=128k --name=small
			repaired "$engine, $way, 4096-byte blocks"
		done
	done
	exec {user}<&-
else
	skip "4096-byte blocks" "no loop device: $(head -n 1 "$TMP/losetup.err")"
fi
finish
