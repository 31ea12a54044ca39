#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# As behaviour.sh: pinned memory that is given back and pinned again.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/behaviour.bash"
need jq

same "stale" "$PROGRAMS/stale"
for engine in auto uring "uring BEHAVIOUR_THREADED=1"; do
	counted "both PINSHIM_AIO=$engine" ".rings > 0 and .fixed > 0 and .dropped > 0" "$PROGRAMS/stale" heap
done
finish
