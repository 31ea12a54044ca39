# SPDX-License-Identifier: BSD-2-Clause
"""Training whose parameters and momenta live in files, as with ZeRO-Infinity, by DeepSpeed's swap buffers.

tests/clients/swap.py DIRECTORY

For each layer both are swapped in, the gradient step is done in locked memory, and both are swapped out. Prints
the loss of each step, and how many requests of how many bytes that takes.
"""

import os
import sys

import torch
from deepspeed.ops.op_builder import AsyncIOBuilder
from deepspeed.runtime.swap_tensor.utils import AIO_ALIGNED_BYTES, SwapBufferPool

LAYERS, WIDTH, STEPS = 3, 1023, 4
BLOCK = 1 << 20
NUMEL = WIDTH * WIDTH
ALIGNED = -(-NUMEL * 4 // AIO_ALIGNED_BYTES) * AIO_ALIGNED_BYTES // 4


class Swapped:
    """The tensors of all layers, one layer in memory at a time."""

    def __init__(self, directory):
        self.directory = directory
        self.handle = AsyncIOBuilder().load(verbose=False).aio_handle(BLOCK, 8, False, True, 1)
        self.locked = self.handle.new_cpu_locked_tensor(2 * ALIGNED, torch.empty(0)).zero_()
        self.pool = SwapBufferPool([self.locked], self.handle)
        self.requests = self.bytes = 0

    def lay_out(self, layer):
        """Room for the parameters and the momenta of a layer."""
        self.pool.reset()
        return [self.pool.allocate_tensor(NUMEL, os.path.join(self.directory, f"{layer}_{kind}.tensor.swp"), ALIGNED)[1]
                for kind in ("param", "momentum")]

    def count(self):
        self.requests += 2 * -(-ALIGNED * 4 // BLOCK)
        self.bytes += 2 * ALIGNED * 4

    def swap_out(self):
        self.pool.swap_out(self.handle)
        self.count()

    def swap_in(self, layer):
        tensors = self.lay_out(layer)
        self.locked.fill_(float("nan"))
        self.pool.swap_in(self.handle)
        self.count()
        return tensors


def main():
    swapped = Swapped(sys.argv[1])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    for layer in range(LAYERS):
        parameters, momentum = swapped.lay_out(layer)
        parameters.copy_(torch.randn(NUMEL) / WIDTH)
        momentum.zero_()
        swapped.swap_out()
    for _ in range(STEPS):
        inputs = torch.randn(4, WIDTH)
        loss = 0.0
        for layer in range(LAYERS):
            parameters, momentum = swapped.swap_in(layer)
            weight = parameters.view(WIDTH, WIDTH)
            error = inputs @ weight - inputs
            loss += error.pow(2).mean().item()
            momentum.mul_(0.9).add_((inputs.T @ error).flatten())
            parameters.sub_(momentum, alpha=1e-3)
            swapped.swap_out()
        print("loss", loss.hex())
    print("asked", swapped.requests, swapped.bytes)
    swapped.handle.free_cpu_locked_tensor(swapped.locked)


main()
