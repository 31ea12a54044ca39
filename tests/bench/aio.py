# SPDX-License-Identifier: BSD-2-Clause
"""Asynchronous I/O under both libraries: the handle API, and on other places than the disk. fio's figures are
those of matrix.py; what they are to reach is said here.

PINSHIM_AIO is its default, auto, everywhere.
"""

import contextlib
import glob
import json
import os
import re

import common
import fio
from common import GIB, MIB, PLAIN, NotMeasured, Spread, ratios

READS = [("randread", "4k"), ("randread", "64k"), ("read", "1m")]
WRITES = [("randwrite", "4k"), ("randwrite", "64k"), ("write", "1m")]

# Of reads: at least so many times plain's IOPS, at most so many times its CPU time per I/O.
WANTED = {READS[0]: (1.5, 0.85), READS[1]: (2.0, 0.65), READS[2]: (2.5, 0.25)}
EQUAL = 0.97  # what counts as no slower where that is all there is to be had
NEVER_SLOWER = 0.95
BEST_IOPS, BEST_CPU = 0.95, 1.05  # against fio's own best
MISALIGNED = 0.6  # of aligned

HUGETLB_PAGES = "/proc/sys/vm/nr_hugepages"
HUGETLB_NEEDED = 20  # of 2 MiB: 32 buffers of 1 MiB, and what fio adds


def write_to(path, value):
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(value))
    except OSError as error:
        raise NotMeasured(f"{path}: {error.strerror}") from error


@contextlib.contextmanager
def hugetlb_pages():
    """hugetlbfs has pages inside this. Not longer: mimalloc would take some, and a process that it forks is
    then refused more."""
    before = common.first_line(HUGETLB_PAGES)
    wanted = int(before) + HUGETLB_NEEDED if before.isdigit() else 0
    try:
        write_to(HUGETLB_PAGES, wanted)
        if common.memory("Hugetlb") < wanted * 2 * MIB:
            raise NotMeasured(f"{HUGETLB_PAGES}: memory is too scattered")
        yield
    finally:
        with contextlib.suppress(NotMeasured):
            write_to(HUGETLB_PAGES, before)


# fio's own best. The memory that it registers is in huge pages: of hugetlbfs where there can be some for a
# moment, so that every buffer lies in one, else of jemalloc.
URING = ["--ioengine=io_uring", "--fixedbufs", "--registerfiles"]
BY_THP = common.PEERS[1].adding("io_uring, thp", *URING)
BY_HUGETLB = PLAIN.adding("io_uring, hugetlb", *URING, "--iomem=shmhuge")
BY_HUGETLB.around = hugetlb_pages

OURS = "pinshim+aio"
ALONE = "pinshim-aio alone"  # nothing is pinned
LOOP = "io_uring, as much memory"
TOOL = os.path.join(common.BUILD, "pinshim")
PLACE_BYTES = 256 * MIB
PLACE_ROUNDS = 5


