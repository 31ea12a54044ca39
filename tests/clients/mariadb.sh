#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# MariaDB with innodb_use_native_aio under sysbench: the same rows, counters that say what InnoDB says, and
# all that was committed after kill -9. Debian's can use libaio or liburing.
# shellcheck disable=SC2317 # poll calls functions
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq mariadb mariadb-admin mariadb-install-db mariadbd setpriv sysbench

PAGE=16384
OPTIONS=(--no-defaults --skip-networking --innodb-use-native-aio --innodb-flush-method=O_DIRECT
	--innodb-buffer-pool-size=32M --innodb-log-file-size=16M --innodb-doublewrite=0
	--innodb-max-dirty-pages-pct=0 --innodb-max-dirty-pages-pct-lwm=0 --innodb-io-capacity=20000)
socket=$FILES/socket
figures=

sql() {
	timeout 30 mariadb --no-defaults --socket="$socket" --user=root --batch --skip-column-names --execute="$*"
}

# status NAME: of InnoDB.
status() {
	sql "SHOW GLOBAL STATUS LIKE 'Innodb_$1'" | cut -f 2
}

# start DATA AIO: a server on that directory, with libaio (aio) or liburing (io_uring) if it has the choice.
start() {
	serve "$TMP/log" mariadb-admin --no-defaults --socket="$socket" --user=root ping -- \
		"${WITH[@]}" mariadbd "${OPTIONS[@]}" --datadir="$FILES/$1" --socket="$socket" \
		--pid-file="$FILES/pid" --loose-innodb-linux-aio="$2"
}

# Its rows are random, whatever --rand-seed says.
load() {
	timeout 60 sysbench "$2" --mysql-socket="$socket" --mysql-user=root --tables=2 --table-size=4000 \
		--threads=4 --events=200 --time=0 "$1"
}

# Rows that are the same each time, some of them longer than a page.
work() {
	sql 'USE sbtest;
		CREATE TABLE fixed (id INT PRIMARY KEY, k INT, pad VARCHAR(200), more LONGBLOB, INDEX (k))
		ENGINE=InnoDB;
		INSERT INTO fixed SELECT seq, seq * 7919 % 10007, REPEAT(CHAR(65 + seq % 26), seq % 200),
			IF(seq % 500 = 0, REPEAT(MD5(seq), 3000), NULL) FROM seq_1_to_20000;
		UPDATE fixed SET k = k + 1 WHERE id % 3 = 0;
		DELETE FROM fixed WHERE id % 7 = 0;
		ALTER TABLE fixed ADD INDEX (pad(20));
		SELECT COUNT(*), SUM(k), SUM(LENGTH(pad)), SUM(CRC32(more)) FROM fixed;
		SELECT k, id FROM fixed ORDER BY k DESC, id LIMIT 5'
}

# whole TABLE...: does the server find them whole?
whole() {
	[[ $(sql "CHECK TABLE $(printf '%s\n' "$@" | paste -sd ,)" | cut -f 4 | sort -u) == OK ]]
}

checksums() {
	sql 'CHECKSUM TABLE sbtest.sbtest1, sbtest.sbtest2, sbtest.fixed'
}

# figures: how many pages InnoDB says it wrote, and how many requests and bytes we say it made.
figures() {
	echo "$(status buffer_pool_pages_flushed) $("$BUILD/pinshim" stat --json "$server" |
		jq -r '.processes[0].report.aio | "\(.submitted) \(.bytes)"')"
}

# quiet: nothing is left to be written or purged, and nothing was since the last time; $figures are now.
quiet() {
	local before=$figures

	figures=$(figures)
	[[ $(status buffer_pool_pages_dirty) == 0 && $(status history_list_length) == 0 && $figures == "$before" ]]
}

# written: it is quiet, and has written as many pages since $start as the table has at least. InnoDB says for
# moments that no page is dirty before it writes them.
written() {
	quiet && ((${figures%% *} - ${start%% *} > 50))
}

# session DATA AIO: a server does the work; what can be compared is printed.
session() {
	start "$1" "$2" || return 1
	sql 'CREATE DATABASE sbtest'
	work || return 1
	checksums | grep fixed
	load prepare oltp_read_write >"$TMP/prepare" || return 1
	load run oltp_read_write >"$TMP/run" || return 1
	grep -E '^ +transactions:' "$TMP/run" | sed 's/(.*//'
	whole sbtest.sbtest1 sbtest.sbtest2 sbtest.fixed && echo whole
}

