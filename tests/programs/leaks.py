"""Leaks steadily: the given megabytes per second, in small steps, up to a total."""

import sys
import time

rate, most = int(sys.argv[1]), int(sys.argv[2])
held = []
while len(held) * rate // 20 < most:
    held.append(b"x" * (rate * (1 << 20) // 20))
    time.sleep(0.05)
