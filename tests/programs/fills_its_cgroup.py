"""Holds memory in a list, MiB by MiB, until its version 1 memory cgroup has that many bytes left.

With 0 it never stops. Afterwards it waits for its end.
"""

import sys
import time
from pathlib import Path

left = int(sys.argv[1])
(line,) = (line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line)
group = Path("/sys/fs/cgroup/memory" + line.split(":", 2)[2])
limit = int((group / "memory.limit_in_bytes").read_text())
held = []


def cache() -> None:
    held.append(bytearray(b"x") * (1 << 20))


while left == 0 or int((group / "memory.usage_in_bytes").read_text()) < limit - left:
    cache()
    time.sleep(0.01)
print("full", flush=True)
time.sleep(600)
