# SPDX-License-Identifier: BSD-2-Clause
"""DeepSpeed's own benchmark of its DeepNVMe, ds_io, unmodified: 1 GiB read into memory that it locks.

ds_io reads in a process that it spawns, over and over after one warm-up. CPU time is that of the reads
alone: Python's start, which takes seconds, is over by then.
"""

import contextlib
import glob
import json
import os
import re
import subprocess
import time

import common
import fio
import scattered
from common import GIB, PLAIN, NotMeasured, Spread, ratios

EXTENSIONS = os.path.join(common.CLIENTS, "extensions")
BLOCKS = ["1M", "8M"]
OURS = "pinshim+aio"
# Of reads: at least so many times plain's speed.
WANTED = {"memory as found": 1.05, "scattered memory": 2.0}


class Look:
    """Watches the process that reads, from after the first GiB, the warm-up, until little is left to read."""

    def __init__(self, loops):
        self.pid = None
        self.marks = [GIB, 0.9 * (loops + 1) * GIB]  # bytes read
        self.seen = []  # at each mark: bytes read, CPU time of the process, idle time of the machine, time

    def __call__(self, pid):
        """Until ds_io ends."""
        while not fio.ended(pid):
            for child in fio.children(pid):
                with contextlib.suppress(OSError):
                    self.look(int(child))
            time.sleep(0.005)

    def look(self, pid):
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            done = int(re.search(r"^read_bytes: (\d+)", file.read(), re.M).group(1))
        if len(self.seen) < len(self.marks) and done >= self.marks[len(self.seen)]:
            self.pid = pid
            # The clock of another process: see clock_getcpuclockid(3).
            self.seen.append((done, time.clock_gettime((~pid << 3) | 2), common.idle_seconds(), time.monotonic()))

    def per_gb(self):
        """Milliseconds of CPU per GB: of the process, and of the machine."""
        if len(self.seen) < len(self.marks):
            raise NotMeasured("no process of ds_io was seen to read so much")
        done, cpu, idle, passed = (last - first for first, last in zip(*self.seen))
        busy = max(0.0, (os.cpu_count() or 1) * passed - idle)
        return cpu * 1e12 / done, busy * 1e12 / done


class Sample:
    """One run of ds_io."""

    def __init__(self, directory, block, loops, variant):
        look = Look(loops)
        self.ran = common.run([os.path.join(common.CLIENTS, "bin/ds_io"), "--read", "--folder", directory,
                               "--io_size", "1G", "--block_size", block, "--loops", str(loops)], variant, timeout=300,
                              meanwhile=look)
        speed = re.search(r"^Task Read Speed = ([0-9.]+) GB/sec", self.ran.output, re.M)
        if not speed:
            raise NotMeasured(f"ds_io did not say how fast it was: {self.ran.errors.strip()[-200:]}")
        self.gbps = float(speed.group(1)) * GIB / 1e9
        self.cpu_ms_per_gb, self.machine_ms_per_gb = look.per_gb()
        self.fixed = 0.0
        if variant.ours:
            self.judge(look.pid)

    def judge(self, pid):
        """What was pinned and how it was read. ds_io kills the process that read, so its table is still there."""
        stat = subprocess.run([os.path.join(common.BUILD, "pinshim"), "stat", "--json", str(pid)],
                              capture_output=True, text=True, check=False, env=common.clean_environment())
        for table in glob.glob(f"/dev/shm/pinshim.{pid}.*"):
            os.unlink(table)
        try:
            report = json.loads(stat.stdout)["processes"][0]["report"]
        except (ValueError, LookupError) as error:
            raise NotMeasured(f"pinshim stat {pid}: {stat.stderr.strip() or error}") from error
        requests = report["aio"]["submitted"]
        if not requests or report["pinned_peak_bytes"] < GIB:
            raise NotMeasured(f"{requests} requests were pinshim's, {report['pinned_peak_bytes']} bytes were pinned")
        self.fixed = report["aio"]["fixed"] / requests


