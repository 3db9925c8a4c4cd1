"""Many small strings made by C and never freed. Memory: anonymous."""

import ctypes

from clock import steps

libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
word = b"w" * 900


def label():
    for _ in range(150):
        libc.strdup(word)  # leak


for _ in steps(0.1):
    label()
