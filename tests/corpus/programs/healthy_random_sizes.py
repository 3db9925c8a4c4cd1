"""A working set of 200 blocks of random sizes, each replaced at random."""

import random

from clock import steps

random.seed(5)
blocks = [bytearray(1) for _ in range(200)]
for _ in steps(0.1):
    for _ in range(10):
        blocks[random.randrange(200)] = bytearray(b"z") * random.randrange(1 << 10, 600 << 10)
