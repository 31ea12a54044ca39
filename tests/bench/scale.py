# SPDX-License-Identifier: BSD-2-Clause
"""One, two, four and eight processes at once: fio, all of them together against plain."""

import os

import common
import fio
from common import GIB, PLAIN, NotMeasured, Spread

PROCESSES = [1, 2, 4, 8]
RW, BS = "randread", "64k"


def group(results):
    jobs = {count: (RW, BS, f"--numjobs={count}", "--group_reporting") for count in PROCESSES}
    variants = [PLAIN, common.PEERS[1], results.pinshim(fio.CLASSES), results.pinshim_aio(fio.CLASSES)]
    for variant in variants:
        if variant.missing():
            raise NotMeasured(variant.missing())
    found = {count: {variant.name: [] for variant in variants} for count in PROCESSES}
    path = fio.lay_out(results.directory, results.rounds(GIB, GIB // 4))
    try:
        for turn in range(results.repeats(1)):
            common.progress(f"scale: {', '.join(map(str, PROCESSES))} processes, round {turn + 1}")
            for variant in variants:
                samples = fio.run_jobs(path, list(jobs.values()), variant, results.rounds(300, 200))
                for count, sample in zip(PROCESSES, samples):
                    found[count][variant.name].append(sample)
                    fio.record(results, "scale", sample, processes=count, variant=variant.name, round=turn)
    finally:
        os.unlink(path)
    show(results, found)


def show(results, found):
    rows = []
    for count, by_variant in found.items():
        rows.append([f"{count} process" + ("es" if count > 1 else "")])
        plain = by_variant[PLAIN.name]
        rows += [[name, Spread(s.gbps for s in samples).text(2), *fio.ratio_texts(samples, plain)[:1],
                  f"{Spread(s.machine_ms_per_gb for s in samples).median:.0f}",
                  f"{Spread(s.cpu_ms_per_gb for s in samples).median:.0f}",
                  f"{Spread(s.locked or 0.0 for s in samples).median:.0f}"]
                 for name, samples in by_variant.items()]
    results.table(f"fio in several processes at once, {RW} {BS.upper()}, depth {fio.DEPTH} each, all together: median "
                  "(least-most)", ["", "GB/s", "against plain", "machine's CPU ms/GB", "fio's CPU ms/GB", "locked MiB"],
                  rows)
