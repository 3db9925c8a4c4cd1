"""Grows by half at each step, `os.urandom` bytes or, with `numpy`, an array of ones; catches the MemoryError.

    grows_bytes.py bytes|numpy [LIMIT]

With a LIMIT the address space is limited first. Prints how many steps succeeded and the size that failed.
"""

import os
import resource
import sys


def leak_python(size):
    return os.urandom(size)


def leak_numpy(size):
    import numpy

    return numpy.ones(size // 8)


def main():
    grow = leak_numpy if sys.argv[1] == "numpy" else leak_python
    if len(sys.argv) > 2:
        limit = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    size, step, data = 1 << 20, 0, None
    try:
        while True:
            data = None
            data = grow(size)
            step += 1
            size = size * 3 // 2
    except MemoryError:
        print(step, size, flush=True)
    return data


main()
