# SPDX-License-Identifier: BSD-2-Clause
"""What every part of the benchmark needs: variants, running programs, the machine, statistics."""

import contextlib
import copy
import glob
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
CLIENTS = os.environ.get("CLIENTS", os.path.join(BUILD, "clients"))  # what scripts/setup --clients installs
CORES = len(os.sched_getaffinity(0))
MIB = 1 << 20
GIB = 1 << 30


class NotMeasured(Exception):
    """Something could not be measured; the text says what and why."""


# ---- variants -----------------------------------------------------------------------------------

class Variant:
    """A way to run a program: a name and what the environment gets for it.

    preload is one library, or several with spaces between them. ours: it is pinshim that is measured.
    """

    def __init__(self, name, package="", preload="", ours=False, **environment):
        self.name = name
        self.package = package
        self.preload = preload
        self.ours = ours
        self.arguments = []  # more of them, for the program
        self.around = contextlib.nullcontext  # what it needs of the machine while it runs
        self.environment = dict(environment)
        if preload:
            self.environment["LD_PRELOAD"] = preload

    def missing(self):
        """Why it cannot be used here, or an empty string."""
        for path in self.preload.split():
            if not os.path.exists(path):
                return f"{path} is missing ({self.package})"
        return ""

    def adding(self, name, *arguments):
        """The same by another name, with more arguments."""
        variant = copy.copy(self)
        variant.name = name
        variant.arguments = [*self.arguments, *arguments]
        return variant


def library(name):
    """Where the dynamic linker finds a shared library; a name to complain about if it does not."""
    directory = f"/usr/lib/{platform.machine()}-linux-gnu"
    for candidate in (os.path.join(directory, name), f"/usr/lib64/{name}", f"/usr/lib/{name}"):
        if os.path.exists(candidate):
            return candidate
    return os.path.join(directory, name)


PLAIN = Variant("plain")

PEERS = [
    Variant("glibc hugetlb=1", GLIBC_TUNABLES="glibc.malloc.hugetlb=1"),
    Variant("jemalloc thp", "libjemalloc2", library("libjemalloc.so.2"), MALLOC_CONF="thp:always"),
    # The second name is what mimalloc 2.1 and later call it.
    Variant("mimalloc large", "libmimalloc2.0", library("libmimalloc.so.2"),
            MIMALLOC_LARGE_OS_PAGES="1", MIMALLOC_ALLOW_LARGE_OS_PAGES="1"),
    # memkind as a preload is its tiering library. It has no huge pages of its own, but its jemalloc has.
    Variant("memkind thp", "libmemkind0", library("libmemtier.so.0"), JEMK_MALLOC_CONF="thp:always",
            MEMKIND_MEM_TIERS="KIND:DRAM,RATIO:1;POLICY:STATIC_RATIO"),
]


def pinshim(classes, preload=os.path.join(BUILD, "libpinshim.so"), name="pinshim", **environment):
    """Ours, serving these malloc size classes from the pinned heap."""
    environment.setdefault("PINSHIM_STATS", "off")
    return Variant(name, "run make", preload, ours=True, PINSHIM_MALLOC=classes, **environment)


def clean_environment():
    """This environment without anything that would make one variant out of another."""
    return {name: value for name, value in os.environ.items()
            if not re.match(r"LD_PRELOAD$|MALLOC_|GLIBC_TUNABLES$|MIMALLOC_|JEMK_|MEMKIND_|PINSHIM_", name)}


# ---- running ------------------------------------------------------------------------------------

def busy_seconds():
    """CPU time that the machine has spent on anything, from /proc/stat."""
    with open("/proc/stat", encoding="ascii") as stat:
        field = [int(value) for value in stat.readline().split()[1:9]]
    return (sum(field) - field[3] - field[4]) / os.sysconf("SC_CLK_TCK")


