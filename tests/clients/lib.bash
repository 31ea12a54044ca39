# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Real programs with both libraries and without, as an ordinary user; sourced after tests/lib/case.sh.
# Servers have their data under $TMP and listen there or on 127.0.0.1.

# shellcheck disable=SC2034 # used by the scripts that source this
ENGINES=(auto uring libaio)

# What stands before a command for it to run as an ordinary user, who may lock memory if we may. Whom we are
# already, if not root.
USER_IS=()
if ((EUID == 0)); then
	USER_IS=(setpriv --reuid 65534 --regid 65534 --clear-groups
		--inh-caps=+ipc_lock --ambient-caps=+ipc_lock)
	"${USER_IS[@]}" true 2>/dev/null || USER_IS=("${USER_IS[@]:0:6}")
fi

# That user reaches nothing in the checkout, and $TMP/files alone is his.
FILES=$TMP/files
REPORTS=$TMP/reports
chmod 755 "$TMP"
mkdir -m 1777 "$FILES" "$REPORTS"
mkdir "$TMP/lib"
cp "$LIB" "$AIO_LIB" "$TMP/lib"
chmod -R a+rX "$TMP/lib"
SHIMS="$TMP/lib/${LIB##*/} $TMP/lib/${AIO_LIB##*/}"

# with ENGINE: sets WITH, what stands before a command for that user to run it with both libraries and this
# engine, or without them where the engine is plain. Reports of earlier programs are removed.
with() {
	rm -f "$REPORTS"/*
	WITH=("${USER_IS[@]}" env HOME="$FILES")
	[[ $1 == plain ]] || WITH+=(LD_PRELOAD="$SHIMS" PINSHIM_AIO="$1" PINSHIM_MALLOC=64K-
		PINSHIM_STATS="$REPORTS/%e.%p.json")
}

# shellcheck disable=SC2317 # equal calls it
evidence() {
	report 'map([.program, .aio])' | jq -c .
}

# report FILTER [PROGRAM]: what jq makes of the reports of all processes of that program, as one array.
report() {
	find "$REPORTS" -name "${2-}*.json" -exec cat {} + | jq -s "$1"
}

# counter NAME [PROGRAM]: of asynchronous I/O, of all its processes together.
counter() {
	report "map(.aio.$1) | add // 0" "${2-}"
}

server=

# stop SIGNAL: ends the server; $server_status is how it ended.
stop() {
	local status=$?

	# The shell says that a process was killed when it notices, wherever that is.
	[[ -z $server ]] || {
		kill -"$1" "$server"
		poll ended || kill -KILL "$server"
		wait "$server"
		server_status=$?
		# Its table, if it could not remove it.
		rm -f "/dev/shm/pinshim.$server".*
		server=
	} 2>/dev/null
	return $status
}
trap 'stop KILL; case_exit' EXIT

# shellcheck disable=SC2317 # poll calls it
ended() {
	[[ ! -e /proc/$server/stat || $(sed 's/.*) //; s/ .*//' "/proc/$server/stat") == Z ]]
}

# shellcheck disable=SC2317 # poll calls it
ready_or_ended() {
	ended || "$@"
}

# serve LOG READY... -- COMMAND...: starts a server and waits until READY succeeds. Its status if it ends.
serve() {
	local log=$1 ready=()

	shift
	while [[ $1 != -- ]]; do
		ready+=("$1")
		shift
	done
	shift
	"$@" >>"$log" 2>&1 </dev/null &
	server=$!
	poll ready_or_ended "${ready[@]}" && ! ended
}
