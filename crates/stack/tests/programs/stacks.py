"""Every kind of Python stack, compared with sys._getframe."""

import asyncio
import ctypes
import functools
import platform
import sys
import threading

import probe
from probe import check, lib, without_gil

version = probe.text(lib.probe_version)
assert version == f"ok {sys.hexversion:x}", version


def plain():
    def inner(depth):
        return (
            check()
            if depth == 0
            else inner(
                depth - 1,
            )
        )

    for depth in (0, 1, 5, 40, 3, 0, 39):
        inner(depth)
        inner(depth) if depth % 2 else [inner(depth) for _ in range(2)]
    (lambda: check())()
    exec("\n\n\ncheck()", {"check": check})


class Thing:
    def __init__(self, how):
        self.ok = how()

    def __eq__(self, other):
        return check()

    @property
    def value(self):
        return check()

    def __del__(self):
        check()


def called_from_c():
    assert all(map(lambda _: check(), range(3)))
    sorted([3, 1, 2], key=lambda value: check() and value)
    functools.reduce(lambda left, right: check(), [1, 2, 3])
    functools.partial(check)()
    thing = Thing(check)
    assert thing == 1
    assert thing.value
    del thing
    callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: int(check()))
    assert callback()
    # one instruction that calls the same function through C and directly
    for call in (check, functools.partial(check), check):
        call()


def generators():
    def numbers(depth):
        yield check()
        if depth:
            yield from numbers(depth - 1)
        yield check()

    assert all(numbers(5))
    waiting = numbers(3)
    next(waiting)
    next(waiting)
    check()
    list(waiting)
    assert all(check() for _ in range(3))
    left, right = numbers(4), numbers(2)
    for _ in zip(left, right, strict=False):
        check()


def coroutines():
    async def leaf(number):
        check()
        await asyncio.sleep(0)
        check()
        return number

    async def branch(depth):
        if depth == 0:
            return await leaf(0)
        results = await asyncio.gather(branch(depth - 1), leaf(depth))
        check()
        return sum(results)

    async def stream():
        for number in range(4):
            await asyncio.sleep(0)
            yield check() and number

    async def main():
        await branch(6)
        async for _ in stream():
            check()
        assert [await leaf(1) async for _ in stream()] == [1] * 4

    asyncio.run(main())


def threads():
    failures = []

    def work(number):
        out = ctypes.create_string_buffer(probe.SIZE)

        def down(depth):
            check(out=out) if depth == 0 else down(depth - 1)

        try:
            for depth in range(number, number + 30):
                down(depth)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]


def without_state_or_gil():
    # a thread Python never heard of has no Python frames
    assert probe.stack(without_gil.probe_walk_on_native_thread) == []
    # without the GIL the chain of this thread is still its own
    for _ in range(3):
        check(without_gil.probe_walk)


def subinterpreters():
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    # ctypes may refuse to be imported there (own GIL); the legacy kind shares ours
    code = "\n".join(
        [
            "import sys",
            f"sys.argv[1:] = {sys.argv[1:]!r}",
            f"sys.path[:] = {sys.path!r}",
            "import probe, threading",
            "def down(depth):",
            "    probe.check() if depth == 0 else down(depth - 1)",
            "for depth in range(5): down(depth)",
            "thread = threading.Thread(target=down, args=(3,))",
            "thread.start(); thread.join()",
            "down(2)",
            "assert probe.checked == 7, probe.checked",
        ]
    )
    if sys.version_info >= (3, 13):
        there = interpreters.create("legacy")
        problem = interpreters.exec(there, code)
        assert problem is None, problem
    else:
        there = interpreters.create(isolated=False)
        interpreters.run_string(there, code)
    check()
    interpreters.destroy(there)
    check()


def reused_code():
    """Code that is freed, its address used again by code with other names and lines."""
    before = probe.counts(lib.probe_counts, 4)
    addresses = set()
    for number in range(1500):
        space = {"check": check, "addresses": addresses}
        lines = "\n" * (number % 7)
        exec(
            compile(
                f"{lines}def name_{number}():\n    return check()\nname_{number}()",
                f"file_{number}.py",
                "exec",
            ),
            space,
        )
        addresses.add(id(space[f"name_{number}"].__code__))
        del space
    assert len(addresses) < 1250, f"hardly an address was used twice: {len(addresses)}"
    after = probe.counts(lib.probe_counts, 4)
    return after[3] - before[3]


def deep():
    def down(depth, stops):
        if depth in stops:
            check()
        if depth:
            down(depth - 1, stops)
        if depth in stops:
            check()

    sys.setrecursionlimit(30000)
    threading.stack_size(512 << 20)
    thread = threading.Thread(target=run_deep, args=(down,))
    thread.start()
    thread.join()
    threading.stack_size(0)
    assert not problems, problems


problems = []


def run_deep(down):
    try:
        down(5000, {0, 1, 7, 300, 600, 900, 2500, 3900, 4300, 4999})
        down(1100, set(range(0, 1100, 13)))
        nodes = []
        for _ in range(2):
            down(5000, set(range(0, 5000, 97)))
            nodes.append(probe.counts(lib.probe_counts, 4)[0])
        # the same shape again is (nearly) the same stacks again, however deep
        assert nodes[0] < 60_000 and nodes[1] - nodes[0] < 300, nodes
        down(20000, {0, 10_000})
    except BaseException as error:
        problems.append(repr(error)[:2000])


plain()
called_from_c()
generators()
coroutines()
threads()
without_state_or_gil()
subinterpreters()
noticed = reused_code()
deep()
unwatched = probe.counts(lib.probe_counts, 4)[2]
lib.probe_unasked.restype = ctypes.c_uint64
if sys.version_info < (3, 14) and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc":
    assert lib.probe_unasked() > probe.checked / 2, "the state of a thread cannot be read here"
lib.probe_without_watch()
reused_code()
plain()
generators()
print(f"{sys.version.split()[0]} checked={probe.checked} noticed={noticed} unwatched={unwatched}")
