# SPDX-License-Identifier: BSD-2-Clause
"""DeepSpeed's native pinned memory, as it counts it and as pinshim does.

tests/clients/pinned.py [PINSHIM]

Prints the calls and bytes of DeepSpeed's tracker; with the command PINSHIM also what stat says of this
process: the blocks and bytes that were served, and those that were freed when the tensors were.
"""

import json
import os
import subprocess
import sys

import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.utils.pin_memory_tracker import _tracker

SIZES = [64 << 10, (64 << 10) + 1, 1_000_003, 3 << 20, 33 << 20, 64 << 20]


def served():
    """Of posix_memalign, by which DeepSpeed gets what it locks."""
    report = subprocess.run([sys.argv[1], "stat", "--json", str(os.getpid())], check=True, capture_output=True,
                            env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"})
    process, = json.loads(report.stdout)["processes"]
    return process["report"]["entry_points"]["aligned_alloc"]


def difference(before, after, *names):
    return [after[name] - before[name] for name in names]


def main():
    os.environ["DS_PIN_MEMORY_BACKEND"] = "native"
    accelerator = get_accelerator()
    # Of a few bytes, seen as many: it is DeepSpeed alone that allocates below.
    one = torch.ones(1, dtype=torch.uint8)
    warm = accelerator.pin_memory(one)
    ours = len(sys.argv) > 1
    if ours:
        torch.zeros(1 << 20)
        before = served()
    _tracker.reset()
    tensors = [accelerator.pin_memory(one.expand(size)) for size in SIZES]
    assert all(accelerator.is_pinned(tensor) and bool(tensor.all()) for tensor in tensors)
    print("tracked", _tracker._calls, _tracker._bytes)
    if ours:
        during = served()
        print("served", *difference(before, during, "served", "requested_bytes"))
        print("fallback", *difference(before, during, "fallback", "failed"))
    accelerator.unpin_memory(tensors.pop())
    del tensors
    if ours:
        print("freed", *difference(during, served(), "freed", "live_blocks"))
    del warm


main()
