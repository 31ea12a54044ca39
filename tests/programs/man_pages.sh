#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The manual pages say what the code does: every variable and its values, every key of the JSON, every
# metric, every member of the table, every option; and name nothing that does not exist.
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
# shellcheck source=tests/programs/tables.bash
. "$(dirname "$0")/tables.bash"
need groff jq mandoc python3

stats=$TOP/allocator/pinshim-stats.5
pinshim1=$TOP/tools/pinshim.1
pinshim7=$TOP/interpose/pinshim.7
pages=("$TOP"/*/*.[1-8])

# same NAME CODE DOCUMENTED: two files of words, a line each, have the same.
same() {
	sort -u -o "$2" "$2"
	sort -u -o "$3" "$3"
	check "$1: there are some" test -s "$2"
	check "$1: each is documented" test -z "$(comm -23 "$2" "$3" | xargs)"
	check "$1: none is invented" test -z "$(comm -13 "$2" "$3" | xargs)"
}

# arguments MACRO FILE...: what this macro is used on, a word each.
arguments() {
	local macro=$1

	shift
	sed -nE "s/^\.(.* )?$macro +//p" "$@" | tr ' ' '\n' | sed -nE 's/^\\&//; /^[A-Za-z_][A-Za-z0-9_]*$/p'
}

# between FIRST LAST FILE: its lines from the one that matches on, up to and without the other.
between() {
	awk -v first="$1" -v last="$2" '$0 ~ first { on = 1; print; next } on && $0 ~ last { exit } on' "$3"
}

for page in "${pages[@]}"; do
	name=${page##*/}
	check "$name: mandoc has nothing to say" mandoc -T lint -W warning "$page"
	check "$name: nor has groff" test -z "$(groff -mandoc -ww -z "$page" 2>&1)"
done

# Variables, by the code's own table of them, and as the library prints them.
sed -nE 's/.*\.name = "(PINSHIM_[A-Z_]+)".*/\1/p' "$TOP/allocator/config.c" >"$TMP/variables"
arguments 'It Ev' "$pinshim7" >"$TMP/documented"
same "variables" "$TMP/variables" "$TMP/documented"
preload PINSHIM_LOG=debug -- true 2>&1 | sed -nE 's/^pinshim\[[0-9]+\]: (PINSHIM_[A-Z_]+)=.*/\1/p' |
	sort >"$TMP/printed"
check "variables: those that are printed are among them" test -s "$TMP/printed" -a \
	-z "$(comm -23 "$TMP/printed" "$TMP/variables")"
arguments Ev "${pages[@]}" | grep '^PINSHIM_' | sort -u >"$TMP/mentioned"
check "variables: no page speaks of another" test -s "$TMP/mentioned" -a -z "$(comm -23 "$TMP/mentioned" "$TMP/variables" | xargs)"
while read -r variable; do
	# Not here: a path is a right value of some.
	(cd "$TMP" && preload "$variable=?" -- true 2>"$TMP/err")
	sed -nE 's/.*: no such choice: use (.*)/\1/p' "$TMP/err" | sed 's/, /\n/g; s/ or /\n/' >"$TMP/choices"
	[[ -s $TMP/choices ]] || continue
	between "^\\.It Ev $variable\$" '^\.It Ev ' "$pinshim7" >"$TMP/section"
	sed -nE 's/^\.(It )?Cm ([a-z0-9]+).*/\2/p' "$TMP/section" >"$TMP/documented"
	same "$variable's values" "$TMP/choices" "$TMP/documented"
	initial=$(preload PINSHIM_LOG=debug -- true 2>&1 | sed -n "s/.*: $variable=//p")
	[[ $variable == PINSHIM_LOG ]] && initial=warn
	check "$variable's default" test \
		"$(grep -B 1 '^\.Pq default' "$TMP/section" | sed -nE 's/^\.(It )?Cm ([a-z0-9]+).*/\2/p')" = "$initial"
done <"$TMP/variables"

# Keys of the JSON, of a process's own report and of pinshim stat.
living 2
table "${living[0]}" job=one aio.submitted=1 ranges=2
table "${living[1]}" job=one
preload PINSHIM_STATS="$TMP/report.json" -- true
run 0 --json --ranges
jq -r '.. | objects | keys[]' "$TMP/report.json" "$TMP/out" >"$TMP/keys"
grep -oE '\{ PINSHIM_RANGE_[A-Z_]+, *"[a-z_]+" \}' "$TOP/tools/range_flags.c" | grep -oE '"[a-z_]+"' |
	tr -d '"' >"$TMP/flags"
