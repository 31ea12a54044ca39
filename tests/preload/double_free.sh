#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A block freed twice, and pointers that are no block's: found, named, and the process aborts.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"

# dies WAY CALL PATTERN SETTING...: ends with SIGABRT, and one line by CALL names the fault.
dies() {
	local way=$1 call=$2 pattern=$3 name="${1//_/ }${4:+, ${*:4}}" status pid

	# No function around it: the shell's own line about the signal must go elsewhere.
	{ env LD_PRELOAD="$LIB" PINSHIM_MALLOC=64K- PINSHIM_STATS=off "${@:4}" \
		"$PROGRAMS/double_free" "$way" >"$TMP/out" 2>"$TMP/err"; } 2>/dev/null
	status=$?
	# As after any crash, tables stay; they are for "pinshim stat" to show and reap.
	while read -r pid; do
		rm -f /dev/shm/pinshim."$pid".*
	done <"$TMP/out"
	if ((status == 128 + 6)); then
		ok "$name: aborts"
	else
		notok "$name: aborts" "exit status $status"
	fi
	if [[ $(wc -l <"$TMP/err") == 1 ]] &&
		grep -qE "^pinshim\[[0-9]+\]: $call\(\): .*($pattern)" "$TMP/err"; then
		ok "$name: one line by $call() names the fault"
	else
		notok "$name: one line by $call() names the fault" "$(<"$TMP/err")"
	fi
}

twice='double free'
inside='points [0-9]+ bytes into the block'
wild='never allocated'

for setting in "" PINSHIM_RETAIN=0; do
	dies free_twice free "$twice" $setting
	dies free_twice_large free "$twice" $setting
	dies free_twice_later free "$twice" $setting
	dies free_twice_in_threads free "$twice" $setting
	dies cfree_twice 'c?free' "$twice" $setting
	dies free_interior free "$inside" $setting
	dies free_interior_page free "$inside" $setting
	dies free_interior_large free "$inside" $setting
	dies free_interior_aligned free "$inside" $setting
	dies free_wild free "$wild" $setting
	dies realloc_freed realloc "$twice" $setting
	dies realloc_interior realloc "$inside" $setting
	dies realloc_to_nothing_twice free "$twice" $setting
	dies free_moved free "$twice" $setting
	dies usable_freed malloc_usable_size "$twice" $setting
	dies free_inherited_twice free "$twice" $setting
done
finish
