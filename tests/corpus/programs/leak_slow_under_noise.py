"""Loses 250 KiB a second under a working set that breathes by 40 MiB. Memory: anonymous."""

import random

from clock import MIB, steps

lost = []
random.seed(4)


def lose():
    lost.append(bytearray(b"l") * (25 << 10))  # leak


def work():
    return bytearray(b"w") * (random.randrange(5, 45) * MIB)


for _ in steps(0.1):
    held = work()
    lose()
