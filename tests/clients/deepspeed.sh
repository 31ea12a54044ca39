#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# DeepSpeed's async_io on misaligned lengths and pointers, without and with the two libraries.
. "$(dirname "$0")/../lib/case.sh"

python=${CLIENTS:-$BUILD/clients}/bin/python
"$python" -c 'import deepspeed' 2>/dev/null || skip_all "DeepSpeed is not there (scripts/setup --clients)"
need jq
PATH=${python%/*}:$PATH
export DS_ACCELERATOR=cpu TORCH_EXTENSIONS_DIR=${TORCH_EXTENSIONS_DIR:-${python%/bin/*}/extensions}

# run NAME [VARIABLE=VALUE...]: the lines it prints are in $TMP/NAME.out.
run() {
	local name=$1

	shift
	mkdir -p "$TMP/$name"
	env "$@" "$python" "$TOP/tests/clients/nvme.py" "$TMP/$name" >"$TMP/$name.log" 2>&1
	check "$name: ends with 0" test $? = 0
	grep -E '^(write|read|narrowed): ' "$TMP/$name.log" >"$TMP/$name.out"
}

# Its extensions are compiled by the first run, which takes minutes.
run plain
check "plain: the file is empty, what is read is wrong, and all is said to have succeeded" \
	diff - "$TMP/plain.out" <<END
write: nothing
read: 1000003 bytes, wrong
narrowed: 524288 bytes, wrong
END
for engine in auto uring libaio; do
	run "$engine" LD_PRELOAD="$LIB $AIO_LIB" PINSHIM_MALLOC=64K- PINSHIM_AIO=$engine \
		PINSHIM_STATS="$TMP/$engine.%p.json"
	check "$engine: every byte is right" \
		diff - "$TMP/$engine.out" <<<$'write: right\nread: right\nnarrowed: right'
	check "$engine: three requests were repaired" test "$(jq -s \
		'map(.aio.repaired) | add' "$TMP/$engine".*.json)" = 3
done
finish
