#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pinshim run: preloads and settings; what is wrong is said before anything runs; exit statuses and
# signals are the program's own.
# shellcheck disable=SC2016,SC2317 # programs in quotes; check() calls the functions
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
need jq perl
ulimit -c 0
cd "$TMP" || exit 1

tool=$BUILD/pinshim

# run STATUS ARGUMENT...: pinshim run with these; whether it exits so. $TMP/out and $TMP/err are its output.
run() {
	local expect=$1 status

	shift
	"$tool" run "$@" >"$TMP/out" 2>"$TMP/err"
	status=$?
	((status == expect)) && return
	echo "exit status $status"
	cat "$TMP/out" "$TMP/err"
	return 1
}

# preloads EXPECTED ARGUMENT...: LD_PRELOAD as the program finds it.
preloads() {
	local expected=$1

	shift
	run 0 --backend=off "$@" -- sh -c 'echo "$LD_PRELOAD"' && grep -qxF "$expected" "$TMP/out" && return
	cat "$TMP/out"
	return 1
}

check "the library is preloaded" preloads "$LIB"
check "--aio: and the other behind it" preloads "$LIB:$AIO_LIB" --aio
export LD_PRELOAD=/nowhere/a.so:/nowhere/b.so
check "what was there stays, behind" preloads "$LIB:/nowhere/a.so:/nowhere/b.so"
LD_PRELOAD="/nowhere/a.so /nowhere/b.so" check "spaces separate, too" \
	preloads "$LIB:/nowhere/a.so:/nowhere/b.so"
LD_PRELOAD=/nowhere/libpinshim-aio.so:/nowhere/libpinshim.so:/nowhere/a.so check \
	"other copies of them are left out" preloads "$LIB:$AIO_LIB:/nowhere/a.so" --aio
LD_PRELOAD=/nowhere/libpinshim-aio.so:/nowhere/libpinshim.so check \
	"but not the one that is not added" preloads "$LIB:/nowhere/libpinshim-aio.so"
LD_PRELOAD='' check "an empty one is none" preloads "$LIB"
unset LD_PRELOAD
check "one run in another preloads once" preloads "$LIB" -- "$tool" run

# Options and variables.
while read -r option variable value; do
	run 0 "$option" -- env >/dev/null
	check "$option" grep -qxF "$variable=$value" "$TMP/out"
done <<END
--malloc=64K-1M,16M- PINSHIM_MALLOC 64K-1M,16M-
--limit=8G PINSHIM_LIMIT 8G
--reserve=7% PINSHIM_RESERVE 7%
--node-limit=16G PINSHIM_NODE_LIMIT 16G
--backend=cuda PINSHIM_BACKEND cuda
--on-fail=fallback PINSHIM_ON_FAIL fallback
--hugepages=off PINSHIM_HUGEPAGES off
--threads=3 PINSHIM_THREADS 3
--retain=0 PINSHIM_RETAIN 0
--stats=off PINSHIM_STATS off
--log=error PINSHIM_LOG error
--deepbind=keep PINSHIM_DEEPBIND keep
--trace=/dev/null PINSHIM_TRACE /dev/null
--aio PINSHIM_AIO auto
--aio=libaio PINSHIM_AIO libaio
END
check "--no-repair" run 0 --aio --no-repair -- env
check "--no-repair: sets it" grep -qx PINSHIM_AIO_REPAIR=0 "$TMP/out"
check "a value may be a word of its own" run 0 --limit 8G env
check "and is understood" grep -qx PINSHIM_LIMIT=8G "$TMP/out"
PINSHIM_LIMIT=1G check "an option goes before a variable" run 0 --limit=2G env
check "and replaces it" test "$(grep -c '^PINSHIM_LIMIT=2G$' "$TMP/out"),$(grep -c ^PINSHIM_LIMIT= "$TMP/out")" = 1,1
PINSHIM_LIMIT=1G run 0 env
check "other variables stay" grep -qx PINSHIM_LIMIT=1G "$TMP/out"
run 0 env
check "nothing else is set" test -z "$(grep '^PINSHIM' "$TMP/out")"
check "options behind the program are its own" run 0 -- echo --check --limit=bad
check "and reach it" grep -qxF -e "--check --limit=bad" "$TMP/out"
check "without -- too" run 0 echo --check
check "and reach it so" grep -qxF -e --check "$TMP/out"

