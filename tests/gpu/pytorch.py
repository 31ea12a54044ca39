# SPDX-License-Identifier: BSD-2-Clause
"""PyTorch, where some python here has it."""

import os
import shutil
import sys

import answers
from common import NotMeasured

CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_child.py")
REGISTERING = "pinned_use_cuda_host_register:True"


def python(place):
    """The first python that has PyTorch, or None."""
    names = (sys.executable, shutil.which("python3"), shutil.which("python"))
    for candidate in dict.fromkeys(filter(None, names)):
        found = place.run([candidate, "-c", "import importlib.util as u, sys;"
                                            "sys.exit(u.find_spec('torch') is None)"], timeout=20)
        if found.status == 0:
            return candidate
    return None


def part(place, out, rows):
    """Both of its ways to pin, where PyTorch is there; found is added to rows."""
    if place.fakes:
        out.note("PyTorch: not with the fakes")
        return
    with_torch = python(place)
    if not with_torch:
        out.note("PyTorch: not installed for any python here")
        return
    for name, more in (("torch", {}), ("torch, registering", {"PYTORCH_CUDA_ALLOC_CONF": REGISTERING})):
        found, both = answers.ask(place, name, [with_torch, CHILD], timeout=40, LD_LIBRARY_PATH=place.own_path(), **more)
        out.rows(found)
        for ended in both:
            if ended and ended.status:
                out.fail(name, NotMeasured(ended.why()))
        rows += found
