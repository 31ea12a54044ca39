# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For tests of pinshim doctor; sourced after tests/lib/case.sh.
# shellcheck disable=SC2016 # programs of jq

# shellcheck source=tests/preload/lib.bash
. "$TOP/tests/preload/lib.bash"

tool=$BUILD/pinshim
as=()        # what the command is run through
variables=() # of its environment, set by with

# with [NAME=VALUE]...: for all that follows.
with() {
	variables=("$@")
}

# doctor ARGUMENT...: into $TMP/json; the exit status is the command's.
doctor() {
	"${as[@]}" env "${variables[@]}" "$tool" doctor --json "$@" >"$TMP/json" 2>"$TMP/err"
}

# finds NAME STATE CHECK FOUND [REMEDY [ARGUMENT...]]: among the findings is one of this check, in this
# state, with what was found and the remedy like these regular expressions.
finds() {
	local name=$1 state=$2 check=$3 found=$4 remedy=${5-} status

	shift $(($# < 5 ? $# : 5))
	doctor "$@"
	status=$?
	if jq -e --arg state "$state" --arg check "$check" --arg found "$found" --arg remedy "$remedy" '
		.findings | any(.state == $state and .check == $check and (.found | test($found)) and
		(.remedy | test($remedy)))' "$TMP/json" >/dev/null 2>>"$TMP/err" && ((status < 4)); then
		ok "$name: $state $check"
	else
		notok "$name: $state $check" "expected: $found $remedy"$'\n'"exit status $status"$'\n'"$(
			jq -r --arg check "$check" '.findings[] | select(.check == $check)' "$TMP/json" 2>&1
			cat "$TMP/err")"
	fi
}

# lacks NAME CHECK FOUND [ARGUMENT...]: there is no such finding.
lacks() {
	local name=$1 check=$2 found=$3

	shift 3
	doctor "$@"
	check "$name: no such $check" jq -e --arg check "$check" --arg found "$found" \
		'.findings | all((.check == $check and (.found | test($found))) | not)' "$TMP/json"
}

# ends NAME STATUS [ARGUMENT...]
ends() {
	local name=$1 expected=$2

	shift 2
	doctor "$@"
	check "$name: exits $expected" test $? = "$expected"
}
