#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pinshim doctor: what it finds of the machine, where the machine can be made otherwise for a process.
# shellcheck disable=SC2317 # check() calls the functions
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
# shellcheck source=tests/programs/doctor.bash
. "$(dirname "$0")/doctor.bash"
need jq setpriv prlimit unshare

compile "$TMP/confine" "$TOP/tests/programs/parts/confine.c" || skip_all "there is no compiler"

# As it is here.
"$tool" doctor >"$TMP/out" 2>"$TMP/err"
status=$?
check "here: nothing but findings is written" test ! -s "$TMP/err"
check "here: each line has its form" test -z \
	"$(head -n -2 "$TMP/out" | grep -vE '^(ok      |note    |warning |FAILED  ) [a-z_]+: [^:]')"
check "here: the last line sums up" grep -qE '^pinning (works|cannot work)' <(tail -n 1 "$TMP/out")
"$tool" doctor --json >"$TMP/json"
check "here: JSON has the same exit status" test $? = $status
check "here: JSON has its keys" jq -e '.schema == 1 and (.result | IN("works", "limited", "fails")) and
	(.findings | length > 15) and all(.findings[]; keys == ["check", "found", "remedy", "state"] and
	(.state | IN("ok", "note", "warning", "failed")) and (.found | length > 0))' "$TMP/json"
check "here: and the same findings" test \
	"$(jq -r '.findings[] | .state + " " + .check' "$TMP/json" | tr 'F' 'f' | xargs)" = \
	"$(sed -nE 's/^(ok|note|warning|FAILED) +([a-z_]+): .*/\1 \2/p' "$TMP/out" | sed 's/^FAILED/failed/' | xargs)"
check "here: the exit status is that of the worst" test "$status" = "$(jq -r '[.findings[].state] |
	if any(. == "failed") then 3 elif any(. == "warning") then 1 else 0 end' "$TMP/json")"
check "here: the result is, too" test "$(jq -r .result "$TMP/json")" = \
	"$(case $status in 0) echo works ;; 1) echo limited ;; 3) echo fails ;; esac)"
for name in settings library memlock user_namespace capability cgroup available thp hugetlb numa shm kernel \
	trial io_uring aio direct_io ld_preload cuda_driver cuda_runtime; do
	check "here: looks at $name" grep -qE "^[a-zA-Z]+ +$name: " "$TMP/out"
done
cat "$TOP"/tools/doctor*.c | tr -s '\n\t ' ' ' | grep -oE '(ps_findings_(add|begin)|check_ways)\([^"]*"[a-z_]+"' |
	sed -E 's/.*"([a-z_]+)"/\1/' | sort -u >"$TMP/checks"
sed -n '/^What is looked at/,/^\.El/s/^\.It //p' "$TOP/tools/pinshim.1" | sort -u >"$TMP/documented"
check "checks: there are some" test "$(wc -l <"$TMP/checks")" -gt 20
check "checks: each is in the manual" test -z "$(comm -23 "$TMP/checks" "$TMP/documented" | xargs)"
check "checks: none is invented there" test -z "$(comm -13 "$TMP/checks" "$TMP/documented" | xargs)"

# Usage.
for wrong in --no-such-option --need=x --need=-1 --limit=1x --need; do
	"$tool" doctor $wrong >"$TMP/out" 2>"$TMP/err"
	check "doctor $wrong: status 2, and says why" test $? = 2 -a -s "$TMP/err" -a ! -s "$TMP/out"
done
"$tool" doctor --help >"$TMP/out" 2>"$TMP/err"
check "doctor --help: status 0" test $? = 0 -a -s "$TMP/out" -a ! -s "$TMP/err"

# Settings and libraries.
with PINSHIM_LIMIT=1x
finds "a variable with a wrong value" failed settings 'PINSHIM_LIMIT=1x: not a size: use none'
with PINSHIM_LIMT=8G
finds "a variable that is none" warning settings 'PINSHIM_LIMT is no setting.*did you mean PINSHIM_LIMIT'
mapfile -t variables < <(printf 'PINSHIM_NONE_%d=1\n' {1..100})
finds "a hundred that are none" warning settings 'PINSHIM_NONE_1 is no setting'
with
finds "a trace" ok trial 'pinned 2.0 MiB' '' --trace="$TMP/trace"
check "a trace: is not begun" test ! -e "$TMP/trace"
with PINSHIM_BACKEND=off
finds "a backend that is off" failed trial 'nothing is pinned' PINSHIM_BACKEND
with
finds "no library" failed library 'libpinshim.so: not in' '' --library="$TMP"
finds "a limit of less than a chunk" failed limit 'PINSHIM_LIMIT is 1.0 MiB, less than the 2 MiB' 'raise it' --limit=1M
finds "and the trial says the same" failed trial 'pinned nothing: pinning 2.0 MiB was refused: PINSHIM_LIMIT is 1.0 MiB' '' --limit=1M
finds "a reserve of all memory" failed available 'PINSHIM_RESERVE keeps .*: 0 B can be pinned' 'PINSHIM_RESERVE' --reserve=100%
finds "a need of more than there is" failed available 'less than --need of 1.0 PiB' '' --need=1024T
finds "a limit of more than there is" warning available 'less than PINSHIM_LIMIT of 1.0 PiB' '' --limit=1024T
if (($(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages) == 0)); then
	finds "an empty hugetlb pool" failed hugetlb '0 free, less than' 'vm.nr_hugepages' --hugepages=hugetlb
	finds "without which it is no matter" ok hugetlb 'only PINSHIM_HUGEPAGES=hugetlb uses them'
