#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What every call of libaio does is what it does without the shim, case by case and number by number,
# with each engine, with one thread and with two, on memory of the heap and on ordinary memory.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/behaviour.bash"
need jq

for program in callbacks cancel errors eventfd flags memory opcodes raw_calls ring_peek signals waiting; do
	same "$program" "$PROGRAMS/$program"
done

# Of two contexts the one for direct I/O has a ring.
for engine in auto uring "uring BEHAVIOUR_THREADED=1"; do
	counted "aio PINSHIM_AIO=$engine" ".contexts == 2 and .rings == 1 and .direct > 0 and .fixed == 0" \
		"$PROGRAMS/memory"
	counted "both PINSHIM_AIO=$engine" ".contexts == 2 and .rings == 1 and .fixed > 0" "$PROGRAMS/memory"
done
for engine in libaio "auto BEHAVIOUR_THREADED=1"; do
	counted "both PINSHIM_AIO=$engine" ".contexts == 2 and .rings == 0 and .direct > 0 and .fixed == 0" \
		"$PROGRAMS/memory"
done

# One of its cases uses up what the system has.
AT_A_TIME=1
same limits "$PROGRAMS/limits"
finish
