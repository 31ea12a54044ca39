#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every PINSHIM_* variable: a wrong value ends the process with 78 before main, in one line that
# names variable, value and what is accepted; a right one is taken without a word.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"

# wrong NAME VALUE ACCEPTED...: the line has the name, the value and each word of ACCEPTED.
wrong() {
	local name=$1 value=$2 status good=1 word

	shift 2
	preload "$name=$value" -- echo main >"$TMP/out" 2>"$TMP/err" </dev/null
	status=$?
	((status == 78)) || good=0
	[[ ! -s $TMP/out && $(wc -l <"$TMP/err") == 1 && $(<"$TMP/err") == 'pinshim['*']: '* ]] || good=0
	for word in "$name" "$value" "$@"; do
		grep -qF -- "$word" "$TMP/err" || good=0
	done
	if ((good)); then
		ok "$name=$value is refused, with status 78 and one line that says what to use"
	else
		notok "$name=$value is refused, with status 78 and one line that says what to use" \
			"exit status $status, stdout: $(<"$TMP/out"), stderr: $(<"$TMP/err")"
	fi
}

# right NAME=VALUE...
right() {
	local status

	preload PINSHIM_STATS=off "$@" -- echo main >"$TMP/out" 2>"$TMP/err"
	status=$?
	check "$* is accepted" test "$status,$(<"$TMP/out"),$(<"$TMP/err")" = 0,main,
}

for value in natve NATIVE 1 'native ' ' '; do
	wrong PINSHIM_BACKEND "$value" native cuda off
done
for value in native cuda off ''; do
	right PINSHIM_BACKEND=$value
done

for value in x 64 64K 64k-x -64K 1M-64K '64K-1M,' ',64K-' '64K - 1M' 64K-1M,,2M- 64Q- 0x10- -1- \
	99999999999999999999- 1-2-3 16777216T- \
	1-1,3-3,5-5,7-7,9-9,11-11,13-13,15-15,17-17,19-19,21-21,23-23,25-25,27-27,29-29,31-31,33-33; do
	wrong PINSHIM_MALLOC "$value" LOW-HIGH 64K-1M,16M-
done
for value in '' 64K- 64k-1m 64K-1M,16M- 0- 1- 1-1 16M-,64K-1M 64K-1M,512K-2M 1048576- 1G-2T; do
	right PINSHIM_MALLOC=$value
done

for name in PINSHIM_LIMIT PINSHIM_NODE_LIMIT; do
	for value in none? 8X -1 '8 G' 101% % 8.5G 0x100 8GB 99999999999999999999 unlimited; do
		wrong $name "$value" none 8G 50%
	done
	for value in '' none 8G 8g 50% 0 0% 100% 123456789 1T; do
		right $name=$value
	done
done
for name in PINSHIM_RESERVE PINSHIM_RETAIN; do
	for value in none 8X -1 101% % 5.5% K; do
		wrong $name "$value" 8G 50%
	done
	for value in '' 5% 0 0% 1G 100%; do
		right $name=$value
	done
done

for value in fail Error 0; do
	wrong PINSHIM_ON_FAIL $value error fallback
done
right PINSHIM_ON_FAIL=error
right PINSHIM_ON_FAIL=fallback
for value in 2M always yes; do
	wrong PINSHIM_HUGEPAGES $value thp hugetlb off
done
for value in thp hugetlb off; do
	right PINSHIM_HUGEPAGES=$value
done
for value in 0 -1 257 two 1K 2.5 99999999999; do
	wrong PINSHIM_THREADS $value 'from 1 to 256'
done
for value in '' 1 2 256; do
	right PINSHIM_THREADS=$value
done
for value in /tmp/%x /tmp/report% %; do
	wrong PINSHIM_STATS $value stderr off %p %h %e
done
preload PINSHIM_STATS="/$(printf '%05000d' 0)" -- echo main >"$TMP/out" 2>"$TMP/err"
check "a PINSHIM_STATS longer than a path can be is refused, and cut in the message" test \
	"$?,$(<"$TMP/out"),$(wc -l <"$TMP/err"),$(($(wc -c <"$TMP/err") < 600))" = 78,,1,1
for value in /tmp/%x /tmp/trace% %; do
	wrong PINSHIM_TRACE $value off %p %h %e %r
