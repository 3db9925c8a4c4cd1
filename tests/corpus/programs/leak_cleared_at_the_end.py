"""Keeps everything, and lets go of it a moment before it ends. Memory: anonymous."""

import time

from clock import MIB, steps

keep = []
for _ in steps(0.1, 15):
    keep.append(bytearray(b"k") * MIB)  # leak
keep.clear()
time.sleep(0.25)
