#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pandas, DuckDB and Polars writing, reading and computing with large blocks pinned: the same files, the same
# results, and what is pinned is seen.
. "$(dirname "$0")/../lib/case.sh"
need jq
python=${CLIENTS:-$BUILD/clients}/bin/python
tried=0

# run LIBRARY NAME [VARIABLE=VALUE]...: its output is in $TMP/NAME.
run() {
	local library=$1 name=$2

	shift 2
	rm -rf "$TMP/work"
	mkdir "$TMP/work"
	env PYTHONDONTWRITEBYTECODE=1 POLARS_MAX_THREADS=2 "$@" \
		"$python" "$TOP/tests/clients/dataframes.py" "$library" "$TMP/work" >"$TMP/$name" 2>&1
}

for library in pandas duckdb polars; do
	if ! "$python" -c "import $library" 2>/dev/null; then
		skip "$library" "it is not there (scripts/setup --clients)"
		continue
	fi
	tried=1
	run $library plain
	check "$library: the work itself is done" test $? = 0
	check "$library: and says something" test -s "$TMP/plain"
	for classes in 64K- 16K-1M,4M-; do
		rm -f "$TMP"/*.json
		run $library pinned LD_PRELOAD="$LIB $AIO_LIB" PINSHIM_MALLOC=$classes PINSHIM_STATS="$TMP/%p.json"
		check "$library, $classes: the work is done" test $? = 0
		check "$library, $classes: with the same results" diff "$TMP/plain" "$TMP/pinned"
		jq -s 'max_by(.total.served)' "$TMP"/*.json >"$TMP/report"
		check "$library, $classes: what was not served was refused by a limit, and none is freed twice" jq -e \
			'.total | .calls == .served + .fallback + .failed and .freed + .live_blocks == .served' \
			"$TMP/report"
		locks || continue
		check "$library, $classes: large blocks are served, $(jq .pinned_peak_bytes "$TMP/report") bytes at most" \
			jq -e '.total.served > 10 and .pinned_peak_bytes >= 4194304' "$TMP/report"
	done
done
((tried)) || skip_all "none of pandas, DuckDB and Polars is there (scripts/setup --clients)"
finish
