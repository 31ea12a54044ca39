# SPDX-License-Identifier: BSD-2-Clause
"""DeepNVMe's aio_handle in many ways, those above all that direct I/O refuses.

tests/clients/nvme.py DIRECTORY

Prints "case NAME: " and whether what there is then is right, or what it is instead; the name ends in
"misaligned" where a place in memory, in the file or a length is no multiple of 512. Then "asked " and how
many requests of how many bytes that takes, as DeepSpeed goes about it, and how many are misaligned.
"""

import os
import sys

import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.op_builder import AsyncIOBuilder

BLOCK = 1 << 20
SECTOR = 512
LENGTH = 1_000_003
NARROWED = 512 * 1024
AIO = AsyncIOBuilder().load(verbose=False)


class Asked:
    """What is asked of libaio: each part of a buffer is cut in blocks, one request each."""

    def __init__(self):
        self.requests = self.bytes = self.misaligned = 0

    def add(self, length, pointer=0, offset=0, block=BLOCK, parts=1):
        """Whether any request is misaligned. What is not locked goes through pages of DeepSpeed's: pointer 0."""
        part, misaligned = length // parts, 0
        for begin in range(0, length, part):
            for at in range(begin, begin + part, block):
                size = min(block, begin + part - at)
                misaligned += any(value % SECTOR for value in (pointer + at, offset + at, size))
                self.requests += 1
        self.bytes += length
        self.misaligned += misaligned
        return misaligned > 0


asked = Asked()


def new_handle(block=BLOCK, depth=32, single=False, overlap=True, parts=1):
    return AIO.aio_handle(block, depth, single, overlap, parts)


def locked_memory(handle, length):
    return handle.new_cpu_locked_tensor(length, torch.empty(0, dtype=torch.uint8))


class Files:
    """Every case has a file of its own, and bytes of its own: none is right by what another left."""

    def __init__(self, directory):
        self.directory, self.count, self.seed = directory, 0, 0

    def new(self, data=b""):
        self.count += 1
        path = os.path.join(self.directory, str(self.count))
        with open(path, "wb") as file:
            file.write(data)
        return path

    def data(self, length):
        self.seed += 1
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randint(0, 256, (length,), dtype=torch.uint8, generator=generator)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def say(name, misaligned, found, wanted):
    found, wanted = (bytes(data.numpy()) if isinstance(data, torch.Tensor) else data for data in (found, wanted))
    verdict = "right" if found == wanted else f"{len(found)} bytes, wrong" if found else "nothing"
    print(f"case {name}{', misaligned' if misaligned else ''}: {verdict}")


def written(files, handle, name, tensor, pointer=0, offset=0, call="sync_pwrite", **how):
    """Writes a tensor at an offset of a new file."""
    data = files.data(tensor.numel())
    tensor.copy_(data)
    path = files.new(b"-" * offset)
    if call == "write":
        assert handle.write(tensor, path, False, offset) == 0
    else:
        assert handle.sync_pwrite(tensor, path, offset) == 1
    say(f"{name} written", asked.add(len(data), pointer, offset, **how), content(path)[offset:], data)


def read(files, handle, name, tensor, pointer=0, offset=0, call="sync_pread", **how):
    """Reads a tensor from an offset of a new file."""
    data = files.data(tensor.numel())
    path = files.new(b"-" * offset + bytes(data.numpy()))
    tensor.zero_()
    if call == "read":
        assert handle.read(tensor, path, False, offset) == 0
    else:
        assert handle.sync_pread(tensor, path, offset) == 1
    say(f"{name} read", asked.add(len(data), pointer, offset, **how), tensor, data)


def reported(files):
    """What users have reported."""
    handle = new_handle()
    written(files, handle, "1000003 bytes", torch.zeros(LENGTH, dtype=torch.uint8))
    read(files, handle, "1000003 bytes", torch.zeros(LENGTH, dtype=torch.uint8))
    locked = locked_memory(handle, 1 << 20)
    read(files, handle, "narrowed", locked.narrow(0, 64, NARROWED), locked.data_ptr() + 64)
    handle.free_cpu_locked_tensor(locked)


