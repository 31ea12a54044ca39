#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# CUDA host memory in forked children; shared_children.c has the cases.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"

for setting in "" PINSHIM_RETAIN=0 PINSHIM_HUGEPAGES=off PINSHIM_MALLOC=64K-; do
	run_cases "${setting:-as it is}" preload PINSHIM_STATS=off $setting -- "$PROGRAMS/shared_children"
done
finish