IDLE = sorted(glob.glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state*/time"))


def idle_seconds():
    """Time that all processors were idle: to the microsecond where the kernel keeps account of each sleep,
    else from /proc/stat, in ticks; busy time there is sampled by ticks, which is worse."""
    if IDLE and CORES == os.cpu_count():
        try:
            return finished_sleeps()
        except OSError:
            pass
    with open("/proc/stat", encoding="ascii") as stat:
        field = [int(value) for value in stat.readline().split()[1:9]]
    return (field[3] + field[4]) / os.sysconf("SC_CLK_TCK")


def finished_sleeps():
    """What the kernel has on account; a visit ends the sleep that a processor is in, which is not yet."""
    home = os.sched_getaffinity(0)
    for processor in home:
        os.sched_setaffinity(0, {processor})
    os.sched_setaffinity(0, home)
    microseconds = 0
    for path in IDLE:
        with open(path, encoding="ascii") as file:
            microseconds += int(file.read())
    return microseconds / 1e6


def our_seconds():
    """CPU time of this program and of those that it ran."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Ran:
    """What a program printed, and how busy the rest of the machine was meanwhile (0 to 1)."""

    def __init__(self, output, errors, others):
        self.output, self.errors, self.others = output, errors, others

    def pairs(self):
        """Its name=value output as numbers."""
        return {name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", self.output)}


def run(arguments, variant=PLAIN, timeout=120, meanwhile=None):
    """Runs a program under a variant. meanwhile(pid) is called while it runs. NotMeasured if it fails."""
    missing = variant.missing()
    if missing:
        raise NotMeasured(missing)
    if not shutil.which(arguments[0]):
        raise NotMeasured(f"{arguments[0]} is missing (scripts/setup --bench)")
    environment = clean_environment() | variant.environment
    began, busy, ours = time.monotonic(), busy_seconds(), our_seconds()
    with variant.around(), subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            if meanwhile:
                meanwhile(child.pid)
            output, errors = child.communicate(timeout=timeout)
        except BaseException as error:
            end(child)
            if isinstance(error, subprocess.TimeoutExpired):
                raise NotMeasured(f"{arguments[0]} took over {timeout} s") from error
            raise
    name = f"{os.path.basename(arguments[0])} ({variant.name})"
    if child.returncode:
        said = (errors.strip() or output.strip()).splitlines()
        raise NotMeasured(f"{name}: status {child.returncode}: {said[-1] if said else 'said nothing'}")
    busy, ours = busy_seconds() - busy, our_seconds() - ours
    passed = (time.monotonic() - began) * (os.cpu_count() or 1)
    return Ran(output, errors, min(1.0, max(0.0, busy - ours) / passed))


def end(child):
    """Ends a program that we started."""
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def program(name):
    """The path of a program of tests/bench, built if need be."""
    return made(f"build/tests/bench/{name}")


def made(target):
    """The path of something that the Makefile makes, brought up to date."""
    make = subprocess.run(["make", "-s", "--no-print-directory", "-C", ROOT, target],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if make.returncode:
        raise NotMeasured(f"{target} cannot be built: {(make.stderr.strip() or '?').splitlines()[-1]}")
    return os.path.join(ROOT, target)


# ---- memory and machine -------------------------------------------------------------------------

def memory(name):
    """A value of /proc/meminfo in bytes."""
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        return int(re.search(rf"^{name}:\s+(\d+)", meminfo.read(), re.M).group(1)) * 1024


def unscattered():
    """The share of free memory that lies in blocks of at least 2 MiB."""
    large = total = 0
    with open("/proc/buddyinfo", encoding="ascii") as buddyinfo:
        for line in buddyinfo:
            for order, blocks in enumerate(line.split()[4:]):
                pages = int(blocks) << order
                total += pages
                large += pages if order >= 9 else 0
    return large / max(total, 1)


def filesystem(path):
    """The type and source of the file system that holds a path."""
    best = ("", "?", "?")
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            source, where, kind = line.split()[:3]
            inside = os.path.commonpath([where, os.path.realpath(path)]) == where
            if inside and len(where) >= len(best[0]):
                best = (where, kind, source)
    return f"{best[1]} on {best[2]}"


def first_line(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return "?"


def disk(path):
    """The block device under a path: its name, size and driver."""
    number = os.stat(path).st_dev
    device = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if os.path.exists(os.path.join(device, "partition")):
        device = os.path.dirname(device)
    sectors = first_line(os.path.join(device, "size"))
    if not sectors.isdigit():
        return "?"
    driver = os.path.basename(os.path.realpath(os.path.join(device, "device/driver")))
    model = first_line(os.path.join(device, "device/model"))
    return f"{os.path.basename(device)}, {int(sectors) * 512 / GIB:.0f} GiB, {model if model != '?' else driver}"


def commit():
    """What was measured, for git; "?" outside a checkout."""
    try:
        git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
                             capture_output=True, text=True, check=False)
    except OSError:
        return "?"
    return git.stdout.strip() or "?"


def machine(directory):
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        model = re.search(r"^(?:model name|CPU implementer)\s*:\s*(.*)", cpuinfo.read(), re.M)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "commit": commit(),
        "kernel": platform.release(),
        "cpu": model.group(1) if model else platform.machine(),
        "cores": CORES,
        "ram_gib": round(memory("MemTotal") / GIB, 1),
        "disk": disk(directory),
        "filesystem": filesystem(directory),
        "transparent_huge_pages": first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "defrag": first_line("/sys/kernel/mm/transparent_hugepage/defrag"),
        "unscattered_free_memory": round(unscattered(), 3),
    }


# ---- statistics ---------------------------------------------------------------------------------

class Spread:
    """The median, least and most of repeated values, and how many there are."""

    def __init__(self, values):
        self.values = list(values)
        self.median = statistics.median(self.values)
        self.low, self.high = min(self.values), max(self.values)

    def text(self, digits=2, unit=""):
        return f"{self.median:.{digits}f}{unit} ({self.low:.{digits}f}-{self.high:.{digits}f})"


def ratios(over, under):
    """Pair by pair, so that what changes slowly on the machine cancels out."""
    return Spread(a / b for a, b in zip(over, under) if b)


def progress(text):
    """Says on a terminal what is being done now, in one line that the next one replaces."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K  ... {text}" if text else "\r\033[K")
        sys.stderr.flush()
    elif text:
        print(f"  ... {text}", file=sys.stderr, flush=True)
