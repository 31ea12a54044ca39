#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""exposition.py [FILE]: is it the text exposition format of Prometheus, version 0.0.4, and by its conventions?

Prints what is wrong, a line each, and exits 1; else prints the names of the metrics.
"""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,{LABEL})*)\}})? (-?[0-9]+(?:\.[0-9]+)?|NaN|[+-]Inf)")
COMMENT = re.compile(rf"# (HELP|TYPE) ({NAME}) (.+)")
UNITS = ("_seconds", "_bytes", "_total", "_info", "_blocks", "_chunks", "_processes", "_tables")
wrong = []


def check_name(name, kind):
    if (kind == "counter") != name.endswith("_total"):
        wrong.append(f"{name}: a counter, and nothing else, ends in _total")
    if not name.endswith(UNITS):
        wrong.append(f"{name}: does not end in a unit or in what it counts")
    if re.search(r"_(milliseconds|ns|ms|kib|mib|gauge|counter)(_|$)", name):
        wrong.append(f"{name}: no base unit, or the type is in the name")


def check(text):
    if text and not text.endswith("\n"):
        wrong.append("the last line has no end")
    helps, kinds, order, seen = {}, {}, [], set()
    for number, line in enumerate(text.split("\n")[:-1], 1):
        comment, sample = COMMENT.fullmatch(line), SAMPLE.fullmatch(line)
        if comment:
            what, name, rest = comment.groups()
            table = helps if what == "HELP" else kinds
            if name in table:
                wrong.append(f"line {number}: a second {what} of {name}")
            if what == "TYPE" and name not in helps:
                wrong.append(f"line {number}: TYPE before HELP of {name}")
            if what == "TYPE" and rest not in ("counter", "gauge"):
                wrong.append(f"line {number}: type {rest}")
            if what == "HELP" and (name not in order):
                order.append(name)
            table[name] = rest
        elif sample:
            name, labels = sample.group(1), sample.group(2) or ""
            names = [label[0] for label in re.findall(LABEL, labels)]
            if not order or order[-1] != name or name not in kinds:
                wrong.append(f"line {number}: {name} is not below its own HELP and TYPE")
            if len(set(names)) != len(names):
                wrong.append(f"line {number}: a label twice")
            if any(label.startswith("__") or label in ("job", "instance") for label in names):
                wrong.append(f"line {number}: a label that is Prometheus's own")
            if (name, labels) in seen:
                wrong.append(f"line {number}: the same series again")
            seen.add((name, labels))
        else:
            wrong.append(f"line {number}: neither comment nor sample: {line!r}")
    for name in order:
        if name not in kinds:
            wrong.append(f"{name}: no TYPE")
        else:
            check_name(name, kinds[name])
    return order


with open(sys.argv[1] if len(sys.argv) > 1 else 0, "rb") as stream:
    content = stream.read()
try:
    metrics = check(content.decode("utf-8"))
except UnicodeDecodeError as error:
    wrong.append(str(error))
print("\n".join(wrong or metrics))
sys.exit(bool(wrong))