# pages_are_counted LABEL: what InnoDB writes next is in our counters, page by page.
pages_are_counted() {
	local pages requests bytes start

	poll quiet
	start=$figures
	sql 'UPDATE sbtest.sbtest1 SET k = k + 1'
	poll written
	read -r pages requests bytes < <(paste -d ' ' <(xargs -n 1 <<<"$start") <(xargs -n 1 <<<"$figures") |
		awk '{ print $2 - $1 }' | xargs)
	check "$1: InnoDB writes pages" test "$pages" -gt 50
	equal "$1: each is a request, of its size" "$requests" "$pages" "$bytes" "$pages * $PAGE"
}

# survives LABEL DATA: what was acknowledged is there after kill -9 under load.
survives() {
	local label=$1 last

	sql 'CREATE TABLE sbtest.acknowledged (id INT PRIMARY KEY, filler CHAR(200)) ENGINE=InnoDB'
	seq 1 100000 | sed 's/.*/INSERT INTO sbtest.acknowledged VALUES (&, "&"); SELECT &;/' |
		timeout 30 mariadb --no-defaults --socket="$socket" --user=root --batch --skip-column-names \
			--unbuffered >"$TMP/acknowledged" 2>/dev/null &
	poll enough
	stop KILL
	wait $!
	last=$(tail -n 1 "$TMP/acknowledged")
	check "$label: it was killed" test "$server_status" = 137
	start "$2" aio
	check "$label: it recovers after kill -9" test $? = 0
	check "$label: with every row that was acknowledged" test \
		"$(sql 'SELECT COUNT(*) >= '"$last"', COUNT(*) = MAX(id) FROM sbtest.acknowledged')" = $'1\t1'
	check "$label: and its tables are whole" whole sbtest.sbtest1 sbtest.sbtest2 sbtest.fixed sbtest.acknowledged
	stop TERM
	check "$label: and it ends" test "$server_status" = 0
}

enough() {
	(($(wc -l <"$TMP/acknowledged") >= 500))
}

with plain
"${WITH[@]}" mariadb-install-db --no-defaults --datadir="$FILES/new" --skip-test-db \
	--auth-root-authentication-method=normal >"$TMP/log" 2>&1 || {
	notok "a database is made" "$(tail -n 20 "$TMP/log")"
	finish
}
cp -a "$FILES/new" "$FILES/plain"
session plain aio >"$TMP/plain"
check "plain: the session itself works" test $? = 0
stop TERM

native=1
grep -q 'Using Linux native AIO' "$TMP/log" || native=0
((native)) || skip "InnoDB's requests" "this mariadbd does not use libaio"

for engine in "${ENGINES[@]}"; do
	rm -rf "${FILES:?}/$engine"
	cp -a "$FILES/new" "$FILES/$engine"
	with "$engine"
	session "$engine" aio >"$TMP/$engine"
	check "$engine: the session works" test $? = 0
	check "$engine: the same queries, rows and checksums" diff "$TMP/plain" "$TMP/$engine"
	((!native)) || pages_are_counted "$engine"
	checksums >"$TMP/before"
	stop TERM
	check "$engine: it ends" test "$server_status" = 0
	if ((native)); then
		equal "$engine: every request is direct, and none fails" \
			"$(counter direct) + $(counter fixed)" "$(counter submitted)" \
			"$(counter failed) + $(counter partial) + $(counter bounced)" 0 "$(counter contexts)" 1
		equal "$engine: which engine it has" "$(counter rings)" "$([[ $engine != uring ]]; echo $?)"
	fi
	with plain
	start "$engine" aio
	check "$engine: a plain server finds the same" diff "$TMP/before" <(checksums)
	check "$engine: and whole tables" whole sbtest.sbtest1 sbtest.sbtest2 sbtest.fixed
	stop TERM
	with "$engine"
	start "$engine" aio
	check "$engine: it starts again" test $? = 0
	[[ $engine == libaio ]] || survives "$engine" "$engine"
	stop TERM
	! locks || check "$engine: its large blocks are pinned" test "$(report 'map(.total.served) | add')" -gt 0
	rm -rf "${FILES:?}/$engine"
done

# liburing is not ours to serve: its blocks are.
cp -a "$FILES/new" "$FILES/liburing"
with auto
session liburing io_uring >"$TMP/liburing"
check "liburing: the same queries, rows and checksums" diff "$TMP/plain" "$TMP/liburing"
stop TERM
check "liburing: it ends" test "$server_status" = 0
equal "liburing: no request is ours" "$(counter submitted)" 0
finish
