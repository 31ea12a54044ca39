# SPDX-License-Identifier: BSD-2-Clause
"""What the preload costs programs that allocate all the time and get nothing from it."""

import os
import resource
import subprocess
import time

import common
from common import PLAIN, NotMeasured, Spread, ratios
from overhead import instructions

MOST = 1.01

PYTHON = """
import sys

class Node:
    def __init__(self, name, next):
        self.name, self.next, self.notes = name, next, [name] * 80

for turn in range(int(sys.argv[1])):
    found, last = {}, None
    for number in range(4000):
        last = Node("a node %d" % number, last)
        found[last.name] = (number, {number: last, "text": "%d" % number * 200})
    print(len(found), sum(len(each[1]["text"]) for each in found.values()), len(last.notes))
"""

SQL = """
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, born INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000 * {0})
    INSERT INTO person SELECT i, 'name' || (i * 7919 % 10007), 1900 + i * 31 % 120 FROM n;
CREATE INDEX person_name ON person(name, born);
SELECT born, group_concat(upper(name)), count(DISTINCT name) FROM person GROUP BY born ORDER BY 3, 1 LIMIT 3;
SELECT count(*), sum(length(a.name || b.name)) FROM person a JOIN person b ON a.name = b.name;
"""

# Name: the command for so much work, how much takes some tenths of a second, and how much callgrind counts.
PROGRAMS = {
    "python3": (lambda work: ["python3", "-S", "-c", PYTHON, str(work)], 15, 1),
    "python3, its own allocator off": (lambda work: ["env", "PYTHONMALLOC=malloc", "python3", "-S", "-c", PYTHON,
                                                     str(work)], 15, 0),
    "sqlite3": (lambda work: ["sqlite3", ":memory:", SQL.format(work)], 20, 2),
    "C++, many small objects": (lambda work: [common.program("objects"), str(work)], 10, 1),
}


def group(results):
    default = results.pinshim("")
    default.name = "pinshim"
    large = results.pinshim("1M-")
    large.name = "pinshim, 1M-"
    if default.missing():
        raise NotMeasured(default.missing())
    variants = [PLAIN, default, large]
    rows = []
    for name, (command, work, less) in PROGRAMS.items():
        try:
            found = measure(results, name, variants, lambda variant, run=command(work): once(run, variant))
            counted = "-" if results.quick or not less else added_instructions(results, name, command(less), default)
            rows.append(row(results, name, found, counted))
        except NotMeasured as why:
            results.fail(f"programs, {name}", why)
    try:
        found = measure(results, "redis-server", variants, lambda variant: redis(results, variant))
        rows.append(row(results, "redis-server", found, "-"))
    except NotMeasured as why:
        results.fail("programs, redis-server", why)
    results.table("Programs that allocate all the time: CPU time against plain, pair by pair (least-most)",
                  ["", "pinshim", "pinshim, 1M-", "plain, ms", "instructions"], rows)
    results.note("programs: CPU time is user and system time of a process from its start to its end, so it has the "
                 "start of the library in it. Each round runs plain and both others in turn. Instructions are "
                 "counted by callgrind, with less work to do.")


def once(command, variant):
    """CPU seconds of a program, and what common.run says."""
    before = children_seconds()
    ran = common.run(command, variant)
    return ran, children_seconds() - before


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(results, name, variants, run):
    """{variant name: [CPU seconds]}, the same round at the same place; the first of each is thrown away."""
    rounds = results.repeats(7, 5)
    found = {variant.name: [] for variant in variants}
    for turn in range(-1, rounds):
        common.progress(f"programs: {name}, round {max(turn, 0) + 1} of {rounds}")
        for variant in variants if turn % 2 else reversed(variants):
            ran, seconds = run(variant)
            if turn >= 0:
                found[variant.name].append(seconds)
                results.sample("programs", ran, program=name, variant=variant.name, round=turn, cpu_seconds=seconds)
    return found


def row(results, name, found, counted):
    plain = found[PLAIN.name]
    cells = []
    for which in found:
        if which != PLAIN.name:
            ratio = ratios(found[which], plain)
            results.target(f"CPU time of {name}, {which}", f"<= {MOST}x", MOST, ratio, ratio.text(3, "x"))
            cells.append(ratio.text(3, "x"))
    return [name, *cells, f"{Spread(plain).median * 1000:.0f}", counted]


def added_instructions(results, name, command, ours):
    counts = {}
    for variant in (PLAIN, ours):
        common.progress(f"programs: {name}, counting instructions, {variant.name}")
        counts[variant.name] = instructions(results, command[0], variant, *command[1:])
        results.sample("programs", program=name, variant=variant.name, instructions=counts[variant.name])
    return f"{counts[ours.name] / counts[PLAIN.name] - 1:+.1%}"


# ---- a server -------------------------------------------------------------------------------------

def redis(results, variant):
    """CPU seconds of a server from its start to its end, while redis-benchmark asks it for things."""
    requests = results.rounds(100000, 40000)
    socket = os.path.join(results.directory, "redis")
    command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
               "--dir", results.directory]
    try:
        server = subprocess.Popen(command, env=common.clean_environment() | variant.environment,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise NotMeasured(f"redis-server: {error}") from error
    try:
        answers(socket, server)
        ran = common.run(["redis-benchmark", "-s", socket, "-q", "-t", "set,lpush,hset", "-n", str(requests), "-r",
                          "10000", "-d", "100", "-c", "20", "-P", "32"])
    except BaseException:
        common.end(server)
        raise
    server.terminate()
    _, status, usage = os.wait4(server.pid, 0)
    server.returncode = os.waitstatus_to_exitcode(status)
    if server.returncode:
        raise NotMeasured(f"redis-server ({variant.name}): status {server.returncode}")
    return ran, usage.ru_utime + usage.ru_stime


def answers(socket, server):
    """Waits until the server answers."""
    deadline = time.monotonic() + 10
    while subprocess.run(["redis-cli", "-s", socket, "ping"], stdin=subprocess.DEVNULL, capture_output=True,
                         check=False).stdout != b"PONG\n":
        if server.poll() is not None or time.monotonic() > deadline:
            raise NotMeasured("redis-server does not answer")
        time.sleep(0.01)
