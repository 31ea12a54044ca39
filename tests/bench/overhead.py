# SPDX-License-Identifier: BSD-2-Clause
"""What the preload costs a program that gets nothing from it: small pairs, and starting."""

import os
import re
import statistics

import common
import fio
from common import PLAIN, NotMeasured, Spread

FEW, MANY = 1000, 21000


def instructions(results, program, variant, *arguments):
    """Instructions of the whole process, counted by callgrind."""
    output = os.path.join(results.directory, "callgrind")
    ran = common.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", program,
                      *map(str, arguments)], variant)
    try:
        with open(output, encoding="utf-8") as file:
            count = re.search(r"^(?:summary|totals): (\d+)", file.read(), re.M)
    except OSError as error:
        raise NotMeasured(f"callgrind wrote nothing: {error}") from error
    if not count:
        raise NotMeasured(f"callgrind counted nothing: {ran.errors.strip()}")
    return int(count.group(1))


def pass_through(results, ours):
    program = common.program("small")
    per_pair = {}
    for variant in (PLAIN, ours):
        common.progress(f"overhead: counting instructions, {variant.name}")
        few, many = (instructions(results, program, variant, pairs) for pairs in (FEW, MANY))
        per_pair[variant.name] = (many - few) / (MANY - FEW)
        results.sample("overhead", what="instructions", variant=variant.name,
                       instructions_per_pair=per_pair[variant.name])
    added = per_pair["pinshim"] - per_pair[PLAIN.name]
    results.target("instructions added to a malloc(64)+free pair", "<= 15", 15, Spread([added]),
                   f"{added:.1f}")
    return [["malloc(64)+free, instructions", f"+{added:.1f}", f"{per_pair[PLAIN.name]:.1f}",
             f"{per_pair['pinshim']:.1f}"]]


def start_up(results, ours):
    count = results.rounds(400, 100)
    common.progress(f"overhead: starting /bin/true 2 x {count} times")
    settings = [f"{name}={value}" for name, value in ours.environment.items()]
    ran = common.run([common.program("spawn"), str(count), "/bin/true", *settings])
    without, with_it = ([float(value) for value in line.split()] for line in ran.output.splitlines())
    added = Spread(after - before for before, after in zip(without, with_it))
    results.sample("overhead", ran, what="start", without_us=without, with_us=with_it)
    results.target("added to the start of /bin/true", "<= 500 us", 500, added, f"{added.median:.0f} us")
    quarter, _, three = statistics.quantiles(added.values, n=4)
    return [["starting /bin/true, us", f"+{added.median:.0f} (quartiles {quarter:.0f}, {three:.0f})", f"{Spread(without).median:.0f}",
             f"{Spread(with_it).median:.0f}"]]


def group(results):
    ours = results.pinshim(fio.CLASSES)
    if ours.missing():
        raise NotMeasured(ours.missing())
    rows = []
    for part in (pass_through, start_up):
        try:
            rows += part(results, ours)
        except NotMeasured as why:
            results.fail("overhead", why)
    results.table("What the preload costs where it has nothing to do", ["", "added", "plain", "pinshim"],
                  rows)