else
	skip "an empty hugetlb pool" "it is not"
fi

# Limits of locked memory, as an ordinary user.
if can_be_ordinary; then
	make_ordinary "$LIB" "$AIO_LIB" "$tool" "$TMP/confine"
	tool=$ORDINARY/pinshim
	cd "$ORDINARY" || exit 1
	as=(ordinary)
	finds "8 MiB" warning memlock 'RLIMIT_MEMLOCK is 8.0 MiB soft, 8.0 MiB hard, and a process can pin no more' 'ulimit -l unlimited'
	ends "8 MiB" 1
	finds "8 MiB: the trial succeeds" ok trial 'pinned 2.0 MiB'
	finds "8 MiB: no capability" note capability 'not effective, and cannot be had'
	finds "8 MiB, 4 needed" ok memlock '8.0 MiB soft' '' --need=4M
	finds "8 MiB, 1 GiB needed" failed memlock 'less than --need of 1.0 GiB' 'memlock' --need=1G
	ends "8 MiB, 1 GiB needed" 3 --need=1G
	finds "8 MiB, 100 allowed" warning memlock 'less than PINSHIM_LIMIT of 100.0 MiB' 'memlock' --limit=100M
	finds "8 MiB, from a pool" note memlock 'a hugetlb pool need none' '' --hugepages=hugetlb
	as=(ordinary prlimit --memlock=4194304:8388608)
	finds "4 MiB that may be 8" warning memlock '4.0 MiB soft, 8.0 MiB hard' "ulimit -l 8192'"
	as=(ordinary prlimit --memlock=0:0)
	finds "none" failed memlock '0 B soft.*less than the 2 MiB' 'memlock'
	finds "none: the kernel refuses" failed kernel 'mlock of 2 MiB .*failed: (Operation|Cannot)' 'memlock'
	finds "none: so does the library" failed trial 'RLIMIT_MEMLOCK is 0 B and 0 B of it is in use'
	ends "none" 3
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups prlimit --memlock=unlimited:unlimited)
	finds "unlimited" ok memlock 'RLIMIT_MEMLOCK is unlimited'
	finds "unlimited: no capability is needed" ok capability 'not needed'
	as=(prlimit --memlock=0:0)
	finds "none, as root" ok memlock '0 B soft, 0 B hard, which CAP_IPC_LOCK lifts'
	finds "none, as root: it can be pinned" ok trial 'pinned 2.0 MiB'
	if unshare -r true 2>/dev/null; then
		as=(unshare -r prlimit --memlock=0:0)
		finds "none, as root of a user namespace" failed memlock '0 B soft, 0 B hard, less'
		finds "which it names" note user_namespace 'not the initial one'
		finds "and says what the capability is worth" ok capability 'in this user namespace alone'
		finds "and is right about it" failed trial 'was refused: RLIMIT_MEMLOCK'
	else
		skip "a user namespace" "none can be made here"
	fi
	as=(ordinary prlimit --as=4294967296)
	finds "a limit on addresses" note address_space 'is 4.0 GiB'
	as=(ordinary)
	cd "$TMP" || exit 1
	chmod 700 "$TMP/work" 2>/dev/null || mkdir -m 700 "$TMP/work"
	finds "a directory that may not be written" note direct_io 'cannot be tried: Permission denied' '--file' --file="$TMP/work"
	as=()
	tool=$BUILD/pinshim
else
	skip "limits of locked memory" "needs root, to become another user"
fi
cd "$TMP" || exit 1

