#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Real programs as an ordinary user who may lock 8 MiB: right output, one explanation of the limit by
# each process that met it, and counters that say how little was pinned.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq python3 perl sort sqlite3 setpriv prlimit
can_be_ordinary || skip_all "needs root, to become another user"
make_ordinary "$LIB"
chmod 755 "$INPUT"

# limited LABEL PROGRAM...: the job as that user, plain and under the preload.
limited() {
	local label=$1 program reports

	shift
	mkdir -p "$ORDINARY/stats"
	chmod 1777 "$ORDINARY/stats"
	rm -f "$ORDINARY"/stats/*
	run_job plain ordinary env
	check "$label: the job itself works" test "$(<"$TMP/plain.status")" = 0
	run_job pinned ordinary_preload PINSHIM_MALLOC=16K- \
		PINSHIM_STATS="$ORDINARY/stats/%e.%p.json" --
	messages "$TMP/pinned.stderr" >"$TMP/said"
	sed -i '/^pinshim\[/d' "$TMP/pinned.stderr"
	identical "$label" plain pinned
	check "$label: every line said explains the memlock limit" \
		test "$(wc -l <"$TMP/said"),$(grep -c 'RLIMIT_MEMLOCK\|memlock' "$TMP/said")" = \
		"$(grep -c . "$TMP/said"),$(grep -c . "$TMP/said")"
	check "$label: and names it in numbers, with a remedy" \
		test "$(grep -c '8\.0 MiB.*ulimit -l' "$TMP/said")" = "$(grep -c . "$TMP/said")"
	check "$label: no process says it twice" \
		test -z "$(sed 's/\].*//' "$TMP/said" | sort | uniq -d)"
	for program; do
		mapfile -t reports < <(compgen -G "$ORDINARY/stats/$program.*.json")
		check "$label: $program fell back to ordinary memory, and counted it" \
			test "$(sum fallback "${reports[@]}")" -gt 0
		check "$label: $program was refused by memlock alone" test "$(jq -s \
			'map(.refused | to_entries[] | select(.value > 0) | .key) | unique | join(" ")' \
			"${reports[@]}")" = '"memlock"'
		check "$label: $program never held more than 8 MiB" jq -es \
			'all(.pinned_peak_bytes <= 8388608 and .locked_bytes <= .pinned_peak_bytes)' \
			"${reports[@]}"
		# Those that were refused explained it, but for children forked from one that had.
		jq -r 'select(.refused.memlock > 0) | .pid' "${reports[@]}" | sort >"$TMP/refused"
		sed -n 's/^pinshim\[\([0-9]*\)\].*/\1/p' "$TMP/said" | sort >"$TMP/explained"
		check "$label: only a $program that was refused explains it" \
			test -z "$(comm -13 "$TMP/refused" "$TMP/explained")"
		check "$label: $program explains it" test -s "$TMP/explained"
	done
}

awk 'BEGIN { for (i = 1; i <= 200000; i++) printf "%d line %d\n", i * 7919 % 1000003, i }' >"$INPUT/lines"
chmod 644 "$INPUT/lines"

job <<'END'
/usr/bin/python3 - <<'PYTHON'
import hashlib, multiprocessing, subprocess, sys
blocks = [bytes([i]) * 300_000 for i in range(60)]
print(hashlib.sha256(b"".join(blocks)).hexdigest())
def work(n):
    return len(bytearray(n)), hashlib.sha256(blocks[n % 60]).hexdigest()
pool = multiprocessing.get_context("fork").Pool(2)
print(pool.map(work, range(200_000, 20_000_000, 2_000_000)))
pool.close()
pool.join()
print(subprocess.run([sys.executable, "-c", "print(len(bytes(20_000_000)))"], stdout=-1, text=True).stdout)
print("to stderr", file=sys.stderr)
PYTHON
END
limited "python3" python3.*

job <<'END'
sort -S 64M --parallel=2 "$INPUT/lines" | sha256sum
sort -n -S 2M -T . "$INPUT/lines" | sha256sum
END
limited "sort" sort

job <<'END'
sqlite3 data.db <<'SQL'
PRAGMA cache_size = -32000;
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
	INSERT INTO t SELECT i, hex(zeroblob(i % 100)) FROM n;
INSERT INTO t VALUES(1000000, hex(zeroblob(5000000)));
CREATE INDEX i ON t(b, a);
SELECT count(*), sum(length(b)) FROM t;
PRAGMA integrity_check;
SQL
sha256sum data.db
END
limited "sqlite3" sqlite3

job <<'END'
perl -e 'my %h = map { $_ => "v" x ($_ % 5000) } 1 .. 20_000; my $all = join ",", map { $h{$_} } sort keys %h;
	print length($all), "\n"; my $copy = $all; $copy =~ s/v/w/g; print $copy =~ tr/w//, "\n"; warn "to stderr\n"'
END
limited "perl" perl
finish
