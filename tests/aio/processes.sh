#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# As behaviour.sh: threads, children, signals to others' waits, and processes that end.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/behaviour.bash"

for program in ends fork interrupts threads; do
	same "$program" "$PROGRAMS/$program"
done
finish
