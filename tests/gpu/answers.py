# SPDX-License-Identifier: BSD-2-Clause
"""The same questions asked plain and under the shim (gpu.h has the format), side by side."""

from concurrent.futures import ThreadPoolExecutor

import common
from common import NotMeasured
from place import Hung

PROGRAMS = ("first", "allocate", "register", "query", "copies", "driver")

SAME, DIFFERS, KNOWN = "same", "differs", "known"
NOTHING = "(no answer)"


class Row:
    """A question with both answers. Answers are texts; None where none came."""

    def __init__(self, group, question, expected, mark, why):
        self.group, self.question, self.expected, self.mark, self.why = group, question, expected, mark, why
        self.plain = self.shim = None

    def verdict(self):
        if self.mark == "shim":
            return SAME if self.shim == self.expected else DIFFERS
        if self.plain == self.shim:
            return SAME
        return KNOWN if self.mark == f"known={self.shim}" else DIFFERS

    def refutes(self):
        """Does CUDA itself answer something else than the table says, or the fakes do?"""
        return bool(self.expected) and self.mark != "shim" and self.plain not in (None, self.expected)

    def text(self):
        if self.mark == "shim":
            return f"{self.question}: shim={self.shim or NOTHING}, to be {self.expected}: {self.verdict()}"
        return (f"{self.question}: plain={self.plain or NOTHING} shim={self.shim or NOTHING} {self.verdict()}"
                + (f" ({self.why})" if self.verdict() == KNOWN else ""))

    def as_dict(self):
        return {"group": self.group, "question": self.question, "plain": self.plain, "shim": self.shim,
                "expected": self.expected, "guess": self.mark == "guess", "why": self.why,
                "verdict": self.verdict(), "refutes": self.refutes()}


def read(group, output, rows, shim):
    """Adds what one run printed to rows, in which a question that is asked twice has a number."""
    asked = {}
    for line in output.splitlines():
        fields = line.split("\t")
        if len(fields) != 5:
            continue
        question, got, expected, mark, why = fields
        asked[question] = asked.get(question, 0) + 1
        if asked[question] > 1:
            question += f" ({asked[question]})"
        row = rows.setdefault(question, Row(group, question, expected, mark, why))
        setattr(row, "shim" if shim else "plain", got)


def ask(place, group, arguments, timeout=20, **more):
    """Both runs of one group. Returns its rows and the two Ended."""
    rows, both = {}, []
    for shim in (False, True):
        try:
            ended = place.run(arguments, shim, timeout, **more)
            read(group, ended.output, rows, shim)
            how = f"status {ended.status}" if ended.status >= 0 else f"signal {-ended.status}"
        except Hung as why:
            read(group, why.output, rows, shim)
            ended, how = None, str(why)
        both.append(ended)
        read(group, f"{group} ends with\t{how}\tstatus 0\tknown=status 0\tas it should", rows, shim)
    return list(rows.values()), both


def groups(place, program):
    listed = place.run([place.program(program)], timeout=20)
    if listed.status or not listed.output:
        raise NotMeasured(f"{program}: {listed.why()}")
    return listed.output.split()


def ask_all(place, programs, then):
    """Every group of these programs, some at a time: making a context is what takes long. A list for each
    of what then(group, rows, the Ended under the shim) makes of it."""
    tasks = [(program, group) for program in programs for group in groups(place, program)]

    def work(task):
        program, group = task
        rows, both = ask(place, " ".join(task), [place.program(program), group])
        return then(group, rows, both[1])

    with ThreadPoolExecutor(min(common.CORES, 6)) as pool:
        yield from pool.map(work, tasks)


def semantics(place, out, rows):
    """Every group of every program; found is added to rows."""
    for found in ask_all(place, PROGRAMS, lambda group, rows, ended: rows):
        out.rows(found)
        rows += found


# ---- the life of a process ---------------------------------------------------------------------

# The bit of hooks_reached that a way in must set, and what it is counted as.
WAYS = {
    "way_runtime": ("cuda_runtime", "cudaHostAlloc"),
    "way_driver": ("cuda_driver", "cuMemHostAlloc"),
    "way_dlsym": ("dlsym", "cuMemHostAlloc"),
    "way_address": ("cuGetProcAddress", "cuMemHostAlloc"),
}


def way(group, ended):
    """What the report must say of a way in; nothing for other groups."""
    if group not in WAYS:
        return []
    hook, entry = WAYS[group]
    report = (ended and ended.report) or {}
    rows = {}
    reached = "yes" if report.get("hooks_reached", {}).get(hook) else "no"
    read(group, f"{group} reached {hook}\t{reached}\tyes\tshim\t", rows, True)
    served = report.get("entry_points", {}).get(entry, {}).get("served", 0)
    read(group, f"{group} served as {entry}\t{served}\t1\tshim\t", rows, True)
    return list(rows.values())


def process(place, out, rows):
    for found in ask_all(place, ["process"], lambda group, rows, ended: rows + way(group, ended)):
        out.rows(found)
        rows += found
