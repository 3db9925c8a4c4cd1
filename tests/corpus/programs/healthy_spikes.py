"""Nothing, and now and then 120 MiB for an instant."""

import random

from clock import MIB, steps

random.seed(8)
base = bytearray(b"s") * (40 * MIB)
for _ in steps(0.1):
    if random.random() < 0.04:
        spike = bytearray(b"s") * (120 * MIB)
        del spike
