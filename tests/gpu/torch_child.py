# SPDX-License-Identifier: BSD-2-Clause
"""PyTorch's pinned memory, question by question (gpu.h has the format). Run plain and under the shim."""

import ctypes
import os

import torch

MIB = 1 << 20
COUNTERS = ("pinned", "peak", "locked", "registered", "huge", "foreign", "retained", "live", "blocks",
            "served", "fallback", "failed", "refused")


def answer(question, got, expected="", mark=""):
    print(question, got, expected, mark, "", sep="\t", flush=True)


def counters():
    """The shim's, or None where there is no shim."""
    try:
        function = ctypes.CDLL(None).pinshim_stats
    except AttributeError:
        return None
    found = (ctypes.c_uint64 * len(COUNTERS))()
    return dict(zip(COUNTERS, found)) if function(found, ctypes.sizeof(found)) == 0 else None


def host_stats():
    """Blocks and bytes that PyTorch has from cudaHostAlloc, in use or cached; None in old ones."""
    try:
        stats = torch.cuda.host_memory_stats()
        return stats["allocations.current"], stats["allocated_bytes.current"]
    except (AttributeError, KeyError):
        return None


def empty_cache():
    if hasattr(getattr(torch, "accelerator", None), "empty_host_cache"):
        torch.accelerator.empty_host_cache()
    else:
        torch._C._host_emptyCache()  # pylint: disable=protected-access


def compare(when, registers):
    """Its account and ours, where both exist."""
    ours, theirs = counters(), host_stats()
    if ours is None or theirs is None:
        return
    if registers:
        answer(f"registered memory is pinned, {when}", "yes" if ours["pinned"] >= theirs[1] else "no", "yes", "shim")
        return
    answer(f"live blocks, {when}", ours["blocks"], theirs[0], "shim")
    # We count what a block can hold, of small ones more than PyTorch asked for.
    close = theirs[1] <= ours["live"] <= 1.02 * theirs[1] + MIB
    answer(f"live bytes, {when}", "agree" if close else f"{ours['live']} for {theirs[1]}", "agree", "shim")


def main():
    registers = "host_register" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    source = torch.arange(4 * MIB, dtype=torch.int32)
    answer("a tensor is pinned", source.is_pinned(), False)
    pinned = source.pin_memory()
    answer("pin_memory() is pinned", pinned.is_pinned(), True)
    answer("and another tensor", pinned.data_ptr() != source.data_ptr(), True)
    answer("with the same contents", torch.equal(pinned, source), True)
    answer("a view of it is pinned", pinned[1000:2000].is_pinned(), True)
    other = torch.empty(4 * MIB, dtype=torch.int32, pin_memory=True)
    answer("empty(pin_memory=True) is pinned", other.is_pinned(), True)

    device = pinned.to("cuda", non_blocking=True)
    other.copy_(device, non_blocking=True)
    torch.cuda.synchronize()
    answer("non_blocking copies there and back are right", torch.equal(other, source), True)
    answer("and from pageable memory", torch.equal(source.to("cuda", non_blocking=True).cpu(), source), True)
    compare("two tensors", registers)

    # Freed while it is copied: PyTorch keeps it until the event has passed, and so must we.
    wrong = 0
    for value in range(20):
        block = torch.full((MIB,), value, dtype=torch.int32, pin_memory=True)
        there = block.to("cuda", non_blocking=True)
        del block
        wrong += not bool((there == value).all())
    answer("copies wrong of 20 from tensors that are freed at once", wrong, 0)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(64.0)), batch_size=16,
                                         pin_memory=True)
    answer("a DataLoader's batches are pinned", all(batch[0].is_pinned() for batch in loader), True)

    plain = torch.zeros(MIB, dtype=torch.uint8)
    cudart = torch.cuda.cudart()
    answer("cudart().cudaHostRegister", int(cudart.cudaHostRegister(plain.data_ptr(), MIB, 1)), 0)
    answer("the tensor is pinned", plain.is_pinned(), True)
    answer("cudart().cudaHostUnregister", int(cudart.cudaHostUnregister(plain.data_ptr())), 0)
    answer("the tensor is not any more", plain.is_pinned(), False)

    del pinned, other, device, there
    torch.cuda.synchronize()
    empty_cache()
    # What was freed while the device may have used it counts until the next allocation has waited.
    last = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    compare("after emptying the cache", registers)
    answer("one tensor is left", last.is_pinned(), True)


if __name__ == "__main__":
    main()
