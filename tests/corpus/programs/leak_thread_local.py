"""Each thread of a pool keeps its own history of what it worked on. Memory: anonymous."""

import concurrent.futures
import threading

from clock import steps

local = threading.local()


def work(number):
    if not hasattr(local, "history"):
        local.history = []
    local.history.append(bytearray(b"t") * (40 << 10))  # leak
    return number


with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for _ in steps(0.1):
        list(pool.map(work, range(4)))
