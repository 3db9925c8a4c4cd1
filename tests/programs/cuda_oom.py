"""Runs out of GPU memory on the stand-in of tests/programs/stand_in: `caught`, `uncaught` or `killed`.

`caught` says how much it has after it dropped what it held, and ends well; `killed` is killed at once. Of
several ranks the first one always catches it.
"""

import os
import signal
import sys
import time

import torch

MB = 1 << 20


def load_cache():
    cache = []
    for _ in range(3):
        cache.append(torch.stand_in.take(64 * MB))
    return cache


def train(held):
    time.sleep(0.3)
    return torch.stand_in.take(128 * MB)


how = sys.argv[1]
if os.environ.get("RANK") == "0":
    how = "caught"
held = load_cache()
if how == "uncaught":
    train(held)
try:
    train(held)
except torch.OutOfMemoryError:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
held.clear()
print("left", torch.allocators[0].current)
print("retry", torch.stand_in.take(128 * MB).size)
