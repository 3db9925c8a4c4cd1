"""Waits for the end of its input, then exits 0 or grows until it is killed. With `fork`, a child waits."""

import os
import sys
import time

how = sys.argv[1] if len(sys.argv) > 1 else "exit"
held = [b"x" * (20 << 20)]
if how == "fork" and os.fork():
    os.wait()
    sys.exit(0)
print("ready", os.getpid(), flush=True)
sys.stdin.read()
while how == "grow":
    held.append(b"x" * (1 << 20))
    time.sleep(0.001)
