"""Eight threads that work on buffers of their own."""

import concurrent.futures

from clock import steps


def work(number):
    return sum((bytearray(b"w") * (2 << 20))[::4096])


with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for _ in steps(0.2):
        list(pool.map(work, range(8)))
