"""Six ranks of one job on one machine, started as a launcher would; rank 3 keeps 320 MB more than the others.

Usage: stormlog run examples/ranks.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

RANKS = 6
MEGABYTE = 1 << 20


def dispatch(tokens: int) -> bytearray:
    return bytearray(b"\1") * (tokens * MEGABYTE)


def train(rank: int) -> None:
    model = bytearray(b"\1") * (40 * MEGABYTE)
    batch = dispatch(320 if rank == 3 else 8)
    time.sleep(2)
    del model, batch


def main() -> None:
    if "RANK" in os.environ:
        return train(int(os.environ["RANK"]))
    started = []
    for rank in range(RANKS):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
        started.append(subprocess.Popen([sys.executable, __file__], env={**os.environ, **place}))
    for process in started:
        process.wait()
    return None


if __name__ == "__main__":
    main()
