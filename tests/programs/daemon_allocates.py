"""A daemon that allocates after its first parent has ended, and with it the run.

The daemon writes its pid into the file given once it is a child of another process, allocates and frees until
the seconds given have passed, and then writes "done" behind it.
"""

import os
import sys
import time
from pathlib import Path

report, seconds = Path(sys.argv[1]), float(sys.argv[2])
if os.fork() != 0:
    os._exit(0)
between = os.getpid()
os.setsid()
if os.fork() != 0:
    os._exit(0)
while os.getppid() == between:
    time.sleep(0.001)
with report.open("w", encoding="utf-8") as file:
    file.write(f"{os.getpid()}\n")
end = time.monotonic() + seconds
kept: list[bytes] = []
while time.monotonic() < end:
    kept.append(bytes(1000 + len(kept) % 5000))
    if len(kept) > 10_000:
        del kept[::2]
with report.open("a", encoding="utf-8") as file:
    file.write("done\n")
