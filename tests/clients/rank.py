# SPDX-License-Identifier: BSD-2-Clause
"""rank.py MIB DIRECTORY: pins that much for each of its ranks, says so, and ends when DIRECTORY/go is there."""

import os
import sys
import time

mebibytes, directory = int(sys.argv[1]), sys.argv[2]
rank = next(os.environ[name] for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK") if name in os.environ)
block = bytearray((1 + int(rank)) * mebibytes << 20)
with open(os.path.join(directory, f"ready.{rank}"), "w", encoding="ascii") as ready:
    ready.write(f"{os.getpid()}\n")
for _ in range(600):
    if os.path.exists(os.path.join(directory, "go")):
        sys.exit(0)
    time.sleep(0.1)
sys.exit("nobody said go")
