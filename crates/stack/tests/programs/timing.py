"""Measures the quick walk of unchanged stacks of several depths."""

import sys

from probe import ctypes, lib

version = sys.version.split()[0]
lib.probe_time.restype = ctypes.c_double
lib.probe_time.argtypes = [ctypes.c_uint64]


def down(depth, rounds):
    return down(depth - 1, rounds) if depth else min(lib.probe_time(rounds) for _ in range(5))


for depth in (0, 10, 30, 100, 300, 900):
    nanoseconds = down(depth, 20_000_000 // (depth + 10))
    each = nanoseconds / (depth + 2)
    print(f"{version} {depth + 2:4} frames: {nanoseconds:7.1f} ns, {each:.2f} ns a frame")

lib.probe_native_time.restype = ctypes.c_double


def native(depth, again):
    if depth:
        return next(map(lambda _: native(depth - 1, again), [0]))
    frames = ctypes.c_uint64()
    best = min(lib.probe_native_time(ctypes.c_uint64(200_000), again, ctypes.byref(frames)) for _ in range(5))
    return best, frames.value


for depth in (0, 5, 20):
    for again in (0, 1):
        nanoseconds, frames = native(depth, again)
        what = "unwound from scratch" if again else "kept"
        each = nanoseconds / frames
        print(f"{version} {frames:4} native frames {what}: {nanoseconds:7.1f} ns, {each:.2f} ns a frame")