def group(results):
    ours = results.pinshim_aio(fio.CLASSES)
    for variant in (ours, BY_THP):
        if variant.missing():
            raise NotMeasured(variant.missing())
    path = fio.lay_out(results.directory, results.rounds(2 * GIB, GIB // 4))
    best = fios_best(results)
    try:
        for name, part in (
                ("registered buffers", lambda: engine(results, path)),
                ("bare loops", lambda: bare_loops(results, path)),
                ("the handle API", lambda: handle(results, path, best))):
            attempt(results, name, part)
        never_slower(results, path, ours)
    finally:
        os.unlink(path)


def attempt(results, name, part):
    try:
        part()
    except NotMeasured as why:
        results.fail(f"aio, {name}", why)


def engine(results, path):
    """Makes sure that what is measured is what it is called."""
    stats = os.path.join(results.directory, "aio.%p.json")
    ran = fio.run(path, READS[1], results.pinshim_aio(fio.CLASSES, PINSHIM_STATS=stats, PINSHIM_LOG="info"),
                  200).ran
    requests = fixed = 0
    for name in glob.glob(stats.replace("%p", "*")):
        with open(name, encoding="utf-8") as file:
            counts = json.load(file)["aio"]
        requests, fixed = requests + counts["submitted"], fixed + counts["fixed"]
    results.sample("aio-engine", ran, requests=float(requests), fixed=float(fixed))
    if fixed < requests * 0.9 or requests == 0:
        said = [line for line in ran.errors.splitlines() if "I/O" in line]
        raise NotMeasured(f"{fixed} of {requests} requests had them: " +
                          (said[0] if said else "nothing was said"))


def fios_best(results):
    """The variant that is fio's best way here."""
    try:
        with hugetlb_pages():
            return BY_HUGETLB
    except NotMeasured as why:
        results.note(f"fio's best is with jemalloc's huge pages; hugetlbfs gave none: {why}.")
        return BY_THP


# ---- the targets of asynchronous I/O ----------------------------------------------------------------

def judge(results, found, best):
    """{job: {variant name: [Sample]}}, fio.LIMIT among them for reads; best is fio's own."""
    for job, by_variant in found.items():
        if not by_variant.get(OURS) or job not in READS + WRITES:
            continue
        name = f"aio {job[0]} {job[1].upper()}"
        if job in WANTED:
            judge_read(results, name, by_variant, job)
        else:
            judge_write(results, name, by_variant)
        judge_best(results, name, by_variant, best)


def ratio_target(results, name, limit, ratio, at_most=False, more="", why_not=""):
    results.target(name, f"{'<=' if at_most else '>='} {limit}x", limit, ratio,
                   ratio.text(2, "x") + more, at_most=at_most, why_not=why_not)


def judge_read(results, name, by_variant, job):
    ours, plain = by_variant[OURS], by_variant[PLAIN.name]
    iops_wanted, cpu_wanted = WANTED[job]
    short = fio.short_of(by_variant, iops_wanted)
    more = ""
    # A page is a page: where the disk is the limit at 4 KiB, the gain is CPU time alone.
    if job == READS[0] and short:
        iops_wanted, more, short = EQUAL, f", {short}", ""
    ratio_target(results, f"{name}: IOPS against plain", iops_wanted, fio.iops_ratio(ours, plain), more=more,
                 why_not=short)
    ratio_target(results, f"{name}: the machine's CPU per I/O against plain", cpu_wanted,
                 fio.machine_ratio(ours, plain), at_most=True)
    ratio_target(results, f"{name}: fio's CPU per I/O against plain", cpu_wanted,
                 fio.cpu_ratio(ours, plain), at_most=True, why_not="see below: who is charged")


def judge_write(results, name, by_variant):
    ours, plain = by_variant[OURS], by_variant[PLAIN.name]
    ratio_target(results, f"{name}: IOPS against plain", EQUAL, fio.iops_ratio(ours, plain))
    ratio_target(results, f"{name}: fio's CPU per I/O against plain", 1.0, fio.cpu_ratio(ours, plain),
                 at_most=True, more=f", machine's {fio.machine_ratio(ours, plain).text(2, 'x')}")


def judge_best(results, name, by_variant, best):
    ours, others = by_variant[OURS], by_variant.get(best)
    if not others:
        return
    ratio_target(results, f"{name}: IOPS against {best}", BEST_IOPS, fio.iops_ratio(ours, others))
    ratio_target(results, f"{name}: fio's CPU per I/O against {best}", BEST_CPU,
                 fio.cpu_ratio(ours, others), at_most=True,
                 more=f", machine's {fio.machine_ratio(ours, others).text(2, 'x')}")


# ---- bare loops ---------------------------------------------------------------------------------

# What a request costs, without what fio adds to it: a program and what it reads with.
BARE = {PLAIN.name: "libaio", OURS: "libaio", "io_uring": "io_uring", "io_uring, file": "io_uring,file"}
BARE_PLACES = {  # how many in flight, and where the reads are
    "depth 32, beyond the end": (32, "beyond"),
    "depth 1, beyond the end": (1, "beyond"),
    "depth 32": (32, ""),
}
WITHOUT_DISK = 1.05  # times plain's CPU per request, at most


def bare_loops(results, path):
    rounds, milliseconds = results.repeats(5, 1), 200
    variants = {name: PLAIN for name in BARE} | {OURS: results.pinshim_aio(fio.CLASSES)}
    rows = []
    for place, (depth, beyond) in BARE_PLACES.items():
        found = {name: [] for name in BARE}
        for turn in range(rounds):
            common.progress(f"aio: bare loops, {place}, round {turn + 1} of {rounds}")
            for name, way in BARE.items():
                ran = common.run([common.program("loops"), path, way, str(depth), str(milliseconds),
                                  *beyond.split()], variants[name])
                results.sample("aio-loops", ran, way=name, place=place, round=turn, **ran.pairs())
                found[name].append(ran.pairs()["cpu_us"])
        rows.append([place] + [Spread(found[name]).text(3) for name in BARE])
        judge_loops(results, place, found, beyond)
    results.table(f"Bare loops, 4 KiB: microseconds of CPU per read, median of {rounds} (least-most)",
                  ["", *BARE], rows)
    results.note("Bare loops: reads beyond the end of the file are answered at once, so that what differs is "
                 "the way in and out; io_uring is a deferred ring with registered buffers.")


def judge_loops(results, place, found, beyond):
    if beyond:
        ratio_target(results, f"a libaio loop, {place}: CPU per read against plain", WITHOUT_DISK,
                     ratios(found[OURS], found[PLAIN.name]), at_most=True)
    else:
        ratio_target(results, f"a libaio loop, {place}: CPU per read against an io_uring loop", BEST_CPU,
                     ratios(found[OURS], found["io_uring"]), at_most=True,
                     more=f", against plain {ratios(found[OURS], found[PLAIN.name]).text(2, 'x')}")


# ---- the handle API -------------------------------------------------------------------------------

def handle(results, path, best):
    """
    `pinshim io`, fio's best, and a plain io_uring loop read all of the file twice, in requests of 1 MiB: fio
    into the 32 MiB that it has in flight, the others into as much memory as the file is long.
    """
    size, rounds = fio.size_of(path), results.repeats(2, 1)
    ways = {
        best.name: lambda: by_fio(path, size, best),
        LOOP: lambda: by_loop(path, size),
        "handle": lambda: by_handle(path, size),
        "handle, misaligned": lambda: by_handle(path, size, "--misaligned=1"),
    }
    found = {way: [] for way in ways}
    if not os.path.exists(TOOL):
        raise NotMeasured(f"{TOOL} is missing (run make)")
    if common.memory("MemAvailable") < 2 * size:
        raise NotMeasured(f"needs {2 * size / GIB:.1f} GiB of available memory")
    for turn in range(rounds):
        common.progress(f"aio: the handle API, round {turn + 1} of {rounds}")
        for way, read in ways.items():
            ran, gbps = read()
            found[way].append(gbps)
            results.sample("aio-handle", ran, way=way, round=turn, bytes=2 * size, gbps=gbps)
    results.table(f"Reading {2 * size / GIB:.1f} GiB at 1 MiB, depth {fio.DEPTH}, one thread: median of {rounds} "
                  "(least-most)", ["", "GB/s", f"against {best.name}"],
                  [[way, Spread(values).text(2), ratios(values, found[best.name]).text(2, "x")]
                   for way, values in found.items()])
    ratio = ratios(found["handle"], found[best.name])
    ratio_target(results, f"the handle API: GB/s against fio's {best.name}", 1.0, ratio,
                 why_not="level: 1.0 is within the spread" if ratio.high >= 1.0 else
                 f"into as much memory {LOOP} gets {ratios(found[LOOP], found[best.name]).text(2, 'x')}")
    ratio_target(results, f"the handle API: GB/s against {LOOP}", NEVER_SLOWER, ratios(found["handle"], found[LOOP]))
    ratio_target(results, "the handle API: misaligned against aligned", MISALIGNED,
                 ratios(found["handle, misaligned"], found["handle"]))


def by_fio(path, size, variant):
    ran = common.run(["fio", "--name=bench", "--direct=1", f"--iodepth={fio.DEPTH}", "--rw=read", "--bs=1m",
                      f"--filename={path}", f"--size={size}", "--loops=2", "--output-format=json",
                      *variant.arguments], variant)
    return ran, fio.document(ran)["jobs"][0]["read"]["bw_bytes"] / 1e9


def by_loop(path, size):
    ran = common.run([common.program("sequential"), path, str(size), str(MIB), str(fio.DEPTH), "2"])
    return ran, ran.pairs()["gbps"]


def by_handle(path, size, *arguments):
    ran = common.run([TOOL, "io", "--read", f"--file={path}", "--loops=2", "--json",
                      f"--queue-depth={fio.DEPTH}", "--block-size=1M", *arguments],
                     common.Variant("handle", PINSHIM_STATS="off"))
    seconds = re.search(r'"task_latency_seconds": ([0-9.]+)', ran.output)
    if not seconds:
        raise NotMeasured(f"pinshim io: {ran.output.strip()}")
    return ran, 2 * size / float(seconds.group(1)) / 1e9


# ---- never slower than plain ----------------------------------------------------------------------

@contextlib.contextmanager
def on_file(directory):
    path = os.path.join(directory, "place")
    os.mkdir(path)
    file = fio.lay_out(path, PLACE_BYTES)
    try:
        yield file
    finally:
        os.unlink(file)
        os.rmdir(path)


@contextlib.contextmanager
def on_tmpfs():
    if common.filesystem("/dev/shm").split()[0] != "tmpfs":
        raise NotMeasured("/dev/shm is no tmpfs")
    path = f"/dev/shm/bench-{os.getpid()}"
    os.mkdir(path)
    try:
        with on_file(path) as file:
            yield file
    finally:
        os.rmdir(path)


@contextlib.contextmanager
def on_loop(directory):
    with on_file(directory) as file:
        device = common.run(["losetup", "--show", "--find", "--direct-io=on", file]).output.strip()
        try:
            yield device
        finally:
            common.run(["losetup", "--detach", device])


@contextlib.contextmanager
def on_zram():
    """A device of its own, which is gone afterwards."""
    control = "/sys/class/zram-control"
    number = common.first_line(f"{control}/hot_add")
    if not number.isdigit():
        raise NotMeasured("no zram here, or none allowed")
    try:
        write_to(f"/sys/block/zram{number}/disksize", PLACE_BYTES)
        fill(f"/dev/zram{number}", PLACE_BYTES)
        yield f"/dev/zram{number}"
    finally:
        write_to(f"{control}/hot_remove", number)


def fill(path, size):
    with open(path, "wb", buffering=0) as device:
        for _ in range(size // MIB):
            device.write(os.urandom(MIB))
        os.fsync(device.fileno())


def never_slower(results, path, ours):
    places = {
        common.filesystem(results.directory).split()[0] + " file": lambda: contextlib.nullcontext(path),
        "loop device": lambda: on_loop(results.directory),
        "zram": on_zram,
        "tmpfs": on_tmpfs,
    }
    rows = []
    for name, place in places.items():
        def measure(name=name, place=place):
            with place() as target:
                rows.extend(measure_place(results, name, target, ours))

        attempt(results, f"on {name}", measure)
    results.table("Never slower than plain: 4 KiB random reads, depth "
                  f"{fio.DEPTH}, median of {results.repeats(PLACE_ROUNDS, 1)} (least-most)",
                  ["", "IOPS ratio", "CPU/IO", "IOPS", "plain's IOPS"], rows)
    results.note("Never slower: a bare libaio loop, and one with a thread that submits and one that reaps. CPU "
                 "per I/O is that of the process.")


def measure_place(results, name, target, ours):
    rounds, milliseconds = results.repeats(PLACE_ROUNDS, 1), 200
    alone = common.Variant(ALONE, "run make", results.aio_preload, PINSHIM_STATS="off")
    programs = {
        "one thread": (["loops", target, "libaio", str(fio.DEPTH), str(milliseconds)], [PLAIN, ours, alone]),
        "submitter and reaper": (["split", target, "4096", str(fio.DEPTH), str(milliseconds)], [PLAIN, ours]),
    }
    rows = []
    for program, (command, variants) in programs.items():
        found = {variant.name: [] for variant in variants}
        for turn in range(rounds):
            common.progress(f"aio: {name}, {program}, round {turn + 1} of {rounds}")
            for variant in variants if turn % 2 == 0 else reversed(variants):
                ran = common.run([common.program(command[0]), *command[1:]], variant)
                results.sample(f"aio-{name}-{command[0]}", ran, variant=variant.name, round=turn, **ran.pairs())
                found[variant.name].append(Loop(ran.pairs()))
        rows += [place_row(results, f"{name}, {program}, {way}", found[way], found[PLAIN.name])
                 for way in found if way != PLAIN.name]
    return rows


class Loop:
    """One run of tests/bench/loops or tests/bench/split."""

    def __init__(self, values):
        self.iops, self.machine_us = values["iops"], values["cpu_us"]


def place_row(results, name, ours, plain):
    ratio = fio.iops_ratio(ours, plain)
    ratio_target(results, f"aio on {name}: IOPS against plain", NEVER_SLOWER, ratio)
    return [name, ratio.text(2, "x"), fio.machine_ratio(ours, plain).text(2, "x"),
            f"{Spread(s.iops for s in ours).median:.0f}", f"{Spread(s.iops for s in plain).median:.0f}"]
