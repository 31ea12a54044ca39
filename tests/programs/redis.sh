#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A server under load that forks to save: the same data in the end, in memory, in the file that the
# forked child wrote, and in a server that loads it.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need awk jq redis-server redis-benchmark redis-cli

server_pid=

stop_server() {
	[[ -n $server_pid ]] || return 0
	kill -TERM "$server_pid" 2>/dev/null
	wait "$server_pid"
	server_status=$?
	server_pid=
}

cli() {
	redis-cli -h 127.0.0.1 -p "$port" "$@"
}

# shellcheck disable=SC2317 # poll calls it
# ready_or_gone: our server answers and has loaded its data, or has ended.
ready_or_gone() {
	! kill -0 "$server_pid" 2>/dev/null ||
		[[ $(cli info) == *process_id:$server_pid*loading:0* && $(cli ping) == PONG ]]
}

# start_server DIRECTORY COMMAND...: on a free port of its own; where another was faster, on the next.
start_server() {
	local directory=$1 tries

	shift
	for ((tries = 0; tries < 20; tries++)); do
		port=$((20000 + RANDOM % 10000))
		"$@" redis-server --port $port --bind 127.0.0.1 --dir "$directory" --save '' \
			--appendonly no --enable-debug-command local --daemonize no \
			>"$directory/log" 2>"$directory/stderr" &
		server_pid=$!
		poll ready_or_gone
		kill -0 "$server_pid" 2>/dev/null && return 0
		wait "$server_pid"
		server_pid=
	done
	return 1
}

# 3000 keys of every type and of sizes up to 300 KB, in the server's own protocol.
awk '
	function say(a, b, c, d, e, f,	n, i, word) {
		word[1] = a; word[2] = b; word[3] = c; word[4] = d; word[5] = e; word[6] = f
		for (n = 6; n > 2 && word[n] == ""; n--);
		printf "*%d\r\n", n
		for (i = 1; i <= n; i++)
			printf "$%d\r\n%s\r\n", length(word[i]), word[i]
	}
	BEGIN {
		filler = "abcdefghij"
		while (length(filler) < 300000)
			filler = filler filler
		for (i = 0; i < 3000; i++) {
			say("SET", "string:" i, substr(filler, 1, i % 30 ? i : 100 * i + 1))
			say("HSET", "hash:" i % 50, "field" i, substr(filler, 1, i % 200 + 1), "other", i)
			say("RPUSH", "list:" i % 20, i)
			say("ZADD", "sorted", i * 7919 % 3001, "member" i)
			if (i % 3 == 0)
				say("APPEND", "string:" i, "-more")
			if (i % 7 == 0)
				say("DEL", "string:" i)
		}
	}' >"$INPUT/commands"

# shellcheck disable=SC2317 # poll calls it
saved() {
	[[ $(cli info persistence) == *rdb_bgsave_in_progress:0*rdb_last_bgsave_status:ok* ]]
}

# save_while_writing: a forked child writes the file while clients change what it writes.
save_while_writing() {
	cli bgsave
	redis-benchmark -h 127.0.0.1 -p "$port" -q -r 200 -n 10000 -d 3000 -c 20 -t set,lpush >/dev/null
	poll saved && echo saved
}

# session NAME COMMAND...: loads, saves, benchmarks, saves, restarts; what is compared is printed.
session() {
	local name=$1

	shift
	rm -rf "${TMP:?}/$name"
	mkdir "$TMP/$name"
	start_server "$TMP/$name" "$@" || return 1
	cli --pipe <"$INPUT/commands" | grep -E 'errors'
	cli dbsize
	cli debug digest
	save_while_writing
	save_while_writing
	cli dbsize
	cli debug digest
	cli bgsave
	poll saved && echo saved
	stop_server
	echo "status $server_status"
	start_server "$TMP/$name" "$@" || return 1
	cli dbsize
	cli debug digest
	cli get string:2998 | sha256sum
	cli memory purge
	cli flushall
	cli dbsize
	stop_server
	echo "status $server_status"
}

session plain env >"$TMP/plain.out"
check "redis: the session itself works" test $? = 0
check "redis: the data survives a restart" test "$(grep -cE '^[0-9a-f]{40}$' "$TMP/plain.out")" = 3
for range in 64K- 1K-; do
	rm -rf "$TMP/stats"
	mkdir "$TMP/stats"
	session pinned env LD_PRELOAD="$LIB" PINSHIM_MALLOC=$range \
		PINSHIM_STATS="$TMP/stats/%e.%p.json" >"$TMP/pinned.out"
	check "redis, $range: the session works" test $? = 0
	check "redis, $range: the same keys and values, saved and loaded" \
		diff "$TMP/plain.out" "$TMP/pinned.out"
	check "redis, $range: the same on stderr" cmp "$TMP/plain/stderr" "$TMP/pinned/stderr"
	# Two servers and their saving children reported.
	check "redis, $range: each forked child reports too" \
		test "$(find "$TMP/stats" -name 'redis*' | wc -l)" = 5
	served "redis, $range" 'redis*'
done
stop_server
finish
