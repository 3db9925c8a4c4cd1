"""Programs that load a heap profiler in one way each, after the kinds Memray's own benchmarks name.

    python workloads.py NAME [SCALE]

prints one JSON line: CPU and wall seconds of the workload alone, without start-up; memory and address space
at its end; nanoseconds from BENCH_BEGUN_NS until it began. Scale 1 lasts about a second; `mt_native` a
quarter of one, because its 24 million pairs of malloc and free are enough. Nothing here is random from run
to run.
"""

# ruff: noqa: D102, D103 - the name of a workload says what it does

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import pickle
import re
import resource
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path


class Constraint:
    """One-way equality between two cells: many tiny methods, few allocations."""

    __slots__ = ("left", "right", "strength")

    def __init__(self, left: list[int], right: list[int], strength: int) -> None:
        self.left, self.right, self.strength = left, right, strength

    def holds(self) -> bool:
        return self.left[0] == self.right[0]

    def apply(self) -> None:
        self.right[0] = self.left[0]


def deltablue(scale: int) -> None:
    for turn in range(360 * scale):
        cells = [[value] for value in range(500)]
        chain = [Constraint(a, b, turn % 3) for a, b in pairwise(cells)]
        for value in range(60):
            cells[0][0] = value
            for link in chain:
                if not link.holds():
                    link.apply()


def raytrace(scale: int) -> None:
    class Vector:
        __slots__ = ("x", "y", "z")

        def __init__(self, x: float, y: float, z: float) -> None:
            self.x, self.y, self.z = x, y, z

        def minus(self, other: Vector) -> Vector:
            return Vector(self.x - other.x, self.y - other.y, self.z - other.z)

        def dot(self, other: Vector) -> float:
            return self.x * other.x + self.y * other.y + self.z * other.z

    centres = [Vector(i - 3.0, (i % 3) - 1.0, 6.0 + i) for i in range(7)]
    origin = Vector(0.0, 0.0, 0.0)
    for _ in range(30 * scale):
        for row in range(90):
            for column in range(90):
                ray = Vector(column / 45 - 1, row / 45 - 1, 1.0)
                for centre in centres:
                    between = centre.minus(origin)
                    along = between.dot(ray) / ray.dot(ray)
                    between.dot(between) - along * along * ray.dot(ray)


def go(scale: int) -> None:
    size = 13

    def liberties(board: list[int], start: int) -> int:
        seen, found, pending = {start}, set(), [start]
        while pending:
            at = pending.pop()
            for step in (-1, 1, -size, size):
                to = at + step
                if 0 <= to < len(board) and to not in seen:
                    if board[to] == board[start]:
                        seen.add(to)
                        pending.append(to)
                    elif board[to] == 0:
                        found.add(to)
        return len(found)

    for turn in range(8000 * scale):
        board, state = [0] * (size * size), 12345 + turn
        for stone in range(120):
            state = (state * 1103515245 + 12345) % 2**31
            at = state % len(board)
            if board[at] == 0:
                board[at] = 1 + stone % 2
                if liberties(board, at) == 0:
                    board[at] = 0


def mdp(scale: int) -> None:
    states = 300
    moves = [
        [((s * 7 + a * 13) % states, (s + a) % states, 0.3 + a * 0.2) for a in range(3)]
        for s in range(states)
    ]
    for _ in range(28 * scale):
        values = [0.0] * states
        for _sweep in range(180):
            values = [
                max(p * values[x] + (1 - p) * values[y] - s % 5 for x, y, p in moves[s]) * 0.95
                for s in range(states)
            ]


DOCUMENT = json.dumps(
    [{"id": i, "name": f"user {i}", "tags": ["a", "b" * (i % 40)], "score": i / 7} for i in range(300)]
)


def json_loads(scale: int) -> None:
    for _ in range(4500 * scale):
        json.loads(DOCUMENT)


def json_dumps(scale: int) -> None:
    value = json.loads(DOCUMENT)
    for _ in range(2800 * scale):
        json.dumps(value)


def async_tree(scale: int) -> None:
    async def node(depth: int) -> int:
        if depth == 0:
            await asyncio.sleep(0)
            return 1
        return sum(await asyncio.gather(*(node(depth - 1) for _ in range(6))))

    for _ in range(80 * scale):
        asyncio.run(node(4))


def pickle_dumps(scale: int) -> None:
    value = json.loads(DOCUMENT)
    for _ in range(20_000 * scale):
        pickle.dumps(value)