# io_uring.
as=("$TMP/confine" io_uring=EPERM)
finds "io_uring forbidden" note io_uring 'not to be had .Operation not permitted.: a seccomp filter' 'seccomp=FILE'
finds "io_uring forbidden that was asked for" warning io_uring "by the kernel's AIO" '' --aio=uring
as=("$TMP/confine" io_uring=ENOSYS)
finds "io_uring hidden" note io_uring 'Function not implemented.: a seccomp filter'
as=()
if [[ -w /proc/sys/kernel/io_uring_disabled && $(</proc/sys/kernel/io_uring_disabled) == 0 ]] &&
	unshare -m true 2>/dev/null; then
	# Only this test sees what it says, for it is not changed.
	echo 2 >"$TMP/disabled"
	as=(unshare -m sh -c "mount --make-rprivate / && mount --bind $TMP/disabled /proc/sys/kernel/io_uring_disabled &&
		exec $TMP/confine io_uring=EPERM \"\$@\"" sh)
	finds "io_uring switched off" note io_uring 'the sysctl kernel.io_uring_disabled is 2' 'sysctl kernel.io_uring_disabled=0'
	as=()
else
	skip "io_uring switched off" "the sysctl cannot be replaced"
fi

# Events, files.
if unshare -m true 2>/dev/null; then
	echo 100 >"$TMP/most"
	as=(unshare -m sh -c "mount --make-rprivate / && mount --bind $TMP/most /proc/sys/fs/aio-max-nr && exec \"\$@\"" sh)
	finds "few events" warning aio 'aio-max-nr is 100, .*EAGAIN' 'sysctl fs.aio-max-nr'
	as=()
	truncate -s 1M "$TMP/file"
	finds "a file" ok direct_io "in $TMP/file buffers are to be at multiples of [0-9]+ bytes" '' --file="$TMP/file"
	finds "its directory" ok direct_io "in $TMP buffers are to be at multiples of [0-9]+ bytes" '' --file="$TMP"
	finds "a file system in memory" note direct_io 'in /dev/shm any buffer will do' '' --file=/dev/shm
	finds "a pipe" note direct_io '/dev/null cannot be tried: it is neither a file nor a disk' '' --file=/dev/null
	finds "a file that is not there" note direct_io 'cannot be tried: No such file' '--file' --file="$TMP/none"
else
	skip "few events" "no mount namespaces here"
fi

# Huge pages.
as=("$TMP/confine" thp=off)
case $(</sys/kernel/mm/transparent_hugepage/enabled) in
*'[never]'*) skip "without transparent huge pages" "there are none" ;;
*)
	finds "without transparent huge pages" warning thp 'off for this process and its children' PR_SET_THP_DISABLE
	finds "which is no matter if they are not wanted" ok thp 'off for this process' '' --hugepages=off
	finds "the trial tells" ok kernel 'locked 2 MiB in a child process, in 4 KiB pages'
	case $(</sys/kernel/mm/transparent_hugepage/shmem_enabled) in
	*'[never]'* | *'[deny]'*)
		as=("$TMP/confine" collapse=off)
		finds "small pages for CUDA" note kernel 'in a huge page; host memory for CUDA, .* in 4 KiB pages' \
			'echo advise .*/shmem_enabled'
		finds "which is no matter if huge ones are not wanted" ok kernel 'locked 2 MiB' '' --hugepages=off
		;;
	*) skip "small pages for CUDA" "shared memory gets huge ones in any case" ;;
	esac
	;;
esac
as=()

# /dev/shm, in mount namespaces of their own.
if unshare -m true 2>/dev/null && grep -q ' /dev/shm ' /proc/mounts; then
	while IFS=: read -r label mount message; do
		as=(unshare -m sh -c "mount --make-rprivate / && { $mount; } && exec \"\$@\"" sh)
		finds "/dev/shm $label" warning shm "/dev/shm takes no table: $message" 'tmpfs'
		finds "/dev/shm $label: pinning works" ok trial 'pinned 2.0 MiB'
	done <<-'END'
		full:mount -t tmpfs -o size=8k tmpfs /dev/shm:No space
		read-only:mount -t tmpfs -o ro tmpfs /dev/shm:Read-only
	END
	as=()
else
	skip "/dev/shm" "no mount namespaces here"
fi

# Memory cgroups: a directory of the test's own, and one in it. Removed below.
cgroup=
if grep -q ' cgroup .*memory' /proc/mounts; then
	version=1 limit=memory.limit_in_bytes
	top=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/mounts)
else
	version=2 limit=memory.max
	top=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	echo +memory >"$top/cgroup.subtree_control"
fi 2>/dev/null
if mkdir "$top/pinshim-doctor-$$" 2>/dev/null; then
	cgroup=$top/pinshim-doctor-$$
	echo $((64 << 20)) 2>/dev/null >"$cgroup/$limit" && mkdir -p "$cgroup/inner"