check "a program is served" run 0 --malloc=64K- --stats="$TMP/report.json" -- \
	perl -e 'my $x = "a" x 10_000_000; my $y = $x . "b"; print length $y'
check "and prints what it prints" test "$(<"$TMP/out")" = 10000001
check "and was served from pinned memory" jq -e '.total.served > 0 and .pinned_peak_bytes >= 10000000' \
	"$TMP/report.json"

# Wrong values are found before anything runs.
while read -r option accepted; do
	rm -f "$TMP/ran"
	check "$option: status 2" run 2 "$option" -- touch "$TMP/ran"
	check "$option: is named, with what is accepted" grep -qE \
		"^pinshim run: $option: [^:]+: use $accepted" "$TMP/err"
	check "$option: in one line, and nothing ran" test "$(wc -l <"$TMP/err")" = 1 -a ! -e "$TMP/ran"
done <<END
--limit=1x none, bytes
--limit=200% none, bytes
--malloc=-64K ranges of sizes
--reserve=-1 bytes
--node-limit=many none
--backend=gpu native, cuda or off
--on-fail=x error or fallback
--hugepages=2M thp, hugetlb or off
--threads=0 a number from 1 to 256
--retain=z bytes
--stats=%q stderr, off
--log=loud error, warn, info or debug
--aio=posix auto, uring, libaio or off
--deepbind=maybe auto, strip or keep
END
for wrong in "" "--no-repair true" "--no-such-option true" "--limit" "--"; do
	# shellcheck disable=SC2086 # words
	check "wrong usage: run $wrong" run 2 $wrong
	check "wrong usage: run $wrong: says so" test -s "$TMP/err"
done
PINSHIM_LIMIT=1x check "a variable with a wrong value: status 78" run 78 true
check "which is named" grep -q "^pinshim run: PINSHIM_LIMIT=1x: not a size: use none" "$TMP/err"
PINSHIM_LIMIT=1x check "unless an option replaces it" run 0 --limit=1G true
check "--help" run 0 --help
check "goes to standard output" test -s "$TMP/out" -a ! -s "$TMP/err"

# Exit statuses and signals.
for status in 0 1 2 77 125 255; do
	check "exit status $status" run $status -- sh -c "exit $status"
done
for signal in TERM KILL SEGV; do
	check "ended by SIG$signal" run $((128 + $(kill -l $signal))) -- sh -c "kill -$signal \$\$"
done
touch "$TMP/not-executable"
printf 'echo no first line, "$1"\n' >"$TMP/no-first-line"
chmod +x "$TMP/no-first-line"
printf '#!/nowhere/interpreter\n' >"$TMP/no-interpreter"
chmod +x "$TMP/no-interpreter"
for program in nosuchprogram "$TMP/nosuchfile" "$TMP/not-executable" "$TMP" "$TMP/no-first-line" \
	"$TMP/no-interpreter" ""; do
	env "$program" one >"$TMP/env.out" 2>/dev/null
	status=$?
	check "'${program#"$TMP"/}' ends as env's: $status" run $status -- "$program" one
	check "'${program#"$TMP"/}' prints as env's" cmp "$TMP/out" "$TMP/env.out"
done

"$tool" run --stats=off -- perl -e '$| = 1; $SIG{TERM} = sub { print "terminated\n"; exit 9 };
	print "$$\n"; sleep 60 while 1' >"$TMP/out" 2>"$TMP/err" &
child=$!
for ((i = 0; i < 200; i++)); do
	[[ ! -s $TMP/out ]] || break
	sleep 0.05
done
check "the command becomes the program" test "$(<"$TMP/out")" = $child
kill -TERM $child
wait $child
check "which gets its signals" test $? = 9 -a "$(tail -n 1 "$TMP/out")" = terminated
check "standard input is its own" test "$(echo hello | "$tool" run -- cat)" = hello

