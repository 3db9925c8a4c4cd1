"""Buffers of requests that end when they end."""

import random

from clock import steps

random.seed(3)
open_requests = []
for _ in steps(0.1):
    open_requests.append(bytearray(b"q") * (random.randrange(100, 900) << 10))
    if random.random() < 0.03 or len(open_requests) > 150:
        open_requests.clear()
