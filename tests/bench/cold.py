# SPDX-License-Identifier: BSD-2-Clause
"""The wait for locked memory, by size: that the process never had, and that it had and gave back."""

import common
from common import GIB, MIB, PLAIN, NotMeasured, Spread, ratios

SIZES = {"64 KiB": MIB // 16, "256 KiB": MIB // 4, "1 MiB": MIB, "4 MiB": 4 * MIB, "16 MiB": 16 * MIB,
         "64 MiB": 64 * MIB, "256 MiB": GIB // 4, "1 GiB": GIB}

# What the program cold is told to do.
WAYS = {"mlock": "posix_memalign+mlock", "map": "MAP_LOCKED", "huge": "mlock by hand, in huge pages", "malloc": "pinshim"}
OURS = "malloc"


def measure(results, group, sizes, rounds, ways=tuple(WAYS)):
    """{size: {way: [what the program said]}}, interleaved."""
    program = common.program("cold")
    ours = results.pinshim("64K-")
    found, refused = {size: {way: [] for way in ways} for size in sizes}, set()
    if common.memory("MemAvailable") < 2 * max(sizes):
        raise NotMeasured(f"needs {2 * max(sizes) / GIB:.1f} GiB of available memory")
    if ours.missing():
        results.fail(f"{group} under pinshim", ours.missing())
        refused.add(OURS)
    for turn in range(rounds):
        common.progress(f"{group}: pinning up to {max(sizes) // MIB} MiB, round {turn + 1} of {rounds}")
        for size in sizes:
            for way in ways:
                if way in refused:
                    continue
                try:
                    ran = common.run([program, way, str(size)], ours if way == OURS else PLAIN)
                except NotMeasured as why:
                    refused.add(way)
                    results.fail(f"{group}, {WAYS[way]}", why)
                    continue
                found[size][way].append(ran.pairs())
                results.sample(group, ran, way=way, round=turn, size=size, **ran.pairs())
    return found


def speedup(by_way, way):
    """How many times as fast as mlock."""
    return ratios([v["get_seconds"] for v in by_way["mlock"]], [v["get_seconds"] for v in by_way[way]])


def huge_share(values, size):
    return Spread(v["huge"] for v in values).median / size


def judge(results, by_way, where):
    if by_way[OURS] and by_way["mlock"]:
        ratio = speedup(by_way, OURS)
        results.target(f"pin 1 GiB cold, {where}: against mlock", ">= 2x", 2.0, ratio,
                       f"{ratio.text(2, 'x')}, {huge_share(by_way[OURS], GIB):.0%} huge", at_most=False)


def show(results, by_way, size, title):
    """One size, in full."""
    header = ["", "speed ratio", "ms", "GB/s", "in huge pages", "then touching it, ms"]
    rows = []
    for way, values in by_way.items():
        if not values:
            continue
        milliseconds = Spread(v["get_seconds"] * 1000 for v in values)
        rows.append([WAYS[way], "1.00" if way == "mlock" else
                     speedup(by_way, way).text(2, "x") if by_way["mlock"] else "-",
                     milliseconds.text(0), f"{size / milliseconds.median / 1e6:.1f}",
                     f"{huge_share(values, size):.0%}",
                     Spread(v["touch_seconds"] * 1000 for v in values).text(1)])
    results.table(title, header, rows)


def microseconds(values, name):
    spread = Spread(v[name] * 1e6 for v in values)
    return spread.text(0 if spread.median >= 100 else 1)


def show_sizes(results, found, rounds):
    header = ["", *(WAYS[way] for way in WAYS), "pinshim, again", "in huge pages"]
    rows = [[name] + [microseconds(found[size][way], "get_seconds") if found[size][way] else "-" for way in WAYS]
            + ([microseconds(found[size][OURS], "again_seconds"), f"{min(1, huge_share(found[size][OURS], size)):.0%}"]
               if found[size][OURS] else ["-", "-"]) for name, size in SIZES.items()]
    results.table(f"Microseconds to get locked memory that the process never had: median of {rounds} (least-most)",
                  header, rows)


def group(results):
    """The group "cold": on memory as it is found."""
    rounds = results.repeats(2)
    found = measure(results, "cold", list(SIZES.values()), rounds)
    show_sizes(results, found, rounds)
    show(results, found[GIB], GIB, f"Pinning 1 GiB cold, memory as found: median of {rounds} (least-most)")
    judge(results, found[GIB], "memory as found")
    results.note("cold: as much memory was touched and given back just before each sample. Memory that a "
                 "virtual machine touches for the first time ever is got from its host and is far "
                 "slower. \"Again\" is the mean of some gets after the block was given back. Touching what is "
                 "locked already costs something only in a virtual machine.")
    results.note("cold: pinshim pins at least 2 MiB at a time, of which the smaller sizes are the first piece, and "
                 "a first pin also makes the process's table in /dev/shm.")
