"""Frees every other block of growing sizes: the holes fit nothing, the heap grows. Memory: anonymous."""

import ctypes

from clock import steps

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


def fill(size):
    blocks = [libc.malloc(size) for _ in range(60)]  # leak
    for block in blocks:
        libc.memset(block, 1, size)
    for block in blocks[::2]:
        libc.free(block)


for step in steps(0.1):
    fill(1500 + 16 * step)
