# SPDX-License-Identifier: BSD-2-Clause
"""fio at every block size and pattern, under everything that could be preloaded instead, and fio's own best.

The reads that have targets are measured most often.
"""

import os

import aio
import common
import fio
from common import GIB, PLAIN, Spread

SIZES = ["4k", "16k", "64k", "256k", "1m"]
READ, WRITE = ["randread", "read"], ["randwrite", "write"]
NO_LIBHUGETLBFS = ("libhugetlbfs is not among the competitors: since 2.23-5 it no longer serves malloc, because "
                   "glibc 2.34 dropped the hook that it did so by (its NEWS.Debian).")


def group(results):
    path = fio.lay_out(results.directory, results.rounds(2 * GIB, GIB // 4))
    best = aio.fios_best(results)
    try:
        found = measure(results, path, best)
    finally:
        os.unlink(path)
    for rw in READ + WRITE:
        fio.show(results, f"fio, {rw}, libaio unless it says io_uring, O_DIRECT, depth {fio.DEPTH}: median (least-most)",
                 {job: by_variant for job, by_variant in found.items() if job[0] == rw})
    summary(results, found)
    fio.judge(results, "", found)
    aio.judge(results, found, best.name)
    fio.notes(results)
    results.note(NO_LIBHUGETLBFS)


def repeats(results, job):
    """How often: above all reads that have targets. What has none is left out with --quick, not in a hurry."""
    if job in aio.READS:
        return results.repeats(2, 1)
    return results.repeats(1, 0 if results.quick_chosen and job not in aio.WRITES else 1)


def measure(results, path, best):
    """{job: {variant name: [Sample]}}; with --quick only of the jobs that have targets."""
    ours = [results.pinshim(fio.CLASSES), results.pinshim_aio(fio.CLASSES)]
    milliseconds = 200
    found = {}
    for patterns, variants in (
            (READ, [PLAIN, *common.PEERS, *ours, best, fio.LIMIT]),
            (WRITE, [PLAIN, *common.PEERS, *ours, best])):
        rounds = {(rw, bs): repeats(results, (rw, bs)) for rw in patterns for bs in SIZES}
        rounds = {job: count for job, count in rounds.items() if count}
        found |= fio.measure(results, "matrix", path, list(rounds), variants, rounds, milliseconds,
                             partly=aio.READS)
    return found


def summary(results, found):
    """Who is first where, by throughput and by CPU time."""
    rows = []
    for job, by_variant in found.items():
        rivals = {name: samples for name, samples in by_variant.items() if samples and name != fio.LIMIT.name}
        rows.append([f"{job[0]} {job[1].upper()}"]
                    + first(rivals, lambda s: s.gbps, max, "{:.2f}")
                    + first(rivals, lambda s: s.machine_ms_per_gb, min, "{:.0f}"))
    results.table("First in each of these", ["", "most GB/s", "", "pinshim's", "least CPU ms/GB", "", "pinshim's"], rows)


def first(rivals, value, best, form):
    """Texts: the name of the first, its median, and that of the better of ours."""
    medians = {name: Spread(map(value, samples)).median for name, samples in rivals.items()}
    name = best(medians, key=medians.get)
    ours = [medians[which] for which in medians if fio.is_ours(which)]
    return [name, form.format(medians[name]), form.format(best(ours)) if ours else "-"]
