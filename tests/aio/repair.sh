#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Misaligned direct I/O is made to work, to the byte, and not with PINSHIM_AIO_REPAIR=0.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/behaviour.bash"

ENGINES="auto uring libaio"
run_in plain BEHAVIOUR_BUFFERED=1 "$PROGRAMS/repair" DIRECTORY
result plain "buffered files, without the shim"
repaired "repair" "$PROGRAMS/repair"
repaired "fetched by a system call" "$PROGRAMS/raw_calls" misaligned
ENGINES="auto uring libaio off"
same "not repaired" PINSHIM_AIO_REPAIR=0 "$PROGRAMS/misaligned"
finish
