#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# As behaviour.sh: signal handlers that come at every instruction of a call, and use what it uses.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/behaviour.bash"

if ! "$PROGRAMS/handlers" can; then
	skip "handlers" "one process may not run another instruction by instruction here"
	finish
fi
same "handlers" BETWEEN=41 "$PROGRAMS/handlers"
finish
