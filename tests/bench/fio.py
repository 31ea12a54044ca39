# SPDX-License-Identifier: BSD-2-Clause
"""fio, unmodified, with O_DIRECT through libaio: plain, under each peer, under pinshim.

fio keeps its buffers in one malloc of depth x block size and some alignment (139,262 bytes at
4 KiB), in the process it forks for the job: the class 128K- has them all.
"""

import json
import os
import time

import common
from common import GIB, MIB, PLAIN, NotMeasured, Spread, ratios

DEPTH = 32
CLASSES = "128K-"
RAMP = 300  # milliseconds before fio begins to count

# What to read: fio's rw and bs.
JOBS = [("randread", "4k"), ("randread", "64k"), ("read", "1m")]

# The most that the disk gives at some size, with no pinshim in it: two jobs, huge pages.
LIMIT = common.PEERS[1].adding("two jobs", "--numjobs=2", "--group_reporting")


class Sample:
    """One run of fio."""

    def __init__(self, found, rw, look, ran):
        job = found["jobs"][0]
        done = job["write" if "write" in rw else "read"]
        if job["error"] or not done["total_ios"]:
            raise NotMeasured(f"fio did nothing (error {job['error']})")
        self.iops = done["iops"]
        self.gbps = done["bw_bytes"] / 1e9
        # usr_cpu and sys_cpu are percentages of job_runtime, which is in milliseconds.
        self.cpu_us = (job["usr_cpu"] + job["sys_cpu"]) * 10 * job["job_runtime"] / done["total_ios"]
        self.huge, self.locked = look.huge, look.locked
        # Whoever the kernel charged: this process, its worker threads, interrupts.
        self.machine_us = look.busy * 1e6 / self.iops
        self.ran = ran


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


class Look:
    """What is seen of a run while it goes on."""

    def __init__(self, milliseconds):
        self.seconds = milliseconds * 0.7 / 1000
        self.huge = 0.0
        self.locked = None  # None: no process was seen
        self.busy = 0.0  # processors, of the whole machine

    def __call__(self, pid):
        """fio forks a process for the job, which begins with the ramp; the window ends before it does."""
        deadline = time.monotonic() + 10
        while not children(pid) and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(RAMP / 1000 + 0.05)
        began, idle = time.monotonic(), common.idle_seconds()
        time.sleep(self.seconds)
        passed = time.monotonic() - began
        self.busy = max(0.0, (os.cpu_count() or 1) - (common.idle_seconds() - idle) / passed)
        for memory in filter(None, map(rollup, children(pid))):
            self.huge = max(self.huge, memory[0])
            self.locked = max(self.locked or 0.0, memory[1])


