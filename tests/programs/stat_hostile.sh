#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pinshim stat in a directory where others have put what they like; other users' tables; many tables.
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
# shellcheck source=tests/programs/tables.bash
. "$(dirname "$0")/tables.bash"
need python3 jq
ulimit -c 0

living 3

# good: a living process's table, beside whatever is in the directory.
good() {
	table "${living[0]}" program=good pinned_bytes=4096 ranges=100
}

# survives NAME: every format of the directory as it is comes out whole, in 1 GiB of memory and however
# many files are damaged, and the good process is in it.
survives() {
	local name=$1 status=0 format

	for format in --ranges --json '--json --ranges' --prometheus '--watch=0.05 --times=2'; do
		# shellcheck disable=SC2086 # two options
		(ulimit -v 1048576 && exec timeout 60 "$tool" stat --directory="$TABLES" $format) \
			>"$TMP/out" 2>"$TMP/err"
		(($? <= 1)) || status=$?
		[[ $format != --json* ]] || jq -e '.processes[] | select(.report.program == "good")' \
			<"$TMP/out" >/dev/null 2>>"$TMP/err" || status=$format
		[[ $format != --prometheus ]] || "$TOP/tests/programs/exposition.py" "$TMP/out" \
			>>"$TMP/err" || status=$format
		grep -q good "$TMP/out" || status=$format
		! grep -q '[^[:print:][:space:]]' "$TMP/err" || status=$format
		[[ $status == 0 ]] || break
	done
	if [[ $status == 0 ]]; then
		ok "$name"
	else
		notok "$name" "$format: $status"$'\n'"$(cat "$TMP/out" "$TMP/err" | tail -n 20)"
	fi
}

# Random damage to a table and its header above all, with extreme numbers, as a process that lives.
cat >"$TMP/damage.py" <<'END'
import os, random, struct, sys
table, directory, seed, pids = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
image = open(table, "rb").read()
random.seed(seed)
extreme = [0, 1, 0xFF, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, 2**20, 2**20 + 1, 65536]
for number in range(60):
    data = bytearray(image)
    pid, start = 4000000 + number, number + 1
    if number % 3 == 0:
        pid = int(pids[number // 3 % len(pids)])
        start = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19])
        start += number // 3 // len(pids)
    struct.pack_into("<II", data, 16, pid, os.getuid())
    struct.pack_into("<Q", data, 24, start)
    for _ in range(random.randrange(1, 30)):
        where = random.choice([random.randrange(40, len(data) - 8), random.randrange(40, 600),
                               random.randrange(0, 40) if number % 5 == 0 else 300])
        size = random.choice([1, 4, 8])
        what = random.choice([random.getrandbits(64), random.choice(extreme)])
        data[where:where + size] = struct.pack("<Q", what)[:size]
    if number % 7 == 0:
        del data[random.randrange(len(data)):]
    name = f"{directory}/pinshim.{pid}.{start}"
    if os.path.lexists(name) and not os.path.islink(name) or name == table:
        continue
    kind = random.randrange(12)
    if kind == 0:
        os.symlink(random.choice([table, "/etc/passwd", name, "/nowhere"]), name)
    elif kind == 1:
        os.mkfifo(name)
    elif kind == 2:
        os.mkdir(name)
    else:
        with open(name, "wb") as out:
            out.write(data)
            if kind == 3:
                out.truncate(random.choice([1 << 40, 1 << 36, len(data) + 1]))
END
for seed in 1 2 3 4 5 6 7 8; do
	rm -rf "$TABLES"
	mkdir "$TABLES"
	good
	python3 "$TMP/damage.py" "$(echo "$TABLES"/pinshim.*)" "$TABLES" $seed "${living[@]}"
	survives "random damage $seed"
done

# Tables with as many ranges as there can be, and more, all of them holes in a file of a terabyte.
rm -rf "$TABLES"
mkdir "$TABLES"
good
for claim in $((1 << 20)) $(((1 << 20) + 1)) $((0xffffffff)); do
	python3 - "$(echo "$TABLES/pinshim.${living[0]}."*)" "$TABLES" $claim <<'END'
import struct, sys
with open(sys.argv[1], "rb") as file:
    data = bytearray(file.read())
claim = int(sys.argv[3])
struct.pack_into("<I", data, 16, claim & 0x7fffffff)
struct.pack_into("<Q", data, 24, 1)
struct.pack_into("<II", data, data.index(struct.pack("<II", 100, 100)), claim, claim)
with open(f"{sys.argv[2]}/pinshim.{claim & 0x7fffffff}.1", "wb") as file:
    file.write(data)
    file.truncate(1 << 40)
END
done
survives "tables of holes"
check "what has more ranges than a table can is none" run 1
check "which is said" test "$(grep -c 'not a table' "$TMP/err")" = 2

# The program's and the job's name are another process's to choose.
table "${living[1]}" program=$'\033]0;x\007\xff' rank=$'\r\n{}"' job=$'x\n# HELP y' local_rank=$'\\"'
survives "names with control characters"
run 0 >/dev/null
check "reach no terminal" bash -c "! LC_ALL=C grep -q '[^[:print:]]' '$TMP/out'"
check "and make no line" test "$(grep -c '^# HELP y' "$TMP/out")" = 0