# Where the libraries are.
copy=$TMP/copy
mkdir -p "$copy/bin" "$copy/lib" "$copy/with space" "$copy/elsewhere"
cp "$tool" "$copy/bin"
tool=$copy/bin/pinshim
check "no library: status 125" run 125 true
check "says where it looked" grep -q "libpinshim.so: not in $copy/bin, ../lib" "$TMP/err"
cp "$LIB" "$copy/lib"
check "in ../lib" preloads "$copy/lib/libpinshim.so"
check "--aio without its library: status 125" run 125 --aio true
check "names it" grep -q "libpinshim-aio.so: not in" "$TMP/err"
cp "$LIB" "$copy/bin"
check "beside the command first" preloads "$copy/bin/libpinshim.so"
ln -s "$copy/bin/pinshim" "$TMP/link"
tool=$TMP/link
check "beside the command, not a link to it" preloads "$copy/bin/libpinshim.so"
cp "$LIB" "$copy/elsewhere"
(cd "$copy" && check "--library, from here" preloads "$copy/elsewhere/libpinshim.so" --library=elsewhere)
check "--library: not there: status 125" run 125 --library="$TMP" true
cp "$LIB" "$copy/with space"
check "a path that LD_PRELOAD cannot have: status 125" run 125 --library="$copy/with space" true
check "says why" grep -q "cannot have a path with a space" "$TMP/err"
echo text >"$copy/elsewhere/libpinshim.so"
check "no library but text: status 125" run 125 --library="$copy/elsewhere" true
check "says what is wrong with it" grep -q "$copy/elsewhere/libpinshim.so: .*shared library" "$TMP/err"
tool=$BUILD/pinshim

# --check says what would be done, and how to do it in a shell.
words=(sh -c 'printf "%s|" "$@"; env | grep -E "^(LD_PRELOAD|PINSHIM)" | sort' "it's" '' 'a  b' '$HOME' $'two\nlines' '*')
LD_PRELOAD=/nowhere/a.so check "--check" run 0 --check --malloc=1M- --aio=libaio --stats='%e $x' -- "${words[@]}"
cp "$TMP/out" "$TMP/check"
check "runs nothing, and is a command" grep -q "^env LD_PRELOAD=$LIB:$AIO_LIB:/nowhere/a.so PINSHIM_AIO=libaio" "$TMP/check"
check "shows the settings in force" grep -qx '# PINSHIM_MALLOC=1M-' "$TMP/check"
check "and the defaults" grep -qx '# PINSHIM_RETAIN=1G' "$TMP/check"
LD_PRELOAD=/nowhere/a.so run 0 --malloc=1M- --aio=libaio --stats='%e $x' -- "${words[@]}"
bash "$TMP/check" >"$TMP/out.check" 2>/dev/null
check "which does the same" diff "$TMP/out" "$TMP/out.check"
check "--check of no program: status 127" run 127 --check -- nosuchprogram
check "--check of what cannot be run: status 126" run 126 --check -- "$TMP/not-executable"

# Where nothing can be preloaded.
printf 'int main(void) { return 7; }\n' >"$TMP/seven.c"
if ${CC:-cc} -static -o "$TMP/static" "$TMP/seven.c" 2>/dev/null; then
	check "a static program is run all the same" run 7 -- "$TMP/static"
	check "which is said" grep -q "^pinshim run: nothing will be pinned: $TMP/static is static: .*: use" "$TMP/err"
	check "unless --log=error" run 7 --log=error -- "$TMP/static"
	check "then not" test ! -s "$TMP/err"
else
	skip "a static program" "there is no static C library"
fi
run 0 true
check "of others nothing is said" test ! -s "$TMP/err"

# As it is installed.
if check_output=$(env -u MAKEFLAGS -u MAKELEVEL make -s -C "$TOP" -o all install BUILD="$BUILD" \
	DESTDIR="$TMP/root" prefix=/usr 2>&1); then
	tool=$TMP/root/usr/bin/pinshim
	check "installed: finds its libraries" preloads \
		"$TMP/root/usr/lib/libpinshim.so:$TMP/root/usr/lib/libpinshim-aio.so" --aio
	check "installed: with its completion" bash -n "$TMP/root/usr/share/bash-completion/completions/pinshim"
else
	notok "installed" "$check_output"
fi
finish