done
for value in '' off "$TMP/trace.%h.%e.%p.%r.%%.json"; do
	right PINSHIM_TRACE="$value"
done
check "PINSHIM_TRACE: where nothing is pinned there is no file" test -z "$(compgen -G "$TMP/trace*")"
for value in warning 3 WARN; do
	wrong PINSHIM_LOG $value error warn info debug
done
for value in error warn; do
	right PINSHIM_LOG=$value
done
for value in on io_uring; do
	wrong PINSHIM_AIO $value auto uring libaio off
done
for value in auto uring libaio off; do
	right PINSHIM_AIO=$value
done
for value in yes on 2 -1 00; do
	wrong PINSHIM_AIO_REPAIR $value '0 or 1'
done
for value in 0 1 ''; do
	right PINSHIM_AIO_REPAIR=$value
done
wrong PINSHIM_DEEPBIND yes auto strip keep
right PINSHIM_DEEPBIND=auto
right PINSHIM_DEEPBIND=strip
right PINSHIM_DEEPBIND=keep

# A wrong value counts even where nothing would come of it, and the first of several is named alone.
preload PINSHIM_BACKEND=off PINSHIM_LIMIT=8X -- echo main >"$TMP/out" 2>"$TMP/err"
check "PINSHIM_BACKEND=off does not excuse a wrong value" test $? = 78
preload PINSHIM_LIMIT=8X PINSHIM_RETAIN=9X -- echo main >"$TMP/out" 2>"$TMP/err"
check "of two wrong values one is named" test "$?,$(wc -l <"$TMP/err")" = 78,1

# It is seen by whoever looks at the status, from a shell or python.
preload PINSHIM_MALLOC=wrong -- sh -c 'echo main' >"$TMP/out" 2>"$TMP/err"
check "a shell ends with 78 too" test "$?,$(<"$TMP/out")" = 78,

# Unknown names: said, once, and the program runs. A slip of the pen is recognised.
preload PINSHIM_FOO=1 PINSHIM_STATS=off -- echo main >"$TMP/out" 2>"$TMP/err"
check "an unknown variable does not stop the program" test "$?,$(<"$TMP/out")" = 0,main
check "but is named, once" test "$(message_count "$TMP/err" PINSHIM_FOO),$(wc -l <"$TMP/err")" = 1,1
preload PINSHIM_MALOC=64K- PINSHIM_STATS=off -- true 2>"$TMP/err"
check "for a slip of the pen the right name is offered" \
	test "$(message_count "$TMP/err" 'PINSHIM_MALOC.*PINSHIM_MALLOC')" = 1
preload PINSHIM_FOO=1 PINSHIM_BAR=1 PINSHIM_STATS=off -- true 2>"$TMP/err"
check "two unknown variables are named in a line each" test "$(wc -l <"$TMP/err")" = 2
preload PINSHIM_FOO=1 PINSHIM_LOG=error -- true 2>"$TMP/err"
check "PINSHIM_LOG=error silences that" test ! -s "$TMP/err"

# Levels.
preload PINSHIM_LOG=debug PINSHIM_MALLOC=64K-1M -- true 2>"$TMP/err"
check "PINSHIM_LOG=debug prints the settings as understood" \
	test "$(message_count "$TMP/err" 'PINSHIM_MALLOC=64K-1M')" = 1

# A set-user-ID program ignores the preload and every variable: the loader's rule, and secure_getenv.
if [[ $(id -u) == 0 ]] && cp "$(type -P id)" "$TMP/id" && chmod 4755 "$TMP/id" && chmod 755 "$TMP" &&
	[[ $(setpriv --reuid 65534 --regid 65534 --clear-groups "$TMP/id" -u) == 0 ]]; then
	setpriv --reuid 65534 --regid 65534 --clear-groups \
		sh -c "LD_PRELOAD='$LIB' PINSHIM_MALLOC=wrong exec '$TMP/id' -u" >"$TMP/out" 2>"$TMP/err"
	check "a set-user-ID program runs as if there were no preload" \
		test "$?,$(<"$TMP/out")" = 0,0
	check "and says nothing of pinshim" test "$(message_count "$TMP/err")" = 0
else
	skip "a set-user-ID program ignores the preload" "no set-user-ID programs here"
fi
finish
