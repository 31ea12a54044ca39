# SPDX-License-Identifier: BSD-2-Clause
"""fio, unmodified, with O_DIRECT through libaio: plain, under each peer, under pinshim.

fio keeps its buffers in one malloc of depth x block size and some alignment (139,262 bytes at
4 KiB), in the process it forks for the job: the class 128K- has them all.
"""

import json
import os
import time

import common
from common import MIB, PLAIN, NotMeasured, Spread, ratios

DEPTH = 32
CLASSES = "128K-"
START = 0.1  # seconds that fio lets a process it has forked wait
RAMP = 60  # milliseconds of I/O, at least, before fio begins to count
FAULT = 0.025  # milliseconds that a page fault takes at most

# The most that the disk gives at some size, with no pinshim in it: two jobs, huge pages.
LIMIT = common.PEERS[1].adding("two jobs", "--numjobs=2", "--group_reporting")


class Sample:
    """What fio found of one job, and what was seen of it."""

    def __init__(self, found, job, seen, ran):
        rw, bs = job[:2]
        done = found["write" if "write" in rw else "read"]
        if found["error"] or not done["total_ios"]:
            raise NotMeasured(f"fio did nothing (error {found['error']})")
        self.iops = done["iops"]
        self.gbps = done["bw_bytes"] / 1e9
        # usr_cpu and sys_cpu are percentages of job_runtime, which is in milliseconds.
        self.cpu_us = (found["usr_cpu"] + found["sys_cpu"]) * 10 * found["job_runtime"] / done["total_ios"]
        # Whoever the kernel charged: this process, its worker threads, interrupts.
        self.machine_us = seen.busy * 1e6 / self.iops
        per_gb = 1e6 / bytes_of(bs)  # microseconds per I/O in milliseconds per GB
        self.cpu_ms_per_gb, self.machine_ms_per_gb = self.cpu_us * per_gb, self.machine_us * per_gb
        self.huge, self.locked = seen.huge, seen.locked
        self.ran = ran


def bytes_of(bs):
    """fio's bs as a number."""
    return int(bs[:-1]) * {"k": 1024, "m": MIB}[bs[-1]]


