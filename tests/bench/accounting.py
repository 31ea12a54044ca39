# SPDX-License-Identifier: BSD-2-Clause
"""What it costs to count each block: the library against the same one that does not count.

Both are built from the same sources; what is left out of the second are the counters of an allocation
and of its free (allocator/counters.h), not those that the heap itself goes by. Of what is not served
nothing is counted.
"""

import common
from common import MIB, NotMeasured, Spread, ratios
from overhead import FEW, MANY, instructions

SIZES = [("64 KiB", MIB // 16), ("1 MiB", MIB), ("17 MiB", 17 * MIB)]


def group(results):
    ours = results.pinshim("64K-")
    if ours.missing():
        raise NotMeasured(ours.missing())
    variants = {"counted": ours,
                "uncounted": common.pinshim("64K-", common.made("build/uncounted/libpinshim.so"))}
    rows = [[name, *added_instructions(results, variants, name, size), *added_time(results, variants, name, size)]
            for name, size in SIZES]
    results.table("What counting each block adds to its malloc and free",
                  ["", "instructions", "of a bare pair", "ns", "of a bare pair", "of a pair that fills the block"], rows)
    results.note("accounting: the two libraries are run in turn, and what is added is taken pair by pair. A bare "
                 "pair writes one byte of its block, which no program does; one that fills it writes each byte once.")


def added_instructions(results, variants, name, size):
    """Instructions per pair, and their share in it."""
    program = common.program("small")
    per_pair = {}
    for which, variant in variants.items():
        common.progress(f"accounting: counting instructions, {name}, {which}")
        few, many = (instructions(results, program, variant, pairs, size) for pairs in (FEW, MANY))
        per_pair[which] = (many - few) / (MANY - FEW)
        results.sample("accounting", what="instructions", bytes=size, variant=which,
                       instructions_per_pair=per_pair[which])
    added = per_pair["counted"] - per_pair["uncounted"]
    if size < 2 * MIB:
        share = Spread([added / per_pair["counted"]])
        results.target(f"counting, of the instructions of malloc and free of {name}", "<= 1 %", 0.01, share,
                       f"{share.median:.2%}")
    return f"+{added:.0f}", f"{added / per_pair['counted']:.1%}"


def once(results, variant, which, size, way):
    """Nanoseconds per pair, from one process."""
    ran = common.run([common.program("pairs"), way, str(size), "1", "100"], variant)
    nanoseconds = float(ran.output.split()[0])
    results.sample("accounting", ran, what="time", bytes=size, way=way, variant=which, ns_per_pair=nanoseconds)
    return nanoseconds


def added_time(results, variants, name, size):
    """Nanoseconds per pair, and their share in a bare one and in one that fills its block."""
    rounds = results.repeats(5)
    bare = {which: [] for which in variants}
    filled = []
    for turn in range(rounds):
        common.progress(f"accounting: {name}, round {turn + 1} of {rounds}")
        for which, variant in sorted(variants.items(), reverse=turn % 2 == 1):
            bare[which].append(once(results, variant, which, size, "malloc"))
        filled.append(once(results, variants["counted"], "counted", size, "fill"))
    added = Spread(with_it - without for with_it, without in zip(bare["counted"], bare["uncounted"]))
    share = Spread([max(added.median, 0) / Spread(filled).median])
    results.target(f"counting, of malloc, filling and free of {name}", "<= 1 %", 0.01, share, f"{share.median:.2%}")
    return added.text(1), f"{ratios(bare['counted'], bare['uncounted']).median - 1:+.1%}", f"{share.median:.2%}"
