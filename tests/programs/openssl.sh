#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq openssl

seq 3000000 >"$INPUT/data"
job <<'END'
openssl dgst -sha256 "$INPUT/data"
openssl dgst -sha3-512 "$INPUT/data"
openssl enc -aes-256-cbc -pbkdf2 -S 0102030405060708 -pass pass:word -bufsize 1000000 \
	-in "$INPUT/data" -out sealed && sha256sum sealed
openssl enc -d -aes-256-cbc -pbkdf2 -pass pass:word -bufsize 300000 -in sealed | cmp - "$INPUT/data"
openssl dgst -sha256 no-such-file 2>"$TMP/errors"
echo "status $?"
sed 's/^[0-9A-F]*:error/thread:error/' "$TMP/errors" >&2
END
RANGES=(8K- 1-)
same "openssl dgst and enc" openssl

# speed says other numbers each time: it works, and buffers this large are served.
rm -rf "$TMP/stats"
mkdir "$TMP/stats"
preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/stats/%e.%p.json" -- \
	openssl speed -seconds 1 -bytes 1048576 -evp aes-128-gcm >"$TMP/out" 2>"$TMP/err"
check "openssl speed works" test $? = 0
check "openssl speed gives a figure" grep -qiE '^aes-128-gcm +[0-9.]+k' "$TMP/out"
served "openssl speed" openssl
preload PINSHIM_MALLOC=64K- PINSHIM_STATS="$TMP/stats/%e.%p.json" -- \
	openssl speed -seconds 1 -multi 2 -bytes 1048576 sha256 >"$TMP/out" 2>"$TMP/err"
check "openssl speed works in several processes" grep -qE '^sha256 +[0-9.]+k' "$TMP/out"
finish
