#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The benchmark's results, from samples that are made up: figures, what is written, and bench-compare. And that a
# cheap group runs; how long anything takes is not looked at.
# shellcheck disable=SC2317 # check() calls the functions
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
need jq python3

compare=$TOP/scripts/bench-compare

# result FILE GBPS NS COUNT [STATEMENT]: writes a result with three samples of each, and runs a statement on it
# before that.
result() {
	python3 -B - "$@" <<'END' || exit
import os, sys
sys.path.insert(0, os.path.join(os.environ["TOP"], "tests", "bench"))
from common import NotMeasured, Spread
from results import Results

path, gbps, ns, count, *statements = sys.argv[1:]
results = Results(False, "", os.environ["TMP"], out=open(os.devnull, "w"))
for turn, factor in enumerate((0.99, 1.0, 1.01)):
    results.sample("disk", round=turn, seed=turn * 7, bs="4k", depth=32, gbps=float(gbps) * factor)
    results.sample("disk", round=turn, bs="1m", depth=32, gbps=2.0 * factor, locked=None)
    results.sample("pairs", round=turn, ns_per_pair=[float(ns) * factor, float(ns)], huge=float(count) * factor)
results.target("much is read", ">= 1x", 1.0, Spread([float(gbps)] * 4), "x", at_most=False, why_not="it was not")
with results.timed("disk"):
    pass
for statement in statements:
    exec(statement)
results.save(path)
results.close()
END
}

# of JSON-FILE FILTER: what jq makes of it.
of() {
	jq -c "$2" "$1"
}

# compares STATUS ARGUMENT...: the output is in $TMP/out and $TMP/err.
compares() {
	local expected=$1 status

	shift
	"$compare" "$@" >"$TMP/out" 2>"$TMP/err"
	status=$?
	((status == expected)) || {
		printf 'status %s\n' "$status"
		cat "$TMP/out" "$TMP/err"
		return 1
	}
}

# row FIGURE: mark, medians and ratio of it in the output.
row() {
	sed -nE "s/^(.).. *$1 +([^ ]+) \([^)]*\) +([^ ]+) \([^)]*\) +([^ ]+)$/\1 \2 \3 \4/p" "$TMP/out"
}

result "$TMP/a.json" 1.0 100 5
check "a result: its parts" test "$(of "$TMP/a.json" '[.schema, .quick, (.seconds_by_group | keys),
	(.samples | length), (.targets | length), (.not_measured | length)]')" = '[2,false,["disk"],9,1,0]'
check "a result: the machine, the date and the commit" of "$TMP/a.json" '.machine | [.cpu, .kernel, .disk, .filesystem,
	.date, .commit] | all(type == "string" and length > 0) // error'
check "a result: memory" of "$TMP/a.json" '.machine.ram_gib > 0 // error'
check "a figure: median, spread, number of samples" test "$(of "$TMP/a.json" \
	'.figures["disk bs=4k depth=32 gbps"]')" = '{"median":1,"low":0.99,"high":1.01,"samples":3,"better":"higher"}'
check "a figure: of lists of samples" test "$(of "$TMP/a.json" '.figures["pairs ns_per_pair"] |
	[.median, .samples, .better]')" = '[100,6,"lower"]'
check "a figure: neither direction is better" test "$(of "$TMP/a.json" '.figures["pairs huge"].better')" = '""'
check "a figure: a target's" test "$(of "$TMP/a.json" '.figures["target much is read"] |
	[.median, .samples, .better]')" = '[1,4,"higher"]'
check "figures: no others" test "$(of "$TMP/a.json" '.figures | length')" = 5
result "$TMP/late.json" 1 1 1 'results.hurry("slow", True); assert results.repeats(3, 1) == 1
results.hurry("next", False); assert results.repeats(3, 1) == 3'
check "a group that is late: measured less often, and said" test "$(of "$TMP/late.json" '[.quick, .hurried]')" = '[false,["slow"]]'
rm "$TMP/late.json"
result "$TMP/missed.json" 0.5 100 5 'results.fail("x", NotMeasured("no disk"))'
check "a target that is missed: why" test "$(of "$TMP/missed.json" '.targets[0] | [.reached, .why_not]')" = '[false,"it was not"]'
check "what was not measured" test "$(of "$TMP/missed.json" .not_measured)" = '["x: no disk"]'
check "a result: no temporary file stays" test "$(find "$TMP" -mindepth 1 | wc -l)" = 2

# Comparing.
check "the same: status 0" compares 0 "$TMP/a.json" "$TMP/a.json"
check "the same: every figure, no mark" test "$(grep -cE '^ {3,}[a-z].* 1\.00x$' "$TMP/out")" = 5
check "the same: says so" grep -q '^5 figures are in both; outside both spreads are 0 better, 0 worse, 0 other' "$TMP/out"
result "$TMP/b.json" 1.5 60 8
check "better: status 0" compares 0 "$TMP/a.json" "$TMP/b.json"
check "better: more GB/s" test "$(row 'disk bs=4k depth=32 gbps')" = "+ 1 1.5 1.50x"
check "better: less time" test "$(row 'pairs ns_per_pair')" = "+ 100 60 0.60x"
check "better: neither direction" test "$(row 'pairs huge')" = "! 5 8 1.60x"
check "better: what did not change has no mark" test "$(row 'disk bs=1m depth=32 gbps')" = "  2 2 1.00x"
check "better: counted, and what is chance" grep -qF 'are 3 better, 0 worse, 1 other ones (by chance alone: about 0)' "$TMP/out"
check "worse: status 1" compares 1 "$TMP/b.json" "$TMP/a.json"
check "worse: marked" test "$(row 'target much is read')" = "- 1.5 1 0.67x"
check "--marked: what changed only" compares 1 --marked "$TMP/b.json" "$TMP/a.json"
check "--marked: no others" test "$(grep -c 'x$' "$TMP/out")" = 4
check "--only: chooses" compares 0 --only disk --only 1m "$TMP/b.json" "$TMP/a.json"
check "--only: no others" test "$(grep -c 'x$' "$TMP/out")" = 1
check "--least: smaller changes are not marked" compares 0 --least=70 "$TMP/b.json" "$TMP/a.json"
result "$TMP/near.json" 1.015 100 5
check "spreads that overlap: no mark" compares 0 --only '4k' "$TMP/near.json" "$TMP/a.json"
check "spreads that overlap: the ratio" test "$(row 'disk bs=4k depth=32 gbps')" = "  1.01 1 0.99x"

