#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pinshim stat: jobs and ranks, sums, sorting, asynchronous I/O.
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
# shellcheck source=tests/programs/tables.bash
. "$(dirname "$0")/tables.bash"
need jq python3

living 7
mib=$((1 << 20))
# Two jobs of three, whose ranks are in no order and one of which is dead, and one process of none.
table "${living[0]}" program=train rank=10 local_rank=2 job=run-10 pinned_bytes=$((30 * mib)) \
	pinned_peak_bytes=$((40 * mib)) served=12 freed=2 refused=1
table "${living[1]}" program=train rank=9 job=run-10 pinned_bytes=$((20 * mib)) served=5
table "${living[2]}" program=train rank=2 job=run-10 pinned_bytes=$((10 * mib)) locked_bytes=$((8 * mib))
table "${living[3]}" program=load rank=1 job=run-9 pinned_bytes=$((1 * mib)) huge_bytes=$mib refused=7
table "${living[4]}" program=load rank=0 job=run-9 pinned_bytes=$((2 * mib)) registered_bytes=$mib
table "${living[5]}" program=load rank=2 job=run-9 start_time=5 pinned_bytes=$((100 * mib))
table "${living[6]}" program=fio pinned_bytes=$((90 * mib)) aio.submitted=12345 aio.fixed=12000 \
	aio.direct=300 aio.bounced=45 aio.repaired=40 aio.failed=2 aio.partial=1 aio.bytes=$((3 * mib)) \
	aio.contexts=1 aio.rings=1

check "exits 0" run 0
check "jobs by name, their processes by rank, those of no job last" test "$(
	grep -v async "$TMP/out" | awk 'NR > 1 { print $1 == "job" ? $2 : $1 ($3 == "dead" ? "-dead" : "") }' | xargs
)" = "load load load-dead run-9 train train train run-10 fio total"
check "each with its rank" test "$(grep -E '^(load|train)' "$TMP/out" | awk '{ print $5 }' | xargs)" = "0 1 2 2 9 10"
check "a job's sum, without its dead" grep -qE '^job run-9 +2 alive +3\.0 MiB +0 B ' "$TMP/out"
check "a job's blocks and refusals" grep -qE '^job run-10 +3 alive .* 15 +1$' "$TMP/out"
check "the total of the living" grep -qE '^total +6 alive +153\.0 MiB ' "$TMP/out"
check "a line about asynchronous I/O where there was any, and in the total" test "$(
	grep -c '^    async I/O: 12345 requests: 12000 fixed, 300 direct, 45 bounced (40 repaired), 0 passed on; 2 failed, 1 partial; 3\.0 MiB; 1 context, 1 ring$' "$TMP/out"
)" = 2
check "all lines but those are as wide as the heading" test "$(
	grep -v async "$TMP/out" | awk '{ print length($0) }' | sort -u | wc -l
)" = 1

# sorted OPTIONS...: the processes' ids in the order in which they are listed, as indexes of $living.
sorted() {
	local pid i

	run 0 "$@" >/dev/null
	while read -r _ pid _; do
		for i in "${!living[@]}"; do
			[[ ${living[i]} != "$pid" ]] || printf '%s' "$i"
		done
	done < <(grep -vE '^(job|total|PROGRAM|  )' "$TMP/out")
}

check "by pinned: the job that has most first, and of it the rank" test "$(sorted --sort=pinned)" = 0125436
check "by pinned, reversed: those of no job are last all the same" \
	test "$(sorted --sort=pinned --reverse)" = 3452106
check "by peak" test "$(sorted -s peak)" = 0214356
check "by refused" test "$(sorted --sort refused)" = 3450216
check "by rank: as numbers" test "$(sorted --sort=rank)" = 4352106
check "by rank, reversed" test "$(sorted --sort=rank --reverse)" = 0125346
check "by state: the dead last" test "$(sorted --sort=state)" = 4352106
for name in program pid state backend rank pinned peak locked registered huge blocks refused aio; do
	check "there is a column $name" run 0 --sort="$name"
	check "and the help names it" grep -qw "$name" <("$tool" stat --help)
done
check "there is no other: exits 2" run 2 --sort=size
check "and says so" grep -q 'size is no column' "$TMP/err"

check "JSON: exits 0" run 0 --json
check "JSON: jobs by name" test "$(answer '.jobs[].job')" = "run-9 run-10"
check "JSON: how many" test "$(answer '.jobs[0] | .alive, .dead')" = "2 1"
check "JSON: a job's sums" test \
	"$(answer '.jobs[1] | .pinned_bytes, .pinned_peak_bytes, .locked_bytes, .live_blocks, .refusals')" = \
	"$((60 * mib)) $((40 * mib)) $((8 * mib)) 15 1"
check "JSON: the total" test "$(answer '.total | .alive, .dead, .pinned_bytes, .aio.fixed, .aio.repaired')" = \
	"6 1 $((153 * mib)) 12000 40"
check "JSON: each process's rank and job" test "$(
	answer '.processes[3].report | .rank, .local_rank, .job, .program'
)" = "2 run-10 train"
check "JSON: a dead process is there" test "$(answer '[.processes[] | select(.alive | not)] | length')" = 1
check "JSON: what asynchronous I/O did" test "$(
	answer '.processes[] | select(.report.program == "fio").report.aio | .submitted, .bounced, .bytes, .rings'
)" = "12345 45 $((3 * mib)) 1"
check "JSON: not sorted otherwise than the listing" run 0 --json --sort=pinned
check "JSON: sorted" test "$(answer '.jobs[].job')" = "run-10 run-9"

# A process once, however often it is asked for.
check "the same process twice: exits 0" run 0 "${living[0]}" "${living[0]}"
check "the same process twice: one line" test "$(grep -c "^train" "$TMP/out")" = 1

# The largest numbers there are.
table "${living[0]}" program=train job=run-10 pinned_bytes=18446744073709551615
check "sums stay at the largest number: exits 0" run 0 --json
check "sums stay at the largest number" grep -q '"job": "run-10".*"pinned_bytes": 18446744073709551615' "$TMP/out"
end_living

# As real processes say it, in reports too.
reports=$TMP/reports
mkdir "$reports"
for rank in 0 1; do
	env RANK=$rank LOCAL_RANK=$rank TORCHELASTIC_RUN_ID=none SLURM_JOB_ID=4711 LD_PRELOAD="$LIB" \
		PINSHIM_MALLOC=1M- PINSHIM_STATS="$reports/%e.%r.json" python3 -c 'x = bytearray(4 << 20)'
done
check "a report a rank" test "$(cd "$reports" && echo python3*.[01].json | wc -w)" = 2
check "with rank and job in it" test "$(
	jq -r '.rank, .local_rank, .job' "$reports"/python3*.1.json | xargs
)" = "1 1 4711"
finish
