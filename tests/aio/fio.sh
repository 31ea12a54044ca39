#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# fio mixes random reads and writes of 512 bytes to 4 MiB, 1 to 128 of them in flight, from several
# processes and from several threads, and finds what it wrote.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need fio jq

MIX=(--rw=randrw --verify=crc32c)
JOBS=(
	--name=deep --bs=4k --iodepth=128 --size=8m --iodepth_batch_submit=32
	--iodepth_batch_complete_min=16
	--name=mixed --bsrange=512-128k --iodepth=32 --size=16m --verify_backlog=64
	--name=large --bsrange=64k-4m --iodepth=16 --size=48m
	--name=largest --bs=4m --iodepth=4 --size=48m
	--name=shared --filename=shared --bs=16k --iodepth=8 --size=8m --numjobs=2
	--offset_increment=8m
)
CONTEXTS=6

# rings_of ENGINE WAY: how many contexts are to have a ring.
rings_of() {
	case $1-$2 in
	auto-processes | uring-*) echo $CONTEXTS ;;
	*) echo 0 ;;
	esac
}

for engine in "${ENGINES[@]}"; do
	for way in "${WAYS[@]}"; do
		label="$engine, $way"
		verified "$label" "$engine" "$way" "${MIX[@]}" "${JOBS[@]}"
		rings=$(rings_of "$engine" "$way")
		equal "$label: $rings of $CONTEXTS contexts have a ring, to the end" \
			"$(counter contexts)" $CONTEXTS "$(counter rings)" "$rings" "$(counter settled)" 0
		equal "$label: what is aligned goes as it is, every byte of it" \
			"$(counter bounced) + $(counter passed) + $(counter partial)" 0 \
			"$(counter bytes)" "$(issued io_bytes)"
		if ! locks; then
			skip "$label: registered buffers" "no memory could be locked"
		elif ((rings > 0)); then
			# A buffer may lie in two registered pieces.
			check "$label: pinned buffers are registered" \
				test "$(counter fixed)" -gt "$((100 * $(counter direct)))"
		else
			equal "$label: nothing is registered" "$(counter fixed)" 0
		fi

		# Its buffer of less than 64 KiB is not pinned.
		verified "$label, one at a time" "$engine" "$way" "${MIX[@]}" \
			--name=single --bs=512 --iodepth=1 --size=256k
		equal "$label, one at a time: none needs a copy" "$(counter direct)" \
			"$(counter submitted)"
	done
done

# fio reads the kernel's completion ring itself where it can.
for engine in "${ENGINES[@]}"; do
	for way in "${WAYS[@]}"; do
		verified "$engine, $way, reaping in user space" "$engine" "$way" "${MIX[@]}" \
			--userspace_reap --iodepth_batch_complete_min=0 \
			--name=reaper --bsrange=4k-64k --iodepth=16 --size=8m
	done
	# fio makes these before its first request.
	verified "$engine, threads that verify" "$engine" processes "${MIX[@]}" --verify_async=2 \
		--name=verifiers --bsrange=4k-64k --iodepth=16 --size=8m
done
finish
