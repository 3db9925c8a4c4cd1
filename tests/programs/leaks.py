"""Leaks steadily: so many megabytes a second, in small steps, up to so many in all."""

import sys
import time

rate, most = int(sys.argv[1]), int(sys.argv[2])
held = []
while len(held) * rate // 20 < most:
    held.append(b"x" * (rate * (1 << 20) // 20))
    time.sleep(0.05)
