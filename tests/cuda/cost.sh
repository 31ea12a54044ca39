#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What pinshim's own part of the calls costs: printed, for times are not the same twice. Counts are cases.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"

program=$BUILD/tests/cuda/cost_rt
export LD_LIBRARY_PATH=$BUILD/tests/fakes

# cost FILE NAME: nanoseconds.
cost() {
	sed -n "s/^cost of $2.*, //p" "$1"
}

"$program" >"$TMP/plain"
check "without us: its cases hold" test "$?" = 0
preload PINSHIM_STATS=off FAKE_CUDA_LEAKS=off -- "$program" >"$TMP/out" 2>"$TMP/err"
check "its cases hold" test "$?" = 0
grep '^not ok' "$TMP/out"
check "nothing is said" test ! -s "$TMP/err"

echo "# Calls of the driver for one cudaHostAlloc and cudaFreeHost of 1 MiB:"
grep '^#' "$TMP/out"
printf '# %-58s %6d ns\n' \
	"cudaHostAlloc + cudaFreeHost of 1 MiB" "$(cost "$TMP/out" "a pair")" \
	"without what the fakes take (to be under 1000)" \
	"$(($(cost "$TMP/out" "a pair") - $(cost "$TMP/out" "its ")))" \
	"pinshim_is_pinned among 10000 ranges (under 100)" "$(cost "$TMP/out" pinshim_is_pinned)" \
	"the same, of 4 threads that ask at once, by the clock" "$(cost "$TMP/out" asking)" \
	"cudaHostUnregister + cudaHostRegister among 10000" "$(cost "$TMP/out" unregistering)" \
	"without what the fakes take (under 5000)" \
	"$(($(cost "$TMP/out" unregistering) - $(cost "$TMP/plain" unregistering)))"
finish
