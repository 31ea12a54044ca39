# SPDX-License-Identifier: BSD-2-Clause
"""ctypes, as numba (driver) and others (runtime) use it. Prints cases."""
import ctypes
import sys

SIZE = 1 << 20
failed = False


def check(good, name):
    global failed
    failed |= not good
    print("ok" if good else "not ok", "-", name, flush=True)


def is_pinned(pointer):
    try:
        function = ctypes.CDLL(None).pinshim_is_pinned
    except AttributeError:
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return bool(function(pointer, SIZE))


def use(name, allocate, free):
    block = ctypes.c_void_p()
    check(allocate(ctypes.byref(block)) == 0 and block.value, name + " allocates")
    check(is_pinned(block) in (True, None), name + ": pinned")
    ctypes.memset(block, 7, SIZE)
    check(ctypes.string_at(block, SIZE) == b"\7" * SIZE, name + ": keeps its contents")
    check(free(block) == 0, name + ": freed")


driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
check(driver.cuInit(0) == 0
      and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
      and driver.cuCtxSetCurrent(context) == 0, "a context")
use("cuMemHostAlloc", lambda p: driver.cuMemHostAlloc(p, ctypes.c_size_t(SIZE), 0),
    driver.cuMemFreeHost)
runtime = ctypes.CDLL("libcudart.so.13")
use("cudaHostAlloc", lambda p: runtime.cudaHostAlloc(p, ctypes.c_size_t(SIZE), 0),
    runtime.cudaFreeHost)
sys.exit(failed)
