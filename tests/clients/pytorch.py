# SPDX-License-Identifier: BSD-2-Clause
"""PyTorch on the CPU, each job giving the same on every run.

    pytorch.py loader METHOD EPOCHS DIRECTORY
        batches of a DataLoader whose workers are started by METHOD; DIRECTORY/PID is what the process
        says it made in large tensors: blocks and bytes
    pytorch.py save DIRECTORY
        writes DIRECTORY/state.pt and loads it
    pytorch.py train
        small models, in several threads
    pytorch.py account STEPS DIRECTORY
        so many steps of training, and what PyTorch's profiler says was allocated in large blocks:
        blocks, bytes, and the most bytes at one time
    pytorch.py live BYTES...
        holds tensors of these sizes at once
"""

import hashlib
import itertools
import json
import os
import sys
import threading
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 20
LARGE = 64 << 10  # from here on PINSHIM_MALLOC serves, in the test


def digest(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# ---- a DataLoader ---------------------------------------------------------------------------------

class Samples(Dataset):
    """Samples of 1 MiB, computed with temporaries as large. Keeps account of the tensors it made."""

    ELEMENTS = MIB // 4

    def __init__(self, directory):
        self.directory = directory
        self.blocks = self.bytes = 0

    def __len__(self):
        return 22

    def __getitem__(self, index):
        sample = self.made(torch.rand(self.ELEMENTS, generator=seeded(index)))
        sample = self.made(sample + self.made(sample * index))
        # The worker's own generator, which the loader seeded.
        noise = self.made(torch.rand(self.ELEMENTS))
        self.report()
        return sample.add_(noise), index

    def made(self, tensor):
        self.blocks += 1
        self.bytes += tensor.nbytes
        return tensor

    def report(self):
        with open(os.path.join(self.directory, str(os.getpid())), "w", encoding="ascii") as file:
            print(self.blocks, self.bytes, file=file)


def loader(method, epochs, directory):
    # Without a GPU pin_memory is answered with a warning, and does nothing.
    batches = DataLoader(Samples(directory), batch_size=4, shuffle=True, generator=seeded(1), num_workers=2,
                         multiprocessing_context=method, pin_memory=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(int(epochs)):
            iterator = iter(batches)
            for samples, indices in iterator:
                print(indices.tolist(), digest(samples), samples.is_pinned())
            workers = iterator._workers  # pylint: disable=protected-access
            del iterator
            for worker in workers:
                worker.join()
            print("workers ended with", [worker.exitcode for worker in workers])
    print(sorted({str(warning.message) for warning in said}))


# ---- files ----------------------------------------------------------------------------------------

def save(directory):
    path = os.path.join(directory, "state.pt")
    state = {
        "small": torch.rand(25, generator=seeded(1)),
        "weights": [torch.randn(count, generator=seeded(count)) for count in (20_000, 300_001, 10 * MIB)],
        "transposed": torch.rand(700, 500, generator=seeded(2)).t(),
        "half": torch.rand(MIB, generator=seeded(3)).to(torch.bfloat16).view(torch.int16),
    }
    torch.save(state, path)
    for mapped in (False, True):
        loaded = torch.load(path, mmap=mapped, weights_only=True)
        for name, value in loaded.items():
            for tensor in value if isinstance(value, list) else [value]:
                print(name, tuple(tensor.shape), digest(tensor))


# ---- training -------------------------------------------------------------------------------------

def perceptron(seed):
    """Weights and activations of both kinds: large, and not."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(300, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64), nn.Tanh(),
                         nn.Linear(64, 10))


def convolution(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 14 * 14, 10))


def fit(network, seed, shape, steps, losses):
    generator = seeded(seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for _ in range(steps):
        inputs = torch.randn(*shape, generator=generator)
        targets = torch.randint(0, 10, shape[:1], generator=generator)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(network(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


def train():
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    networks = [perceptron(1), perceptron(2), convolution(3)]
    shapes = [(128, 300), (250, 300), (16, 3, 32, 32)]
    losses = [[] for _ in networks]
    threads = [threading.Thread(target=fit, args=(network, seed, shape, 30, values))
               for seed, (network, shape, values) in enumerate(zip(networks, shapes, losses))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for network, values in zip(networks, losses):
        print(*map(float.hex, values))
        print(*(digest(parameter.detach()) for parameter in network.parameters()))


# ---- what was allocated ---------------------------------------------------------------------------

def account(steps, directory):
    path = os.path.join(directory, "trace.json")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        if int(steps):
            fit(convolution(1), 1, (16, 3, 32, 32), int(steps), [])
    profile.export_chrome_trace(path)
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    # Freed bytes are negative.
    sizes = [event["args"]["Bytes"] for event in events if event.get("name") == "[memory]"]
    sizes = [size for size in sizes if abs(size) >= LARGE]
    allocated = [size for size in sizes if size > 0]
    print(len(allocated), sum(allocated), max(itertools.accumulate(sizes, initial=0)))


# ---- what is live ---------------------------------------------------------------------------------

def live(*sizes):
    held = [torch.zeros(int(size), dtype=torch.uint8) for size in sizes]
    large = [tensor.nbytes for tensor in held if tensor.nbytes >= LARGE]
    print(len(large), sum(large))


JOBS = {"loader": loader, "save": save, "train": train, "account": account, "live": live}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