def lay_out(directory, size):
    """A file of random bytes, on disk and not in the page cache, without holes."""
    path = os.path.join(directory, "data")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for _ in range(size // (4 * MIB)):
            block = memoryview(os.urandom(4 * MIB))
            while block:
                block = block[os.write(fd, block):]
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if os.fstat(fd).st_blocks * 512 < size:
            raise NotMeasured(f"{path} has holes: this file system compresses or does not store it")
    except OSError as error:
        raise NotMeasured(f"{path}: {error.strerror}") from error
    finally:
        os.close(fd)
    return path


def rollup(pid):
    """AnonHugePages and Locked of a process, in MiB; None if it is gone."""
    found = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                name, *values = line.split()
                if name in ("AnonHugePages:", "Locked:"):
                    found[name] = int(values[0]) / 1024
    except OSError:
        return None
    return (found["AnonHugePages:"], found["Locked:"]) if len(found) == 2 else None


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def ramp(bs):
    """Milliseconds before fio begins to count, in which each page of its buffers is faulted in."""
    return int(RAMP + DEPTH * bytes_of(bs) / 4096 * FAULT)


class Seen:
    """What is seen of a job while it runs."""

    def __init__(self):
        self.huge = 0.0  # MiB
        self.locked = None  # MiB; None: no process was seen
        self.busy = 0.0  # processors, of the whole machine


class Look:
    """Watches fio, which runs one job after the other, each in a process (or more) that it forks then."""

    def __init__(self, jobs, milliseconds):
        self.seconds = milliseconds * 0.75 / 1000
        self.ramps = [ramp(bs) / 1000 for _, bs, *_ in jobs]
        self.seen = [Seen() for _ in jobs]

    def __call__(self, pid):
        before = set()
        for seen, seconds in zip(self.seen, self.ramps):
            if not self.wait(pid, before):
                return
            self.watch(pid, seen, seconds)
            before.update(children(pid))

    @staticmethod
    def wait(pid, before):
        """Until there is a process that was not there before. False if none comes."""
        deadline = time.monotonic() + 10
        while not set(children(pid)) - before:
            if time.monotonic() > deadline or ended(pid):
                return False
            time.sleep(0.005)
        return True

    def watch(self, pid, seen, ramp_seconds):
        """The window lies inside the time that fio counts."""
        time.sleep(START + ramp_seconds + 0.02)
        began, idle = time.monotonic(), common.idle_seconds()
        time.sleep(self.seconds)
        idle, passed = common.idle_seconds() - idle, time.monotonic() - began
        cores = os.cpu_count() or 1
        if not 0 <= idle < cores * passed:
            raise common.NotMeasured(f"the processors were idle for {idle:.1f} s of {passed:.1f}, says the kernel")
        seen.busy = cores - idle / passed
        for memory in filter(None, map(rollup, children(pid))):
            seen.huge += memory[0]
            seen.locked = (seen.locked or 0.0) + memory[1]


def ended(pid):
    """Whether a program that we started has ended, and only waits for us to ask how."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "Z"


def size_of(path):
    """Bytes of a file or of a block device."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)


def run_jobs(path, jobs, variant, milliseconds, *more):
    """A Sample for each job: rw, bs, and more options if any. What cannot be measured is tried once more."""
    try:
        return run_once(path, jobs, variant, milliseconds, *more)
    except NotMeasured:
        return run_once(path, jobs, variant, milliseconds, *more)


def run_once(path, jobs, variant, milliseconds, *more):
    """Runs fio once, each job for at least 200 milliseconds, and looks at the memory of the process that
    does the I/O, and at how busy the machine is.

    fio never touches its buffers before it reads into them, so the first reads fault them in, page by
    page inside io_submit. The ramp leaves that out: in a short run it would burden plain more than
    hours of real work do.
    """
    look = Look(jobs, milliseconds)
    parts = [part for number, (rw, bs, *options) in enumerate(jobs)
             for part in (f"--name=job{number}", "--stonewall", f"--rw={rw}", f"--bs={bs}",
                          f"--ramp_time={ramp(bs)}ms", *options)]
    ran = common.run(["fio", "--name=global", "--ioengine=libaio", "--direct=1", f"--iodepth={DEPTH}",
                      f"--filename={path}", f"--size={size_of(path)}", "--time_based",
                      f"--runtime={milliseconds}ms", "--output-format=json", *variant.arguments, *more, *parts],
                     variant, meanwhile=look)
    found = document(ran)["jobs"]
    if len(found) != len(jobs):
        raise NotMeasured(f"fio reports {len(found)} of {len(jobs)} jobs")
    if variant.ours and any(seen.locked == 0 for seen in look.seen):
        # Its figures would be those of plain.
        raise NotMeasured("nothing was locked: " + (ran.errors.strip() or "nothing was said"))
    return [Sample(one, job, seen, ran) for one, job, seen in zip(found, jobs, look.seen)]


def run(path, job, variant, milliseconds, *more):
    """The same of one job: its Sample."""
    return run_jobs(path, [job], variant, milliseconds, *more)[0]


def document(ran):
    """What fio found; a warning may stand before it."""
    try:
        return json.loads(ran.output[ran.output.index("{"):])
    except ValueError as error:
        raise NotMeasured(f"fio's output: {error}") from error


def disk_limit(path, milliseconds):
    """GB/s that the disk gives at best: 1 MiB, two jobs, huge pages, no pinshim in it."""
    return max(run(path, ("read", "1m"), common.PEERS[0], milliseconds, "--numjobs=2",
                   "--group_reporting").gbps for _ in range(2))


def limits(by_variant):
    """The most that anything but pinshim did, against plain, round by round: the speed of a disk that
    others use, too, changes with time. Spread."""
    best = [max(others) for others in zip(*([s.iops for s in samples] for name, samples
                                            in by_variant.items() if samples and not is_ours(name)))]
    return ratios(best, [s.iops for s in by_variant[PLAIN.name]])


def is_ours(name):
    return name.startswith("pinshim")


def measure(results, group, path, jobs, variants, rounds, milliseconds, partly=()):
    """Interleaves all variants, each round beginning with another; jobs of the same rw follow each other in
    one run of fio. rounds: a number, or {job: number}. LIMIT is measured at the jobs in partly alone, if
    there are some. {job: {variant name: [Sample]}}."""
    usable, refused = [], set()
    for variant in variants:
        if variant.missing():
            results.fail(f"fio under {variant.name}", variant.missing())
        else:
            usable.append(variant)
    rounds = rounds if isinstance(rounds, dict) else dict.fromkeys(jobs, rounds)
    found = {job: {variant.name: [] for variant in usable} for job in jobs}
    for turn in range(max(rounds.values())):
        first = turn % len(usable)
        for rw in dict.fromkeys(rw for rw, _ in jobs):
            now = [job for job in jobs if job[0] == rw and rounds[job] > turn]
            if not now:
                continue
            common.progress(f"{group}: {rw} {', '.join(bs for _, bs in now)}; round {turn + 1} of "
                            f"{max(rounds.values())}")
            for variant in usable[first:] + usable[:first]:
                its = [job for job in now if job in partly] if partly and variant is LIMIT else now
                if its and variant.name not in refused:
                    measure_variant(results, group, path, its, variant, turn, milliseconds, found, refused)
    return found


def measure_variant(results, group, path, jobs, variant, turn, milliseconds, found, refused):
    """One run. A variant that cannot be measured is refused."""
    try:
        samples = run_jobs(path, jobs, variant, milliseconds)
    except NotMeasured as why:
        if variant is PLAIN:
            raise
        refused.add(variant.name)
        results.fail(f"{group} under {variant.name}", why)
        return
    for job, sample in zip(jobs, samples):
        found[job][variant.name].append(sample)
        record(results, group, sample, rw=job[0], bs=job[1], variant=variant.name, round=turn)


def record(results, group, sample, **which):
    """All that was measured of a job; which tells it from others."""
    results.sample(group, sample.ran, **which, iops=sample.iops, gbps=sample.gbps, cpu_us_per_io=sample.cpu_us,
                   machine_cpu_us_per_io=sample.machine_us, cpu_ms_per_gb=sample.cpu_ms_per_gb,
                   machine_cpu_ms_per_gb=sample.machine_ms_per_gb, huge_mib=sample.huge, locked_mib=sample.locked)


def show(results, title, found):
    header = ["", "GB/s", "IOPS", "against plain", "machine's CPU ms/GB", "against plain", "fio's CPU ms/GB",
              "against plain", "huge MiB", "locked MiB"]
    rows = []
    for job, by_variant in found.items():
        rows.append([f"{job[0]} {job[1].upper()}"])
        plain = by_variant[PLAIN.name]
        for name, samples in by_variant.items():
            if samples:
                against = ratio_texts(samples, plain)
                rows.append([name, Spread(s.gbps for s in samples).text(2),
                             f"{Spread(s.iops for s in samples).median:.0f}", against[0],
                             f"{Spread(s.machine_ms_per_gb for s in samples).median:.0f}", against[1],
                             f"{Spread(s.cpu_ms_per_gb for s in samples).median:.0f}", against[2],
                             f"{Spread(s.huge for s in samples).median:.0f}",
                             f"{Spread(s.locked or 0.0 for s in samples).median:.0f}"])
    results.table(title, header, rows)


def ratio_texts(samples, plain):
    if samples is plain:
        return ["1.00", "1.00", "1.00"]
    return [ratio(samples, plain).text(2, "x") for ratio in (iops_ratio, machine_ratio, cpu_ratio)]


def iops_ratio(samples, others):
    return ratios([s.iops for s in samples], [s.iops for s in others])


def cpu_ratio(samples, others):
    return ratios([s.cpu_us for s in samples], [s.cpu_us for s in others])


def machine_ratio(samples, others):
    return ratios([s.machine_us for s in samples], [s.machine_us for s in others])


def short_of(by_variant, wanted):
    """Why no memory could give plain's IOPS times wanted here; empty if it could."""
    most = limits(by_variant).median
    return f"the disk stops at {most:.2f}x plain" if most < wanted else ""


def level(ours, others, by_variant):
    """Whether both reach what the disk gives."""
    most = limits(by_variant).median
    plain = by_variant[PLAIN.name]
    return min(iops_ratio(samples, plain).median for samples in (ours, others)) > most * 0.93


def judge(results, where, found):
    """What pinshim alone has to reach. LIMIT is among the variants that were measured."""
    for job, iops_wanted, cpu_wanted, against_peers in (
            (("randread", "64k"), 2.0, 0.85, 1.0), (("read", "1m"), 2.5, 0.4, 0.97)):
        ours, plain = found[job].get("pinshim"), found[job][PLAIN.name]
        if not ours or not plain:
            continue
        name = f"fio {job[0]} {job[1].upper()}{where}"
        ratio = iops_ratio(ours, plain)
        results.target(f"{name}: IOPS against plain", f">= {iops_wanted}x", iops_wanted, ratio,
                       ratio.text(2, "x"), at_most=False, why_not=short_of(found[job], iops_wanted))
        ratio = cpu_ratio(ours, plain)
        results.target(f"{name}: fio's CPU per I/O against plain", f"<= {cpu_wanted}x", cpu_wanted,
                       ratio, ratio.text(2, "x"), why_not="see below: who is charged")
        ratio = machine_ratio(ours, plain)
        results.target(f"{name}: the machine's CPU per I/O against plain", f"<= {cpu_wanted}x",
                       cpu_wanted, ratio, ratio.text(2, "x"))
        for peer, samples in found[job].items():
            if peer not in [variant.name for variant in common.PEERS] or not samples:
                continue
            ratio = iops_ratio(ours, samples)
            results.target(f"{name}: IOPS against {peer}",
                           "> 1.0x" if against_peers == 1.0 else f">= {against_peers}x",
                           against_peers, ratio,
                           f"{ratio.text(2, 'x')}, CPU {machine_ratio(ours, samples).text(2, 'x')}",
                           at_most=False,
                           why_not="both at the disk's limit" if level(ours, samples, found[job]) else "")


def notes(results):
    results.note(f"The disk's limit at a size is the most that any of these but pinshim gave in the same "
                 f"round; \"{LIMIT.name}\" is there for it. IOPS ratios hold only below that. CPU time per "
                 "I/O does not depend on the disk.")
    results.note("How far plain falls behind depends on how scattered free memory is: "
                 f"{results.machine['unscattered_free_memory']:.0%} of it lay in blocks of 2 MiB or more "
                 "when the run began.")
    results.note(f"fio counts from {ramp('4k') / 1000} to {ramp('1m') / 1000} s of I/O on (--ramp_time), so that "
                 "the page faults of the first reads into ordinary memory are not held against it.")
    results.note("Who is charged: the machine's CPU per I/O is all that is not idle, fio's "
                 "its own usr+sys. Plain 64 KiB requests of 16 pieces fill the disk's queue, so the "
                 "kernel's worker threads pass most of them on, in nobody's account; pinned ones are "
                 "passed on by fio itself, whose figure rises while the machine's falls.")
