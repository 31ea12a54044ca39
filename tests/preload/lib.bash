# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What several of the tests here share; sourced after tests/lib/case.sh.

# shellcheck disable=SC2034 # used by the scripts that source this
PROGRAMS=$BUILD/tests/preload

# A preloaded program that aborts on purpose must not leave a core file.
ulimit -c 0

# run_cases LABEL COMMAND...: runs a program that prints cases and passes them on with LABEL before
# their names. That it ends with 0 and says nothing on stderr is a case of its own.
run_cases() {
	local label=$1 status

	shift
	{
		"$@" 2>"$TMP/run_cases.err" | sed -E "s/^((not )?ok - )/\\1$label: /"
		status=${PIPESTATUS[0]}
	} 2>/dev/null
	if ((status != 0)) || [[ -s $TMP/run_cases.err ]]; then
		notok "$label: ends with 0 and says nothing" \
			"exit status $status"$'\n'"$(head -n 20 "$TMP/run_cases.err")"
	else
		ok "$label: ends with 0 and says nothing"
	fi
}

# messages FILE: the lines that pinshim wrote.
messages() {
	grep '^pinshim\[' "$1"
}

# message_count FILE [PATTERN]: how many of them there are, that match.
message_count() {
	messages "$1" | grep -cE -- "${2-.}"
}

# sum FIELD FILE...: adds up a counter of all entry points over reports in JSON.
sum() {
	local field=$1

	shift
	jq -s "map(.total.$field) | add // 0" "$@"
}

# compile OUTPUT SOURCE [FLAG...]: for what the Makefile does not build: libraries, sanitizers.
compile() {
	local output=$1 source=$2

	shift 2
	# shellcheck disable=SC2086 # CC may have arguments
	${CC:-cc} -D_GNU_SOURCE -std=gnu11 -O1 -g -fno-builtin-malloc -fno-builtin-free \
		-pthread "$@" -o "$output" "$source" -ldl
}

# ordinary COMMAND...: as an unprivileged user who may lock 8 MiB. Needs root; see can_be_ordinary.
ordinary() {
	setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --ambient-caps=-all \
		--bounding-set=-ipc_lock prlimit --memlock=8388608:8388608 "$@"
}

# can_be_ordinary: whether ordinary works here, and is as restricted as it says.
can_be_ordinary() {
	[[ $(ordinary sh -c 'ulimit -l; grep CapEff /proc/self/status' 2>/dev/null) == \
		8192*CapEff:*0000000000000000 ]]
}

# ordinary_preload [VARIABLE=VALUE...] -- PROGRAM [ARGUMENT...]: preload for ordinary. The library and
# $ORDINARY, a directory that user may write, are where every user can reach them.
ordinary_preload() {
	local variables=()

	while [[ $# -gt 0 && $1 != -- ]]; do
		variables+=("$1")
		shift
	done
	shift
	ordinary env LD_PRELOAD="$ORDINARY/libpinshim.so" "${variables[@]}" "$@"
}

# make_ordinary FILE...: makes $ORDINARY and puts copies of the files, $LIB among them, into it.
make_ordinary() {
	ORDINARY=$TMP/ordinary
	chmod 755 "$TMP"
	mkdir -m 1777 "$ORDINARY"
	cp "$@" "$ORDINARY"
	chmod 755 "$ORDINARY"/*
}
