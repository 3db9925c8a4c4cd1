"""Reads a file in parts and sums it; `--whole` reads it at once, which a memory gate should catch.

Usage: stormlog run examples/ci/pipeline.py [--whole]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

SIZE = 192 << 20
PART = 8 << 20


def read_parts(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while part := file.read(PART):
            total += part.count(1)
            time.sleep(0.02)
    return total


def read_whole(path: Path) -> int:
    with path.open("rb") as file:
        data = file.read()
    time.sleep(0.5)
    return data.count(1)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "data")
        with path.open("wb") as file:
            for _ in range(SIZE // PART):
                file.write(b"\1" * PART)
        print(read_whole(path) if "--whole" in sys.argv else read_parts(path))


if __name__ == "__main__":
    main()
