#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq git

job <<'END'
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_AUTHOR_DATE='1700000000 +0000'
export GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org GIT_COMMITTER_DATE='1700000000 +0000'
git init -q -b main .
git config gc.auto 0
git config pack.threads 2
for ((i = 0; i < 500; i++)); do
	mkdir -p "d$((i % 10))"
	printf "line $i %d\n" {1..60} >"d$((i % 10))/f$i"
done
seq 300000 >large
git add . && git commit -q -m first
for ((i = 0; i < 500; i += 25)); do
	echo more >>"d$((i % 10))/f$i"
	git rm -q "d$(((i + 1) % 10))/f$((i + 1))"
done
sed -i s/77/seventy-seven/ large
git commit -q -a -m second
git checkout -q -b side HEAD~1
echo side >side && git add side && git commit -q -m side
git checkout -q main && git merge -q -m merged side
git gc -q
git log --stat --all | sha256sum
git log --oneline --graph --all
git diff HEAD~2 HEAD -- large | sha256sum
git fsck --full && echo sound
git archive HEAD | sha256sum
git clone -q . ../work/clone && git -C clone rev-parse HEAD && git -C clone status --short
git grep -c 'line 4 ' | sha256sum
git blame -s d4/f4 | tail -n 3
git no-such-command
echo "status $?"
END
RANGES=(64K- 1-)
same "git" git
finish
