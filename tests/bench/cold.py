# SPDX-License-Identifier: BSD-2-Clause
"""The wait for locked memory that the process never had, and scattered memory to measure it on."""

import contextlib
import os
import subprocess

import common
import fio
from common import GIB, PLAIN, NotMeasured, Spread, ratios

WAYS = ["mlock", "huge", "pinshim"]
NAMES = {"mlock": "posix_memalign+mlock", "huge": "the same, 2 MiB aligned, MADV_HUGEPAGE",
         "pinshim": "pinshim: one malloc"}


def measure(results, group, where):
    program = common.program("cold")
    ours = results.pinshim("64K-")
    size, rounds = GIB, results.rounds(5, 3)
    found, refused = {way: [] for way in WAYS}, set()
    if memory_short(size):
        raise NotMeasured(memory_short(size))
    if ours.missing():
        results.fail(f"{group} under pinshim", ours.missing())
    for turn in range(rounds):
        common.progress(f"{group}: 1 GiB, round {turn + 1} of {rounds}")
        for way in WAYS:
            variant = ours if way == "pinshim" else PLAIN
            if variant.missing() or way in refused:
                continue
            try:
                ran = common.run([program, "malloc" if way == "pinshim" else way, str(size)], variant)
            except NotMeasured as why:
                refused.add(way)
                results.fail(f"{group}, {NAMES[way]}", why)
                continue
            values = ran.pairs()
            found[way].append(values)
            results.sample(group, ran, way=way, round=turn, bytes=size, **values)
    show(results, found, size, f"Pinning 1 GiB cold, {where}: median of {rounds} (least-most)")
    if found["pinshim"] and found["mlock"]:
        ratio = speedup(found, "pinshim")
        results.target(f"pin 1 GiB cold, {where}: against mlock", ">= 2x", 2.0, ratio,
                       f"{ratio.text(2, 'x')}, {huge_share(found['pinshim'], size):.0%} huge",
                       at_most=False)


def memory_short(size):
    if common.memory("MemAvailable") < 2 * size:
        return f"needs {2 * size / GIB:.0f} GiB available memory"
    return ""


def speedup(found, way):
    return ratios([v["got"] for v in found["mlock"]], [v["got"] for v in found[way]])


def huge_share(values, size):
    return Spread(v["huge"] for v in values).median / size


def show(results, found, size, title):
    header = ["", "speed ratio", "ms", "GB/s", "in huge pages", "then touching it, ms"]
    rows = []
    for way, values in found.items():
        if not values:
            continue
        milliseconds = Spread(v["got"] * 1000 for v in values)
        rows.append([NAMES[way], "1.00" if way == "mlock" else
                     speedup(found, way).text(2, "x") if found["mlock"] else "-",
                     milliseconds.text(0), f"{size / milliseconds.median / 1e6:.1f}",
                     f"{huge_share(values, size):.0%}",
                     Spread(v["touched"] * 1000 for v in values).text(1)])
    results.table(title, header, rows)


def group(results):
    """The group "cold": on memory as it is found."""
    measure(results, "cold", "memory as found")
    results.note("cold: as much memory was touched and given back just before each sample. Memory that a "
                 "virtual machine touches for the first time ever is got from its host and is far "
                 "slower. The last column, touching what is locked already, costs something only in a virtual "
                 "machine.")


# ---- scattered memory ---------------------------------------------------------------------------

def age_share(size):
    """Percent of available memory to fill, so that 2 x size stays free with half given back."""
    available = common.memory("MemAvailable")
    share = min(90, int((1 - 2.2 * size / available) * 200), int((1 - 0.6 * GIB / available) * 100))
    if share < 50:
        raise NotMeasured(f"only {available / GIB:.1f} GiB are available, 1 GiB needs more to be scattered")
    return share


@contextlib.contextmanager
def scattered(results, size, seconds):
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


def scattered_group(results):
    """The group "scattered": cold and fio while age holds the memory."""
    path = fio.lay_out(results.directory, results.rounds(GIB, GIB // 4))
    milliseconds, rounds = results.rounds(1000, 600), results.rounds(3, 2)
    jobs = [("randread", "64k"), ("read", "1m")]
    variants = [PLAIN, *common.PEERS, fio.LIMIT, results.pinshim(fio.CLASSES)]
    try:
        with scattered(results, GIB, 200) as age:
            results.sample("age", **age)
            measure(results, "cold-scattered", "scattered memory")
            found = fio.measure(results, "fio-scattered", path, jobs, variants, rounds, milliseconds)
    finally:
        os.unlink(path)
    fio.show(results, f"fio libaio, O_DIRECT, depth {fio.DEPTH}, scattered memory: median of {rounds} "
             "interleaved rounds (least-most)", found)
    fio.judge(results, ", scattered", found)
    results.note(f"scattered: age filled {age['filled'] / GIB:.1f} GiB with 4 KiB pages and gave every other "
                 f"one back; {age['unscattered']:.0%} of free memory then lay in blocks of 2 MiB or more"
                 + (" (--quick fills no more than 3 GiB, so most huge pages are easily had)."
                    if results.quick else "."))