fi
if [[ -n $cgroup && $(<"$cgroup/$limit") == $((64 << 20)) ]]; then
	as=(sh -c "echo \$\$ >$cgroup/inner/cgroup.procs && exec \"\$@\"" sh)
	finds "a cgroup of 64 MiB" ok cgroup "version $version, the tightest is $cgroup: the limit less PINSHIM_RESERVE is 60.8 MiB"
	finds "a cgroup of 64 MiB: the trial succeeds" ok trial 'pinned 2.0 MiB'
	finds "a cgroup of 64 MiB, 100 needed" failed cgroup 'less than --need of 100.0 MiB' 'memory.max' --need=100M
	finds "a cgroup of 64 MiB, 100 allowed" warning cgroup 'less than PINSHIM_LIMIT of 100.0 MiB' '' --limit=100M
	finds "a cgroup of 64 MiB, all reserved" failed cgroup ': 0 B|is 0 B' '' --reserve=64M
	as=()
else
	skip "a memory cgroup" "none can be made here"
fi
[[ -z $cgroup ]] || rmdir "$cgroup/inner" "$cgroup" 2>/dev/null

# CUDA: the stand-ins, and drivers that misbehave.
fakes=$BUILD/tests/fakes
with LD_LIBRARY_PATH="$TMP/nowhere"
if ! ldconfig -p 2>/dev/null | grep -q libcuda.so.1; then
	finds "no driver" note cuda_driver 'none is found'
fi
if [[ -e $fakes/libcuda.so.1 ]]; then
	with LD_LIBRARY_PATH="$fakes"
	finds "a driver" ok cuda_driver "$fakes/libcuda.so.1 for CUDA [0-9.]+, 1 device"
	finds "a runtime" ok cuda_runtime "$fakes/libcudart.so.13"
	with LD_LIBRARY_PATH="$fakes" FAKE_CUDA_DEVICES=2
	finds "two devices" ok cuda_driver ', 2 devices'
	with LD_LIBRARY_PATH="$fakes" FAKE_CUDA_DEVICES=0
	finds "no device" note cuda_driver 'CUDA_ERROR_NO_DEVICE .100.: .*locked only' 'nvidia-smi'
else
	skip "a driver" "the stand-ins are not built"
fi
# driver NAME CODE: a library whose cuInit() is this.
driver() {
	mkdir "$TMP/$1"
	cat >"$TMP/$1.c" <<-END
		#include <signal.h>
		#include <stdlib.h>
		#include <unistd.h>
		int cuInit(unsigned flags);
		int cuInit(unsigned flags) { (void)flags; $2 }
		int cuDriverGetVersion(int *version);
		int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
		int cuDeviceGetCount(int *count);
		int cuDeviceGetCount(int *count) { *count = 0; return 0; }
	END
	compile "$TMP/$1/libcuda.so.1" "$TMP/$1.c" -shared -fPIC
	with LD_LIBRARY_PATH="$TMP/$1"
}
driver stub 'return 34;'
finds "a stub of a driver" note cuda_driver 'error 34' 'stub for building'
driver crash 'abort();'
finds "a driver that crashes" warning cuda_driver 'ended by signal 6' 'nvidia-smi'
driver exit 'exit(3);'
finds "a driver that exits" warning cuda_driver 'ended with status 3'
driver kill 'kill(getpid(), 9); return 0;'
finds "a driver that is killed" warning cuda_driver 'ended by signal 9'
# As if it had hung, if it would have been ended.
driver hang 'if (alarm(0) > 0) raise(SIGALRM); return 0;'
finds "a driver that hangs" warning cuda_driver 'did not come to an end'
driver empty 'return 0;'
finds "a driver without a device" note cuda_driver 'it has no device'
mkdir "$TMP/text"
echo text >"$TMP/text/libcuda.so.1"
with LD_LIBRARY_PATH="$TMP/text"
finds "a driver that is none" note cuda_driver 'none is found .*(file too short|invalid ELF header)'
with

# What else is preloaded.
jemalloc=$(ldconfig -p | sed -n 's/.*libjemalloc\.so\.2 .*=> //p' | head -n 1)
if [[ -n $jemalloc ]]; then
	with LD_PRELOAD="$jemalloc"
	finds "another allocator" ok ld_preload "allocator of $jemalloc serves what"
	with LD_PRELOAD="$jemalloc:$LIB"
	finds "another allocator ahead" warning ld_preload 'comes before libpinshim.so' 'pinshim run'
	with LD_PRELOAD="$LIB:$jemalloc"
	finds "another allocator behind" ok ld_preload "allocator of $jemalloc serves what"
	with
else
	skip "another allocator" "libjemalloc2 is not installed"
fi
with LD_PRELOAD="$LIB"
finds "under the preload itself" ok trial 'pinned 2.0 MiB'
with
finish
