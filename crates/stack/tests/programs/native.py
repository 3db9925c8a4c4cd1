"""Native stacks from many places, compared with the C runtime's own unwinder."""

import _ctypes
import contextlib
import ctypes
import importlib
import re
import sys
import threading

import probe
from probe import lib

compared = 0


def same():
    global compared
    compared += 1
    assert lib.probe_native() == 1, probe.text(lib.probe_native_problem)
    return True


def plain():
    for _ in range(3):
        same()
    assert all(map(lambda _: same(), range(3)))
    sorted([3, 1, 2], key=lambda value: same() and value)
    assert re.sub("a", lambda _: str(same()), "banana") == "bTruenTruenTrue"
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda a, b: int(same()) - 1)
    libc = ctypes.CDLL(None)
    libc.qsort((ctypes.c_int * 8)(*range(8)), 8, 4, compare)

    class Nested:
        def __repr__(self):
            return str(same())

        def __del__(self):
            same()

    repr([{"a": (Nested(), [Nested()])}])
    exec("same()", {"same": same})

    class Finder:
        def find_spec(self, name, path, target=None):
            same()

    sys.meta_path.insert(0, Finder())
    with contextlib.suppress(ImportError):
        importlib.import_module("no_such_module")
    del sys.meta_path[0]


def nested(depth):
    """Python through C at every level."""
    return [same() if depth == 0 else list(map(nested, [depth - 1]))]


def in_threads(work):
    problems = []

    def guarded():
        try:
            work()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems[0]


plain()
for depth in (0, 3, 10, 30, 10, 100, 29):
    nested(depth)
in_threads(plain)
for depth in (1, 10, 100, 240, 600, 3000, 100):
    assert lib.probe_native_deep(depth) == 1, probe.text(lib.probe_native_problem)
    same()
for own_stack in (0, 1, 0):
    assert lib.probe_native_in_signal(own_stack) == 1, probe.text(lib.probe_native_problem)
    same()
# libraries come and go
for _ in range(3):
    library = ctypes.PyDLL("libm.so.6")
    lib.probe_refresh()
    plain()
    _ctypes.dlclose(library._handle)
    lib.probe_refresh()
    same()
lib.probe_native_damaged(300_000)
same()
print(f"{sys.version.split()[0]} compared={compared}")