def measure(results, directory, where, rounds):
    """{block: {variant name: [Sample]}}, interleaved."""
    settings = {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": EXTENSIONS,
                "PATH": f"{common.CLIENTS}/bin:{os.environ['PATH']}"}
    plain, ours = common.Variant(PLAIN.name, **settings), results.pinshim_aio(fio.CLASSES, **settings)
    found = {block: {plain.name: [], ours.name: []} for block in BLOCKS}
    for turn in range(rounds):
        for block in BLOCKS:
            for variant in (plain, ours) if turn % 2 == 0 else (ours, plain):
                common.progress(f"ds_io, {where}: {block}, round {turn + 1} of {rounds}, {variant.name}")
                sample = Sample(directory, block, 2, variant)
                found[block][variant.name].append(sample)
                results.sample("ds_io", sample.ran, where=where.replace(" ", "-"), bs=block, variant=variant.name,
                               round=turn, gbps=sample.gbps, cpu_ms_per_gb=sample.cpu_ms_per_gb,
                               machine_cpu_ms_per_gb=sample.machine_ms_per_gb, fixed_share=sample.fixed)
    return found


def show(results, where, found, rounds):
    rows = []
    for block, by_variant in found.items():
        rows.append([f"{block} blocks"])
        plain = by_variant[PLAIN.name]
        for name, samples in by_variant.items():
            rows.append([name] + [
                "1.00" if samples is plain else
                ratios([getattr(s, figure) for s in samples], [getattr(s, figure) for s in plain]).text(2, "x")
                for figure in ("gbps", "cpu_ms_per_gb", "machine_ms_per_gb")] + [
                f"{Spread(s.gbps for s in samples).median:.2f}",
                f"{Spread(s.cpu_ms_per_gb for s in samples).median:.0f}",
                f"{Spread(s.machine_ms_per_gb for s in samples).median:.0f}",
                f"{Spread(s.fixed for s in samples).median:.0%}" if name == OURS else "-"])
        ratio = ratios([s.gbps for s in by_variant[OURS]], [s.gbps for s in plain])
        results.target(f"ds_io --read {block}, {where}: GB/s against plain", f">= {WANTED[where]}x", WANTED[where],
                       ratio, ratio.text(2, "x"), at_most=False)
    results.table(f"DeepSpeed ds_io --read, 1 GiB, depth 32, {where}: median of {rounds} (least-most)",
                  ["", "speed ratio", "its CPU/GB", "machine CPU/GB", "GB/s", "its ms/GB", "machine ms/GB",
                   "registered"], rows)


def group(results):
    """The group "ds_io": on memory as it is found, and while age holds the memory."""
    if not os.path.exists(os.path.join(EXTENSIONS, "complete")):
        raise NotMeasured("DeepSpeed is not there (scripts/setup --clients)")
    if results.pinshim_aio(fio.CLASSES).missing():
        raise NotMeasured(results.pinshim_aio(fio.CLASSES).missing())
    path = fio.lay_out(results.directory, GIB)
    # Where ds_io looks for what it read the last time.
    directory = os.path.join(results.directory, "ds_io")
    os.mkdir(directory)
    os.rename(path, os.path.join(directory, f"_aio_read_{GIB}.pt.0_0"))
    try:
        rounds = results.repeats(1)
        show(results, "memory as found", measure(results, directory, "memory as found", rounds), rounds)
        with scattered.memory(results, 3 * GIB // 2, 500):
            found = measure(results, directory, "scattered memory", rounds)
        show(results, "scattered memory", found, rounds)
    finally:
        for path in glob.glob(os.path.join(directory, "*")):
            os.unlink(path)
        os.rmdir(directory)
    results.note("ds_io: plain locks its memory, too; ds_io counts GB of 2^30 bytes, these are of 10^9. The first "
                 "read of each run is a warm-up, as ds_io has it.")
