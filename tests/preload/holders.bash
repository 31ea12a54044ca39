# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Processes that ask for pinned memory when they are told to; sourced after tests/preload/lib.bash.

# Who is told to end after it was killed does not read.
trap : PIPE
declare -a holder to

# hold N COMMAND...: starts a holder (holder.c) by this command, which waits. Its answer goes to $TMP/N.out, what
# it says to $TMP/N.err.
hold() {
	local n=$1 fd

	shift
	mkfifo "$TMP/$n.in"
	"$@" <"$TMP/$n.in" >"$TMP/$n.out" 2>"$TMP/$n.err" &
	holder[n]=$!
	exec {fd}>"$TMP/$n.in"
	to[n]=$fd
}

# go N...: lets them ask, all at once, and waits for what they get.
go() {
	local n i

	for n; do
		echo >&"${to[n]}"
	done
	for n; do
		for ((i = 0; i < 600; i++)); do
			[[ ! -s $TMP/$n.out ]] || break
			kill -0 "${holder[n]}" 2>/dev/null || break
			sleep 0.05
		done
	done
}

# end N...: lets them end, all at once.
end() {
	local n fd

	for n; do
		echo >&"${to[n]}"
	done 2>/dev/null
	for n; do
		wait "${holder[n]}"
		fd=${to[n]}
		exec {fd}>&-
		rm "$TMP/$n".*
	done 2>/dev/null
}

# locked N...: how many of them have answered, how many of these have locked memory, and how much they all
# have, in MiB.
locked() {
	local n mib total=0 count=0 answers=0

	for n; do
		read -r _ mib <"$TMP/$n.out" || continue
		((answers += 1, total += mib, count += mib > 0))
	done
	echo "$answers $count $total"
}
