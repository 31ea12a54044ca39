# SPDX-License-Identifier: BSD-2-Clause
"""Memory as it is after weeks of work, scattered, against memory as it is found: fio, and the cost of pinning."""

import contextlib
import os
import subprocess

import cold
import common
import fio
from common import GIB, PLAIN, NotMeasured, Spread

JOBS = [("randread", "64k"), ("read", "1m")]
PINNING = ("mlock", "huge", "malloc")


def age_share(size):
    """Percent of available memory to fill, so that 2 x size stays free with half given back."""
    available = common.memory("MemAvailable")
    share = min(90, int((1 - 2.2 * size / available) * 200), int((1 - 0.6 * GIB / available) * 100))
    if share < 50:
        raise NotMeasured(f"only {available / GIB:.1f} GiB are available, 1 GiB needs more to be scattered")
    return share


@contextlib.contextmanager
def memory(results, size, seconds):
    """Memory is scattered inside this. Gives age's figures and the share left in large blocks."""
    program = common.program("age")
    arguments = [program, str(age_share(size)), str(seconds)]
    if results.quick:
        # Enough that pages of 4 KiB come from there; filling all memory takes up to two minutes.
        arguments.append(str(3 * GIB))
    common.progress("scattering memory: filling it with 4 KiB pages, giving back every other one")
    with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=common.clean_environment()) as age:
        try:
            ready = age.stdout.readline()
            if not ready.startswith("ready"):
                raise NotMeasured(f"age: {age.stderr.read().strip() or 'ended'}")
            values = common.Ran(ready, "", 0).pairs()
            values["unscattered"] = common.unscattered()
            yield values
            if age.poll() is not None:
                raise NotMeasured(f"age ended too early: {age.stderr.read().strip() or 'time limit'}")
        finally:
            common.end(age)


def measure(results, path, where, variants, rounds):
    """What cold and fio find: ({way: [values]}, {job: {variant name: [Sample]}})."""
    pinned = cold.measure(results, f"cold-{where}", [GIB], rounds, PINNING)[GIB]
    return pinned, fio.measure(results, f"fio-{where}", path, JOBS, variants, rounds, results.rounds(300, 200))


def group(results):
    """The group "scattered": first on memory as it is found, then while age holds the memory."""
    path = fio.lay_out(results.directory, results.rounds(GIB, GIB // 4))
    ours, rounds = results.pinshim(fio.CLASSES), results.repeats(2)
    found_share = common.unscattered()
    try:
        fresh = measure(results, path, "fresh", [PLAIN, ours], results.repeats(1))
        with memory(results, GIB, 400) as age:
            results.sample("age", **age)
            pinned, found = measure(results, path, "scattered", [PLAIN, *common.PEERS[:3], fio.LIMIT, ours], rounds)
    finally:
        os.unlink(path)
    cold.show(results, pinned, GIB, f"Pinning 1 GiB cold, scattered memory: median of {rounds} (least-most)")
    cold.judge(results, pinned, "scattered memory")
    fio.show(results, f"fio libaio, O_DIRECT, depth {fio.DEPTH}, scattered memory: median of {rounds} "
             "interleaved rounds (least-most)", found)
    fio.judge(results, ", scattered", found)
    compare(results, fresh, (pinned, found), (found_share, age["unscattered"]))
    results.note(f"scattered: age filled {age['filled'] / GIB:.1f} GiB with 4 KiB pages and gave every other "
                 f"one back; {age['unscattered']:.0%} of free memory then lay in blocks of 2 MiB or more"
                 + (" (--quick fills no more than 3 GiB, so most huge pages are easily had)."
                    if results.quick else "."))


def compare(results, fresh, scattered, shares):
    """The same side by side."""
    rows = []
    for way in PINNING:
        seconds = [pinned[way] for pinned, _ in (fresh, scattered)]
        if all(seconds):
            rows.append([f"pinning 1 GiB, ms: {cold.WAYS[way]}"] + [
                text for values in seconds
                for text in (Spread(v["get_seconds"] * 1000 for v in values).text(0), "-",
                             f"{cold.huge_share(values, GIB):.0%}")])
    for job in JOBS:
        for name in (PLAIN.name, "pinshim"):
            samples = [found[job].get(name) for _, found in (fresh, scattered)]
            if all(samples):
                rows.append([f"fio {job[0]} {job[1].upper()}, GB/s: {name}"] + [
                    text for values in samples
                    for text in (Spread(s.gbps for s in values).text(2),
                                 f"{Spread(s.machine_ms_per_gb for s in values).median:.0f}", huge_of(job, values))])
    results.table(f"Memory as found ({shares[0]:.0%} of what is free in blocks of 2 MiB or more) and scattered "
                  f"({shares[1]:.0%})", ["", "as found", "CPU ms/GB", "huge", "scattered", "CPU ms/GB", "huge"], rows)


def huge_of(job, samples):
    """The share of fio's buffers that is in huge pages, as a text."""
    buffers = fio.DEPTH * fio.bytes_of(job[1]) / common.MIB
    return f"{min(1.0, Spread(s.huge for s in samples).median / buffers):.0%}"
