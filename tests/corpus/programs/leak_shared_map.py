"""Anonymous shared maps for children that ended long ago. Memory: shared."""

import mmap

from clock import steps

maps = []


def arena(number):
    area = mmap.mmap(-1, 200 << 10)  # leak
    area.write(b"s" * (200 << 10))
    return area


for step in steps(0.15):
    maps.append(arena(step))