def size_of(path):
    """Bytes of a file or of a block device."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)


def run(path, job, variant, milliseconds, *more):
    """Runs fio once, for at least 200 milliseconds, and looks at the memory of the process that does the I/O,
    and at how busy the machine is.

    fio never touches its buffers before it reads into them, so the first reads fault them in, page by
    page inside io_submit. The ramp leaves that out: in a short run it would burden plain more than
    hours of real work do.
    """
    look = Look(milliseconds)
    rw, bs = job
    ran = common.run(["fio", "--name=bench", "--ioengine=libaio", "--direct=1", f"--iodepth={DEPTH}",
                      f"--rw={rw}", f"--bs={bs}", f"--filename={path}", f"--size={size_of(path)}",
                      "--time_based", f"--ramp_time={RAMP}ms", f"--runtime={milliseconds}ms",
                      "--output-format=json", *variant.arguments, *more], variant, meanwhile=look)
    return Sample(document(ran), rw, look, ran)


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


def measure(results, group, path, jobs, variants, rounds, milliseconds):
    """Interleaves all variants, each round beginning with another. {job: {variant name: [Sample]}}."""
    usable, refused = [], set()
    for variant in variants:
        if variant.missing():
            results.fail(f"fio under {variant.name}", variant.missing())
        else:
            usable.append(variant)
    found = {job: {variant.name: [] for variant in usable} for job in jobs}
    for turn in range(rounds):
        for job in jobs:
            first = turn % len(usable)
            common.progress(f"{group}: {' '.join(job)}, round {turn + 1} of {rounds}")
            for variant in usable[first:] + usable[:first]:
                if variant.name in refused:
                    continue
                sample = run(path, job, variant, milliseconds)
                if variant.ours and sample.locked == 0:
                    # Its figures would be those of plain.
                    refused.add(variant.name)
                    results.fail(f"{group} under {variant.name}", "nothing was locked: " +
                                 (sample.ran.errors.strip() or "nothing was said"))
                    continue
                found[job][variant.name].append(sample)
                results.sample(group, sample.ran, rw=job[0], bs=job[1], variant=variant.name,
                               round=turn, iops=sample.iops, gbps=sample.gbps,
                               cpu_us_per_io=sample.cpu_us,
                               machine_cpu_us_per_io=sample.machine_us, huge_mib=sample.huge,
                               locked_mib=sample.locked)
    return found


def show(results, title, found):
    header = ["", "IOPS ratio", "machine CPU/IO", "fio CPU/IO", "IOPS", "GB/s", "machine us/IO",
              "fio us/IO", "huge MiB", "locked MiB"]
    rows = []
    for job, by_variant in found.items():
        rows.append([f"{job[0]} {job[1].upper()}"])
        plain = by_variant[PLAIN.name]
        for name, samples in by_variant.items():
            if samples:
                rows.append([name] + ratio_texts(samples, plain) + [
                    f"{Spread(s.iops for s in samples).median:.0f}",
                    f"{Spread(s.gbps for s in samples).median:.2f}",
                    f"{Spread(s.machine_us for s in samples).median:.1f}",
                    f"{Spread(s.cpu_us for s in samples).median:.1f}",
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
    """The targets of the group "fio". LIMIT is among the variants that were measured."""
    for job, iops_wanted, cpu_wanted, against_peers in (
            (("randread", "64k"), 2.0, 0.85, 1.0), (("read", "1m"), 2.5, 0.4, 0.97)):
        ours, plain = found[job].get("pinshim"), found[job][PLAIN.name]
        if not ours:
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
            if peer in (PLAIN.name, LIMIT.name, "pinshim") or not samples:
                continue
            ratio = iops_ratio(ours, samples)
            results.target(f"{name}: IOPS against {peer}",
                           "> 1.0x" if against_peers == 1.0 else f">= {against_peers}x",
                           against_peers, ratio,
                           f"{ratio.text(2, 'x')}, CPU {machine_ratio(ours, samples).text(2, 'x')}",
                           at_most=False,
                           why_not="both at the disk's limit" if level(ours, samples, found[job]) else "")


def group(results):
    """The group "fio": on memory as it is found."""
    path = lay_out(results.directory, results.rounds(2 * GIB, GIB // 2))
    try:
        found = measure(results, "fio", path, JOBS,
                        [PLAIN, *common.PEERS, LIMIT, results.pinshim(CLASSES)],
                        results.rounds(4, 2), results.rounds(1000, 600))
    finally:
        os.unlink(path)
    show(results, f"fio libaio, O_DIRECT, depth {DEPTH}, memory as found: median of "
         f"{results.rounds(4, 2)} interleaved rounds (least-most)", found)
    judge(results, "", found)
    results.note(f"The disk's limit at a size is the most that any of these but pinshim gave in the same "
                 f"round; \"{LIMIT.name}\" is there for it. IOPS ratios hold only below that. CPU time per "
                 "I/O does not depend on the disk.")
    results.note("How far plain falls behind depends on how scattered free memory is: "
                 f"{results.machine['unscattered_free_memory']:.0%} of it lay in blocks of 2 MiB or more "
                 "when the run began.")
    results.note(f"fio counts from {RAMP / 1000} s on (--ramp_time), so that the page faults of the first "
                 "reads into ordinary memory are not held against it.")
    note_who_is_charged(results)


def note_who_is_charged(results):
    results.note("Who is charged: the machine's CPU per I/O is all that is not idle (/proc/stat), fio's "
                 "its own usr+sys. Plain 64 KiB requests of 16 pieces fill the disk's queue, so the "
                 "kernel's worker threads pass most of them on, in nobody's account; pinned ones are "
                 "passed on by fio itself, whose figure rises while the machine's falls.")
