#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The bash completion: commands, options, values, programs and processes.
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"

# offered WORD...: what bash would offer for the last of these words, on one line, sorted. Another bash
# has the file and $with; = is a word of its own there, unless $breaks is empty.
breaks='='
with=/dev/null
offered() {
	(cd "$TMP" && PATH=$BUILD:$PATH bash --norc -c '
		COMP_WORDBREAKS=$1 with=$2
		shift 2
		. "$TOP/tools/pinshim.bash-completion"
		. "$with"
		COMP_WORDS=("$@")
		COMP_CWORD=$(($# - 1))
		_pinshim pinshim "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>"$TMP/err"
		printf "%s\n" "${COMPREPLY[@]}"' bash "$breaks" "$with" "$@" | sort | xargs)
}

# offers EXPECTED WORD...
offers() {
	local expected=$1 found

	shift
	found=$(offered "$@")
	if [[ $found == "$expected" && ! -s $TMP/err ]]; then
		ok "$*"
	else
		notok "$*" "offered: $found"$'\n'"expected: $expected"$'\n'"$(<"$TMP/err")"
	fi
}

touch "$TMP/zebra"
mkdir "$TMP/zoo"
offers "$("$BUILD/pinshim" --help | sed -nE 's/^  ([a-z]+) .*/\1/p' | cat - <(printf '%s\n' help --help --version) |
	sort | xargs)" pinshim ''
offers run pinshim ru
offers "--need=" pinshim doctor --ne
offers "--library= --limit= --log=" pinshim run --l
offers "hugetlb" pinshim run --hugepages = h
offers "hugetlb off thp" pinshim run --hugepages = ''
offers "hugetlb off thp" pinshim run --hugepages =
offers "hugetlb off thp" pinshim run --hugepages ''
offers "auto" pinshim run --aio = a
offers "pinned" pinshim stat --sort = pin
offers "zoo" pinshim run --library = z
offers "zebra zoo" pinshim doctor --file = z
offers "stderr" pinshim run --stats = std
offers "zebra zoo" pinshim run --stats = z
offers "pinshim" pinshim run pinshi
offers "pinshim" pinshim run --aio --limit 8G pinshi
offers "pinshim" pinshim run --aio = uring -- pinshi
offers "zebra zoo" pinshim run -- pinshim z
offers "zebra zoo" pinshim doctor cat z
offers "" pinshim run --limit = 8
offers "" pinshim nothing --x
breaks=
offers "--hugepages=hugetlb" pinshim run --hugepages=h

# Every option of every command is offered, and none else.
while read -r command; do
	offers "$("$BUILD/pinshim" "$command" --help | sed -nE 's/^ +(-[a-z], +)?(--[a-z-]+=?).*/\2/p' |
		sort | xargs)" pinshim "$command" --
done < <("$BUILD/pinshim" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')

# A process that has something pinned.
"$BUILD/pinshim" run --malloc=1- --stats=off -- sleep 60 &
holder=$!
for ((i = 0; i < 200; i++)); do
	! compgen -G "/dev/shm/pinshim.$holder.*" >/dev/null || break
	sleep 0.05
done
check "stat: offers the processes that have tables" grep -qw $holder <(offered pinshim stat '')
offers $holder pinshim stat $holder
kill $holder
wait $holder 2>/dev/null
rm -f "/dev/shm/pinshim.$holder."*

# The arguments of a program are completed as the program's own, where bash-completion is there.
cat >"$TMP/bash-completion" <<'END'
_command_offset() {
	COMPREPLY=("at $1: ${COMP_WORDS[$1]}")
}
END
with=$TMP/bash-completion
offers "at 5: gzip" pinshim run --aio = auto gzip --be
offers "at 3: gzip" pinshim doctor -- gzip ''
finish
