"""Python and native frames in one stack, in true order."""

import asyncio
import ctypes
import functools
import sys

import probe
from probe import lib

checked = 0
outermost = ""


def merged():
    global checked, outermost
    head, *lines = probe.text(lib.probe_merged).splitlines()
    want = [name for name, _, _ in probe.expected(sys._getframe())]
    evaluations, entries = map(int, head.split())
    # every activation of the interpreter's function is one frame that C called, and the other way round;
    # unless the function was stripped of its name
    assert evaluations in (entries, 0) and entries > 0, (head, lines)
    stripped.append(evaluations == 0)
    python = [line[2:] for line in lines if line.startswith("P ")]
    assert python[1:] == want, (python, want)  # below `probe.text`
    assert not any("EvalFrameDefault" in line for line in lines), lines
    assert lines[0].startswith("N probe_merged\t"), lines[0]
    checked += 1
    outermost = lines[-1]
    return lines


def between(lines, inner, outer):
    """The native functions between two Python frames."""
    start = lines.index(f"P {inner}")
    end = lines.index(f"P {outer}", start)
    assert all(line.startswith("N ") for line in lines[start + 1 : end]), lines[start : end + 1]
    return [line[2:].split("\t")[0] for line in lines[start + 1 : end]]


def key(_):
    found.append(merged())
    return 0


def main():
    sorted([2, 1], key=key)
    sorted([2, 1], key=functools.partial(key))
    list(map(key, [1]))
    key(1)
    libc = ctypes.CDLL(None)
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda a, b: key(0))
    libc.qsort((ctypes.c_int * 2)(2, 1), 2, 4, compare)


async def coroutine():
    await asyncio.sleep(0)
    key(1)


def generator():
    yield key(1)
    yield from map(key, [2])


found = []
stripped = []
main()
assert len(set(stripped)) == 1, stripped
if not stripped[0]:
    assert "qsort" in " ".join(between(found[-1], "main.<locals>.<lambda>", "main")), found[-1]
    assert between(found[0], "key", "main")
    assert between(found[5], "key", "main") == [], found[5]
asyncio.run(coroutine())
list(generator())


class Thing:
    def __init__(self):
        key(1)

    def __getattr__(self, name):
        return key(1)


assert Thing().missing == 0
exec("key(1)")
assert outermost.startswith("P <module>" if stripped[0] else "N _start"), outermost
print(f"{sys.version.split()[0]} checked={checked} stripped={stripped[0]}")
