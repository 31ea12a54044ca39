# SPDX-License-Identifier: BSD-2-Clause
"""Large temporaries of PyTorch and NumPy, and training: against plain and the huge pages of others.

Each variant of a work is a process of its own. All of them live at once and work in turn, some tenths
of a second each, so that a pair of turns lies next to each other.
"""

import contextlib
import os
import subprocess

import common
from common import PLAIN, NotMeasured, Spread, ratios

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tensors.py")
OURS, CLASSES = "pinshim", "64K-"

# They have to touch fresh memory for each temporary. Told to keep it, they need not, either.
PEERS = common.PEERS[:2]
KEEP = 1 << 40
KEEPING = [
    common.Variant("glibc hugetlb=1, keeping",
                   GLIBC_TUNABLES=f"glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold={KEEP}:"
                                  f"glibc.malloc.trim_threshold={KEEP}"),
    common.Variant("jemalloc thp, keeping", "libjemalloc2", common.library("libjemalloc.so.2"),
                   MALLOC_CONF="thp:always,oversize_threshold:0,dirty_decay_ms:-1"),
]

# What is done, and at least how many times as fast as plain, and as the better of PEERS, it has to be.
ADD_TORCH, ADD_NUMPY, MLP, SMALL, THREADS = "torch-add", "numpy-add", "mlp", "small", "small-threads"
WORK = {
    ADD_TORCH: ("torch, sum of two tensors of 64 MiB", 2.0, 1.2),
    ADD_NUMPY: ("NumPy, sum of two arrays of 64 MiB", 1.3, None),
    MLP: ("torch, training step, 1024-4096-1024", 1.0, None),
    SMALL: ("torch, training step, 256-256-64", 0.99, None),
    THREADS: ("torch, the same in two threads", 0.99, None),
}
# What is looked for here is one in a hundred, and a process is by three in a hundred faster or slower than another
# of the same program, by the addresses that it happens to have: so many processes of each.
CLOSE = {SMALL: 4, THREADS: 2}


