# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For tests that are scripts. Begin with
#
#	#!/bin/bash
#	. "$(dirname "$0")/../lib/case.sh"
#
# and end with finish. What there is: $TOP the checkout, $BUILD what was built, $LIB the library that
# preload uses, $AIO_LIB the one for asynchronous I/O, $TMP a directory of the test's own on a real file
# system (O_DIRECT works), removed at exit; and the functions below.

export LC_ALL=C
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-$TOP/build}
LIB=${LIB:-$BUILD/libpinshim.so}
AIO_LIB=${AIO_LIB:-$BUILD/libpinshim-aio.so}
TMP=$(mktemp -d "${TMPDIR:-/var/tmp}/pinshim-test.XXXXXX") || exit 1
export TOP BUILD LIB AIO_LIB TMP
# What stands before a command for another user to run it.
USER_IS=()
case_failed=0
case_finished=0

case_exit() {
	local status=$?

	if ((case_finished == 0 && status != 77)); then
		notok "ran to its end" "exit status $status before finish"
		status=1
	fi
	rm -rf "$TMP"
	exit "$status"
}
trap case_exit EXIT

# ok NAME
ok() {
	printf 'ok - %s\n' "$1"
}

# notok NAME [WHY]
notok() {
	printf 'not ok - %s\n' "$1"
	[[ -z ${2-} ]] || printf '%s\n' "$2" | sed 's/^/# /'
	case_failed=1
}

# skip NAME REASON: this case cannot be tested here.
skip() {
	printf 'skip - %s: %s\n' "$1" "$2"
}

# locks: may what is tested lock as much memory as it likes? By the system's word, and not the library's.
locks() {
	[[ $("${USER_IS[@]}" sh -c 'ulimit -l') == unlimited ]] ||
		((0x$("${USER_IS[@]}" sed -n 's/^CapEff:\t//p' /proc/self/status) >> 14 & 1))
}

# skip_all REASON: nothing in this script can.
skip_all() {
	printf '%s\n' "$1"
	exit 77
}

# check NAME COMMAND...: ok if the command succeeds; else its output is shown.
check() {
	local name=$1 output status

	shift
	output=$("$@" 2>&1)
	status=$?
	if ((status == 0)); then
		ok "$name"
	else
		notok "$name" "$* : exit status $status"$'\n'"$output"
	fi
	return 0
}

# equal NAME VALUE...: ok if of two arithmetic expressions each are equal; what differs is shown, with what the
# function evidence has to say of the case.
equal() {
	local name=$1 wrong=

	shift
	while (($# > 0)); do
		(($1 == $2)) || wrong+="$1 is not $2; "
		shift 2
	done
	if [[ -z $wrong ]]; then
		ok "$name"
	else
		notok "$name" "$wrong"$'\n'"$(evidence "$name")"
	fi
}

# evidence NAME: for scripts to define.
evidence() {
	:
}

# poll COMMAND...: until it succeeds, for half a minute at most.
poll() {
	local deadline=$((SECONDS + 30))

	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || return 1
		sleep 0.02
	done
}

# preload [VARIABLE=VALUE...] -- PROGRAM [ARGUMENT...]: runs it with the library preloaded.
preload() {
	local variables=()

	while [[ $# -gt 0 && $1 != -- ]]; do
		variables+=("$1")
		shift
	done
	shift
	env LD_PRELOAD="$LIB" "${variables[@]}" "$@"
}

# need COMMAND...: skips the whole script where one is missing.
need() {
	local command

	for command; do
		type -P "$command" >/dev/null || skip_all "$command is not installed (scripts/setup --test)"
	done
}

finish() {
	case_finished=1
	exit "$case_failed"
}
