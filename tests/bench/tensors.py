# SPDX-License-Identifier: BSD-2-Clause
"""A program with large temporaries, in PyTorch or NumPy: tensors.py WORK

For each line of its standard input, which says how many milliseconds, it does the work again and again
for about so long, and says how long one step took, what CPU time it had, how many steps there were, and
how much of the process's memory is locked and in huge pages.
"""

import os
import sys
import threading
import time

MIB = 1 << 20
CORES = len(os.sched_getaffinity(0))


def numpy_add():
    import numpy
    one, other = (numpy.full(16 * MIB, value, dtype=numpy.float32) for value in (1, 2))

    def step():
        return one + other

    return step


def torch_add():
    import torch
    one, other = (torch.full((16 * MIB,), float(value)) for value in (1, 2))

    def step():
        return one + other

    return step


def training(sizes, batch):
    """A step of training of a multi-layer perceptron."""
    import torch
    torch.manual_seed(1)
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    data, wanted = torch.randn(batch, sizes[0]), torch.randn(batch, sizes[-1])

    def step():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(network(data), wanted).backward()
        optimizer.step()

    return step


def mlp():
    return training([1024, 4096, 1024], 64)


def small():
    return training([256, 256, 64], 128)


def small_threads():
    """Two threads of Python, each with a model of its own; a step is five of both."""
    steps = [small(), small()]

    def step():
        threads = [threading.Thread(target=repeat, args=(one, 5)) for one in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return step


def repeat(step, count):
    for _ in range(count):
        step()


WORK = {"torch-add": torch_add, "numpy-add": numpy_add, "mlp": mlp, "small": small,
        "small-threads": small_threads}


def kibibytes(path, name):
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1])
    return 0


def measure(step, milliseconds):
    step()  # what other processes left in the caches, and threads that went to sleep, are not measured
    cpu, began, steps = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - began < milliseconds / 1000:
        step()
        steps += 1
    passed, cpu = time.perf_counter() - began, time.process_time() - cpu
    return passed, cpu, steps


def main():
    step = WORK[sys.argv[1]]()
    print("ready", flush=True)
    for line in sys.stdin:
        passed, cpu, steps = measure(step, float(line))
        print(f"seconds={passed} cpu={cpu} steps={steps} "
              f"locked_kib={kibibytes('/proc/self/status', 'VmLck')} "
              f"huge_kib={kibibytes('/proc/self/smaps_rollup', 'AnonHugePages')}", flush=True)


if __name__ == "__main__":
    main()