# What is called like a process's table and says it is another's.
mv "$TABLES/pinshim.${living[1]}."* "$TABLES/pinshim.4000002.3"
check "another's name: exits 1" run 1
check "another's name: is no table" grep -q "pinshim.4000002.3: not a table" "$TMP/err"

# Links are not followed, neither to read nor to remove.
rm -rf "$TABLES"
mkdir "$TABLES"
table 4000003 start_time=5 program=dead
mv "$TABLES/pinshim.4000003.5" "$TMP/target"
ln -s "$TMP/target" "$TABLES/pinshim.4000003.5"
check "a link to a table: exits 1" run 1 --reap
check "a link to a table: not shown" bash -c "! grep -q dead '$TMP/out'"
check "a link to a table: not removed, nor what it points to" test -L "$TABLES/pinshim.4000003.5" -a -f "$TMP/target"

# Other users.
if [[ $(id -u) == 0 ]] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
	other=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	chmod 755 "$TMP"
	mkdir -m 1777 "$TMP/shm"
	install -m 755 "$tool" "$TMP/pinshim"
	env LD_PRELOAD="$LIB" PINSHIM_MALLOC=1M- PINSHIM_STATS=off python3 -c '
import time
block = bytearray(8 << 20)
print("ready", flush=True)
time.sleep(60)' >"$TMP/ready" 2>"$TMP/holder.err" &
	holder=$!
	for ((i = 0; i < 200; i++)); do
		[[ ! -s $TMP/ready ]] || break
		sleep 0.05
	done
	mine=$(echo "/dev/shm/pinshim.$holder."*)
	check "a table's mode is 0600" test "$(stat -c %a "$mine")" = 600
	check "another user cannot read it" bash -c "! ${other[*]} cat '$mine' 2>/dev/null"
	check "nor write it" bash -c "! ${other[*]} sh -c ': >>\"$mine\"' 2>/dev/null"
	check "nor remove it" bash -c "! ${other[*]} rm -f '$mine' 2>/dev/null && test -e '$mine'"
	check "nor put another in its place" bash -c \
		"${other[*]} touch '/dev/shm/pinshim.$holder.1' && ! ${other[*]} mv -f '/dev/shm/pinshim.$holder.1' '$mine' 2>/dev/null"
	rm -f "/dev/shm/pinshim.$holder.1"
	"${other[@]}" "$TMP/pinshim" stat >"$TMP/out" 2>"$TMP/err"
	check "another user's stat does not show it, nor fail for it" test "$?$(grep -c " $holder " "$TMP/out")" = 00
	"${other[@]}" "$TMP/pinshim" stat "$holder" >"$TMP/out" 2>"$TMP/err"
	check "asked for it exits 1" test $? = 1
	check "and says whose it is" grep -q 'of another user' "$TMP/err"
	"${other[@]}" "$TMP/pinshim" stat --reap >"$TMP/out" 2>"$TMP/err"
	check "another user's --reap leaves it" test -e "$mine"
	"$tool" stat "$holder" >"$TMP/out"
	check "its own user sees it" grep -q " $holder alive" "$TMP/out"
	{ kill "$holder" && wait "$holder"; } 2>/dev/null
	rm -f "$mine"

	# What anybody may say is what a process of their own has.
	rm -f "$TABLES"/*
	"${other[@]}" sleep 60 &
	theirs=$!
	end_living 2>/dev/null
	living
	for ((tries = 0; tries < 100; tries++)); do
		[[ $(<"/proc/$theirs/comm") != sleep ]] || break
		sleep 0.1
	done
	for pid in "$theirs" "${living[0]}"; do
		table "$pid" pinned_bytes=4096
	done
	chown 65534 "$TABLES"/*
	check "a user's table of a process of root's: exits 1" run 1
	check "it is not shown" test "$(grep -c " ${living[0]} " "$TMP/out")" = 0
	check "and why is said" grep -q "pinshim.${living[0]}.*of another user than its owner" "$TMP/err"
	check "that of a process of their own is shown to root" grep -q " $theirs alive" "$TMP/out"
	{ kill "$theirs" && wait "$theirs"; } 2>/dev/null
	end_living
else
	skip "other users' tables" "needs root"
fi

# Many. How long it takes is printed; that each costs a few system calls is what is checked.
rm -rf "$TABLES"
mkdir "$TABLES"
end_living 2>/dev/null
living 200
for i in "${!living[@]}"; do
	table "${living[i]}" job="job-$((i / 8))" rank="$((i % 8))" pinned_bytes=$((i << 20)) ranges=64
done
begun=${EPOCHREALTIME/./}
check "200 tables: exits 0" run 0
echo "200 tables took $(((${EPOCHREALTIME/./} - begun) / 1000)) ms"
check "200 tables: all are shown" grep -qE '^total +200 alive' "$TMP/out"
check "200 tables: 25 jobs of 8" test "$(grep -cE '^job job-[0-9]+ +8 alive' "$TMP/out")" = 25
if type -P strace >/dev/null && strace -o /dev/null true 2>/dev/null; then
	strace -o "$TMP/trace" "$tool" stat --directory="$TABLES" >/dev/null
	calls=$(wc -l <"$TMP/trace")
	echo "with $calls system calls"
	check "200 tables: at most 20 system calls each" test "$calls" -lt 4000
else
	skip "200 tables: few system calls" "strace does not work here"
fi
end_living 2>/dev/null
finish