def memory(files):
    """Each kind of memory, and places in locked memory and in the file that are odd."""
    handle = new_handle()
    for length in 4 * BLOCK, LENGTH, 513, 7:
        locked = locked_memory(handle, length)
        native = get_accelerator().pin_memory(torch.zeros(length, dtype=torch.uint8))
        for kind, tensor in (("unpinned", torch.zeros(length, dtype=torch.uint8)), ("locked", locked),
                             ("pin_memory", native)):
            pointer = tensor.data_ptr() if handle.is_pinned(tensor) else 0
            assert (pointer != 0) == (kind != "unpinned")
            written(files, handle, f"{kind} {length}", tensor, pointer)
            read(files, handle, f"{kind} {length}", tensor, pointer)
        handle.free_cpu_locked_tensor(locked)

    locked = locked_memory(handle, 4 * BLOCK)
    for at in 1, 65, 513, 4097:
        for length in NARROWED, LENGTH:
            for way in written, read:
                way(files, handle, f"{length} narrowed at {at}", locked.narrow(0, at, length),
                    locked.data_ptr() + at)
    for offset in 100, 4097:
        for way in written, read:
            way(files, handle, f"at {offset} of the file", locked.narrow(0, 0, NARROWED), locked.data_ptr(), offset)
    handle.free_cpu_locked_tensor(locked)

    # These two never use pages of DeepSpeed's.
    part = torch.zeros(LENGTH, dtype=torch.uint8).narrow(0, 1, NARROWED)
    written(files, handle, "handle.write", part, part.data_ptr(), call="write")
    read(files, handle, "handle.read", part, part.data_ptr(), call="read")


def several(files):
    """Operations that are waited for together, small blocks, two threads for half of the buffer each."""
    for single in False, True:
        for overlap in False, True:
            name = f"{'single' if single else 'batched'}, {'overlapping' if overlap else 'sequential'}"
            together(files, new_handle(single=single, overlap=overlap), name)
            for parts, block in (1, 4096), (2, BLOCK):
                handle = new_handle(block, 8, single, overlap, parts)
                locked = locked_memory(handle, 2 * LENGTH)
                for way in written, read:
                    way(files, handle, f"{name}, {parts} x {block}", locked, locked.data_ptr(), block=block,
                        parts=parts)
                handle.free_cpu_locked_tensor(locked)


def together(files, handle, name):
    lengths = [LENGTH, 64 * 1024, 513, BLOCK + 1]
    paths, tensors = [files.new() for _ in lengths], [files.data(length) for length in lengths]
    for tensor, path in zip(tensors, paths):
        assert handle.async_pwrite(tensor, path, 0) == 0
    say(f"{name}, writes waited for", False, b"%d" % handle.wait(), b"4")
    for tensor, path in zip(tensors, paths):
        say(f"{name}, {len(tensor)} written", asked.add(len(tensor)), content(path), tensor)

    wanted = [files.data(length) for length in lengths]
    paths = [files.new(bytes(data.numpy())) for data in wanted]
    for tensor, path in zip(tensors, paths):
        assert handle.async_pread(tensor.zero_(), path, 0) == 0
    say(f"{name}, reads waited for", False, b"%d" % handle.wait(), b"4")
    for tensor, data in zip(tensors, wanted):
        say(f"{name}, {len(tensor)} read", asked.add(len(tensor)), tensor, data)


def main():
    # pin_memory does nothing on a machine with no GPU, but for this one, which is read at every call.
    os.environ["DS_PIN_MEMORY_BACKEND"] = "native"
    files = Files(sys.argv[1])
    for suite in reported, memory, several:
        suite(files)
    print("asked", asked.requests, asked.bytes, asked.misaligned)


main()
