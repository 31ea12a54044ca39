# SPDX-License-Identifier: BSD-2-Clause
"""DeepNVMe's aio_handle on lengths and pointers that direct I/O refuses. Prints for each whether
it is right, or what there is in its place. tests/clients/nvme.py DIRECTORY"""

import os
import sys

import torch
from deepspeed.ops.op_builder import AsyncIOBuilder

LENGTH = 1_000_003
NARROWED = 512 * 1024


def verdict(found, wanted):
    if found == wanted:
        return "right"
    return f"{len(found)} bytes, wrong" if found else "nothing"


def content(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    directory = sys.argv[1]
    handle = AsyncIOBuilder().load(verbose=False).aio_handle(1 << 20, 32, False, True, 1)
    data = torch.randint(0, 256, (LENGTH,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    wanted = bytes(data.numpy())

    path = os.path.join(directory, "written")
    assert handle.sync_pwrite(data, path, 0) == 1
    print("write:", verdict(content(path), wanted))

    path = os.path.join(directory, "read")
    with open(path, "wb") as file:
        file.write(wanted)
    tensor = torch.zeros(LENGTH, dtype=torch.uint8)
    assert handle.sync_pread(tensor, path, 0) == 1
    print("read:", verdict(bytes(tensor.numpy()), wanted))

    locked = handle.new_cpu_locked_tensor(1 << 20, torch.empty(0, dtype=torch.uint8))
    path = os.path.join(directory, "narrowed")
    with open(path, "wb") as file:
        file.write(wanted[:NARROWED])
    part = locked.narrow(0, 64, NARROWED)
    part.zero_()
    assert handle.sync_pread(part, path, 0) == 1
    print("narrowed:", verdict(bytes(part.numpy()), wanted[:NARROWED]))
    handle.free_cpu_locked_tensor(locked)


main()