class Process:
    """A process of tensors.py that lives until the work is done."""

    def __init__(self, python, work, variant):
        self.variant = variant
        environment = common.clean_environment() | variant.environment
        self.child = subprocess.Popen(  # pylint: disable=consider-using-with
            [python, PROGRAM, work], env=environment, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def hear(self):
        line = self.child.stdout.readline()
        if not line:
            said = self.child.stderr.read().strip().splitlines()
            raise NotMeasured(f"{self.variant.name}: " + (said[-1] if said else "ended and said nothing"))
        return line

    def turn(self, milliseconds):
        """What it says of so many milliseconds of work, and how busy the rest of the machine was."""
        busy = common.busy_seconds()
        self.child.stdin.write(f"{milliseconds}\n")
        self.child.stdin.flush()
        ran = common.Ran(self.hear(), "", 0)
        values = ran.pairs()
        others = common.busy_seconds() - busy - values["cpu"] * (1 + 1 / values["steps"])
        ran.others = min(1.0, max(0.0, others / (values["seconds"] * (1 + 1 / values["steps"]) * common.CORES)))
        return ran

    def close(self):
        # At the end of its input it ends by itself, and so does its table in /dev/shm.
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            common.end(self.child)
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            stream.close()


class Sample:
    """One turn: time and CPU time of a step, and what the process had locked and in huge pages."""

    def __init__(self, values):
        self.ms, self.cpu_ms = (values[name] / values["steps"] * 1e3 for name in ("seconds", "cpu"))
        self.locked_mib, self.huge_mib = values["locked_kib"] / 1024, values["huge_kib"] / 1024

    @classmethod
    def middle(cls, samples):
        """The median of each of these."""
        middle = cls.__new__(cls)
        for what in vars(samples[0]):
            setattr(middle, what, Spread(getattr(sample, what) for sample in samples).median)
        return middle


def group(results):
    ours = results.pinshim(CLASSES, PINSHIM_RETAIN="4G")
    if ours.missing():
        raise NotMeasured(ours.missing())
    for name in WORK:
        try:
            work(results, name, ours)
        except NotMeasured as why:
            results.fail(f"temporaries, {name}", why)
    results.note("temporaries: all variants of a work are processes that live at once and work in turn. "
                 "\"Keeping\" is the same allocator told to give no memory back to the kernel, which is "
                 "what makes temporaries fast; nothing of it is pinned.")


def interpreter(name):
    """A Python that has what the work needs; NumPy may be the system's."""
    python = os.path.join(common.CLIENTS, "bin/python")
    if os.path.exists(python):
        return python
    if name == ADD_NUMPY:
        return "/usr/bin/python3"
    raise NotMeasured("PyTorch is not there (scripts/setup --clients)")


def work(results, name, ours):
    program = (interpreter(name), name)
    milliseconds, rounds = results.rounds(120, 100), results.repeats(4, 3)
    variants = [PLAIN, *PEERS, *KEEPING, ours]
    if name in CLOSE:
        # Neither begins first more often than the other.
        variants = [PLAIN, ours, ours, PLAIN] * (CLOSE[name] // 2)
    samples = {}  # of each process
    with contextlib.ExitStack() as stack:
        for turn, process, ran in turns(stack, results, program, variants, milliseconds, rounds):
            sample = Sample(ran.pairs())
            samples.setdefault(process, []).append(sample)
            results.sample("temporaries", ran, work=name, variant=process.variant.name, process=process.child.pid,
                           round=turn, ms_per_step=sample.ms, cpu_ms_per_step=sample.cpu_ms,
                           locked_mib=sample.locked_mib, huge_mib=sample.huge_mib)
    found = {}
    for process in sorted(samples, key=lambda process: variants.index(process.variant)):
        found.setdefault(process.variant.name, []).extend(
            [Sample.middle(samples[process])] if name in CLOSE else samples[process])
    show(results, name, found)
    judge(results, name, found)


def turns(stack, results, program, variants, milliseconds, rounds):
    """Lets a process for each variant work in turn; they end with the stack."""
    processes = []
    for variant in variants:
        if variant.missing():
            results.fail(f"temporaries under {variant.name}", variant.missing())
        else:
            processes.append(Process(*program, variant))
            stack.callback(processes[-1].close)
    for process in processes:
        process.hear()  # that it has begun
    for process in processes:
        process.turn(milliseconds)
    for turn in range(rounds):
        common.progress(f"temporaries: {program[1]}, round {turn + 1} of {rounds}")
        # Who was before it must not matter.
        for process in processes if turn % 2 else processes[::-1]:
            yield turn, process, process.turn(milliseconds)


def speed(found, ours, theirs, what="ms"):
    """How many times as fast, pair by pair."""
    return ratios([getattr(s, what) for s in found[theirs]], [getattr(s, what) for s in found[ours]])


def show(results, name, found):
    rows = []
    for variant, samples in found.items():
        rows.append([variant, Spread(s.ms for s in samples).text(2),
                     Spread(s.cpu_ms for s in samples).text(2),
                     speed(found, variant, PLAIN.name).text(2, "x"), f"{samples[-1].huge_mib:.0f}",
                     f"{samples[-1].locked_mib:.0f}"])
    results.table(f"{WORK[name][0]}: median of {len(found[PLAIN.name])} (least-most)",
                  ["", "ms", "CPU ms", "as fast as plain", "MiB in huge pages", "MiB locked"], rows)


def judge(results, name, found):
    label, wanted, wanted_of_peers = WORK[name]
    if min(sample.locked_mib for sample in found[OURS]) == 0:
        raise NotMeasured("nothing was locked under pinshim: see ulimit -l")
    judge_speed(results, label, found, PLAIN.name, wanted)
    peers = [peer.name for peer in PEERS if peer.name in found]
    if not wanted_of_peers or not peers:
        return
    best = min(peers, key=lambda peer: Spread(s.ms for s in found[peer]).median)
    judge_speed(results, label, found, best, wanted_of_peers)


def judge_speed(results, label, found, peer, wanted):
    ratio, cpu = (speed(found, OURS, peer, what) for what in ("ms", "cpu_ms"))
    results.target(f"{label}: speed against {peer}", f">= {wanted}x", wanted, ratio,
                   f"{ratio.text(2, 'x')}, by CPU time {cpu.median:.2f}x", at_most=False)