def unpickle(scale: int) -> None:
    text = pickle.dumps(json.loads(DOCUMENT))
    for _ in range(10_000 * scale):
        pickle.loads(text)


def docutils(scale: int) -> None:
    from docutils.core import publish_string

    section = (
        "Title {0}\n========\n\nSome *text* with ``code`` and a list:\n\n"
        "- one `link <http://x.y/{0}>`_\n- two\n\n"
        "+---+---+\n| a | b |\n+---+---+\n\n"
    )
    source = "".join(section.format(i) for i in range(30))
    for _ in range(26 * scale):
        publish_string(source, writer="html5", settings_overrides={"report_level": 5})


def regex(scale: int) -> None:
    text = DOCUMENT * 3
    patterns = [
        re.compile(p)
        for p in (r'"name": "([^"]+)"', r"\d+\.\d+", r"(a|b)+", r"[^\s,]+", r'"tags": \[[^\]]*\]')
    ]
    for _ in range(100 * scale):
        for pattern in patterns:
            for match in pattern.finditer(text):
                match.group(0)
            pattern.sub("x", text)


def sqlite(scale: int) -> None:
    base = sqlite3.connect(":memory:")
    base.create_function("twice", 1, lambda value: value * 2)
    base.execute("create table t (id integer primary key, name text, score real)")
    for turn in range(320 * scale):
        rows = ((None, f"name {i * 7919 % 1000}", i / 3) for i in range(500))
        base.executemany("insert into t values (?, ?, ?)", rows)
        base.execute(
            "select name, count(*), sum(twice(score)) from t group by name order by 3 desc limit 20"
        ).fetchall()
        for i in range(200):
            base.execute(f"select * from t where id = {i + turn} and name <> 'x{i}'").fetchone()
        base.execute("delete from t where id % 3 = ?", (turn % 3,))
    base.close()


def numpy_loop(scale: int) -> None:
    import numpy

    for turn in range(180_000 * scale):
        a = numpy.ones(50 + turn % 100)
        b = numpy.concatenate([a, a * 2.0])
        (b.copy() + 1.0).sum()
        if turn % 50 == 0:
            numpy.zeros(1 << 18)


def alloc_py(scale: int) -> None:
    def deep(frames: int) -> None:
        if frames:
            deep(frames - 1)
            return
        for _ in range(8_000_000 * scale):
            _ = [None] * 100

    deep(30)


MT_SOURCE = """
#include <stdlib.h>
#include <string.h>
void churn(long pairs) {
    void *held[64];
    memset(held, 0, sizeof held);
    for (long i = 0; i < pairs; i++) {
        free(held[i & 63]);
        held[i & 63] = malloc(16 + (i * 31) % 1000);
    }
    for (int i = 0; i < 64; i++) free(held[i]);
}
"""


def mt_native(scale: int) -> None:
    folder = Path(tempfile.gettempdir()) / f"stormlog-bench-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    library = folder / "churn.so"
    if not library.exists():
        source = folder / "churn.c"
        source.write_text(MT_SOURCE)
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        # The compiler must not inherit the profiler.
        clean = {
            key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "STORMLOG_HEAP")
        } | {"STORMLOG_HEAP": ""}
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", "-fno-builtin", str(source), "-o", str(library)],
            check=True,
            env=clean,
        )
    churn = ctypes.CDLL(str(library)).churn
    churn.argtypes = [ctypes.c_long]
    threads = [threading.Thread(target=churn, args=(6_000_000 * scale,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def nothing(scale: int) -> None:
    pass


def imports(scale: int) -> None:
    import pandas  # noqa: F401
    import scipy.optimize
    import scipy.signal
    import scipy.stats  # noqa: F401


WORKLOADS: dict[str, Callable[[int], None]] = {
    work.__name__: work
    for work in (
        deltablue, raytrace, go, mdp, json_loads, json_dumps, async_tree, pickle_dumps, unpickle, docutils,
        regex, sqlite, numpy_loop, alloc_py, mt_native, imports, nothing,
    )
}  # fmt: skip


def main() -> None:
    start = time.time_ns() - int(os.environ.get("BENCH_BEGUN_NS", time.time_ns()))
    work = WORKLOADS[sys.argv[1]]
    scale = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    work(scale)
    after, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - wall
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    figures = {"cpu": cpu, "wall": wall, "rss_kb": after.ru_maxrss, "vm_kb": pages * 4, "start": start}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
