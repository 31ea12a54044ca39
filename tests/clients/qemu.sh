#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# QEMU's block layer with aio=native: images of several formats are as without the libraries, byte for byte, and
# every request it makes is counted. It waits for an eventfd and reads the kernel's completion ring itself,
# so bytes are not.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq qemu-img qemu-io setpriv
qemu-img bench --help 2>&1 | grep -q native || skip_all "this QEMU has no aio=native"

COUNT=400
NATIVE=(-t none -i native)

# io FORMAT IMAGE COMMAND...: qemu-io; its output without the times.
io() {
	local format=$1 image=$2 command commands=()

	shift 2
	for command; do
		commands+=(-c "$command")
	done
	timeout 30 "${WITH[@]}" qemu-io -f "$format" "${NATIVE[@]}" "${commands[@]}" "$image" 2>&1 |
		sed -E 's/; [0-9.:]+ .*\(.*\)$//; /^pinshim/d'
}

# work FORMAT IMAGE: writes of all kinds and sizes, each read back; qemu-io says so where it is not what
# was written.
work() {
	io "$1" "$2" 'write -P 1 0 1M' 'write -P 2 1049088 512' 'aio_write -P 3 3M 2M' \
		'aio_write -P 4 8M 64k' aio_flush 'write -P 5 12345 4321' 'writev -P 6 10M 4k 64k 512' \
		'write -z 4M 64k' 'discard 3M 512k' 'aio_write -P 7 20M 8M' 'aio_write -P 8 30M 4k' aio_flush
	io "$1" "$2" 'read -P 1 0 12288' 'read -P 5 12345 4321' 'read -P 1 16896 4k' 'read -P 2 1049088 512' \
		'read -P 3 3584k 512k' 'read -P 0 4M 64k' 'read -P 3 4160k 960k' 'read -P 4 8M 64k' \
		'readv -P 6 10M 4k 64k 512' 'read -P 7 20M 8M' 'aio_read -P 8 30M 4k' aio_flush \
		'read -P 0 40M 8M'
}

# session DIRECTORY: what can be compared is printed.
session() {
	local image=$FILES/$1/image format

	mkdir -m 1777 "$FILES/$1"
	for format in raw qcow2 vmdk; do
		"${WITH[@]}" qemu-img create -q -f $format "$image.$format" 64M
		work $format "$image.$format"
		"${WITH[@]}" qemu-img map --output=json "$image.$format" | jq -c 'map([.start, .length, .zero])'
	done
	"${WITH[@]}" qemu-img convert -t none -T none -f raw -O qcow2 "$image.raw" "$image.copy.qcow2"
	"${WITH[@]}" qemu-img convert -t none -T none -W -m 8 -f qcow2 -O raw "$image.copy.qcow2" "$image.copy.raw"
	"${WITH[@]}" qemu-img compare "$image.raw" "$image.copy.raw"
	"${WITH[@]}" qemu-img check -q "$image.qcow2" && echo checked
	# A raw image's bytes are its content; the others say which of theirs are.
	(cd "$FILES/$1" && sha256sum image.raw image.copy.raw)
}

# bench IMAGE WHAT [ARGUMENT]...: some requests of 64 KiB.
bench() {
	local image=$1

	shift
	timeout 30 "${WITH[@]}" qemu-img bench "${NATIVE[@]}" -f raw -c $COUNT -d 16 -s 64k "$@" "$image" \
		>"$TMP/bench" 2>&1
}

with plain
session plain >"$TMP/plain"
check "plain: what is read is what was written" bash -c "! grep -i -E 'fail|error' '$TMP/plain'"
for engine in "${ENGINES[@]}"; do
	with "$engine"
	session "$engine" >"$TMP/$engine"
	check "$engine: the same output, maps and bytes" diff "$TMP/plain" "$TMP/$engine"
	for format in raw qcow2 vmdk; do
		check "$engine: qemu without the libraries finds the same in $format" qemu-img compare -f $format \
			-F $format "$FILES/plain/image.$format" "$FILES/$engine/image.$format"
	done
	equal "$engine: requests are made, all direct" "$(counter submitted) > 100" 1 \
		"$(counter direct) + $(counter fixed)" "$(counter submitted)"
	for way in "" "-w --pattern=0x5a"; do
		with "$engine"
		# shellcheck disable=SC2086 # two options
		bench "$FILES/$engine/image.raw" $way
		check "$engine: bench $way" test $? = 0
		equal "$engine: bench $way: each of its requests is counted" "$(counter submitted)" $COUNT \
			"$(counter direct) + $(counter fixed)" $COUNT "$(counter contexts)" 1
	done
	check "$engine: what bench wrote is there" test \
		"$(head -c $((COUNT * 65536)) "$FILES/$engine/image.raw" | tr -d Z | wc -c)" = 0
	! locks || check "$engine: its buffers are pinned" test "$(report 'map(.total.served) | add')" -gt 0
	rm -r "${FILES:?}/$engine"
done
finish
