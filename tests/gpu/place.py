# SPDX-License-Identifier: BSD-2-Clause
"""The GPU, CUDA's libraries, and running a program with them, plain or under the shim."""

import ctypes
import glob
import json
import os
import re
import resource
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time

import common
from common import NotMeasured

FAKES = os.path.join(common.BUILD, "tests", "fakes")
RUNTIMES = (13, 12)
DRIVER = "libcuda.so.1"


class NoGpu(Exception):
    """There is none here; the text says how that is known."""


class Hung(NotMeasured):
    """A program had to be ended; output is what it had printed."""

    def __init__(self, text, output):
        super().__init__(text)
        self.output = output


# ---- run in a process of its own, for a driver may hang or end it ------------------------------

def ask_driver():
    """Prints what the driver says about itself."""
    def call(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        if result:
            raise OSError(f"{name} gives error {result}")

    try:
        cuda = ctypes.CDLL(DRIVER)
        count, number, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
        call("cuInit", 0)
        call("cuDeviceGetCount", ctypes.byref(count))
        call("cuDriverGetVersion", ctypes.byref(number))
        about = {"devices": count.value, "cuda_driver": number.value, "gpu": "?", "driver": "?"}
    except (OSError, AttributeError) as why:
        print(json.dumps({"error": str(why)}))
        return
    try:
        call("cuDeviceGetName", name, len(name), 0)
        about["gpu"] = name.value.decode()
    except (OSError, AttributeError):
        pass
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(name, len(name)) == 0:
            about["driver"] = name.value.decode()
    except (OSError, AttributeError):
        pass
    print(json.dumps(about))


# ---- where the libraries are -------------------------------------------------------------------

def directories():
    """Where a CUDA runtime may be, the likeliest first."""
    found = []
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            found += [f"{home}/lib64", f"{home}/lib", *glob.glob(f"{home}/targets/*/lib")]
    found += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    try:
        listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False)
        found += [os.path.dirname(path) for path in re.findall(r"libcudart\.so\S* .*=> (\S+)", listed.stdout)]
    except OSError:
        pass
    for packages in [*site.getsitepackages(), site.getusersitepackages(), *sys.path]:
        for inside in ("nvidia/cuda_runtime/lib", "nvidia/cu13/lib", "torch/lib"):
            found.append(os.path.join(packages, inside))
    return [directory for directory in dict.fromkeys(found) if directory and os.path.isdir(directory)]


def find_runtime(driver):
    """Version and path of the newest CUDA runtime that this driver (12040 is 12.4) can serve."""
    where = directories()
    for version in RUNTIMES:
        for directory in where:
            path = os.path.join(directory, f"libcudart.so.{version}")
            if os.path.exists(path) and driver >= 1000 * version:
                return version, os.path.realpath(path)
    raise NotMeasured("no libcudart.so.12 or .13 that the driver can serve was found: set CUDA_HOME")


def driver_directory():
    """Where libcuda.so.1 is if the dynamic linker does not find it by itself; else nothing."""
    try:
        ctypes.CDLL(DRIVER)
        return []
    except OSError:
        likely = ["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"]
        return [directory for directory in likely if os.path.exists(os.path.join(directory, DRIVER))][:1]


# ---- running -----------------------------------------------------------------------------------

class Ended:
    """How a program ended: status (negative: the signal), output, errors, and the shim's report."""

    def __init__(self, status, output, errors, report):
        self.status, self.output, self.errors, self.report = status, output, errors, report

    def why(self):
        said = self.errors.strip().splitlines() or self.output.strip().splitlines()
        return f"status {self.status}: {said[-1] if said else 'said nothing'}"


class Place:
    """Everything that a part of the check needs to know. close() when done."""

    def __init__(self, fakes, preload, deadline):
        self.fakes, self.preload, self.deadline = fakes, preload, deadline
        self.directory = tempfile.mkdtemp(prefix="pinshim-gpu-")
        self.children = []
        self.libraries = []
        self.path = [FAKES] if fakes else [*driver_directory(),
                                           *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))]

    def open(self):
        """Asks the driver and finds the runtime. NoGpu, NotMeasured."""
        asked = self.run([sys.executable, "-B", "-c", "import place; place.ask_driver()"], timeout=30,
                         PYTHONPATH=os.pathsep.join(sys.path))
        try:
            self.about = json.loads(asked.output)
        except ValueError:
            raise NoGpu(f"asking {DRIVER} ended with {asked.why()}") from None
        if "error" in self.about or self.about["devices"] == 0:
            raise NoGpu(self.about.get("error", "the driver has no device"))
        if self.fakes:
            self.version, runtime = RUNTIMES[0], os.path.join(FAKES, "libcudart.so.13")
        else:
            self.version, runtime = find_runtime(self.about["cuda_driver"])
            # That library, and nothing else of where it is.
            os.symlink(runtime, os.path.join(self.directory, f"libcudart.so.{self.version}"))
            self.path.insert(0, self.directory)
        self.about["runtime"] = runtime
        soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        self.about["memlock"] = "unlimited" if soft == resource.RLIM_INFINITY else soft

    def close(self):
        for child in self.children:
            self.kill(child)
        shutil.rmtree(self.directory, ignore_errors=True)

    @staticmethod
    def kill(child):
        """With the children that it may have: it leads a group of its own. Again is allowed."""
        if child.returncode is not None:
            return
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()

    def left(self):
        return self.deadline - time.monotonic()

    def program(self, name):
        path = os.path.join(common.BUILD, "tests", "gpu", str(self.version), name)
        if not os.path.exists(path):
            raise NotMeasured(f"{os.path.relpath(path, common.ROOT)} is not built")
        return path

    def own_path(self):
        """LD_LIBRARY_PATH for programs that bring a runtime of their own."""
        return ":".join(self.path[1:])

    def environment(self, shim, **more):
        variables = common.clean_environment() | {"LD_LIBRARY_PATH": ":".join(self.path)} | more
        if self.fakes:
            variables.setdefault("FAKE_CUDA_LEAKS", "off")
        if shim:
            variables |= {"LD_PRELOAD": self.preload, "PINSHIM_STATS": os.path.join(self.directory, "report.%p")}
        return variables

    def start(self, arguments, shim=False, errors=None, **more):
        """Starts a program that is killed at the end at the latest."""
        child = subprocess.Popen(  # pylint: disable=consider-using-with
            arguments, env=self.environment(shim, **more), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors or subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        self.children.append(child)
        return child

    def run(self, arguments, shim=False, timeout=60, **more):
        """Runs a program to its end. Hung when it takes too long, NotMeasured when the check as a whole does."""
        name = os.path.basename(arguments[0])
        left = self.left()
        if left < 1:
            raise NotMeasured(f"{name}: the time is used up")
        child = self.start(arguments, shim, **more)
        try:
            output, errors = child.communicate(timeout=min(timeout, left))
        except subprocess.TimeoutExpired:
            self.kill(child)
            output, errors = child.communicate()
            if left < timeout:
                raise NotMeasured(f"{name}: the time is used up") from None
            raise Hung(f"{name} hangs and was ended after {timeout:.0f} s", output) from None
        finally:
            self.kill(child)
            self.children.remove(child)
        return Ended(child.returncode, output, errors, self.report(child.pid) if shim else None)

    def report(self, pid):
        """The shim's report of a process, or nothing."""
        try:
            with open(os.path.join(self.directory, f"report.{pid}"), encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            return None
