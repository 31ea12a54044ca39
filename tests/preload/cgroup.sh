#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# In a real memory cgroup, of whichever version is here: a program that asks for more than it may have gets
# an error or memory that is not pinned, and the OOM killer is never woken.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
. "$(dirname "$0")/holders.bash"
need jq python3

group=
# Version 1, or 2 with the controller handed down.
if [[ $(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/mounts) == /* ]]; then
	version=1
	top=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/mounts)
	limit=memory.limit_in_bytes
else
	version=2
	top=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	limit=memory.max
	[[ -n $top ]] || skip_all "no cgroups here"
	{ echo +memory >"$top/cgroup.subtree_control"; } 2>/dev/null
fi
top+=/pinshim-test.$$
mkdir "$top" 2>/dev/null || skip_all "no cgroup can be made here"
[[ -e $top/$limit ]] || {
	rmdir "$top"
	skip_all "the memory controller is not to be had here"
}

# shellcheck disable=SC2317 # at exit
remove_groups() {
	find "$top" -depth -type d -exec rmdir {} \; 2>/dev/null
}
trap 'remove_groups; case_exit' EXIT

# group NAME MIB: makes one below the test's own, or sets its limit; $group is where it is.
group() {
	group=$top/$1
	mkdir -p "$group"
	[[ $version == 1 ]] || echo +memory >"$top/cgroup.subtree_control"
	echo $(($2 << 20)) >"$group/$limit"
}

# within COMMAND...: runs it in the group. Swap would hide that there is no room.
within() {
	bash -c 'echo 0 >"$0/memory.swap.max"; echo $$ >"$0/cgroup.procs" && shift 0 && exec "$@"' "$group" "$@" \
		2> >(grep -v 'memory.swap.max' >&2)
}

# killed: how many processes the OOM killer has ended in the group.
killed() {
	sed -n 's/^oom_kill //p' "$group/memory.oom_control" "$group/memory.events" 2>/dev/null
}

# ask WAY BLOCK TOTAL [VARIABLE=VALUE...]: a holder that asks for that much in the group. $locked is what it got in
# MiB, $TMP/err what was said.
ask() {
	local way=$1 block=$2 total=$3

	shift 3
	within env LD_PRELOAD="$LIB" PINSHIM_MALLOC=1M- PINSHIM_STATS="$TMP/report.json" "$@" \
		"$PROGRAMS/holder" "$way" "$block" "$total" <<<$'\n' >"$TMP/out" 2>"$TMP/err"
	status=$?
	read -r _ locked <"$TMP/out" || locked=-1
}

figures='pinning [0-9.]+ [GM]iB was refused: of memory cgroup [^ ]* the limit less PINSHIM_RESERVE is'
group one 256
for block in 2 16 100; do
	ask malloc $block 1024
	check "256 MiB, 1 GiB of malloc in blocks of $block MiB: it lives, and has what fits" \
		test "$status,$((locked > 120 && locked <= 244)),$(killed)" = 0,1,0
	check "256 MiB, blocks of $block MiB: cgroup, figures and remedy are said, once" test \
		"$(message_count "$TMP/err" "$figures 243\.2 MiB and [0-9.]+ MiB of it is in use: .*memory.max"),$(wc -l <"$TMP/err")" = 1,1
	check "256 MiB, blocks of $block MiB: and the cgroup is the right one" grep -qF "memory cgroup $group " "$TMP/err"
	check "256 MiB, blocks of $block MiB: refused by the cgroup alone" test \
		"$(jq -c '.refused | to_entries | map(select(.value > 0).key)' "$TMP/report.json")" = '["cgroup"]'
done
ask malloc 1024 1024
check "256 MiB, one block of 1 GiB: is not pinned" test "$status,$locked,$(killed)" = 0,0,0
ask alloc 1024 1024
check "256 MiB, pinshim_alloc of 1 GiB: an error" test "$status,$locked,$(killed)" = 0,0,0
ask pin 1024 1024
check "256 MiB, pinshim_pin of 1 GiB: an error" test "$status,$locked,$(killed)" = 0,0,0
ask alloc 16 1024 PINSHIM_THREADS=4
check "256 MiB, pinshim_alloc of 16 MiB until it is refused" test "$status,$((locked > 180 && locked <= 244)),$(killed)" = 0,1,0
within env LD_LIBRARY_PATH="$BUILD/tests/fakes" LD_PRELOAD="$LIB" PINSHIM_STATS="$TMP/report.json" \
	python3 - >"$TMP/out" 2>"$TMP/err" <<-'END'
		import ctypes
		runtime = ctypes.CDLL("libcudart.so.13")
		pointer = ctypes.c_void_p()
		print(runtime.cudaHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 30), 0), pointer.value)
		print(runtime.cudaHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(64 << 20), 0), bool(pointer.value))
	END
check "256 MiB, cudaHostAlloc of 1 GiB: CUDA's out of memory; of 64 MiB: served" \
	test "$(xargs <"$TMP/out"),$(killed)" = "2 None 0 True,0"

# What goes on outside of the group is none of its business.
coproc CHURN { exec env LD_PRELOAD="$LIB" PINSHIM_MALLOC=1M- PINSHIM_RETAIN=0 PINSHIM_STATS=off "$PROGRAMS/killed"; }
churn=$CHURN_PID
read -r _ <&"${CHURN[0]}"
for block in 2 16; do
	ask malloc $block 1024
	check "256 MiB, blocks of $block MiB, while somebody else pins and unpins: has what fits" \
		test "$status,$((locked > 200 && locked <= 244)),$(killed)" = 0,1,0
done
kill "$churn"
{ wait "$churn"; } 2>/dev/null
"$BUILD/pinshim" stat --reap >/dev/null 2>&1

# What of the group's memory is in use by others counts, what is page cache does not.
within env LD_PRELOAD="$LIB" PINSHIM_MALLOC=48M- PINSHIM_STATS="$TMP/report.json" python3 -c '
used = [bytearray(b"x" * (1 << 20)) for _ in range(150)]
import ctypes
ctypes.CDLL(None).malloc.restype = ctypes.c_void_p
small, large = (ctypes.CDLL(None).malloc(ctypes.c_size_t(size << 20)) for size in (50, 100))' 2>"$TMP/err"
check "150 MiB of a program's own: 50 are pinned, 100 more are refused" test "$?,$(killed),$(jq -c \
	'[.total.served, .total.fallback, .refused.cgroup]' "$TMP/report.json")" = '0,0,[1,1,1]'
within dd if=/dev/zero of="$TMP/cached" bs=1M count=200 status=none
ask malloc 16 160
check "200 MiB of page cache are room" test "$status,$((locked >= 160)),$(killed)" = 0,1,0
rm "$TMP/cached"

# The tightest of those above counts.
group outer 256
[[ $version == 1 ]] || echo +memory >"$top/outer/cgroup.subtree_control"
group outer/inner 1024
ask malloc 16 1024
check "1 GiB inside of 256 MiB: what the outer one allows" test "$status,$((locked > 180 && locked <= 244)),$(killed)" = 0,1,0
check "1 GiB inside of 256 MiB: and that is named" grep -qF "memory cgroup $top/outer the limit" "$TMP/err"
group outer/inner 128
ask malloc 16 1024
check "128 MiB inside of 256 MiB: what the inner one allows" test "$status,$((locked > 60 && locked <= 122)),$(killed)" = 0,1,0
check "128 MiB inside of 256 MiB: and that is named" grep -qF "memory cgroup $top/outer/inner the limit" "$TMP/err"

# Eight ranks at once: each sees room for itself, and together they would be killed.
group many 1024
for shape in "8 300 300" "4 600 600" "8 20 300" "8 2 300"; do
	read -r count block sum <<<"$shape"
	mapfile -t all < <(seq "$count")
	for n in "${all[@]}"; do
		hold "$n" within env LD_PRELOAD="$LIB" PINSHIM_MALLOC=1M- PINSHIM_STATS=off PINSHIM_LOG=error \
			"$PROGRAMS/holder" malloc "$block" "$sum"
	done
	go "${all[@]}"
	read -r answers _ got < <(locked "${all[@]}")
	check "$count processes, $sum MiB each in blocks of $block, at once in 1 GiB: none is killed" \
		test "$answers,$(killed)" = "$count,0"
	check "$count processes, blocks of $block MiB: they have what fits ($got MiB)" test "$got" -ge 600 -a "$got" -le 973
	end "${all[@]}"
done
finish
