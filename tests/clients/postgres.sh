#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# PostgreSQL, its clients and pgbench with large blocks pinned: the same results and the same dump, and all that was
# committed after kill -9.
# shellcheck disable=SC2317 # serve and poll call functions
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
shopt -s nullglob
for directory in /usr/lib/postgresql/*/bin; do
	PATH=$directory:$PATH
done
need initdb jq pg_dump pg_isready pgbench pgrep postgres psql setpriv

export PGHOST=$FILES PGUSER=tester PGDATABASE=postgres PGCONNECT_TIMEOUT=30

# start DATA: a server on that directory, which listens in $FILES alone.
start() {
	serve "$TMP/log" pg_isready -- "${WITH[@]}" postgres -D "$FILES/$1" -k "$FILES" -c listen_addresses= \
		-c shared_buffers=16MB -c max_connections=20 -c work_mem=32MB -c maintenance_work_mem=32MB \
		-c wal_level=minimal -c max_wal_senders=0
}

sql() {
	timeout 60 "${WITH[@]}" psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}

# Sorts, hashes and aggregates in memory, long values, and a COPY both ways.
work() {
	sql <<'END_OF_SQL'
CREATE TABLE person AS SELECT i AS id, 'name' || i * 7919 % 10007 AS name, 1900 + i * 31 % 120 AS born,
	CASE WHEN i % 2000 = 0 THEN repeat(md5(i::text), 20000) END AS note FROM generate_series(1, 40000) i;
CREATE TABLE visit AS SELECT i * 7907 % 40000 + 1 AS person, i * 104729 % 500 AS place,
	i * 15485863 % 1000000 AS at FROM generate_series(1, 100000::bigint) i;
CREATE INDEX ON visit (person);
CREATE INDEX ON person (name, born);
SELECT place, count(*), min(at), max(at) FROM visit GROUP BY place ORDER BY 2 DESC, 1 LIMIT 20;
SELECT born, count(DISTINCT place), sum(at) FROM person JOIN visit ON id = person GROUP BY born ORDER BY born LIMIT 30;
SELECT md5(string_agg(name, ',' ORDER BY name, id)), md5(string_agg(note, '' ORDER BY id)) FROM person;
SELECT sum(n) FROM (SELECT row_number() OVER (PARTITION BY place ORDER BY at, person) AS n FROM visit) w;
UPDATE person SET note = note || 'more' WHERE id % 4000 = 0;
DELETE FROM visit WHERE place % 7 = 0;
SELECT count(*), sum(length(note)), count(*) FILTER (WHERE born > 1990) FROM person;
SELECT array_length(array_agg(at ORDER BY at), 1) FROM visit;
COPY (SELECT * FROM visit ORDER BY person, place, at) TO STDOUT;
END_OF_SQL
	timeout 60 "${WITH[@]}" pgbench -q -i -s 1 >/dev/null 2>&1 || return 1
	timeout 60 "${WITH[@]}" pgbench -n -c 4 -j 2 -t 100 2>/dev/null |
		grep -E '^number of (transactions actually processed|failed)'
	sql -c 'SELECT count(*), (SELECT sum(abalance) FROM pgbench_accounts) = sum(delta) FROM pgbench_history'
}

# dump: of what is the same each time.
dump() {
	timeout 60 "${WITH[@]}" pg_dump -t person -t visit | grep -vE '^(--|\\(un)?restrict)' | sha256sum
}

# survives LABEL DATA: what was acknowledged is there after the server was killed under load.
survives() {
	local label=$1 last loader children

	sql -c 'CREATE TABLE acknowledged (id int PRIMARY KEY, filler text)'
	seq 1 100000 | sed "s/.*/INSERT INTO acknowledged VALUES (&, repeat('&', 50)) RETURNING id;/" |
		timeout 30 psql -X -q -A -t >"$TMP/acknowledged" 2>/dev/null &
	loader=$!
	poll enough
	mapfile -t children < <(pgrep -P "$server")
	stop KILL
	wait $loader
	# Its processes notice, and only then the shared memory is free.
	poll gone "${children[@]}"
	last=$(tail -n 1 "$TMP/acknowledged")
	check "$label: it was killed" test "$server_status" = 137
	start "$2"
	check "$label: it recovers after kill -9" test $? = 0
	check "$label: with every row that was acknowledged" test \
		"$(sql -c "SELECT count(*) >= $last, count(*) = max(id) FROM acknowledged")" = 't|t'
}

# gone PID...: they have all ended.
gone() {
	! kill -0 "$@"
}

enough() {
	(($(wc -l <"$TMP/acknowledged") >= 300))
}

with plain
"${WITH[@]}" "$(type -P initdb)" -D "$FILES/new" -U tester --auth=trust --no-sync --locale=C --encoding=UTF8 \
	>"$TMP/log" 2>&1 || {
	notok "a database is made" "$(tail -n 20 "$TMP/log")"
	finish
}
cp -a "$FILES/new" "$FILES/plain"
start plain
work >"$TMP/plain"
check "plain: the work itself is done" test $? = 0
dump >"$TMP/plain.dump"
stop INT
for classes in 64K- 8K-; do
	rm -rf "${FILES:?}/pinned"
	cp -a "$FILES/new" "$FILES/pinned"
	with auto
	WITH+=(PINSHIM_MALLOC="$classes")
	start pinned
	check "$classes: it starts" test $? = 0
	work >"$TMP/pinned"
	check "$classes: the work is done" test $? = 0
	check "$classes: with the same results" diff "$TMP/plain" "$TMP/pinned"
	check "$classes: and the same dump" diff "$TMP/plain.dump" <(dump)
	stop INT
	check "$classes: it ends" test "$server_status" = 0
	if locks; then
		check "$classes: blocks of postgres are pinned" test \
			"$(report 'map(.total.served) | add' postgres)" -gt 0
		check "$classes: nothing was refused" test "$(report 'map(.refused | add) | add')" = 0
	fi
	start pinned
	check "$classes: it starts again with the same data" diff "$TMP/plain.dump" <(dump)
	survives "$classes" pinned
	stop INT
	check "$classes: and it ends" test "$server_status" = 0
done
with plain
start pinned
check "a plain server finds the same" diff "$TMP/plain.dump" <(dump)
stop INT
finish
