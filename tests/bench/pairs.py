# SPDX-License-Identifier: BSD-2-Clause
"""One malloc and its free in steady state, against pinning each time and against plain malloc."""

import common
from common import GIB, MIB, PLAIN, NotMeasured, Spread, ratios

SIZES = [("64 KiB", MIB // 16), ("1 MiB", MIB), ("16 MiB", 16 * MIB), ("256 MiB", GIB // 4)]
WAYS = ["pinshim", "plain", "mlock"]


def group(results):
    program = common.program("pairs")
    ours = results.pinshim("64K-")
    milliseconds, rounds = results.rounds(100, 40), results.repeats(2)
    threads = [1, 2, 4]
    found, busy = {}, {}
    if ours.missing():
        results.fail("pairs under pinshim", ours.missing())
    refused = set()
    for turn in range(rounds):
        for name, size in SIZES:
            common.progress(f"pairs: {name}, round {turn + 1} of {rounds}")
            for count in threads:
                for way in WAYS:
                    variant = ours if way == "pinshim" else PLAIN
                    if variant.missing() or (way, size) in refused:
                        continue
                    try:
                        ran, mean = once(program, way, size, count, milliseconds, variant)
                    except NotMeasured as why:
                        refused.add((way, size))
                        results.fail(f"pairs of {name}, {way}", why)
                        continue
                    found.setdefault((size, count, way), []).append(mean)
                    if way == "pinshim":
                        busy.setdefault((size, count), []).append(ran.others)
                    results.sample("pairs", ran, bytes=size, threads=count, way=way, round=turn,
                                   ns_per_pair=mean)
    show(results, found, threads, rounds)
    judge(results, found, busy)
    results.note("pairs: every figure is a process of its own, pinshim's with the preload, in turn with "
                 "the other two. A pair is one allocation, a write to its first byte, and its free; "
                 "an operation is half of it. Plain malloc gives memory that is not locked.")


def once(program, way, size, threads, milliseconds, variant):
    """What one process says: nanoseconds per pair, the mean of its threads."""
    ran = common.run([program, "mlock" if way == "mlock" else "malloc", str(size), str(threads),
                      str(milliseconds)], variant)
    lines = [line.split() for line in ran.output.splitlines()]
    if way != "plain" and min(int(locked) for _, locked in lines) < size:
        raise NotMeasured("the block was not locked: " + (ran.errors.strip() or "see ulimit -l"))
    return ran, sum(float(pair) for pair, _ in lines) / len(lines)


def nanoseconds(spread):
    if spread.median < 10000:
        return spread.text(0)
    return f"{spread.median / 1000:,.0f} us ({spread.low / 1000:,.0f}-{spread.high / 1000:,.0f})"


def show(results, found, threads, rounds):
    header = ["", "mlock / pinshim", "pinshim ns/pair", "plain malloc ns/pair",
              "posix_memalign+mlock ns/pair"]
    rows = []
    for count in threads:
        rows.append([f"{count} thread{'s' if count > 1 else ''}"])
        for name, size in SIZES:
            by_way = {way: found.get((size, count, way)) for way in WAYS}
            ratio = "-"
            if by_way["pinshim"] and by_way["mlock"]:
                ratio = f"{ratios(by_way['mlock'], by_way['pinshim']).median:,.0f}x"
            rows.append([name, ratio] + [nanoseconds(Spread(by_way[way])) if by_way[way] else "-"
                                         for way in WAYS])
    results.table("Allocation and free in steady state, nanoseconds per pair: median of "
                  f"{rounds} (least-most)", header, rows)


def judge(results, found, busy):
    for name, size in SIZES:
        one = found.get((size, 1, "pinshim"))
        if not one:
            continue
        spread = Spread(one)
        results.target(f"malloc+free of {name}, 1 thread", "< 500 ns", 500, spread,
                       nanoseconds(spread) + ("" if spread.median >= 10000 else " ns"))
        if (size, 2, "pinshim") in found and common.CORES >= 2:
            ratio = ratios(found[(size, 2, "pinshim")], one)
            others = Spread(busy[(size, 2)]).median
            results.target(f"malloc+free of {name}, 2 threads against 1", "<= 2x", 2, ratio,
                           ratio.text(2, "x"), why_not="" if others < 0.15 else
                           f"other work had {others:.0%} of the cores")
