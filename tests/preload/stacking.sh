#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# With other allocators, sanitizers, interposers and ways of loading. Where rerouting cannot work the
# library says so, once, and the program works.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq "${CC:-cc}"

program=$PROGRAMS/stacking
parts=$TOP/tests/preload/parts
settings=(PINSHIM_MALLOC=64K- PINSHIM_STATS=off)

# with LIBRARIES [VARIABLE=VALUE...] -- PROGRAM...: another preload than the library's alone.
with() {
	LIB=$1 preload "${@:2}"
}

# said_once LABEL PATTERN COMMAND...: the cases hold and stderr has one line of pinshim, that matches.
said_once() {
	local label=$1 pattern=$2 status

	shift 2
	{
		"$@" 2>"$TMP/err" | sed -E "s/^((not )?ok - )/\\1$label: /"
		status=${PIPESTATUS[0]}
	} 2>/dev/null
	check "$label: ends with 0" test "$status" = 0
	if [[ $(message_count "$TMP/err") == 1 && $(message_count "$TMP/err" "$pattern") == 1 ]]; then
		ok "$label: says once why rerouting is off"
	else
		notok "$label: says once why rerouting is off" "$(<"$TMP/err")"
	fi
}

run_cases "plain" "$program" unlocked 1000
run_cases "alone" preload "${settings[@]}" -- "$program" locked 1000
for name in libjemalloc.so.2 libmimalloc.so.2 libtcmalloc_minimal.so.4; do
	other=$(ldconfig -p | sed -n "s|.* => \\(.*/$name\\)$|\\1|p" | head -n 1)
	if [[ -z $other ]]; then
		skip "$name" "not installed"
		continue
	fi
	run_cases "$name alone" with "$other" -- "$program" unlocked 1024
	run_cases "before $name" with "$LIB $other" "${settings[@]}" -- "$program" locked 1024
	said_once "after $name" 'first|before' \
		with "$other $LIB" "${settings[@]}" -- "$program" unlocked 1024
	# Nothing to reroute: nothing to say.
	run_cases "after $name, no ranges" with "$other $LIB" PINSHIM_STATS=off -- "$program" unlocked 1024
done

# Preload libraries that wrap malloc and pass it on.
check "a wrapping preload library is built" compile "$TMP/libcounting.so" "$parts/counting.c" \
	-shared -fPIC
run_cases "before a wrapper" with "$LIB $TMP/libcounting.so" "${settings[@]}" \
	COUNTING_FILE="$TMP/counted" -- "$program" locked 1000
check "before a wrapper: served blocks do not reach it" test "$(<"$TMP/counted")" = 0
with "$TMP/libcounting.so $LIB" PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/wrapped.json" \
	COUNTING_FILE="$TMP/counted" -- "$program" any 1000 >"$TMP/out" 2>"$TMP/err"
check "after a wrapper: the program works" test "$?,$(grep -c '^not ok' "$TMP/out")" = 0,0
check "after a wrapper: it sees the blocks" test "$(<"$TMP/counted")" -gt 0
check "after a wrapper: blocks are served, or one line says why not" test \
	"$(sum served "$TMP/wrapped.json"),$(message_count "$TMP/err")" != 0,0 -a \
	"$(message_count "$TMP/err")" -le 1

# Sanitizers bring an allocator of their own.
if compile "$TMP/asan" "$TOP/tests/preload/stacking.c" -fsanitize=address 2>"$TMP/compile.err"; then
	export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
	run_cases "ASan alone" "$TMP/asan" unlocked
	said_once "ASan program" sanitizer \
		preload "${settings[@]}" -- "$TMP/asan" unlocked
	run_cases "ASan program, no ranges" preload PINSHIM_STATS=off -- "$TMP/asan" unlocked
	asan=$(ldd "$TMP/asan" | sed -n 's|.*libasan.* => \([^ ]*\).*|\1|p')
	if [[ -n $asan ]]; then
		said_once "ASan program, libasan first" sanitizer \
			with "$asan $LIB" "${settings[@]}" -- "$TMP/asan" unlocked
		said_once "plain program, libasan first" sanitizer \
			with "$asan $LIB" "${settings[@]}" -- "$program" unlocked
	fi
	# It still finds what it is there for.
	cat >"$TMP/overflow.c" <<-'END'
		#include <stdlib.h>
		int main(int count, char **argument)
		{
			volatile char *block = malloc(100000);

			(void)argument;
			return block[100000 + count] = 1;
		}
	END
	compile "$TMP/overflow" "$TMP/overflow.c" -fsanitize=address
	{ preload "${settings[@]}" -- "$TMP/overflow" 2>"$TMP/err"; } 2>/dev/null
	check "ASan still finds an overflow" grep -q heap-buffer-overflow "$TMP/err"
	unset ASAN_OPTIONS
