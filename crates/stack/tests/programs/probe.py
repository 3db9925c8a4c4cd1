"""Loads the probe library and compares what it sees with what Python itself says."""

import ctypes
import sys

lib = ctypes.PyDLL(sys.argv[1])
without_gil = ctypes.CDLL(sys.argv[1])
SIZE = 1 << 20
_out = ctypes.create_string_buffer(SIZE)
checked = 0


def text(function, out=_out):
    length = function(out, ctypes.c_size_t(SIZE))
    assert length <= SIZE, length
    return out.raw[:length].decode()


def stack(function, out=_out):
    """The frames the library sees here, innermost first: (name, file, line, entry); None: hidden ones."""
    lines = text(function, out).splitlines()
    return [
        None if line == "..." else (*line.split("\t")[:2], *map(int, line.split("\t")[2:])) for line in lines
    ]


def expected(frame):
    found = []
    while frame is not None:
        found.append((frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def check(function=None, out=_out):
    """Compares both for this very place, line by line."""
    global checked
    function = function or lib.probe_walk
    seen, want = stack(function, out), expected(sys._getframe())
    seen = [found and found[:3] for found in seen]
    # the library was called below `stack` and `text`
    assert [found[0] for found in seen[:2]] == ["text", "stack"], seen[:3]
    if None in seen:
        cut = seen.index(None)
        bottom = seen[cut + 1 :]
        assert len(want) + 2 > len(seen), (len(want), len(seen))
        assert seen[2:cut] == want[: cut - 2], "the top differs"
        assert bottom == want[len(want) - len(bottom) :], "the bottom differs"
    else:
        assert seen[2:] == want, "\n".join(map(str, ["seen", *seen[2:], "expected", *want]))
    checked += 1
    return True


def counts(function, number):
    values = [ctypes.c_uint64() for _ in range(number)]
    function(*map(ctypes.byref, values))
    return [value.value for value in values]
