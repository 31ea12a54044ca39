#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# As behaviour.sh: how contexts begin and end, and which descriptors they are used with.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/behaviour.bash"

for program in contexts destroy files; do
	same "$program" "$PROGRAMS/$program"
done
same "descriptors" "$PROGRAMS/descriptors" flags closing raw
# How misaligned requests fail tells what the shim believes of a file.
same "descriptors, not repaired" PINSHIM_AIO_REPAIR=0 "$PROGRAMS/descriptors" reuse flags
# And so does what is repaired.
ENGINES="auto uring libaio"
repaired "descriptors, repaired" PINSHIM_AIO_REPAIR=1 "$PROGRAMS/descriptors" reuse flags
finish
