# SPDX-License-Identifier: BSD-2-Clause
"""What it costs to ask whether a buffer is pinned, by how many ranges are."""

import common
from common import NotMeasured, Spread, ratios

RANGES = [1, 10, 100, 1000, 10000, 100000]
WAYS = {"process": "pinshim_is_pinned", "table": "table in /dev/shm", "copy": "copy of the table", "scan": "linear scan"}


def group(results):
    program = common.program("lookup")
    ours = results.pinshim("64K-")
    if ours.missing():
        raise NotMeasured(ours.missing())
    rows = []
    for count in RANGES[:-1] if results.quick else RANGES:
        found = {way: [] for way in WAYS}
        for turn in range(results.repeats(3, 1)):
            common.progress(f"lookup: {count} ranges, round {turn + 1}")
            ran = common.run([program, str(count), str(results.rounds(50, 20))], ours)
            for way, nanoseconds in ran.pairs().items():
                found[way].append(nanoseconds)
                results.sample("lookup", ran, ranges=count, way=way, round=turn, ns=nanoseconds)
        rows.append([f"{count:,}"] + [Spread(values).text(0) for values in found.values()]
                    + [ratios(found["scan"], found["process"]).text(1, "x")])
    results.table("Is this buffer pinned? Nanoseconds per question, by the number of pinned ranges: median (least-most)",
                  ["ranges", *WAYS.values(), "scan / pinshim_is_pinned"], rows)
    results.note("lookup: the table is read as another process would, with system calls; libpinshim-aio.so has a "
                 "copy, and one load tells it whether that is still right. The scan is of an array under a mutex; "
                 "DeepSpeed's manager walks a std::map.")
