"""A cache of 120 entries that evicts at random."""

import random

from clock import steps

cache = {}
random.seed(2)


def fetch(key):
    if len(cache) >= 120:
        del cache[random.choice(list(cache))]
    cache[key] = bytearray(b"r") * (400 << 10)


for step in steps(0.1):
    fetch(step)
