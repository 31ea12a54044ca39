#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"

program=$PROGRAMS/threads_fork

run_cases "plain" "$program" 10
run_cases "64K-" preload PINSHIM_MALLOC=64K- PINSHIM_STATS=off -- "$program" 50 locked
run_cases "1-" preload PINSHIM_MALLOC=1- PINSHIM_STATS=off -- "$program" 20 locked
run_cases "64K-, RETAIN=0" preload PINSHIM_MALLOC=64K- PINSHIM_RETAIN=0 PINSHIM_STATS=off -- \
	"$program" 20 locked
run_cases "64K-, LIMIT=16M" preload PINSHIM_MALLOC=64K- PINSHIM_LIMIT=16M PINSHIM_LOG=error \
	PINSHIM_STATS=off -- "$program" 20
finish