check "the flags of ranges are six" test "$(wc -l <"$TMP/flags")" = 6
cat "$TMP/flags" >>"$TMP/keys"
arguments Sy "$stats" >"$TMP/documented"
same "JSON" "$TMP/keys" "$TMP/documented"

# Metrics and their labels.
run 0 --prometheus
table "${living[0]}" job=one aio.submitted=1 served=1
run 0 --prometheus
sed -nE 's/^# HELP ([a-z_]+) .*/\1/p' "$TMP/out" >"$TMP/metrics"
between '^\.Sh METRICS' '^\.Sh TABLE' "$stats" >"$TMP/section"
arguments 'It Li' "$TMP/section" >"$TMP/documented"
same "metrics" "$TMP/metrics" "$TMP/documented"
grep -v '^#' "$TMP/out" | grep -oE '[a-z_]+="' | tr -d '="' >"$TMP/labels"
grep -v '^\.It' "$TMP/section" >"$TMP/text"
arguments Li "$TMP/text" >"$TMP/documented"
same "labels" "$TMP/labels" "$TMP/documented"
end_living

# The table: each member of each struct, where it is and how long. The compiler compares.
cat >"$TMP/members.py" <<'END'
import re, sys
header = re.sub(r"/\*.*?\*/", "", open(sys.argv[1]).read(), flags=re.S)
structs = dict(re.findall(r"struct (pinshim_\w+) \{\n(.*?)\n\}", header, re.S))
code = {(name, field) for name, body in structs.items()
        for field in re.findall(r"\b(\w+)(?:\[\w+\])?;", body)}
lists = re.findall(r"has (\d+) bytes|header of (\d+) bytes|^\.Bl -column(.*?)^\.El", open(sys.argv[2]).read(), re.S | re.M)
names = ["pinshim_table", "pinshim_stripe", "pinshim_entry", "pinshim_aio", "pinshim_range"]
documented, size = set(), None
print('#include <stddef.h>\n#include "pinshim_table.h"')
for short, long, rows in lists:
    if not rows:
        size = short or long
        continue
    name = names.pop(0)
    print(f"_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");")
    for offset, length, field in re.findall(r"^\.It (\d+) Ta (\d+) Ta Va (\w+)", rows, re.M):
        documented.add((name, field))
        print(f"_Static_assert(offsetof(struct {name}, {field}) == {offset} && "
              f"sizeof(((struct {name} *)0)->{field}) == {length}, \"{name}.{field}\");")
assert not names, names
print("/*", *sorted(code - documented), "*/")
sys.exit(f"not documented: {sorted(code - documented)}" if code - documented else 0)
END
check "the table: each member is documented" bash -c \
	"python3 '$TMP/members.py' '$TOP/allocator/pinshim_table.h' '$stats' >'$TMP/members.c'"
check "the table: all of them" test "$(grep -c offsetof "$TMP/members.c")" -gt 60
# shellcheck disable=SC2086 # CC may have arguments
check "the table: each is where the page says" \
	${CC:-cc} -fsyntax-only -Wall -Werror -I "$TOP/allocator" "$TMP/members.c"
cp "$stats" "$TMP/wrong.5"
sed -i 's/^\.It 360 Ta 8 Ta Va/.It 361 Ta 8 Ta Va/' "$TMP/wrong.5"
python3 "$TMP/members.py" "$TOP/allocator/pinshim_table.h" "$TMP/wrong.5" >"$TMP/members.c"
check "the table: and the compiler would notice" bash -c \
	"! ${CC:-cc} -fsyntax-only -Wall -Werror -I '$TOP/allocator' '$TMP/members.c' 2>/dev/null"

# The version and the numbers that the page mentions.
version=$(sed -n 's/^#define PINSHIM_TABLE_VERSION //p' "$TOP/allocator/pinshim_table.h")
check "the table's version" grep -q "Va version Ta $version;" "$stats"

# Commands and their long options.
"$tool" help | sed -nE 's/^  ([a-z]+) .*/\1/p' >"$TMP/commands"
check "there are commands" test -s "$TMP/commands"
: >"$TMP/options"
while read -r command; do
	check "$command is in the manual" grep -qE "^\.It Cm $command\b" "$pinshim1"
	"$tool" "$command" --help >"$TMP/help"
	check "$command --help: exits 0 and says something" test $? = 0 -a -s "$TMP/help"
	grep -oE '(^|[ ,])--[a-z][a-z-]*' "$TMP/help" | tr -d ' ,' >>"$TMP/options"
done <"$TMP/commands"
grep '^\.It Fl' "$pinshim1" | grep -oE 'Fl -[a-z][a-z-]*' | sed 's/Fl -/--/' >"$TMP/documented"
same "options" "$TMP/options" "$TMP/documented"
finish
