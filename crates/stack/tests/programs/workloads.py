"""Ordinary work with the stack walked, both ways, at every request to Python's allocators."""

import asyncio
import json
import sys
import threading

import probe
from probe import lib

target, native = int(sys.argv[2]), int(sys.argv[3])


def parsing():
    import ast

    for number in range(20):
        tree = ast.parse(
            "\n".join(f"def f{line}(a, b=[{line}]): return a + b * {number}" for line in range(30))
        )
        compile(tree, f"made_{number}.py", "exec")


def serializing():
    data = {f"key{number}": [number, str(number), {"nested": [None, 1.5] * 3}] for number in range(100)}
    assert json.loads(json.dumps(data, indent=1)) == data


def recursing():
    def ackermann(m, n):
        while m:
            m, n = m - 1, ackermann(m, n - 1) if n else 1
        return [n + 1][0]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    ackermann(2, 30)

    def fall(depth):
        kept = [depth] * 3
        return fall(depth - 1) + len(kept) if depth else 0

    fall(900)
    fall(1300)
    sys.setrecursionlimit(limit)


class Picky:
    def __init__(self, depth, fails):
        self.kept = below(depth, fails)

    @property
    def value(self):
        return below(3, False)

    def __getitem__(self, key):
        return below(key, False)


def below(depth, fails):
    """Steps in the middle of a deep stack: calls that return, raise, and are made again."""
    if depth == 0:
        if fails:
            raise ValueError([depth])
        return [depth]
    if depth % 7 == 3:
        return max(below(depth - 1, fails), *[below(depth - 2, False) for _ in range(2)])
    if depth % 7 == 5:
        for failure in (True, False):
            try:
                len((1, 2, below(depth - 1, failure and depth < 12)))
            except ValueError:
                below(0, False)
    return below(depth - 1, fails)


def resumed(depth, values):
    """Resumes a generator that is a local variable: only the loop touches the word above it."""
    try:
        for value in values:
            below(depth, False)
            yield [value]
    except ValueError:
        yield []


def raising(values):
    for value in values:
        yield [value]
        raise ValueError([value])


def stepping():
    def descend(depth):
        if depth:
            return descend(depth - 1)
        for fails in (True, False, False, True):
            try:
                thing = Picky(9, fails)
                thing.value, thing[4]
            except ValueError:
                below(2, False)
        for _ in range(3):
            try:
                for _ in resumed(5, raising(range(3))):
                    below(6, False)
            except ValueError:
                pass
        return [below(13, False), sorted([2, 1], key=lambda number: below(8, False))]

    for depth in (0, 17, 60, 120):
        descend(depth)


class Shape:
    def __init__(self, number, *parts):
        self.number, self.parts = number, [Shape(number + 1)] if number % 3 else list(parts)

    def __lt__(self, other):
        return (self.number, str(self)) < (other.number, str(other))

    def __repr__(self):
        return f"Shape({self.number}, {self.parts!r})"


def objects():
    shapes = sorted(Shape(number % 17) for number in range(60))
    assert str(shapes)


def iterating():
    def walk(depth):
        if depth:
            for value in walk(depth - 1):
                yield [value, depth]
        yield depth

    assert sum(1 for _ in walk(25))
    {name: list(map(str, range(5))) for name in map(str, walk(10))}


def waiting():
    async def work(depth):
        await asyncio.sleep(0)
        return [depth] + (await asyncio.gather(work(depth - 1), work(depth - 2)) if depth > 1 else [])

    asyncio.run(work(7))


def executing():
    for number in range(60):
        space = {}
        exec(
            compile(
                f"def f(n):\n    return [n] * 3 + (f(n - 1) if n else [])\nx = f({number % 7})",
                f"e{number}",
                "exec",
            ),
            space,
        )


def threading_too():
    workers = [threading.Thread(target=work) for work in (serializing, objects, iterating)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


loads = [parsing, serializing, recursing, stepping, objects, iterating, waiting, executing, threading_too]
for load in loads:
    load()  # imports and caches first
probe.check()  # the watch is installed before the allocators are replaced
lib.probe_trace(1, native)
events = 0
while events < target:
    for load in loads:
        load()
    events, different, deepest, native_different = probe.counts(lib.probe_trace_counts, 4)
lib.probe_trace(0, 0)
unwatched = probe.counts(lib.probe_counts, 4)[2]
assert different == 0, f"{different} of {events}"
assert native_different == 0, f"{native_different} native of {events}"
assert deepest > 1300, deepest
assert unwatched == 0, unwatched
version = sys.version.split()[0]
print(f"{version} events={events} different={different} deepest={deepest} unwatched={unwatched}")
