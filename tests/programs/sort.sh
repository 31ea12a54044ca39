#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq sort awk

awk 'BEGIN { for (i = 1; i <= 700000; i++) printf "%d line %d of the file\n", i * 7919 % 1000003, i }' \
	>"$INPUT/lines"
job <<'END'
sort -S 64M --parallel=2 "$INPUT/lines" | sha256sum
sort -S 64M --parallel=2 -n "$INPUT/lines" | sha256sum
sort -S 4M --parallel=2 -T . -k3,3n "$INPUT/lines" | sha256sum
sort -u -k1.1,1.3 -S 64M "$INPUT/lines" | sha256sum
sort -c "$INPUT/lines"
echo "status $?"
sort no-such-file
echo "status $?"
END
RANGES=(64K- 1-)
same "sort" sort
finish
