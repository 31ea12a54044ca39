#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# scripts/gpu-check says that there is no GPU where there is none, runs through on the fakes, and
# notices an answer that differs.
. "$(dirname "$0")/../lib/case.sh"
need jq

# gpu_check [ARGUMENT...]: its exit status in $status, output in $TMP/out, results in $TMP/json.
gpu_check() {
	rm -f "$TMP/json"
	"$TOP/scripts/gpu-check" --no-build --library "$LIB" --json "$TMP/json" "$@" \
		>"$TMP/out" 2>&1
	status=$?
}

if [[ $(ldconfig -p) == *libcuda.so.1* || -e /dev/nvidiactl ]]; then
	skip "without a GPU" "this machine may have one"
else
	gpu_check
	check "without a GPU it ends with 77" test "$status" = 77
	check "and says so, in one line" test \
		"$(grep -c 'no GPU here' "$TMP/out"),$(wc -l <"$TMP/out")" = 1,1
fi

SECONDS=0
gpu_check --fakes --limit 55
if ((status == 0)); then
	ok "on the fakes nothing differs"
else
	notok "on the fakes nothing differs" \
		"$(grep -E 'differs$|not measured|Error' "$TMP/out" | head -n 40)"
fi
check "in less than a minute" test "$SECONDS" -lt 60
check "the results are JSON" jq -e . "$TMP/json"
check "with hundreds of answers" jq -e '.answers | length > 300' "$TMP/json"
check "the fakes answer as the table expects" jq -e '.refuted == []' "$TMP/json"
check "every way in was reached" jq -e '[.answers[] | select(.question | test("reached"))] |
	length == 4 and all(.shim == "yes")' "$TMP/json"
check "with every bandwidth" jq -e '.bandwidth | length == 24 and all(.gbps | length > 0)' \
	"$TMP/json"
check "and every cost" jq -e '[.cost[] | .cold + .warm[0]] | length > 0 and all(length == 4)' \
	"$TMP/json"
check "it says that the figures mean nothing" grep -q 'no figure below means anything' "$TMP/out"

export FAKE_CUDA_FAIL=cudaHostGetFlags:1-:801
gpu_check --fakes --limit 55 --only answers
check "a wrong answer is a difference: status 1" test "$status" = 1
check "it is listed" jq -e '.differences | any(.question | test("^cudaHostGetFlags"))' "$TMP/json"
check "and what the table expected" jq -e '.refuted | any(.plain | test("^801"))' "$TMP/json"
unset FAKE_CUDA_FAIL
gpu_check --fakes --limit 1
check "when the time is up it ends" test "$status" = 1
check "and says so" jq -e '.not_measured | any(test("time"))' "$TMP/json"
finish
