"""How much of an unchanged stack is compared, at several depths."""

import sys

from probe import check, ctypes, lib

lib.probe_compared.restype = ctypes.c_uint64


def down(depth):
    if depth:
        return down(depth - 1)
    check()
    return lib.probe_compared()


compared = {depth: down(depth) for depth in (5, 30, 300, 900)}
# Where frames keep the end of their evaluation stack is known for these versions.
if sys.version_info < (3, 14):
    assert compared[5] < 10 and max(compared.values()) <= 40, compared
print(f"{sys.version.split()[0]} {compared}")
