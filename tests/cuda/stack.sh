#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Other interposers before and after us: some override dlsym in the naive way, some live by RTLD_NEXT.
# Nobody goes round in circles, and nobody's hooks are lost.
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/../preload/lib.bash"
need "${CC:-cc}"

here=$TOP/tests/cuda
check "a driver is built" compile "$TMP/libcuda.so.1" "$here/lookup_cuda.c" -shared -fPIC \
	-Wl,-Bsymbolic -DDRIVER
check "a runtime is built" compile "$TMP/libcudart.so.13" "$here/stack_cudart.c" -shared -fPIC \
	-Wl,-soname,libcudart.so.13 -Wl,-Bsymbolic
# library DIRECTORY NAME SOURCE [FLAG]
library() {
	mkdir -p "$TMP/$1"
	check "$1/$2 is built" compile "$TMP/$1/$2" "$here/$3" -shared -fPIC "${@:4}"
}

library naive libnaive.so stack_naive.c
library naive-malloc libnaive.so stack_naive.c -DMALLOC
library naive-host libnaive.so stack_naive.c -DHOST
library next libnext.so stack_next.c
check "the program is built" compile "$TMP/stack" "$here/stack.c" -Wl,--no-as-needed -L"$TMP" -l:libcudart.so.13 \
	-Wl,-rpath,"$TMP"

naive=$TMP/naive/libnaive.so malloc=$TMP/naive-malloc/libnaive.so
host=$TMP/naive-host/libnaive.so next=$TMP/next/libnext.so
driver=libcuda.so.1 ours=libpinshim.so

# stack LABEL LIBRARIES WHERE [EXPECTED...]: with malloc served and without.
stack() {
	local label=$1 libraries=$2

	shift 2
	LIB=$libraries run_cases "$label" \
		preload PINSHIM_STATS=off -- timeout 20 "$TMP/stack" "$TMP/libcuda.so.1" "$@"
	LIB=$libraries run_cases "$label, malloc served" \
		preload PINSHIM_MALLOC=64K- PINSHIM_STATS=off PINSHIM_LOG=error -- \
		timeout 20 "$TMP/stack" "$TMP/libcuda.so.1" "$@"
}

# The interposers by themselves, so that what fails below fails because of us.
stack "naive alone" "$naive" $driver naive_lookups cuDeviceGet
stack "naive, malloc alone" "$malloc" $driver naive_lookups naive_mallocs cuDeviceGet
stack "next alone" "$next" $driver next_mallocs next_host_allocs
stack "next and naive alone" "$next $naive" $driver next_mallocs naive_lookups cuDeviceGet

stack "alone" "$LIB" $ours
stack "before naive" "$LIB $naive" $ours naive_lookups cuDeviceGet
stack "before naive, malloc" "$LIB $malloc" $ours naive_lookups naive_mallocs cuDeviceGet
stack "before naive, host memory" "$LIB $host" $ours naive_lookups cuDeviceGet
stack "before next" "$LIB $next" $ours next_mallocs
stack "after next" "$next $LIB" $ours next_mallocs next_host_allocs
stack "between next and naive" "$next $LIB $naive" $ours next_mallocs naive_lookups cuDeviceGet
stack "before next and naive" "$LIB $next $naive" $ours next_mallocs naive_lookups cuDeviceGet

# A dlsym before ours that finds the C library's by version does not come to us: its program's
# look-ups on a handle are lost to us (put libpinshim.so first); what is linked is not.
stack "after naive" "$naive $LIB" $driver naive_lookups cuDeviceGet
stack "after naive, malloc" "$malloc $LIB" $driver naive_lookups naive_mallocs cuDeviceGet
stack "after next and naive" "$next $naive $LIB" $driver next_mallocs next_host_allocs \
	naive_lookups cuDeviceGet
finish
