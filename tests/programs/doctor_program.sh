#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pinshim doctor -- PROGRAM: what it tells of programs of every kind, none of which it runs; and what it
# says comes true.
# shellcheck disable=SC2016,SC2317 # programs in quotes; check() calls the functions
# shellcheck source=tests/lib/case.sh
. "$(dirname "$0")/../lib/case.sh"
# shellcheck source=tests/programs/doctor.bash
. "$(dirname "$0")/doctor.bash"
need jq python3 setpriv
cd "$TMP" || exit 1
chmod 755 "$TMP"

printf 'int main(void) { return 7; }\n' >plain.c
compile "$TMP/plain" plain.c || skip_all "there is no compiler"

# program NAME SOURCE [FLAG...]: builds it from this text.
program() {
	local name=$1

	printf '%s\n' "$2" >"$name.c"
	shift 2
	# shellcheck disable=SC2086 # CC may have arguments
	${CC:-cc} -w -O1 -fno-builtin-malloc -o "$name" "$name.c" "$@" -ldl 2>"$TMP/compile.err"
}

# patch FILE OFFSET BYTE: changes a byte, given in octal.
patch() {
	# shellcheck disable=SC2059 # the format is the byte
	printf "\\$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# executable FILE: makes what is on standard input a program.
executable() {
	cat >"$1"
	chmod +x "$1"
}

# Nothing is run.
executable touching <<<"touch $TMP/ran"
doctor -- "$TMP/touching" anything
check "the program is not run" test ! -e "$TMP/ran"
ends "a plain program" "$(doctor && echo 0 || echo $?)" -- ./plain
finds "a plain program" ok program '^\./plain$' '' -- ./plain
finds "a plain program" ok loading '^/lib.*/ld-linux.* loads what LD_PRELOAD names' '' -- ./plain
finds "a plain program" ok libraries '^[12] were looked at$' '' -- ./plain
finds "options behind it are its own" ok program '^\./plain$' '' ./plain --need=1T --nonsense
PATH=$TMP:$PATH finds "a program in PATH" ok program "^$TMP/plain$" '' -- plain
lacks "no program" program . --limit=1G

# What cannot be run, or is none.
finds "a program that is not there" failed program '^/nowhere/x: no such program$' '' -- /nowhere/x
finds "a program that is not in PATH" failed program '^nosuchprogram: no such program in PATH$' '' -- nosuchprogram
ends "a program that is not there" 3 -- nosuchprogram
finds "no name" failed program 'no such program' '' -- ''
cp plain not-executable
chmod 644 not-executable
finds "a file that may not be executed" failed program 'cannot be run: Permission denied' '' -- ./not-executable
finds "a directory" failed program 'cannot be run: Permission denied' '' -- "$TMP"
mkfifo -m 755 fifo
finds "a pipe" failed program 'cannot be run: Permission denied' '' -- ./fifo
executable empty </dev/null
finds "an empty file" failed program 'neither an ELF file nor a script' '' -- ./empty
printf 'MZ\0\1\2\3' | executable other
finds "another kind of file" failed program 'neither an ELF file nor a script' '' -- ./other
head -c 20 plain | executable cut
finds "20 bytes of a program" failed loading 'is static|another architecture' '' -- ./cut
printf '\177ELF\0' | executable cut
finds "5 bytes of a program" failed program 'neither an ELF file nor a script' '' -- ./cut

# Scripts.
executable script <<<"#! $TMP/plain -x"
finds "a script" ok program "^\\./script is a script, which $TMP/plain runs" '' -- ./script
executable script <<<"#!$TMP/script2"
executable script2 <<<"#!$TMP/plain"
finds "a script that a script runs" ok program "^\\./script is a script, which $TMP/plain runs" '' -- ./script
executable script <<<'#!/usr/bin/env plain'
PATH=$TMP:$PATH finds "a script behind env" ok program "a script, which $TMP/plain runs" '' -- ./script
executable script <<<'#!/usr/bin/env -S A=1 -i plain -x y'
PATH=$TMP:$PATH finds "a script behind env -S" ok program "a script, which $TMP/plain runs" '' -- ./script
executable script <<<'#!/usr/bin/env --split-string=plain -x'
PATH=$TMP:$PATH finds "a script behind env --split-string" ok program "a script, which $TMP/plain runs" '' -- ./script
executable script <<<'#!/usr/bin/env -'
finds "a script behind env of nothing" ok program 'a script, which /usr/bin/env runs' '' -- ./script
printf '#!%s\nPK\3\4\0\0' "$TMP/plain" | executable script
finds "a script with an archive behind its line" ok program "which $TMP/plain runs" '' -- ./script
executable script <<<'#!/bin/sh'
finds "a script of a shell" note program 'which /bin/sh runs' 'name the program' -- ./script
executable script <<<'echo hello'
finds "a script without its line" note program 'which /bin/sh runs' '' -- ./script
executable script <<<'#!/nowhere/interpreter'
finds "a script whose interpreter is missing" failed program '^/nowhere/interpreter: no such program$' '' -- ./script
executable script <<<'#!'
finds "a script of nothing" failed program 'neither an ELF file nor a script' '' -- ./script
executable script <<<"#!$TMP/script"
finds "a script that itself runs" failed program 'cannot be run: Too many levels' '' -- ./script

# Into which nothing can be preloaded. What is said is held against what happens.
for flag in -static -static-pie; do
	if program static 'int main(void) { return 0; }' $flag; then
		finds "$flag" failed loading 'is static' 'linked dynamically' -- ./static
		ends "$flag" 3 -- ./static
		check "$flag: and it is so" test -z "$(preload PINSHIM_LOG=debug -- ./static 2>&1)"
	else
		skip "$flag" "there is no static C library"
	fi
done
cp plain changed
patch changed 18 267 # EM_AARCH64
[[ $(uname -m) != aarch64 ]] || patch changed 18 76 # EM_X86_64
finds "another architecture" failed loading 'another architecture .ELF machine' '' -- ./changed
cp plain changed
patch changed 4 1 # ELFCLASS32
finds "32 bits" failed loading 'another architecture' '' -- ./changed
cp plain changed
patch changed 5 2 # ELFDATA2MSB
finds "the other byte order" failed loading 'another architecture' '' -- ./changed
program musl 'int main(void) { return 0; }' -Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1
finds "another C library" failed loading 'another C library ./lib/ld-musl' glibc -- ./musl

if can_be_ordinary; then
	make_ordinary "$LIB" "$tool" plain
	tool=$ORDINARY/pinshim
	as=(ordinary)
	chmod u+s "$ORDINARY/plain"
	finds "set-user-ID" failed loading 'LD_PRELOAD is ignored for .*/plain, as it is set-user-ID' copy -- "$ORDINARY/plain"
	check "set-user-ID: and it is so" test -z "$(ordinary env LD_PRELOAD="$ORDINARY/libpinshim.so" \
		PINSHIM_LIMIT=wrong "$ORDINARY/plain" 2>&1)"
	ordinary env PINSHIM_STATS=off "$tool" run -- "$ORDINARY/plain" 2>"$TMP/err"
	check "set-user-ID: run says so" grep -q "nothing will be pinned: LD_PRELOAD is ignored" "$TMP/err"
	as=()
	finds "set-user-ID, as that user" ok loading 'loads what LD_PRELOAD names' '' -- "$ORDINARY/plain"
	as=(setpriv --no-new-privs --reuid 65534 --regid 65534 --clear-groups)
	finds "set-user-ID that is of no effect" ok loading 'loads what' '' -- "$ORDINARY/plain"
	as=(ordinary)
	chmod 2755 "$ORDINARY/plain"
	finds "set-group-ID" failed loading 'it is set-group-ID' '' -- "$ORDINARY/plain"
	chmod 755 "$ORDINARY/plain"
	finds "neither" ok loading 'loads what' '' -- "$ORDINARY/plain"
	# cap_net_raw, effective.
	if python3 -c 'import os, struct, sys
os.setxattr(sys.argv[1], "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))' \
		"$ORDINARY/plain" 2>/dev/null; then
		finds "file capabilities" failed loading 'it has file capabilities' '' -- "$ORDINARY/plain"
		check "file capabilities: and it is so" test -z "$(ordinary env LD_PRELOAD="$ORDINARY/libpinshim.so" \
			PINSHIM_LIMIT=wrong "$ORDINARY/plain" 2>&1)"
	else
		skip "file capabilities" "cannot be given here"
	fi
	as=()
	tool=$BUILD/pinshim
else
	skip "set-user-ID programs" "needs root, to become another user"
fi

# Sanitizers. gcc's thread sanitizer wants addresses that are not random; it is not run.
if program asan 'int main(void) { return 0; }' -fsanitize=address; then
	finds "the address sanitizer" failed sanitizer 'asan is built with AddressSanitizer, whose library ends' 'verify_asan_link_order=0' -- ./asan
	check "the address sanitizer: and it is so" bash -c '! LD_PRELOAD=$LIB ./asan 2>/dev/null'
	with ASAN_OPTIONS=verify_asan_link_order=0
	finds "the address sanitizer that does not mind" note sanitizer 'serves nothing' '' -- ./asan
	with
	check "the address sanitizer that does not mind: and it is so" \
		env ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD="$LIB" ./asan
fi
if program asan 'int main(void) { return 0; }' -fsanitize=address -static-libasan; then
	finds "the address sanitizer, built in" note sanitizer 'a malloc of its own: PINSHIM_MALLOC serves nothing' '' -- ./asan
	finds "which is a limit if malloc is wanted" warning sanitizer 'a malloc of its own' '' --malloc=1M- -- ./asan
	lacks "said once" allocator . -- ./asan
	LD_PRELOAD=$LIB PINSHIM_MALLOC=1M- ./asan 2>"$TMP/err"
	check "the address sanitizer, built in: and it is so" grep -q 'no malloc is served' "$TMP/err"
fi
if program lsan 'int main(void) { return 0; }' -fsanitize=leak; then
	finds "the leak sanitizer" note sanitizer 'LeakSanitizer' '' -- ./lsan
fi
if program tsan 'int main(void) { return 0; }' -fsanitize=thread; then
	finds "the thread sanitizer" note sanitizer 'ThreadSanitizer' '' -- ./tsan
fi

# Allocators.
own='#include <stddef.h>
static char memory[1 << 20]; static size_t used;
void *malloc(size_t size) { void *block = memory + used; used += (size + 15) & ~(size_t)15; return block; }
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *block, size_t size) { return malloc(size); }
void free(void *block) { (void)block; }
int main(void) { return malloc(100) == 0; }'
program own "$own"
finds "a malloc of its own" warning allocator 'own has a malloc of its own: PINSHIM_MALLOC serves nothing' 'shared library' --malloc=64K- -- ./own
finds "which is no matter without PINSHIM_MALLOC" note allocator 'own has a malloc' '' -- ./own
LD_PRELOAD=$LIB PINSHIM_MALLOC=64K- ./own 2>"$TMP/err"
check "a malloc of its own: and it is so" grep -q 'no malloc is served' "$TMP/err"
program allocator "$own" -shared -fPIC -Dmain=not_main
cp allocator liballocator.so
program linked 'int main(void) { return 0; }' -Wl,--no-as-needed -L. -lallocator -Wl,-rpath,\$ORIGIN
finds "a library's malloc" ok allocator 'allocator of liballocator.so serves what' '' --malloc=64K- -- ./linked
program private 'void *je_malloc(unsigned long size) { return (void *)size; }
int main(void) { return je_malloc(0) != 0; }'
finds "an allocator under another name" note allocator 'private has an allocator under another name' '' -- ./private
lacks "a plain program" allocator . -- ./plain

# CUDA, as programs reach it.
program runtime 'int cudaHostAlloc(void **p, unsigned long n, unsigned f) { return 2; }
int cudaFreeHost(void *p) { return 0; }' -shared -fPIC
cp runtime libcudart.so.12
program shared 'int cudaHostAlloc(void **, unsigned long, unsigned);
int main(void) { void *p; return cudaHostAlloc(&p, 1, 0) == 0; }' -L. -l:libcudart.so.12 -Wl,-rpath,"$TMP"
finds "the shared runtime" ok cuda 'shared calls the shared CUDA runtime' '' -- ./shared
finds "which one that is" ok cuda_runtime "^$TMP/libcudart.so.12, which the program needs$" '' -- ./shared
lacks "and no other way" cuda 'built in|itself|driver' -- ./shared
program static-runtime "$(cat runtime.c)"' int main(void) { void *p; return cudaHostAlloc(&p, 1, 0) == 0; }'
finds "the runtime built in" ok cuda 'static-runtime has the CUDA runtime built in' '' -- ./static-runtime
program nvcc 'const char fat[] __attribute__((section(".nv_fatbin"))) = "code"; int main(void) { return fat[0] == 0; }' -s
finds "code for a device, stripped" ok cuda 'nvcc has the CUDA runtime built in' '' -- ./nvcc
program stripped 'const char *a = "cuGetProcAddress_v2", *b = "cudaHostAlloc", *c = "libcuda.so.1";
int main(void) { return !a + !b + !c; }' -s
finds "the runtime's strings" ok cuda 'stripped has the CUDA runtime built in' '' -- ./stripped
lacks "and the driver is the runtime's affair" cuda 'opens the CUDA driver' -- ./stripped
program opened '#include <dlfcn.h>
int main(void) { return dlopen("libcudart.so.12", RTLD_NOW) == 0; }'
finds "the runtime opened" ok cuda 'opened opens the CUDA runtime itself' '' -- ./opened
finds "what else is opened is not known" note libraries 'cannot be seen from here' hooks_reached -- ./opened
program libcuda 'int cuInit(unsigned flags) { return 100; }' -shared -fPIC -Wl,-soname,libcuda.so.1
mkdir stub
cp libcuda stub/libcuda.so.1
program driver 'int cuInit(unsigned); int main(void) { return cuInit(0) == 0; }' -Lstub -l:libcuda.so.1
finds "the driver" ok cuda 'driver calls the CUDA driver' '' -- ./driver
program path 'const char *path = "/usr/lib/libcuda.so.1"; int main(void) { return !path; }'
finds "the driver opened" ok cuda 'path opens the CUDA driver itself' '' -- ./path
program talk 'const char *a = "libcuda.so.1 is missing", *b = "no-libcuda.so.1"; int main(void) { return !a + !b; }'
finds "a word about the driver is nothing" ok cuda 'not used, as far' '' -- ./talk
program user 'int use(void) { extern int cudaHostAlloc(void **, unsigned long, unsigned); return cudaHostAlloc(0, 0, 0); }' \
	-shared -fPIC -L. -l:libcudart.so.12
cp user libuser.so
program indirect 'int use(void); int main(void) { return use(); }' -L. -luser -Wl,-rpath,"$TMP" -Wl,--disable-new-dtags
finds "a library that uses CUDA" ok cuda 'libuser.so calls the shared CUDA runtime' '' -- ./indirect
with LD_LIBRARY_PATH="$TMP/nowhere"
if ! ldconfig -p | grep -q libcuda.so.1; then
	finds "a program that uses CUDA, without a driver" warning cuda_driver 'none is found' '' -- ./shared
fi
with

# libaio.
if program aio '#include <libaio.h>
int main(void) { io_context_t c = 0; return io_setup(1, &c) != 0; }' -laio; then
	finds "libaio" ok libaio 'aio calls libaio' '' --aio -- ./aio
	program aio "$(cat aio.c)" -l:libaio.a
	finds "libaio built in" warning libaio 'aio has libaio built in' '' --aio -- ./aio
	finds "which is no matter without --aio" note libaio 'aio has libaio built in' '' -- ./aio
else
	skip "libaio" "libaio-dev is not installed"
fi
program opened '#include <dlfcn.h>
int main(void) { return dlopen("libaio.so.1", RTLD_NOW) == 0; }'
finds "libaio opened" warning libaio 'opened opens libaio itself' '' --aio -- ./opened
finds "no libaio" note libaio 'may have nothing to do' '' --aio -- ./plain
lacks "and nothing is said without --aio" libaio . -- ./plain
if program ring '#include <liburing.h>
int main(void) { struct io_uring r; return io_uring_queue_init(1, &r, 0); }' -l:liburing.a; then
	finds "io_uring" note libaio 'ring uses io_uring itself' '' -- ./ring
fi

# Libraries that are not there, and that need each other.
rm libuser.so
finds "a library that is missing" note libraries '^libuser.so is not found' LD_LIBRARY_PATH -- ./indirect
mkdir elsewhere
cp user elsewhere/libuser.so
with LD_LIBRARY_PATH="$TMP/elsewhere"
finds "a library in LD_LIBRARY_PATH" ok cuda 'libuser.so calls the shared CUDA runtime' '' -- ./indirect
with
program one 'int one(void) { return 1; }' -shared -fPIC -Wl,-soname,libone.so
cp one libone.so
program two 'int two(void) { return 2; }' -shared -fPIC -Wl,-soname,libtwo.so -Wl,--no-as-needed -L. -lone -Wl,-rpath,"$TMP"
cp two libtwo.so
program one 'int one(void) { return 1; }' -shared -fPIC -Wl,-soname,libone.so -Wl,--no-as-needed -L. -ltwo -Wl,-rpath,"$TMP"
cp one libone.so
program circle 'int one(void); int main(void) { return one(); }' -L. -lone -Wl,-rpath,"$TMP" -Wl,--allow-shlib-undefined
finds "libraries that need each other" ok libraries '^[34] were looked at$' '' -- ./circle

# Names of files must not steer a terminal.
cp plain $'e\033[31mvil\n'
"$tool" doctor -- $'./e\033[31mvil\n' >"$TMP/out"
check "control characters do not reach the terminal" bash -c "! grep -q '[^[:print:]]' '$TMP/out'"
check "nor make a line" grep -q 'program: ./e?\[31mvil?$' "$TMP/out"
finds "JSON has them escaped" ok program $'vil\n' '' -- $'./e\033[31mvil\n'

# Damaged files: the reader by itself, under the sanitizers where there are any, and the command.
fuzz=("$TOP/tools/elf_file.c")
compile "$TMP/fuzz" "$TOP/tests/programs/parts/elf_fuzz.c" "${fuzz[@]}" -fsanitize=address,undefined \
	-fno-sanitize-recover=undefined 2>/dev/null ||
	compile "$TMP/fuzz" "$TOP/tests/programs/parts/elf_fuzz.c" "${fuzz[@]}"
check "3 x 1500 damaged files are read to no harm" timeout 100 ./fuzz 1500 plain indirect runtime
cat >damage.py <<'END'
import random, sys
data, seed = bytearray(open("indirect", "rb").read()), int(sys.argv[1])
random.seed(seed)
for _ in range(random.randrange(1, 20)):
    where = random.choice([random.randrange(16, 64), random.randrange(64, 900), random.randrange(len(data))])
    data[where] = random.choice([0, 1, 0x7f, 0xff, random.randrange(256)])
if seed % 4 == 0:
    del data[random.randrange(len(data)):]
open("damaged", "wb").write(data)
END
harmed=
for ((seed = 1; seed <= 25; seed++)); do
	python3 damage.py $seed || break
	chmod +x damaged
	(ulimit -v 4194304 && exec timeout 20 "$tool" doctor --json -- ./damaged) >"$TMP/json" 2>"$TMP/err"
	status=$?
	if ((status > 3)) || ! jq -e .schema "$TMP/json" >/dev/null 2>&1; then
		harmed+=" $seed:$status"
	fi
done
check "25 damaged programs are looked at to no harm" test -z "$harmed"
finish
