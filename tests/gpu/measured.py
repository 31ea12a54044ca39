# SPDX-License-Identifier: BSD-2-Clause
"""Bandwidth of copies, and what allocating and freeing cost."""

import os
import select
import statistics
import subprocess
import time

import common
from common import GIB, MIB, NotMeasured, Spread

# name, under the shim, kind for the program
BANDWIDTH = (("cudaHostAlloc, plain", False, "cudaHostAlloc"), ("cudaHostAlloc, shim", True, "cudaHostAlloc"),
             ("mlock only", False, "mlock"), ("pageable", False, "pageable"))
WAYS = ("h2d", "d2h")


def size_text(size):
    return f"{size // GIB} GiB" if size >= GIB else f"{size // MIB} MiB"


class Copier:
    """A running bandwidth program, which measures what it is told to."""

    def __init__(self, place, shim, total, sizes):
        self.place = place
        self.errors = os.path.join(place.directory, f"bandwidth.{int(shim)}")
        with open(self.errors, "w", encoding="utf-8") as errors:
            self.child = place.start([place.program("bandwidth"), str(total), *map(str, sizes)], shim, errors)

    def measure(self, kind, size, way, timeout):
        """GB/s. NotMeasured with why not."""
        try:
            self.child.stdin.write(f"{kind} {size} {way}\n")
            self.child.stdin.flush()
            ready = select.select([self.child.stdout], [], [], max(timeout, 0))[0]
            line = self.child.stdout.readline().strip() if ready else "error: it hangs"
        except (OSError, ValueError):
            line = ""
        if line == "error: it hangs":
            self.place.kill(self.child)
        if not line:
            with open(self.errors, encoding="utf-8", errors="replace") as errors:
                said = errors.read().strip().splitlines()
            raise NotMeasured(f"the program ended: {said[-1] if said else 'it said nothing'}")
        if line.startswith("error: "):
            raise NotMeasured(line[7:])
        return float(line)

    def end(self):
        """It has to end by itself. NotMeasured if it does not."""
        try:
            self.child.stdin.close()
            status = self.child.wait(10)
        except OSError:
            status = self.child.wait()
        except subprocess.TimeoutExpired:
            raise NotMeasured("it hangs at its end") from None
        finally:
            self.place.kill(self.child)
        if status:
            raise NotMeasured(f"it ended with status {status}")


def bandwidth(place, out, seconds):
    """Rounds in turn until the time is up. Returns samples."""
    sizes = [4 * MIB, 8 * MIB, 16 * MIB] if place.fakes else [4 * MIB, 64 * MIB, 256 * MIB]
    total = 16 * MIB if place.fakes else 256 * MIB
    most = 3 if place.fakes else 15
    until = time.monotonic() + min(seconds, place.left() - 2)
    samples, given_up = {}, set()
    copiers = {shim: Copier(place, shim, total, sizes) for shim in (False, True)}
    for _ in range(most):
        if samples and time.monotonic() > until:
            break
        for size in sizes:
            for way in WAYS:
                for name, shim, kind in BANDWIDTH:
                    if (name, size) in given_up:
                        continue
                    try:
                        found = copiers[shim].measure(kind, size, way, until + 5 - time.monotonic())
                        samples.setdefault((size, way, name), []).append(found)
                    except NotMeasured as why:
                        given_up.add((name, size))
                        out.fail(f"bandwidth, {name}, {size_text(size)}", why)
    for shim, copier in copiers.items():
        try:
            copier.end()
        except NotMeasured as why:
            out.fail(f"bandwidth, {'shim' if shim else 'plain'}", why)
    table = []
    for size in sizes:
        for way in WAYS:
            found = [samples.get((size, way, name)) for name, _, _ in BANDWIDTH]
            ratio = common.ratios(found[1], found[0]).text() if found[0] and found[1] else "-"
            table.append([f"{size_text(size)} {way.upper()}",
                          *(Spread(values).text(1) if values else "-" for values in found), ratio])
    out.table(f"Bandwidth, GB/s (median of {max(map(len, samples.values()), default=0)} in turn, least-most)",
              ["", *(name for name, _, _ in BANDWIDTH), "shim/plain"], table)
    return [{"size": size, "way": way, "memory": name, "gbps": values}
            for (size, way, name), values in samples.items()]


def rounds(place, size, shim, count, seconds):
    """Pairs of microseconds: to allocate, to free; the first is cold."""
    ended = place.run([place.program("cost"), str(size), str(count), str(seconds)], shim, timeout=45)
    if ended.status:
        raise NotMeasured(ended.why())
    return [tuple(map(float, line.split())) for line in ended.output.splitlines()]


def cost(place, out, seconds):
    """Cold is the first in a process; warm all later ones, freed and allocated in turn."""
    sizes = [MIB, 16 * MIB] if place.fakes else [MIB, 16 * MIB, 256 * MIB, GIB, 4 * GIB]
    until = time.monotonic() + min(seconds, place.left() - 2)
    samples, table = [], []
    for size in sizes:
        if common.memory("MemAvailable") < 2 * size:
            out.fail(f"cost, {size_text(size)}", "too little memory is available")
            continue
        for turn in range(3):
            for shim in (False, True):
                if turn and time.monotonic() > until - 20 * size / GIB / 4:
                    continue
                try:
                    found = rounds(place, size, shim, 200 if size < GIB else 4, 1)
                except NotMeasured as why:
                    out.fail(f"cost, {size_text(size)}, {'shim' if shim else 'plain'}", why)
                    continue
                samples.append({"size": size, "shim": shim, "cold": found[0], "warm": found[1:]})
        row = [size_text(size)]
        for kind in ("cold", "warm"):
            for part in (0, 1):
                medians = []
                for shim in (False, True):
                    these = [s for s in samples if s["size"] == size and s["shim"] == shim]
                    times = [t for s in these for t in ([s["cold"]] if kind == "cold" else s["warm"])]
                    medians.append(statistics.median(t[part] for t in times) if times else None)
                row += ["-" if m is None else f"{m:,.1f}" for m in medians]
        table.append(row)
    out.table("Cost, us (medians): the first in a process, and later ones. Under the shim the next allocation "
              "waits for the\ndevice, not cudaFreeHost; and of freed memory 1 GiB stays (PINSHIM_RETAIN)",
              ["", "alloc: plain", "shim", "free: plain", "shim", "again: plain", "shim", "free: plain", "shim"],
              table)
    return samples
