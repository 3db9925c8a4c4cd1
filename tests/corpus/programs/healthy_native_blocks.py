"""A C library whose results are freed."""

import collections
import ctypes

from clock import steps

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
results = collections.deque()
for _ in steps(0.1):
    address = libc.malloc(600 << 10)
    libc.memset(address, 7, 600 << 10)
    results.append(address)
    if len(results) > 40:
        libc.free(results.popleft())
