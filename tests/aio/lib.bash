# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Unmodified fio under both libraries; sourced after tests/lib/case.sh. fio checks what it reads; what
# is checked here is that it succeeds, and that every request it made was counted once.

# shellcheck disable=SC2034 # used by the scripts that source this
# How fio is run: an engine of PINSHIM_AIO, and jobs that are processes or threads of one.
ENGINES=(auto uring libaio)
# shellcheck disable=SC2034
WAYS=(processes threads)

# What all jobs have in common. A job's file is $FILES/NAME.0.0 if it does not say otherwise.
FILES=$TMP/files
FIO=(fio --ioengine=libaio --direct=1 --directory="$FILES" --output-format=json
	--verify_state_save=0)

# shims ENGINE: sets SHIMS, what stands before a command for it to have both libraries. Each process leaves
# its report in $TMP/reports.
shims() {
	SHIMS=(env LD_PRELOAD="$LIB $AIO_LIB" PINSHIM_AIO="$1" PINSHIM_MALLOC=64K-
		PINSHIM_STATS="$TMP/reports/%e.%p.json")
}

# run_fio ENGINE WAY ARGUMENT...: fio's status; what it says goes to $TMP/fio.err and $TMP/fio.json.
run_fio() {
	local way=$2 thread=() status

	shims "$1"
	shift 2
	[[ $way == processes ]] || thread=(--thread)
	rm -rf "$TMP/reports"
	mkdir -p "$TMP/reports" "$FILES"
	"${SHIMS[@]}" "${FIO[@]}" "${thread[@]}" --output="$TMP/fio.out" "$@" 2>"$TMP/fio.err"
	status=$?
	# Its warnings come before the document.
	sed '/^{/,$!d' "$TMP/fio.out" >"$TMP/fio.json"
	jq -s 'map(.aio // {} | to_entries) | add | group_by(.key) |
		map({ key: .[0].key, value: map(.value) | add }) | from_entries' \
		"$TMP"/reports/fio.*.json >"$TMP/aio.json"
	return $status
}

# counter NAME: of all processes together.
counter() {
	jq ".$1 // 0" "$TMP/aio.json"
}

# shellcheck disable=SC2317 # equal calls it
evidence() {
	jq -c . "$TMP/aio.json"
}

# issued FIELD: total_ios or io_bytes of all jobs.
issued() {
	jq -n "[inputs | .jobs[] | .read.$1 + .write.$1] | add // 0" "$TMP/fio.json"
}

# verified LABEL ENGINE WAY ARGUMENT...: fio finds what it wrote, and its requests are counted.
verified() {
	local label=$1

	shift
	rm -rf "$FILES"
	if run_fio "$@"; then
		ok "$label: fio finds what it wrote"
	else
		notok "$label: fio finds what it wrote" "$(head -n 30 "$TMP/fio.err")"
	fi
	equal "$label: every request is counted once" "$(counter submitted)" "$(issued total_ios)" \
		"$(counter direct) + $(counter fixed) + $(counter bounced) + $(counter passed)" \
		"$(counter submitted)" "$(counter failed)" 0
}
