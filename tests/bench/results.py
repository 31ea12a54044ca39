# SPDX-License-Identifier: BSD-2-Clause
"""What the benchmark found: every sample, the tables, and which targets were reached."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import textwrap
import time

import common
from figures import figures

SCHEMA = 2


class Results:
    """Collects samples, prints tables, judges targets. Also owns the temporary directory."""

    def __init__(self, quick, preload, directory, aio_preload="", out=sys.stdout, long=False):
        self.quick = self.quick_chosen = quick
        self.hurried = []  # groups that were measured as with --quick, to end in time
        self.long = long
        self.preload = preload
        self.aio_preload = aio_preload
        self.out = out
        self.began = time.monotonic()
        self.samples = []
        self.seconds = {}  # that each group took
        self.targets = []
        self.failures = []
        self.notes = []
        self.directory = tempfile.mkdtemp(prefix="bench-", dir=directory)
        self.machine = common.machine(self.directory)

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    def pinshim(self, classes, **environment):
        return common.pinshim(classes, self.preload, **environment)

    def pinshim_aio(self, classes, **environment):
        """The same with asynchronous I/O, too."""
        return common.pinshim(classes, f"{self.preload} {self.aio_preload}", "pinshim+aio", **environment)

    def rounds(self, full, quick):
        """How often, how long, or how much: less with --quick."""
        return quick if self.quick else full

    def repeats(self, full, quick=None):
        """How often: more with --long, too; less with --quick, if that is given."""
        return 3 * full if self.long else self.rounds(full, full if quick is None else quick)

    def hurry(self, group, late):
        """Whether the next group has to make up time: with less repetition."""
        self.quick = self.quick_chosen or late
        if late and not self.quick_chosen:
            self.hurried.append(group)

    @contextlib.contextmanager
    def timed(self, group):
        began = time.monotonic()
        yield
        self.seconds[group] = round(time.monotonic() - began, 1)

    # ---- collecting

    def sample(self, group, ran=None, **values):
        """Texts and whole numbers tell which figure this is a sample of, all but round and seed; floats, and
        lists of them, are what was measured (see figures.py, also for their names)."""
        if ran:
            values["others_busy"] = round(ran.others, 3)
        self.samples.append({"group": group, **values})

    def fail(self, what, why):
        """Something is missing from the result; it is said now and again at the end."""
        text = f"{what}: {why}"
        if text not in self.failures:
            self.failures.append(text)
            common.progress("")
            print(f"  not measured: {text}", file=self.out, flush=True)

    def target(self, what, wanted, limit, spread, text, at_most=True, why_not=""):
        """wanted says the limit in words, text the figure; why_not explains a miss, if known."""
        reached = spread.median <= limit if at_most else spread.median >= limit
        self.targets.append({
            "what": what, "wanted": wanted, "limit": limit, "at_most": at_most,
            "median": spread.median, "low": spread.low, "high": spread.high, "samples": len(spread.values),
            "text": text,
            "reached": reached, "why_not": "" if reached else why_not,
        })

    # ---- showing

    def say(self, text=""):
        common.progress("")
        print(text, file=self.out, flush=True)

    def note(self, text):
        """Something the reader must know to judge the figures: an artefact, a condition."""
        if text not in self.notes:
            self.notes.append(text)

    def table(self, title, header, rows):
        """Rows are lists of texts; a row of one text is a heading inside the table."""
        if not rows:
            return
        width = [max(len(row[i]) for row in [header] + rows if len(row) > 1)
                 for i in range(len(header))]
        self.say()
        self.say(title)
        for row in [header] + rows:
            if len(row) == 1:
                self.say(row[0])
                continue
            cells = [cell.ljust(width[i]) if i == 0 else cell.rjust(width[i])
                     for i, cell in enumerate(row)]
            self.say(("  " + "  ".join(cells)).rstrip())

    def others_busy(self):
        """What to say about other work on the machine while we measured."""
        busy = [sample["others_busy"] for sample in self.samples if "others_busy" in sample]
        if not busy:
            return ""
        spread = common.Spread(busy)
        return (f"Other work kept the cores of this machine busy for {spread.median:.0%} of the time while "
                f"we measured (most in one sample {spread.high:.0%})"
                + ("; repeat this on a quiet machine." if spread.median > 0.1 else "."))

    def summary(self):
        rows = []
        for target in self.targets:
            verdict = "reached" if target["reached"] else "NOT reached"
            if target["why_not"]:
                verdict += ": " + target["why_not"]
            rows.append((target["what"], target["wanted"], target["text"], verdict))
        width = [max([len(row[i]) for row in rows] + [0]) for i in range(3)]
        self.say()
        self.say(f"Targets ({sum(t['reached'] for t in self.targets)} of {len(rows)} reached)")
        for row in rows:
            self.say("  " + "  ".join(row[i].ljust(width[i]) for i in range(3)) + "  " + row[3])
        if self.hurried:
            self.note(f"Measured with less repetition, to end in time: {', '.join(self.hurried)}.")
        if self.others_busy():
            self.note(self.others_busy())
        if self.notes:
            self.say()
            self.say("To judge these figures")
            for note in self.notes:
                self.say(textwrap.fill(note, 100, initial_indent="  * ", subsequent_indent="    "))
        if self.failures:
            self.say()
            self.say("Not measured")
            for failure in self.failures:
                self.say("  * " + textwrap.shorten(failure, 160, placeholder=" ..."))

    def document(self):
        """All there is, for JSON."""
        return {
            "schema": SCHEMA,
            "quick": self.quick_chosen,
            "long": self.long,
            "seconds": round(time.monotonic() - self.began, 1),
            "seconds_by_group": self.seconds,
            "hurried": self.hurried,
            "machine": self.machine,
            "targets": self.targets,
            "notes": self.notes,
            "not_measured": self.failures,
            "figures": figures(self.samples, self.targets),
            "samples": self.samples,
        }

    def save(self, path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.document(), file, indent=1)
            file.write("\n")
        os.replace(path + ".new", path)