# Results that do not fit.
result "$TMP/other.json" 1.0 100 5 'results.machine |= {"cpu": "Abacus", "disk": "drum"}; results.quick_chosen = True
results.sample("drum", gbps=1.0); results.samples = results.samples[3:]'
check "another machine: compared" compares 0 "$TMP/a.json" "$TMP/other.json"
check "another machine: says so" grep -q '^The machines are not the same' "$TMP/out"
check "another machine: and in what" grep -qE '^  cpu: .* \| Abacus$' "$TMP/out"
check "another machine: not in what is the same" test "$(grep -cE '^  [a-z_]+: .* \|' "$TMP/out")" = 2
check "one was quick: says so" grep -qF -- '--quick' "$TMP/out"
result "$TMP/more.json" 1.0 100 5 'results.sample("drum", gbps=1.0)'
check "a figure that is only in the second" compares 0 "$TMP/a.json" "$TMP/more.json"
check "a figure that is only in the second: named" grep -qF "Only in $TMP/more.json: 1 figures: drum gbps" "$TMP/out"
compares 0 "$TMP/more.json" "$TMP/a.json"
check "a figure that is only in the first: named" grep -qF "Only in $TMP/more.json: 1 figures: drum gbps" "$TMP/out"
result "$TMP/none.json" 1.0 100 5 'results.samples, results.targets = [], []'
check "nothing in common: status 2" compares 2 "$TMP/a.json" "$TMP/none.json"
jq '.schema = 1' "$TMP/a.json" >"$TMP/old.json"
echo '{' >"$TMP/cut.json"
echo '[]' >"$TMP/list.json"
jq '.figures["pairs huge"].median = null' "$TMP/a.json" >"$TMP/broken.json"
for wrong in old cut list broken absent; do
	check "$wrong: status 2" compares 2 "$TMP/a.json" "$TMP/$wrong.json"
	check "$wrong: one line, what, why and what to do" grep -qE "^bench-compare: $TMP/$wrong.json: [^:]+.*: [^:]+$" "$TMP/err"
	check "$wrong: only that" test "$(wc -l <"$TMP/err")" = 1 -a ! -s "$TMP/out"
done
check "one file: status 2" compares 2 "$TMP/a.json"
check "--least=-1: status 2" compares 2 --least=-1 "$TMP/a.json" "$TMP/b.json"
check "--help: status 0" compares 0 --help
check "--help: says what the status means" grep -q 'Ends with 0 if' "$TMP/out"

# The picture: what is given to gnuplot is complete, whether it is there or not.
matrix='
for rw in "randread", "read":
    for bs in "4k", "16k", "64k", "256k", "1m":
        for variant in "plain", "pinshim", "two jobs", "io_uring, thp":
            results.sample("matrix", rw=rw, bs=bs, variant=variant, gbps=1.0, machine_cpu_ms_per_gb=300.0)
import plot
open(path + ".gp", "w").write(plot.script(results.document()))
try:
    plot.draw(results.document(), path)
except NotMeasured as why:
    open(path + ".why", "w").write(str(why))'
result "$TMP/plot.json" 1 1 1 "$matrix"
check "the picture: four panels and their key" test "$(grep -c '^plot ' "$TMP/plot.json.gp")" = 5
check "the picture: three lines in each" test "$(grep -c '^[$]data' "$TMP/plot.json.gp")" = 12
if type -P gnuplot >/dev/null; then
	check "the picture: is drawn" test -s "$TMP/plot.json.svg" -a -s "$TMP/plot.json.png"
else
	check "the picture: says what to install" grep -qF 'scripts/setup --bench' "$TMP/plot.json.why"
fi

# The real thing, small.
"$TOP/tests/bench/run" --only nonsense >"$TMP/out" 2>"$TMP/err"
check "run: an unknown group: status 2" test $? = 2
check "run: an unknown group: says so" grep -q "no group nonsense; there are overhead, " "$TMP/err"
locks || {
	skip "run" "memory cannot be locked here without limit"
	finish
}
"$TOP/tests/bench/run" --quick --only lookup --directory "$TMP" --library "$LIB" --json "$TMP/run.json" >"$TMP/out" 2>"$TMP/err"
check "run: measures" test $? = 0
check "run: a table" grep -q '^Is this buffer pinned' "$TMP/out"
check "run: progress is shown" grep -q 'lookup: 10000 ranges, round 1' "$TMP/err"
check "run: all is in the result" test "$(of "$TMP/run.json" '[.quick, (.samples | map(.group) | unique),
	(.seconds_by_group | keys), .not_measured]')" = '[true,["lookup"],["lookup"],[]]'
check "run: bench-compare takes it" compares 0 "$TMP/run.json" "$TMP/run.json"
check "run: nothing is left behind" test -z "$(find "$TMP" -name 'bench-*')"
finish
