"""A native buffer of private pages for each file, never unmapped. Memory: anonymous."""

import mmap

from clock import steps

buffers = []


def read_file():
    area = mmap.mmap(-1, 128 << 10, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # leak
    area.write(b"f" * (128 << 10))
    return area


for _ in steps(0.1):
    buffers.append(read_file())
