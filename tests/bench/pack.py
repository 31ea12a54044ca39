# SPDX-License-Identifier: BSD-2-Clause
"""How much is locked for what a program holds, and that all of it goes back."""

import common
from common import GIB, MIB, NotMeasured, Spread

# What is held, least and most bytes of a block, rounds of replacing blocks, and the target.
LOADS = [
    ("1 GiB in 100 MiB blocks", 100 * MIB, 100 * MIB, 0, 1.03),
    ("1 GiB in random blocks, 64 KiB-4 MiB", MIB // 16, 4 * MIB, 0, 1.35),
    ("the same after replacing each block 3 times", MIB // 16, 4 * MIB, 3, None),
]


def group(results):
    program = common.program("pack")
    ours = results.pinshim("64K-")
    if ours.missing():
        raise NotMeasured(ours.missing())
    rows, left = [], []
    for name, least, most, churn, limit in LOADS:
        packed = []
        for seed in range(1, 1 + (1 if least == most else results.rounds(5, 3))):
            common.progress(f"pack: {name}, seed {seed}")
            ran = common.run([program, str(least), str(most), str(GIB), str(seed), str(churn)], ours)
            values = ran.pairs()
            if not values["full"]:
                raise NotMeasured("nothing was locked: " + (ran.errors.strip() or "nothing was said"))
            packed.append(values["churned"] / values["churn_live"])
            left.append(values["trimmed"])
            results.sample("pack", ran, load=name, seed=seed, **values)
            if not values["trim"]:
                results.fail("pack", "the process has no pinshim_trim")
        spread = Spread(packed)
        rows.append([name, spread.text(3, "x"), f"{values['churn_live'] / MIB:.0f}",
                     f"{values['churned'] / MIB:.0f}", f"{values['freed'] / MIB:.0f}",
                     f"{values['trimmed'] / MIB:.0f}"])
        if limit:
            results.target(f"locked per live byte: {name}", f"<= {limit}x", limit, spread,
                           spread.text(3, "x"))
    results.table("Locked memory for what is held (VmLck; MiB of the last seed)",
                  ["", "locked / live", "live", "locked", "after free", "after trim"], rows)
    most = Spread([max(left)])
    results.target("locked after everything is freed and trimmed", "0", 0, most,
                   f"{most.median / MIB:.0f} MiB")
