#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# /dev/shm missing, full or read-only: the library works without a table and says so once. Each is
# made in a mount namespace of its own.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq unshare mount

program=$PROGRAMS/faults
unshare -m true 2>/dev/null || skip_all "no mount namespaces here"
grep -q ' /dev/shm ' /proc/mounts || skip_all "/dev/shm is no file system of its own"

# without LABEL MOUNT WORD: runs the program where MOUNT was evaluated by a shell.
without() {
	local label=$1 mount=$2 word=$3 status

	cat >"$TMP/inside" <<-END
		mount --make-rprivate / && { $mount; } >"$TMP/mount.err" 2>&1 || exit 99
		export LD_PRELOAD=$LIB PINSHIM_MALLOC=64K- PINSHIM_STATS=\$1
		exec "$program"
	END
	for stats in off "$TMP/report.json"; do
		rm -f "$TMP/report.json"
		unshare -m bash "$TMP/inside" "$stats" >"$TMP/out" 2>"$TMP/err"
		status=$?
		if ((status == 99)); then
			skip "$label" "cannot be made: $(head -n 1 "$TMP/mount.err")"
			return
		fi
		check "$label: the program works" test \
			"$status,$(grep -c '^ok' "$TMP/out"),$(grep -c '^not ok' "$TMP/out")" = 0,4,0
		check "$label: memory is unlocked in the end" grep -qx 'locked 0' "$TMP/out"
	done
	if [[ $(wc -l <"$TMP/err") == 1 && $(message_count "$TMP/err" "/dev/shm.*$word") == 1 ]]; then
		ok "$label: is said once, with the reason"
	else
		notok "$label: is said once, with the reason" "$(<"$TMP/err")"
	fi
	check "$label: blocks are served and counted all the same" test \
		"$(sum served "$TMP/report.json")" -gt 10
}

without "/dev/shm full" \
	'mount -t tmpfs -o size=8k tmpfs /dev/shm; head -c 8192 /dev/zero >/dev/shm/full' \
	'[Nn]o space|full|ENOSPC'
# Room for the file's name but not for its contents, as when another process fills it.
without "/dev/shm almost full" \
	'mount -t tmpfs -o size=16k tmpfs /dev/shm; head -c 8192 /dev/zero >/dev/shm/full' \
	'[Nn]o space|full|ENOSPC'
without "/dev/shm read-only" 'mount -t tmpfs -o ro tmpfs /dev/shm' '[Rr]ead-only|EROFS'
without "/dev/shm without inodes" \
	'mount -t tmpfs -o nr_inodes=1 tmpfs /dev/shm' '[Nn]o space|full|ENOSPC'
# All of /dev but what the shell here needs.
without "/dev/shm missing" \
	"touch $TMP/null; mount --bind /dev/null $TMP/null; mount -t tmpfs tmpfs /dev
	touch /dev/null; mount --bind $TMP/null /dev/null" '[Nn]o such|missing|ENOENT'
if can_be_ordinary; then
	program=$TMP/ordinary/faults
	make_ordinary "$LIB" "$PROGRAMS/faults"
	LIB=$ORDINARY/libpinshim.so
	# A directory that nobody but root may write.
	cat >"$TMP/inside" <<-END
		mount --make-rprivate / && mount -t tmpfs -o mode=755 tmpfs /dev/shm || exit 99
		exec setpriv --reuid 65534 --regid 65534 --clear-groups \
			env LD_PRELOAD=$LIB PINSHIM_MALLOC=64K- PINSHIM_LIMIT=4M PINSHIM_STATS=off "$program"
	END
	unshare -m bash "$TMP/inside" >"$TMP/out" 2>"$TMP/err"
	check "/dev/shm that may not be written: the program works" test \
		"$?,$(grep -c '^ok' "$TMP/out")" = 0,4
	check "/dev/shm that may not be written: is said once" test \
		"$(message_count "$TMP/err" '/dev/shm.*([Pp]ermission|EACCES)')" = 1
fi
finish