else
	skip "ASan" "no -fsanitize=address here"
fi

# The loader gives early libraries little room for thread-local storage.
echo 'unsigned la_version(unsigned version) { return version; }' >"$TMP/audit.c"
compile "$TMP/audit.so" "$TMP/audit.c" -shared -fPIC
run_cases "LD_AUDIT" preload GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096 LD_AUDIT="$TMP/audit.so" \
	"${settings[@]}" -- "$program" locked 1000

# What only a block of ours points to would be a leak to it.
cat >"$TMP/leak.c" <<-'END'
	#include <stdlib.h>
	static char **table;
	int main(void)
	{
		table = malloc(1 << 21);
		for (int i = 0; i < 1000; i++)
			table[i] = malloc(100);
		return 0;
	}
END
if compile "$TMP/leak" "$TMP/leak.c" -fsanitize=leak 2>"$TMP/compile.err" && "$TMP/leak" 2>/dev/null; then
	said_once "leak sanitizer" sanitizer preload "${settings[@]}" -- "$TMP/leak"
else
	skip "leak sanitizer" "it does not work here without the shim"
fi

# Plug-ins with symbols of their own.
mkdir "$TMP/plugins" "$TMP/neighbours"
check "a plug-in is built" compile "$TMP/plugins/libplugin.so" "$parts/deepbind_library.c" \
	-shared -fPIC -Wl,-rpath,"$TMP/neighbours"
check "and its neighbour" compile "$TMP/neighbours/libneighbour.so" "$parts/neighbour.c" -shared -fPIC
check "and its program" compile "$TMP/deepbind" "$parts/deepbind.c" -rdynamic -Wl,-rpath,"$TMP/plugins"
run_cases "DEEPBIND plain" "$TMP/deepbind" library
run_cases "DEEPBIND" preload "${settings[@]}" -- "$TMP/deepbind" program locked
run_cases "DEEPBIND kept" preload "${settings[@]}" PINSHIM_DEEPBIND=keep -- "$TMP/deepbind" library apart
run_cases "DEEPBIND, no ranges" preload -- "$TMP/deepbind" library
run_cases "DEEPBIND, backend off" preload PINSHIM_MALLOC=64K- PINSHIM_BACKEND=off -- \
	"$TMP/deepbind" library

# Ways in that do not work, and say so.
if type -P python3 >/dev/null; then
	PINSHIM_MALLOC=64K- PINSHIM_STATS=off python3 -c '
import ctypes, sys
try:
    ctypes.CDLL(sys.argv[1])
    print("opened")
except OSError as error:
    print(error)
blocks = [bytearray(1000000) for _ in range(20)]
' "$LIB" >"$TMP/out" 2>"$TMP/err"
	status=$?
	check "dlopen of the library does no harm" test $status = 0
	check "dlopen of the library fails with a reason, or one line says that it does nothing" test \
		"$(grep -c TLS "$TMP/out"),$(message_count "$TMP/err")" = 1,0 -o \
		"$(<"$TMP/out"),$(message_count "$TMP/err")" = opened,1
fi
if compile "$TMP/static" "$TOP/tests/preload/stacking.c" -static 2>"$TMP/compile.err"; then
	run_cases "static program" preload "${settings[@]}" -- "$TMP/static" unlocked 1000
else
	skip "static program" "no static C library"
fi
if type -P valgrind >/dev/null; then
	cat >"$TMP/trivial.c" <<-'END'
		#include <stdlib.h>
		#include <string.h>
		int main(void)
		{
			char *large = malloc(1 << 20), *small = malloc(10);

			memset(large, 1, 1 << 20);
			memset(small, 1, 10);
			large = realloc(large, 2 << 20);
			free(small);
			free(large);
			return 0;
		}
	END
	compile "$TMP/trivial" "$TMP/trivial.c"
	preload "${settings[@]}" -- valgrind -q --error-exitcode=9 --trace-children=no "$TMP/trivial" \
		>"$TMP/out" 2>"$TMP/err"
	check "valgrind runs a program under the preload and finds no error" test $? = 0
	check "valgrind: one line says that rerouting is off" test "$(message_count "$TMP/err")" = 1
	check "valgrind: nothing else is said" test "$(grep -vc '^pinshim\[' "$TMP/err")" = 0
	# The tools that leave malloc alone see the program as it is.
	preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/valgrind-%e.json" -- valgrind -q --tool=none \
		"$TMP/trivial" >"$TMP/out" 2>"$TMP/err"
	check "valgrind that leaves malloc alone works" test $? = 0
	check "valgrind that leaves malloc alone: blocks are served" test \
		"$(cat "$TMP"/valgrind-*.json | jq -s 'map(.total.served) | add')" -gt 0
else
	skip "valgrind" "not installed"
fi
finish
