"""The hundred most urgent jobs; the rest are dropped."""

import heapq
import random

from clock import steps

random.seed(9)
jobs = []
for step in steps(0.1):
    heapq.heappush(jobs, (random.random(), step, bytearray(b"j") * (400 << 10)))
    if len(jobs) > 100:
        heapq.heappop(jobs)
