"""`lru_cache` of 100 tiles; every request is another tile."""

import functools

from clock import steps


@functools.lru_cache(maxsize=100)
def tile(number):
    return bytearray(b"t") * (500 << 10)


for step in steps(0.1):
    tile(step)
