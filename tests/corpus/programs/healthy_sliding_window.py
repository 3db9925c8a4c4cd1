"""A window of the last 200 frames."""

import collections

from clock import steps

window = collections.deque(maxlen=200)
for step in steps(0.1):
    window.append(bytes([step % 256]) * (300 << 10))
