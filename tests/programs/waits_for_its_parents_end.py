"""Waits until the process that started it is gone, and dies: raising, or growing until it is killed."""

import os
import sys
import time

how, parent = sys.argv[1], os.getppid()
held = [b"x" * (20 << 20)]
print("ready", flush=True)
while os.getppid() == parent:
    time.sleep(0.01)
if how == "raise":
    raise RuntimeError("the loss is nan")
while True:
    held.append(b"x" * (1 << 20))
    time.sleep(0.005)
