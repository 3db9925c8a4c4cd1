"""Time and memory of the pass over what keeps a program's memory, at millions of objects.

python bench/heap/retention.py [MILLIONS ...]: builds that many million objects of the collector (lists,
tuples, dictionaries, plain and slotted instances), has the recording library look, once on a fresh heap and
once after a collection, and prints wall time, processor time and what was found.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from stormlog import _native


class Slotted:
    """Without a dictionary."""

    __slots__ = ("first", "second")
    first: list[int]
    second: tuple[int, list[int]]


class Plain:
    """With one."""

    def __init__(self, part: object) -> None:
        self.part = part
        self.parts = [part]


def build(count: int) -> list[object]:
    """Objects in groups of eight."""
    out: list[object] = []
    for number in range(count // 8):
        slotted = Slotted()
        slotted.first, slotted.second = [number], (number, [number])
        plain = Plain(slotted)
        out.append(plain)
        out.append({"key": [number], "plain": plain})
    return out


def look(directory: Path, word: str) -> None:
    """One pass."""
    wall, cpu = time.perf_counter(), time.thread_time()
    assert _native.heap.report_retained("request", directory)
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    report = json.loads((directory / f"retained-{os.getpid()}.json").read_text())
    first = report["held"][0]
    print(
        f"{word:<10} {report['objects'] / 1e6:5.2f} M objects  wall {wall:6.3f} s  cpu {cpu:6.3f} s  "
        f"complete {report['complete']}  {first['bytes'] / 2**20:.0f} MiB {first['kept_by']}"
    )


def main() -> None:
    """For each number of objects."""
    os.environ.setdefault("STORMLOG_WHY", "30000")
    gc.disable()
    for millions in [float(word) for word in sys.argv[1:]] or [1.0, 5.0]:
        kept = build(int(millions * 1e6))
        with tempfile.TemporaryDirectory() as directory:
            look(Path(directory), "fresh")
            gc.collect()
            look(Path(directory), "collected")
        del kept
        gc.collect()


if __name__ == "__main__":
    main()
