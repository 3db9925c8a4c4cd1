"""Keeps blocks from one line until something kills it; says so when the first few are there.

    keeps_growing.py [BLOCKS]

With a number it stops growing there, prints it and waits to be killed.
"""

import sys
import time


class Cache:
    def __init__(self):
        self.kept = []

    def put(self):
        self.kept.append(bytearray(1 << 20))


def main():
    cache = Cache()
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 30
    for _ in range(most):
        cache.put()
    print(most, flush=True)
    time.sleep(600)


main()
