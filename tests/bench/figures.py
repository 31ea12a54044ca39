# SPDX-License-Identifier: BSD-2-Clause
"""The figures of a result: medians and spread of the samples that belong together, each with a name.

The name is the group, what the sample's texts and whole numbers say, and the measure, in that order:
"matrix rw=read bs=1m variant=pinshim gbps". Measures are named after their unit.
"""

import re

from common import Spread

# What repeats, and what says something about the sampling alone, tells no figures apart.
REPEATS = {"group", "round", "seed", "others_busy"}

HIGHER = re.compile(r"(^|_)(gbps|iops|per_second)$")
LOWER = re.compile(r"(^|_)(ns|us|ms|s|seconds|instructions)(_per_[a-z]+)?$")


def better(measure):
    """Which direction is the better one: "higher", "lower", or empty if neither is."""
    if HIGHER.search(measure):
        return "higher"
    return "lower" if LOWER.search(measure) else ""


def identity(sample):
    """What the samples of one figure have in common."""
    return " ".join([sample["group"]] + [f"{name}={value}" for name, value in sample.items()
                                         if name not in REPEATS and isinstance(value, (str, int))])


def measures(sample):
    """The measured values of a sample, by name: lists of floats."""
    for name, value in sample.items():
        values = value if isinstance(value, list) else [value]
        if name not in REPEATS and values and all(isinstance(each, float) for each in values):
            yield name, values


def figure(values, direction):
    spread = Spread(values)
    return {"median": spread.median, "low": spread.low, "high": spread.high, "samples": len(spread.values),
            "better": direction}


def figures(samples, targets=()):
    """{name: {median, low, high, samples, better}}. What a target is about is a figure, too."""
    values = {}
    for sample in samples:
        for measure, found in measures(sample):
            values.setdefault((identity(sample), measure), []).extend(found)
    found = {f"{who} {measure}": figure(values[who, measure], better(measure)) for who, measure in values}
    for target in targets:
        found[f"target {target['what']}"] = {
            **{part: target[part] for part in ("median", "low", "high", "samples")},
            "better": "lower" if target["at_most"] else "higher"}
    return found
