#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pinshim stat --prometheus: the format, the figures, and the file that a collector reads.
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
# shellcheck source=tests/programs/tables.bash
. "$(dirname "$0")/tables.bash"
need promtool python3
umask 022

exposition=$TOP/tests/programs/exposition.py

# value PATTERN: of the one line that begins so.
value() {
	grep -E "^$1" "$TMP/out" | awk 'END { if (NR == 1) print $NF; else print NR " lines" }'
}

# The checker itself finds what it is there for.
for bad in 'x_total 1' $'# HELP x_bytes y\n# TYPE x_bytes counter\nx_bytes 1' \
	$'# HELP x_total y\n# TYPE x_total counter\nx_total 1\nx_total 1' \
	$'# HELP x_total y\n# TYPE x_total counter\nx_total{a="\n"} 1' \
	$'# HELP x_total y\n# TYPE x_total counter\nx_total{a="\xff"} 1' \
	$'# HELP x_total y\n# TYPE x_total counter\nx_total{a="""} 1' \
	$'# HELP x_total y\n# TYPE x_total counter\nx_total{job="a"} 1'; do
	check "the checker refuses ${bad@Q}" bash -c "! '$exposition' <<<\"\$1\"" - "$bad"
done
check "and takes what is right" "$exposition" <<<$'# HELP x_total y\n# TYPE x_total counter\nx_total{a="\\"\\\\b\\n"} 1'

check "no process: exits 0" run 0 --prometheus
check "no process: the format" "$exposition" "$TMP/out"
check "no process: says that there is none" test "$(value 'pinshim_processes.state="alive"')" = 0

living 3
table "${living[0]}" program=$'a"b\\c\nd\xff{}' job='x"y' rank=1 local_rank=$'\t' backend=native \
	pinned_bytes=1000 pinned_peak_bytes=2000 refused=5 served=9 freed=4 pin_nanoseconds=1500000001 \
	aio.submitted=10 aio.fixed=6 aio.direct=3 aio.bounced=1 aio.repaired=1 aio.bytes=18446744073709551615
table "${living[1]}" pinned_bytes=18446744073709551615
table "${living[2]}" start_time=7 pinned_bytes=5
echo garbage >"$TABLES/pinshim.1.1"
check "several: exits 1 for what cannot be read" run 1 --prometheus
check "several: the format" "$exposition" "$TMP/out"
check "several: promtool says the same" promtool check metrics <"$TMP/out"
check "several: the living are counted" test "$(value 'pinshim_processes.state="alive"')" = 2
check "several: the dead are counted" test "$(value 'pinshim_processes.state="dead"')" = 1
check "several: what is unreadable is counted" test "$(value 'pinshim_unreadable_tables')" = 1
check "several: the dead hold nothing" test "$(grep -c "pid=\"${living[2]}\"" "$TMP/out")" = 0
check "names are escaped, and of odd bytes there are none" grep -qF \
	"pinshim_process_info{pid=\"${living[0]}\",program=\"a\\\"b\\\\c?d?{}\",job_id=\"x\\\"y\",rank=\"1\",local_rank=\"?\",backend=\"native\",uid=\"$(id -u)\"} 1" "$TMP/out"
pid="pid=\"${living[0]}\""
check "a gauge" test "$(value "pinshim_pinned_bytes.$pid")" = 1000
check "the largest number" test "$(value "pinshim_pinned_bytes.pid=\"${living[1]}\"")" = 18446744073709551615
check "seconds" test "$(value "pinshim_pin_seconds_total.$pid")" = 1.500000001
check "refusals by limit" test "$(value "pinshim_refused_total.$pid.*limit=\"memlock\"")" = 5
check "requests by entry point and result" test \
	"$(value "pinshim_requests_total.$pid.*entry_point=\"malloc\",result=\"served\"")" = 9
check "live blocks" test "$(value "pinshim_live_blocks.$pid")" = 5
check "asynchronous requests by way" test "$(value "pinshim_aio_requests_total.$pid.*way=\"fixed\"")" = 6
check "repaired" test "$(value "pinshim_aio_repaired_total.$pid")" = 1
check "nothing of asynchronous I/O where there was none" \
	test "$(grep -c "pinshim_aio.*pid=\"${living[1]}\"" "$TMP/out")" = 0
rm "$TABLES/pinshim.1.1"

# The file for the textfile collector is replaced as a whole, also where a link was put in its place.
echo precious >"$TMP/victim"
ln -s "$TMP/victim" "$TMP/metrics.prom"
check "--output: exits 0" run 0 --prometheus --output="$TMP/metrics.prom"
check "--output: nothing on standard output" test ! -s "$TMP/out"
check "--output: the format" "$exposition" "$TMP/metrics.prom"
check "--output: a file, not the link" test ! -L "$TMP/metrics.prom"
check "--output: what the link pointed to is as it was" test "$(<"$TMP/victim")" = precious
check "--output: others may read it" test "$(stat -c %A "$TMP/metrics.prom")" = -rw-r--r--
check "--output: nothing else is left there" test -z "$(compgen -G "$TMP/metrics.prom?*")"
check "--output: a directory that is not there: exits 1" run 1 --output="$TMP/none/metrics.prom"
check "--output: and says so" grep -q 'No such file' "$TMP/err"
check "--output --watch: exits 0" run 0 --prometheus --output="$TMP/metrics.prom" --watch=0.05 --times=3
check "--output --watch: the format" "$exposition" "$TMP/metrics.prom"
check "--output --watch: promtool says the same" promtool check metrics <"$TMP/metrics.prom"
check "--output: JSON, too" run 0 --json -o "$TMP/all.json"
check "--output: JSON" python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$TMP/all.json"

check "with --json: exits 2" run 2 --prometheus --json
check "with --ranges: exits 2" run 2 --prometheus --ranges
check "with --watch and no file: exits 2" run 2 --prometheus --watch
end_living
finish
