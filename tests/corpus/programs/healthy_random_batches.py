"""Batches of 1 to 60 MiB, one at a time."""

import random

from clock import MIB, steps

random.seed(6)
for _ in steps(0.1):
    batch = bytearray(b"b") * (random.randrange(1, 60) * MIB)
    del batch
