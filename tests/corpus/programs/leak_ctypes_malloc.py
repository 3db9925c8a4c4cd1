"""A C library whose results are never freed. Memory: anonymous."""

import ctypes

from clock import steps

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


def native_result():
    address = libc.malloc(96 << 10)  # leak
    libc.memset(address, 7, 96 << 10)
    return address


for _ in steps(0.1):
    native_result()
